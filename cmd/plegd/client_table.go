package main

import (
	"io"
	"strings"
	"unicode/utf8"
)

// cell is one field of a table. Its text is printable.
type cell struct {
	text  string
	color color
}

// field returns a cell for text from outside, "-" for none.
func field(text string) cell { return cell{text: dash(printable(text))} }

// table writes rows in columns, as kubectl and crictl do. A table that is
// written in parts keeps its columns as wide as they have been.
type table struct {
	header  []string
	colored bool
	rows    [][]cell
	widths  []int
	begun   bool // the header is written
}

// add adds a row, with a cell for each column of the header.
func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

// write writes the header, once, and the rows that were added since. It writes
// nothing without rows.
func (t *table) write(w io.Writer) error {
	if len(t.rows) == 0 {
		return nil
	}
	if !t.begun {
		t.begun = true
		head := make([]cell, len(t.header))
		for i, name := range t.header {
			head[i] = cell{name, strong}
		}
		t.rows = append([][]cell{head}, t.rows...)
	}
	if t.widths == nil {
		t.widths = make([]int, len(t.header))
	}
	for _, row := range t.rows {
		for i, c := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		t.line(&b, row)
	}
	t.rows = nil
	_, err := io.WriteString(w, b.String())
	return err
}

// line writes one row without space at its end.
func (t *table) line(b *strings.Builder, row []cell) {
	for i, c := range row {
		b.WriteString(paint(c.text, c.color, t.colored))
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c.text)+2))
		}
	}
	b.WriteByte('\n')
}
