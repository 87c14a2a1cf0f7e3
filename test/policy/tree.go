package policy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// module is the import path of the tree that the rules are about.
const module = "github.com/plegd/plegd"

// file is one parsed Go file.
type file struct {
	path string // slash separated, relative to the module's root
	ast  *ast.File
	fset *token.FileSet
}

// dir is the folder of the file's package, "." for the root package.
func (f file) dir() string { return path.Dir(f.path) }

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// violation formats a finding so that an editor can jump to it.
func (f file) violation(n ast.Node, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", f.path, f.fset.Position(n.Pos()).Line, fmt.Sprintf(format, args...))
}

// imports calls yield with each import's spec and path.
func (f file) imports(yield func(spec *ast.ImportSpec, importPath string)) {
	for _, spec := range f.ast.Imports {
		// The parser has accepted the literal.
		p, _ := strconv.Unquote(spec.Path.Value)
		yield(spec, p)
	}
}

// parse reads every Go file of the module at the root of fsys. Folders that the go command ignores
// and modules nested in this one are left out.
func parse(fsys fs.FS) ([]file, error) {
	var files []file
	fset := token.NewFileSet()
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(fsys, p, d.Name())
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(fsys, p)
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(fset, p, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file{path: p, ast: tree, fset: fset})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("parse tree: %w", err)
	}
	return files, nil
}

// enter says whether the walk goes into a folder.
func enter(fsys fs.FS, p, name string) error {
	if p == "." {
		return nil
	}
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
		return fs.SkipDir
	}
	if _, err := fs.Stat(fsys, path.Join(p, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// within says whether p is prefix or below it.
func within(p, prefix string) bool {
	return p == prefix || strings.HasPrefix(p, prefix+"/")
}
