package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

// build describes the binary.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a tree with changes that were not committed
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// thisBuild returns the description of this binary: what the build was told,
// else what the Go toolchain put in.
func thisBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	b.Version = cmp.Or(b.Version, "(devel)")
	return b
}

// String is the form for people.
func (b build) String() string { return fmt.Sprintf("plegd %s (%s, %s)", b.Version, b.Go, b.Platform) }

// newVersion makes `plegd version`.
func newVersion(std streams) *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if output == "json" {
				return json.NewEncoder(std.out).Encode(b)
			}
			_, err := fmt.Fprintln(std.out, b)
			return err
		},
	}
	choiceFlag(cmd, &output, "output", "form of the output", "text", "json")
	return cmd
}
