// Package tools pins the linter, in a module of its own so that nothing it needs reaches go.mod.
package tools
