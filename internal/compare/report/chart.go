package report

import (
	"fmt"
	"html/template"
	"math"
	"time"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/store"
)

// The measures of a chart in its own units; the page scales it.
const (
	left, right, top, bottom = 56, 24, 12, 34
	keyLine                  = 22 // height of a line of the key
)

// curve is one line of a chart.
type curve struct {
	name   string
	look   look
	points [][2]float64 // in the chart's units
}

// frame is the area of a chart.
type frame struct{ width, height float64 }

func (f frame) x(share float64) float64 { return left + share*(f.width-left-right) }
func (f frame) y(share float64) float64 { return top + (1-share)*(f.height-top-bottom) }

// The latency axis.
const (
	minLatency = 100 * time.Microsecond
	maxLatency = 100 * time.Second
)

// axisWord is a power of ten of the axis.
func axisWord(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%d s", d/time.Second)
	case d >= time.Millisecond:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// logShare is where a latency lies on the axis, from 0 to 1.
func logShare(d time.Duration) float64 {
	d = min(max(d, minLatency), maxLatency)
	return math.Log10(float64(d)/float64(minLatency)) / math.Log10(float64(maxLatency)/float64(minLatency))
}

// latencies draws, for each mode, which share of the transitions it had told how
// soon, all of them or those of one type. The line of one that missed some ends
// below 100 %.
func latencies(r *compare.Report, typ store.EventType, width, height int) template.HTML {
	title := "Share of transitions told within a time"
	if typ != "" {
		title = Name(typ)
	}
	var curves []curve
	for i := range r.Modes {
		if r.Modes[i].NotRun == "" {
			curves = append(curves, curve{name: r.Modes[i].Name, look: lookOf(i), points: distribution(&r.Modes[i], typ)})
		}
	}
	rows := (len(curves) + 3) / 4
	s := newSVG(width, height+rows*keyLine, title)
	f := frame{float64(width), float64(height)}
	for d := minLatency; d <= maxLatency; d *= 10 {
		x := f.x(logShare(d))
		s.line(x, f.y(0), x, f.y(1), "grid")
		s.text(x, f.y(0)+16, "middle", "tick", axisWord(d))
	}
	for _, share := range []float64{0, 0.5, 0.9, 1} {
		s.line(f.x(0), f.y(share), f.x(1), f.y(share), "grid")
		s.text(left-6, f.y(share)+4, "end", "tick", fmt.Sprintf("%.0f %%", 100*share))
	}
	if late := f.x(logShare(r.Late)); r.Late > 0 {
		s.line(late, f.y(0), late, f.y(1), "late")
		s.text(late+3, f.y(0)-5, "start", "tick", "late")
	}
	for i := range curves {
		for j, p := range curves[i].points {
			curves[i].points[j] = [2]float64{f.x(p[0]), f.y(p[1])}
		}
	}
	drawCurves(s, curves, height)
	return s.done()
}

// distribution returns the points of a mode's line, in shares of the axes.
func distribution(m *compare.ModeReport, typ store.EventType) [][2]float64 {
	l := m.All
	if typ != "" {
		l = m.Latency[typ]
	}
	if len(l.Spread) == 0 {
		return nil
	}
	told := float64(l.N) / float64(l.Judged)
	points := [][2]float64{{logShare(l.Spread[0]), 0}}
	for i, d := range l.Spread {
		x := logShare(d)
		points = append(points, [2]float64{x, points[len(points)-1][1]}, [2]float64{x, told * float64(i+1) / float64(len(l.Spread))})
	}
	return points
}

// drawCurves draws lines with some of their shapes, and the key below.
func drawCurves(s *svg, curves []curve, height int) {
	for i, c := range curves {
		s.path(c.points, c.look)
		// Shapes at other places for each, so that lines that lie upon each other are told apart.
		const shapes = 6
		step := max(1, len(c.points)/shapes)
		for j := step * (i + 1) / (len(curves) + 1); j < len(c.points); j += step {
			s.mark(c.points[j][0], c.points[j][1], c.look)
		}
		s.key(left+float64(i%4)*160, float64(height+(i/4)*keyLine+8), c.look, c.name)
	}
}

// overTime draws a figure of each mode over the time of the measurement, with
// further lines such as the runtime's.
func overTime(r *compare.Report, title, unit string, of func(compare.Point) float64, more ...curve) template.HTML {
	const width, height = 900, 220
	var curves []curve
	most := 0.0
	for i := range r.Modes {
		c := curve{name: r.Modes[i].Name, look: lookOf(i)}
		for _, p := range r.Modes[i].Series {
			c.points = append(c.points, [2]float64{float64(p.At - r.From), of(p)})
		}
		curves = append(curves, c)
	}
	curves = append(curves, more...)
	for _, c := range curves {
		for _, p := range c.points {
			most = max(most, p[1])
		}
	}
	most = roundUp(most)
	rows := (len(curves) + 3) / 4
	s := newSVG(width, height+rows*keyLine, title)
	f := frame{width, height}
	length := float64(max(r.To-r.From, 1))
	for i := range 5 {
		share := float64(i) / 4
		s.line(f.x(0), f.y(share), f.x(1), f.y(share), "grid")
		s.text(left-6, f.y(share)+4, "end", "tick", compare.Digits(most*share, 3))
		at := time.Duration(length * share).Round(100 * time.Millisecond)
		s.line(f.x(share), f.y(0), f.x(share), f.y(1), "grid")
		s.text(f.x(share), f.y(0)+16, "middle", "tick", at.String())
	}
	s.text(left+4, top+10, "start", "tick", unit)
	for i := range curves {
		for j, p := range curves[i].points {
			curves[i].points[j] = [2]float64{f.x(min(1, max(0, p[0]/length))), f.y(p[1] / most)}
		}
	}
	drawCurves(s, curves, height)
	return s.done()
}

// roundUp returns the next number of one digit, of which a quarter is a fine
// label too.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 4, 6, 8, 10} {
		if v <= n*unit {
			return n * unit
		}
	}
	return 10 * unit
}

// runtimeCurve is the runtime's own processor time.
func runtimeCurve(r *compare.Report) []curve {
	if len(r.Runtime.Series) == 0 {
		return nil
	}
	c := curve{name: "the runtime's process", look: runtimeLook}
	for _, p := range r.Runtime.Series {
		c.points = append(c.points, [2]float64{float64(p.At - r.From), 100 * p.Share})
	}
	return []curve{c}
}
