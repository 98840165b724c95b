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

// ServeOptions say where and how to serve.
type ServeOptions struct {
	// Addresses are what to listen on, such as ":19098", "127.0.0.1:19098" or
	// "[::1]:0"; at least one.
	Addresses []string
	// WebConfig is a file in the format of Prometheus' exporter-toolkit that asks
	// for TLS, client certificates or passwords. It is read again for each request,
	// so that certificates can be renewed. Empty means plain HTTP for everybody.
	WebConfig string
	// Log tells where it listens, and of connections that fail.
	Log *slog.Logger
	// Listening, if set, is called once with the addresses listened on.
	Listening func([]net.Addr)
	// Grace is how long requests may go on after ctx has ended; by default 5 s.
	Grace time.Duration
}

// SetupError is an error of [Serve] before it served anything: what was asked for
// cannot be done.
type SetupError struct{ err error }

// Error says what cannot be done.
func (e *SetupError) Error() string { return e.err.Error() }

// Unwrap returns the reason.
func (e *SetupError) Unwrap() error { return e.err }

// Serve serves a handler until ctx ends, then lets requests under way finish and
// returns nil. It listens on all addresses before it serves on any. Errors of the
// options, and addresses that cannot be had, are a [SetupError].
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
		// One server each: the toolkit changes the server that it is given.
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
				_ = server.Close() // its requests would go on for ever
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
		WriteTimeout:      3 * time.Minute, // a CPU profile takes its time
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

// CheckWebConfig reads a web configuration file and what it refers to, and says
// what is wrong with it. No file ("") is fine.
func CheckWebConfig(path string) error {
	if err := web.Validate(path); err != nil {
		return fmt.Errorf("reading the web configuration %s: %w", path, err)
	}
	return nil
}
