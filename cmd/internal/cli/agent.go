package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/calico-audit/calico-audit/affinity/host"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/agents"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/metrics"
)

// agentListen is the agent's default address. The port is below Kubernetes' NodePort range,
// and not used by Calico (Typha has 9098, Felix 9099).
const agentListen = ":19098"

// nodeNameVariable is the environment variable with the node's name, which a manifest sets
// from the pod's spec.nodeName.
const nodeNameVariable = "NODE_NAME"

// hostFormats are the formats of a host view.
var hostFormats = view.DataFormats[*blocks.HostView]("the host view")

type agentCommand struct {
	env
	serving serveFlags
	logs    logFlag

	once     bool
	output   string
	format   view.Format[*blocks.HostView] // parsed output
	node     string
	procRoot string
	netnsDir []string
	maxAge   time.Duration

	authorize  bool
	kubeconfig string
}

func newAgent(e env) *cobra.Command {
	a := &agentCommand{env: e}
	c := e.command(&cobra.Command{
		Use:   "agent [--once]",
		Short: "Serve the host view of a node: its kernel's routes and network namespaces",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			options, err := a.complete(c)
			if err != nil {
				return err
			}
			if a.once {
				return a.print(c.Context(), options)
			}
			return a.serve(c.Context(), options)
		},
	})
	fs := c.Flags()
	fs.BoolVar(&a.once, "once", false, "print the host view and exit")
	fs.StringVarP(&a.output, "output", "o", "json", "output `FORMAT` with --once: "+strings.Join(hostFormats.Names(), "|"))
	fs.StringVar(&a.node, "node", "", "`NAME` of the Kubernetes node (default: the environment variable "+nodeNameVariable+", else the host name)")
	fs.StringVar(&a.procRoot, "proc-root", "/proc", "`DIRECTORY` where the node's /proc is mounted")
	fs.StringArrayVar(&a.netnsDir, "netns-dir", nil, "`DIRECTORY` of named network namespaces; repeatable (default: those of ip, containerd, CRI-O and Docker)")
	fs.DurationVar(&a.maxAge, "max-age", 10*time.Second, "serve the last host view again up to this age")
	a.serving.addFlags(c, agentListen)
	fs.BoolVar(&a.authorize, "authorize-callers", false, "serve only callers whose token the API server accepts (TokenReview) and who may GET the path, such as "+agents.Path+", as a nonResourceURL; probes are exempt; requires TLS (--web.config.file) and the ClusterRole system:auth-delegator")
	fs.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` for asking the API server about callers (default: the pod's service account)")
	a.logs.addFlag(c)
	flags.OneOf(c, "output", hostFormats.Names()...)
	flags.NoFiles(c, "node", "max-age")
	_, _ = c.MarkFlagDirname("proc-root"), c.MarkFlagDirname("netns-dir")
	return c
}

func (a *agentCommand) complete(c *cobra.Command) (host.Options, error) {
	servingFlags := []string{"listen", "web.config.file", "pprof", "max-age", "log-format", "authorize-callers", "kubeconfig"}
	for _, f := range flags.Changed(c.Flags()) {
		switch {
		case a.once && slices.Contains(servingFlags, f.Name):
			return host.Options{}, exit.Usagef("--%s cannot be used with --once, which serves nothing", f.Name)
		case !a.once && f.Name == "output":
			return host.Options{}, exit.Usagef("--output requires --once: without it, the host view is served as JSON")
		}
	}
	var err error
	if a.format, err = hostFormats.Named(a.output); err != nil {
		return host.Options{}, exit.Usage(err)
	}
	switch {
	case a.authorize && a.serving.webConfig == "":
		return host.Options{}, exit.Usagef("--authorize-callers requires --web.config.file with TLS: without TLS, anyone on the network can read the tokens")
	case a.kubeconfig != "" && !a.authorize:
		return host.Options{}, exit.Usagef("--kubeconfig requires --authorize-callers: nothing else asks the API server")
	}
	if a.maxAge < 0 {
		return host.Options{}, exit.Usagef("--max-age %s is negative", a.maxAge)
	}
	node := cmp.Or(a.node, os.Getenv(nodeNameVariable))
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return host.Options{}, exit.Usagef("the node's name is unknown (%w): set it with --node", err)
		}
	}
	return host.Options{Node: node, ProcRoot: a.procRoot, NetnsDirs: a.netnsDir}, nil
}

func (a *agentCommand) print(ctx context.Context, o host.Options) error {
	v, err := host.Scan(ctx, o)
	if err != nil {
		return scanError(err)
	}
	for _, g := range v.Gaps {
		say(a.streams, "warning: %s", g)
	}
	if err := a.format.Write(a.streams.Out, v, view.Options{}); err != nil {
		return exit.Usagef("writing the host view: %w", err)
	}
	return nil
}

// scanError adds the exit code to an error of a scan.
func scanError(err error) error {
	err = fmt.Errorf("reading the node's kernel: %w", err)
	if errors.Is(err, host.ErrUnsupported) {
		return exit.Usage(err)
	}
	return exit.Unread(err)
}

func (a *agentCommand) serve(ctx context.Context, o host.Options) error {
	log, err := a.logs.logger(a.streams.ErrOut, slog.LevelInfo)
	if err != nil {
		return err
	}
	// The agent shares its node with other workloads. It is idle between scans, and a scan
	// leaves garbage, so a smaller heap costs almost nothing.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(agentGCPercent)
	}
	agent := metrics.NewAgent(metrics.AgentOptions{
		Scan:   func(ctx context.Context) (*blocks.HostView, error) { return host.Scan(ctx, o) },
		MaxAge: a.maxAge, Log: log, Pprof: a.serving.pprof,
		Build: builtFrom(),
	})
	// Scan once now, so that a user sees a failure immediately. The agent keeps running, so that
	// the reason can also be read remotely.
	if first, err := agent.View(ctx, time.Time{}); err != nil {
		if errors.Is(err, host.ErrUnsupported) {
			return scanError(err)
		}
	} else {
		log.Info("read the node's kernel", "node", o.Node, "routes", len(first.Routes), "namespaces", len(first.Namespaces))
		for _, g := range first.Gaps {
			log.Warn("part of the node could not be read", "gap", g)
		}
	}
	handler := agent.Handler()
	if a.authorize {
		cfg, err := clientcmd.BuildConfigFromFlags("", a.kubeconfig)
		if err != nil {
			return exit.Usagef("reading the configuration for the API server (--kubeconfig): %w", err)
		}
		callers, err := agents.NewCallers(cfg, log)
		if err != nil {
			return exit.Usage(err)
		}
		handler = callers.Guard(handler)
	}
	return a.serving.serve(ctx, log, handler)
}

// agentGCPercent is the garbage collector's target for the agent.
const agentGCPercent = 50
