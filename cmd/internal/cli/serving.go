package cli

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/metrics"
)

// serveFlags are the flags of commands that serve HTTP.
type serveFlags struct {
	listen    []string
	webConfig string
	pprof     bool
}

func (s *serveFlags) addFlags(c *cobra.Command, listen string) {
	fs := c.Flags()
	fs.StringArrayVar(&s.listen, "listen", []string{listen}, "`ADDRESS` to serve on, such as 127.0.0.1"+listen+"; repeatable")
	fs.StringVar(&s.webConfig, "web.config.file", "", "`FILE` that configures TLS, client certificates or passwords, in the format of Prometheus' exporter-toolkit (default: plain HTTP, open to everyone)")
	fs.BoolVar(&s.pprof, "pprof", false, "serve profiles under /debug/pprof/")
	flags.NoFiles(c, "listen")
}

// serve serves until ctx ends. A failed start is a usage error.
func (s *serveFlags) serve(ctx context.Context, log *slog.Logger, handler http.Handler) error {
	err := metrics.Serve(ctx, metrics.ServeOptions{Addresses: s.listen, WebConfig: s.webConfig, Log: log}, handler)
	var setup *metrics.SetupError
	if errors.As(err, &setup) {
		return exit.Usage(err)
	}
	return err
}

// beside serves while work runs. If one of them fails, both end.
func (s *serveFlags) beside(ctx context.Context, log *slog.Logger, handler http.Handler, work func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return work(ctx) })
	group.Go(func() error { return s.serve(ctx, log, handler) })
	return group.Wait()
}
