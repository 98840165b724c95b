package cli

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// logLibraryErrors has what client-go calls an error, such as a token that cannot be
// renewed, logged by log. What else it tells, such as traces of slow lists, would only
// stand between the lines of log.
func logLibraryErrors(log *slog.Logger) { klog.SetSlogLogger(slog.New(errorsOnly{log.Handler()})) }

// errorsOnly is a handler that drops what is no error.
type errorsOnly struct{ slog.Handler }

func (errorsOnly) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (h errorsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return errorsOnly{h.Handler.WithAttrs(attrs)}
}

func (h errorsOnly) WithGroup(name string) slog.Handler { return errorsOnly{h.Handler.WithGroup(name)} }
