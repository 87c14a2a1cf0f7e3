package policy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testInDocs = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)`")
	testInCode = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9_]*)\(`)
)

// TestDocsNameTestsThatExist: the docs say which test holds what they promise,
// and a test that was renamed or deleted holds nothing.
func TestDocsNameTestsThatExist(t *testing.T) {
	exist := map[string]bool{}
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && len(entry.Name()) > 2:
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		code, err := os.ReadFile(name)
		for _, m := range testInCode.FindAllSubmatch(code, -1) {
			exist[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages %v, %v", pages, err)
	}
	named := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testInDocs.FindAllSubmatch(text, -1) {
			named++
			if !exist[string(m[1])] {
				t.Errorf("%s names %s, which is no test", filepath.Base(page), m[1])
			}
		}
	}
	if named == 0 {
		t.Error("the docs name no test at all")
	}
}

var storyInDocs = regexp.MustCompile("`([a-z0-9_]+\\.txt)`")

// TestProofNamesEveryTranscript: the section on transcripts says what each is for, so it names each, and the
// whole page names none that isn't there.
func TestProofNamesEveryTranscript(t *testing.T) {
	text, err := os.ReadFile("../../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Transcripts\n")
	section, _, more := strings.Cut(section, "\n## ")
	if !ok || !more {
		t.Fatal("docs/proof.md has no section on transcripts")
	}
	there := map[string]bool{}
	for _, dir := range []string{"../../arbiter/testdata/*.txt", "../../arbiter/testdata/loop/*.txt"} {
		stories, err := filepath.Glob(dir)
		if err != nil || len(stories) == 0 {
			t.Fatalf("%s: %v, %v", dir, stories, err)
		}
		for _, path := range stories {
			name := filepath.Base(path)
			there[name] = true
			if !strings.Contains(section, "`"+name+"`") {
				t.Errorf("the section on transcripts in docs/proof.md does not name %s", name)
			}
			if story, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(story), "# ") {
				t.Errorf("%s does not begin with what it is about (%v)", name, err)
			}
		}
	}
	for _, m := range storyInDocs.FindAllSubmatch(text, -1) {
		if !there[string(m[1])] {
			t.Errorf("docs/proof.md names %s, which is no transcript", m[1])
		}
	}
}
