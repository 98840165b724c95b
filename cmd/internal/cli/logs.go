package cli

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// The values of --log-format.
const (
	logText = "text"
	logJSON = "json"
)

// logFlags are the flags of commands that run for long and tell what they do.
type logFlags struct{ format string }

func (l *logFlags) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&l.format, "log-format", logText, "how logs are written to standard error: `text|json`")
	_ = c.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{logText, logJSON}, cobra.ShellCompDirectiveNoFileComp))
}

// logger returns a logger that writes to w, or an error of usage.
func (l *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	switch l.format {
	case logText:
		return slog.New(slog.NewTextHandler(w, nil)), nil
	case logJSON:
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	}
	return nil, usagef("unknown value %q of --log-format: want text or json", l.format)
}
