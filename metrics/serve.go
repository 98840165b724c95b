package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sync/errgroup"
)

// ServeOptions configures Serve.
type ServeOptions struct {
	// Addresses are the addresses to listen on, such as ":19098", "127.0.0.1:19098" or
	// "[::1]:0"; at least one.
	Addresses []string
	// WebConfig is a file in the format of Prometheus' exporter-toolkit that configures
	// TLS, client certificates or passwords. It is read again for each request, so
	// certificates can be renewed. Empty means plain HTTP without authentication.
	WebConfig string
	// Log records the listening addresses and failed connections.
	Log *slog.Logger
	// Listening, if set, is called once with the bound addresses.
	Listening func([]net.Addr)
	// Grace is how long requests may continue after ctx has ended; the default is 5 s.
	Grace time.Duration
}

// SetupError is an error of [Serve] before it served any request.
type SetupError struct{ err error }

// Error implements error.
func (e *SetupError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *SetupError) Unwrap() error { return e.err }

// Serve serves a handler until ctx ends, waits for open requests for o.Grace, and returns
// nil. It binds all addresses before it serves on any. Invalid options and unavailable
// addresses give a [SetupError].
func Serve(ctx context.Context, o ServeOptions, handler http.Handler) error {
	if len(o.Addresses) == 0 {
		return &SetupError{errors.New("there is no address to listen on")}
	}
	if err := CheckWebConfig(o.WebConfig); err != nil {
		return &SetupError{err}
	}
	var listeners []net.Listener
	var bound []net.Addr
	closeAll := func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}
	for _, a := range o.Addresses {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a)
		if err != nil {
			closeAll()
			return &SetupError{fmt.Errorf("listening on %s: %w", a, err)}
		}
		listeners = append(listeners, l)
		bound = append(bound, l.Addr())
	}
	if o.Listening != nil {
		o.Listening(bound)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		// The toolkit modifies the server, so each listener needs its own.
		server := newServer(handler, o.Log)
		group.Go(func() error {
			err := web.Serve(l, server, &web.FlagConfig{WebConfigFile: &o.WebConfig}, o.Log)
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return fmt.Errorf("serving on %s: %w", l.Addr(), err)
		})
		group.Go(func() error {
			<-ctx.Done()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(o.Grace, 5*time.Second))
			defer cancel()
			if err := server.Shutdown(last); err != nil {
				_ = server.Close() // otherwise its requests would never end
			}
			return nil
		})
	}
	err := group.Wait()
	closeAll()
	return err
}

func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      3 * time.Minute, // long enough for a CPU profile
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

// CheckWebConfig validates a web configuration file and the files that it refers to. An
// empty path is valid.
func CheckWebConfig(path string) error {
	if err := web.Validate(path); err != nil {
		return fmt.Errorf("reading the web configuration %s: %w", path, err)
	}
	return nil
}
