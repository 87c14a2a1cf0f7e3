package main

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// logOptions are the flags of commands that log.
type logOptions struct{ level, format string }

// addTo adds the flags.
func (o *logOptions) addTo(cmd *cobra.Command) {
	o.level, o.format = "info", "text"
	choiceFlag(cmd, &o.level, "log-level", "least level of what is logged on stderr", "debug", "info", "warn", "error")
	choiceFlag(cmd, &o.format, "log-format", "form of the log", "text", "json")
}

// logger returns the logger that the flags ask for.
func (o *logOptions) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(o.level)) // the flag allows only what this reads
	opts := &slog.HandlerOptions{Level: level}
	if o.format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
