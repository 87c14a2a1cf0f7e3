package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// When output is coloured.
const (
	colorAuto   = "auto" // on a terminal
	colorAlways = "always"
	colorNever  = "never"
)

// isTerminal reports whether people read what is written, as it is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) //nolint:gosec // a descriptor fits
}

// colorFlag adds --color.
func colorFlag(cmd *cobra.Command, p *string) {
	*p = colorAuto
	choiceFlag(cmd, p, "color", "colour the output: auto does on a terminal, unless NO_COLOR is set", colorAuto, colorAlways, colorNever)
}

// colored decides whether to write colours: see https://no-color.org.
func colored(when string, std streams) bool {
	switch when {
	case colorAlways:
		return true
	case colorNever:
		return false
	default:
		return isTerminal(std.out) && std.getenv("NO_COLOR") == "" && std.getenv("TERM") != "dumb"
	}
}

// color is how a cell is to stand out; the zero color is as all the rest.
type color string

// The colours: eight-colour codes, which every terminal has and themes adapt.
const (
	plain  color = ""
	good   color = "32" // green
	waits  color = "33" // yellow
	bad    color = "31" // red
	faint  color = "2"
	strong color = "1"
)

// paint returns text in a colour if colours are on.
func paint(text string, c color, on bool) string {
	if !on || c == plain {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// stateColor is that of the state of a sandbox or container.
func stateColor(state string) color {
	switch state {
	case "ready", "running":
		return good
	case "created":
		return waits
	case "notready", "exited":
		return bad
	case "removed":
		return faint
	}
	return plain
}

// harmless makes JSON safe for a terminal, and for YAML: the encoder leaves the
// control characters from U+007F to U+009F as they are, of which terminals obey
// some and which YAML doesn't have. What is read back from it is the same.
func harmless(jsonText []byte) []byte {
	if bytes.IndexFunc(jsonText, isRaw) < 0 {
		return jsonText
	}
	var b bytes.Buffer
	for _, r := range string(jsonText) {
		if isRaw(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.Bytes()
}

// isRaw reports what only an escape can stand for. It is in strings only.
func isRaw(r rune) bool { return r >= 0x7f && r <= 0x9f || r == 0xfffe || r == 0xffff }
