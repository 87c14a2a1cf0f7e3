// Package report shows the result of a comparison: as text for a terminal, as
// JSON, and as one web page that needs nothing else. It decides nothing: what is
// shown is in the [compare.Report].
package report
