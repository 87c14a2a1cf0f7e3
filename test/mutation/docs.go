package main

import (
	"fmt"
	"os"
	"strings"
)

// The table stands between these lines.
const (
	tableBegin = "<!-- written by `make mutation` -->\n"
	tableEnd   = "<!-- end of what `make mutation` writes -->\n"
)

// namedStories is how many transcripts the table names of those that differ.
const namedStories = 2

// row is a mutant's line of the table.
func row(m *mutant, v verdict) string {
	var fails []string
	for i, story := range v.transcripts {
		if i == namedStories && len(v.transcripts) > namedStories+1 {
			fails = append(fails, fmt.Sprintf("%d more", len(v.transcripts)-i))
			break
		}
		fails = append(fails, "`"+story+".txt`")
	}
	for _, name := range v.tests {
		fails = append(fails, "`"+name+"`")
	}
	return rowHead(m) + strings.Join(fails, ", ") + " |\n"
}

// rowHead is how a mutant's line begins.
func rowHead(m *mutant) string { return fmt.Sprintf("| %s | %s | ", m.rules, m.name) }

// lineOf returns a mutant's line in a table, "" if it has none.
func lineOf(m *mutant, table string) string {
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, rowHead(m)) {
			return line
		}
	}
	return ""
}

// cutTable returns a page's table, and what is before and after it.
func cutTable(page string) (before, table, after string, err error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return "", "", "", err
	}
	before, rest, ok1 := strings.Cut(string(text), tableBegin)
	table, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		return "", "", "", fmt.Errorf("%s has no place for the table: want the lines %q and %q", page, tableBegin, tableEnd)
	}
	return before, table, after, nil
}

// tableIn returns a page's table.
func tableIn(page string) (string, error) {
	_, table, _, err := cutTable(page)
	return table, err
}

// writeTable puts measured rows, by mutant, into the table of a page. Those of other mutants stay as they
// are; a mutant that was not measured yet, or survives, has none.
func writeTable(page string, measured map[string]string, all []mutant) error {
	before, old, after, err := cutTable(page)
	if err != nil {
		return err
	}
	table := "| rule | broken so | what fails |\n|---|---|---|\n"
	for i := range all {
		if r, ok := measured[all[i].name]; ok {
			table += r
		} else {
			table += lineOf(&all[i], old)
		}
	}
	return os.WriteFile(page, []byte(before+tableBegin+table+tableEnd+after), 0o600)
}
