package cri

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds on what one message can make the agent keep, in bytes unless said
// otherwise. They are far above what Kubernetes allows and far below what
// would hurt: a status may fill a message of 16 MiB, and a journal entry
// carries the labels again each time.
const (
	maxID       = 512      // an id has 64; longer ones are no ids
	maxName     = 1 << 10  // names have at most 253
	maxImage    = 4 << 10  // a reference with a long registry path and a digest
	maxReason   = 1 << 10  // one word in practice
	maxExitText = 8 << 10  // the kubelet cuts termination messages at 4 KiB
	maxLabels   = 16 << 10 // keys and values together
	maxIP       = 64       // an IPv6 address with a zone
	maxIPs      = 16       // addresses of one sandbox
	maxRest     = 1 << 20  // annotations of a pod may have 256 KiB
)

// text returns s as valid UTF-8 of at most limit bytes, cut between runes.
func text(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
		for i := 1; i <= utf8.UTFMax && i <= len(s); i++ { // don't leave half a rune
			if utf8.RuneStart(s[len(s)-i]) {
				if !utf8.FullRuneInString(s[len(s)-i:]) {
					s = s[:len(s)-i]
				}
				break
			}
		}
	}
	if utf8.ValidString(s) {
		return strings.Clone(s) // a part of a big string would keep all of it alive
	}
	return text(strings.ToValidUTF8(s, "\ufffd"), limit)
}

// validID returns an id as it is. ok is false for what can't be one: an id
// must not be cut or mended, since it would name something else then.
func validID(s string) (id string, ok bool) {
	return strings.Clone(s), s != "" && len(s) <= maxID && utf8.ValidString(s)
}

// labels returns a copy of m within bounds. Where they don't all fit, the
// first by key stay, so that the same labels always give the same answer.
func labels(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	room := maxLabels
	for _, k := range slices.Sorted(maps.Keys(m)) {
		key, value := text(k, maxName), text(m[k], maxImage)
		if room -= len(key) + len(value); room < 0 {
			break
		}
		if _, dup := out[key]; !dup {
			out[key] = value
		}
	}
	return out
}

// moment returns the time of an entity, 0 where none is said. containerd's
// sandbox DELETED carries Go's zero time, -6795364578871345152 ns.
func moment(ns int64) int64 { return max(ns, 0) }
