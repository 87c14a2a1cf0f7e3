package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// listed is what `go list` says of a package.
type listed struct {
	Dir        string
	ImportPath string
	Export     string // compiled types
	GoFiles    []string
}

// checker tells whether a mutant compiles, in a moment: only its own package is read, all that it imports
// is there compiled.
type checker struct {
	root     string
	packages map[string]listed // by folder
	exports  map[string]string // by import path
	fset     *token.FileSet
	imports  types.Importer // reads each import once
}

func newChecker(root string, all []mutant) (*checker, error) {
	args := []string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles"}
	seen := map[string]bool{}
	for i := range all {
		if pkg := all[i].pkg(); !seen[pkg] {
			seen[pkg] = true
			args = append(args, pkg)
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	c := &checker{root: root, packages: map[string]listed{}, exports: map[string]string{}, fset: token.NewFileSet()}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(c.exports[path]) })
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return c, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		c.packages[p.Dir], c.exports[p.ImportPath] = p, p.Export
	}
}

// compiles type-checks a mutant's package with the broken file in it.
func (c *checker) compiles(m *mutant, broken []byte) error {
	dir := filepath.Join(c.root, m.dir())
	p, ok := c.packages[dir]
	if !ok {
		return fmt.Errorf("no package in %s", dir)
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		var src any
		if name == filepath.Base(m.file) {
			src = broken
		}
		f, err := parser.ParseFile(c.fset, filepath.Join(dir, name), src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	cfg := types.Config{Importer: c.imports}
	_, err := cfg.Check(p.ImportPath, c.fset, files, nil)
	return err
}
