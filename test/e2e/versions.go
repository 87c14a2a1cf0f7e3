package e2e

import (
	"fmt"
	"os"
	"strings"
)

// pinned returns the version of a module that a go.mod requires, without the "v". The file is named
// relative to this package.
func pinned(file, module string) (string, error) {
	mod, err := os.ReadFile(file) // go test runs in the package's folder
	if err != nil {
		return "", fmt.Errorf("pinned version: %w", err)
	}
	for line := range strings.Lines(string(mod)) {
		if f := strings.Fields(strings.TrimPrefix(line, "require ")); len(f) >= 2 && f[0] == module {
			return strings.TrimPrefix(f[1], "v"), nil
		}
	}
	return "", fmt.Errorf("pinned version: %s requires no %s", file, module)
}

// sameVersion compares what a runtime says of itself with a plain version. A "v" before it and what
// packagers and builds add behind it, as in 1.6.20~ds1 and 2.4.2+unknown, don't count; a release
// candidate, 2.4.2-rc.1, is another version.
func sameVersion(said, want string) bool {
	said = strings.TrimPrefix(said, "v")
	if i := strings.IndexAny(said, "~+"); i >= 0 {
		said = said[:i]
	}
	return said == want
}
