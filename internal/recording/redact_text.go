package recording

import (
	"encoding/hex"
	"net/netip"
	"strings"
)

// text replaces what isn't known to be harmless in a text that runtimes write for
// people: each word that is not one of theirs, an id or a small number. A name gets the
// word that it has everywhere else, an address likewise.
func (r *Redactor) text(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		n := strings.IndexFunc(s, inWord)
		if n < 0 {
			n = len(s)
		}
		b.WriteString(separators(s[:n]))
		s = s[n:]
		n = strings.IndexFunc(s, func(c rune) bool { return !inWord(c) })
		if n < 0 {
			n = len(s)
		}
		word := strings.TrimRight(s[:n], ".:-/_@")
		if word == "" {
			word = s[:n]
		}
		b.WriteString(r.spoken(word))
		b.WriteString(s[len(word):n])
		s = s[n:]
	}
	return b.String()
}

// inWord is for what names, paths, images and addresses are made of.
func inWord(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._:/@-", c)
}

// separators lets ASCII through: what else is between words is no separator.
func separators(s string) string {
	return strings.Map(func(c rune) rune {
		if c > '~' || c < ' ' {
			return '?'
		}
		return c
	}, s)
}

// spoken returns what takes the place of a word in a text.
func (r *Redactor) spoken(word string) string {
	switch {
	case harmless[strings.ToLower(word)] || isID(word) || len(word) <= 5 && strings.Trim(word, "0123456789") == "":
		return word
	case strings.Trim(word, "._:/@-") == "":
		return word
	}
	if _, err := netip.ParseAddr(word); err == nil {
		return r.address(word)
	}
	return r.word(word)
}

// isID reports whether a word is an id of a runtime or a UID, or the beginning of one as
// runtimes shorten it: those are kept, since nothing could be told apart without.
func isID(word string) bool {
	digits := strings.ReplaceAll(word, "-", "")
	switch len(digits) {
	case 12, 13, 32, 64:
		_, err := hex.DecodeString((digits + "0")[:len(digits)+len(digits)%2])
		return err == nil
	}
	return false
}

// harmless are the words that gRPC, Go and runtimes make their errors and messages of.
var harmless = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(`
		a after all already an and any are as at back-off be been before but by can cannot can't could did does doesn't don't
		for from has have if in into is it its no not of off on one only or out over than that the there this to too up was
		were when while with within without yet
		aborted access address already_exists bad begin broken call called canceled cancelled cancel closed closing code completed
		command config connect connecting connection container containercannotrun containers context cri create created creating cause daemon
		data deadline delete deleted deleting denied desc dial dialing directory does eof empty end ended error errors event events
		exceeded exec execute executing exists exit exited exitcode expired fail failed failing failure fatal file found full get
		getting goaway grpc handshake http http2 i/o id image init input internal invalid io kill killed label labels larger
		limit list listing lost max memory message method missing mount name namespace network new nil non-zero notfound
		not_found null oci oom oomkilled open operation output panic path peer permission permitted pid pipe plugin pod
		pods preface process pull pulling quota rate reached read reading ready received refused remove removed removing request
		reserved reset resource resources response retry root rpc run running runc runtime runtime.v1.runtimeservice
		runtimeservice sandbox sandboxes sandboxid send server service setup shim shutdown signal size socket start started starterror
		starting state status stop stopped stopping store stream such syscall system task temporarily terminated time timed
		timeout transport try trying ttrpc unable unavailable unexpected unimplemented unix unknown unmarshal unsupported use
		used user value version wait waiting write writing wrong
		getcontainerevents listcontainers listpodsandbox streamcontainers streampodsandboxes podsandboxstatus containerstatus`) {
		m[w] = true
	}
	return m
}()
