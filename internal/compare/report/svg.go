package report

import (
	"fmt"
	"html"
	"html/template"
	"strings"
)

// look is how a mode is drawn: each has a colour, a pattern of dashes and a shape
// of its own, so that colour is never all that tells two apart. The colours are
// those of Okabe and Ito, which differ for all kinds of colour blindness.
type look struct{ colour, dash, shape string }

var looks = []look{
	{"#0072b2", "", "circle"},
	{"#d55e00", "7 3", "square"},
	{"#009e73", "2 3", "triangle"},
	{"#a64d79", "10 3 2 3", "diamond"},
	{"#000000", "4 2 1 2", "cross"},
	{"#7a6a00", "12 4", "plus"},
	{"#56b4e9", "1 2", "triangle-down"},
	{"#8c510a", "6 2 2 2 2 2", "bar"},
}

// runtimeLook is of the runtime itself.
var runtimeLook = look{"#666666", "3 6", "bar"}

func lookOf(mode int) look { return looks[mode%len(looks)] }

// svg collects a drawing. All text is escaped.
type svg struct{ b strings.Builder }

func newSVG(width, height int, title string) *svg {
	s := &svg{}
	fmt.Fprintf(&s.b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, width, height, html.EscapeString(title))
	return s
}

func (s *svg) done() template.HTML {
	s.b.WriteString("</svg>")
	return template.HTML(s.b.String()) //nolint:gosec // every text in it is escaped where it is written
}

func (s *svg) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&s.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

func (s *svg) text(x, y float64, anchor, class, text string) {
	fmt.Fprintf(&s.b, `<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`, x, y, anchor, class, html.EscapeString(text))
}

// path draws a line through points.
func (s *svg) path(points [][2]float64, l look) {
	if len(points) == 0 {
		return
	}
	s.b.WriteString(`<path d="`)
	for i, p := range points {
		letter := "L"
		if i == 0 {
			letter = "M"
		}
		fmt.Fprintf(&s.b, "%s%.1f %.1f", letter, p[0], p[1])
	}
	fmt.Fprintf(&s.b, `" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, l.colour, l.dash)
}

// mark draws the shape of a look.
func (s *svg) mark(x, y float64, l look) {
	const r = 4.5
	var shape string
	switch l.shape {
	case "circle":
		shape = fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="%.1f"`, x, y, r)
	case "square":
		shape = fmt.Sprintf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f"`, x-r, y-r, 2*r, 2*r)
	case "triangle":
		shape = polygon(x, y-r, x+r, y+r, x-r, y+r)
	case "triangle-down":
		shape = polygon(x, y+r, x+r, y-r, x-r, y-r)
	case "diamond":
		shape = polygon(x, y-r-1, x+r+1, y, x, y+r+1, x-r-1, y)
	case "cross":
		shape = fmt.Sprintf(`<path d="M%.1f %.1fL%.1f %.1fM%.1f %.1fL%.1f %.1f" stroke-width="2.5"`, x-r, y-r, x+r, y+r, x+r, y-r, x-r, y+r)
	case "plus":
		shape = fmt.Sprintf(`<path d="M%.1f %.1fL%.1f %.1fM%.1f %.1fL%.1f %.1f" stroke-width="2.5"`, x-r, y, x+r, y, x, y-r, x, y+r)
	default:
		shape = fmt.Sprintf(`<rect x="%.1f" y="%.1f" width="3" height="%.1f"`, x-1.5, y-r-1, 2*r+2)
	}
	fmt.Fprintf(&s.b, `%s fill="%s" stroke="%s"/>`, shape, l.colour, l.colour)
}

func polygon(at ...float64) string {
	var points []string
	for i := 0; i < len(at); i += 2 {
		points = append(points, fmt.Sprintf("%.1f,%.1f", at[i], at[i+1]))
	}
	return fmt.Sprintf(`<polygon points="%s"`, strings.Join(points, " "))
}

// key draws a short piece of a mode's line with its shape and its name.
func (s *svg) key(x, y float64, l look, name string) {
	s.path([][2]float64{{x, y}, {x + 30, y}}, l)
	s.mark(x+15, y, l)
	s.text(x+36, y+4, "start", "label", name)
}
