package source

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/cluster/agents"
	"github.com/calico-audit/calico-audit/blocks/hostviews"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
)

// HostFlags are the flags for the sources of host views.
type HostFlags struct {
	AgentFlags
	Paths []string
	at    string
}

// AddTo adds the flags to a command.
func (h *HostFlags) AddTo(c *cobra.Command) {
	h.fs = pflag.NewFlagSet("hosts", pflag.ContinueOnError)
	h.fs.StringArrayVar(&h.Paths, "host-views", nil,
		"file or directory `PATH` of host views, which prove routes and whether addresses are in use: output of \"calico-audit agent --once -o json\", or of \"ip -j route show table all\" in NODE.json; repeatable")
	h.fs.StringVar(&h.at, "host-views-at", "", "`TIME` at which the NODE.json files were taken, which record none (default with -f: the time of the files)")
	flags.NoFiles(c, "host-views-at")
	h.AgentFlags.AddTo(c)
}

// Wrap returns a reader that adds host views to the snapshots of another reader. Without requested
// views it returns the other reader itself. All its errors are usage errors.
func (h *HostFlags) Wrap(from Reader, show func(string)) (Reader, error) {
	if h.at != "" && len(h.Paths) == 0 {
		return nil, exit.Usagef("--host-views-at requires --host-views")
	}
	r := &HostReader{inner: from, paths: h.Paths, show: show}
	if h.at != "" {
		at, err := time.Parse(time.RFC3339, h.at)
		if err != nil {
			return nil, exit.Usagef("reading --host-views-at: %q is not a time such as 2026-01-31T08:00:00Z", h.at)
		}
		r.opts.At = at.UTC()
	}
	var live *cluster.Kubernetes
	why := "with -f: it asks a running cluster; with files, use --host-views"
	switch from := from.(type) {
	case *Cluster:
		live = from.Kubernetes
	case *Etcd:
		live, why = from.kubernetes, "without the cluster's kubeconfig: it asks the agents' pods"
	}
	if h.Ask && live == nil {
		return nil, exit.Usagef("--agents cannot be used %s", why)
	}
	var err error
	if r.ask, err = h.Options(); err != nil {
		return nil, err
	}
	if h.Ask {
		r.agents = live
		r.ask.Progress = func(done, total int) { show(fmt.Sprintf("asking agents: %d of %d", done, total)) }
	}
	if len(h.Paths) == 0 && !h.Ask {
		return from, nil
	}
	return r, nil
}

// Arguments returns the arguments with which another command reads the same host views.
func (h *HostFlags) Arguments() string {
	var out string
	for _, p := range h.Paths {
		out += " --host-views " + phrase.Arg(p)
	}
	if h.fs == nil {
		return ""
	}
	return out + flags.Arguments(h.fs, "host-views-at") + h.AgentFlags.Arguments()
}

// HostReader adds host views to the snapshots of another reader. It reads them after the snapshot,
// so that they are not older than the facts to prove.
type HostReader struct {
	inner  Reader
	paths  []string
	opts   hostviews.Options
	agents *cluster.Kubernetes // nil without --agents
	ask    agents.Options
	show   func(string)

	began time.Time
	// viewed is the time of the last full reading of views. files holds the views from
	// files, asked those from agents.
	viewed time.Time
	files  *blocks.HostReading
	asked  blocks.HostReading
}

// viewsServe is how long host views are reused when single objects are read again.
const viewsServe = 30 * time.Second

// Read reads a snapshot, then the host views.
func (r *HostReader) Read(ctx context.Context) (*blocks.Snapshot, error) {
	r.began = time.Now()
	s, err := r.inner.Read(ctx)
	if err != nil {
		return nil, err
	}
	return s, r.join(ctx, s, false)
}

// Reread reads some resources and the host views again. If a source of views fails, its earlier
// views stay, with a gap, so that the report is not lost. These views get older and confirm
// nothing: see [blocks.HostView.Earlier].
func (r *HostReader) Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource) (*blocks.Snapshot, error) {
	s, err := r.inner.Reread(ctx, prev, resources)
	if err != nil {
		return nil, err
	}
	return s, r.join(ctx, s, true)
}

// Renew adds host views to a snapshot after single objects were read again. It reuses the
// views of prev while they are recent.
func (r *HostReader) Renew(ctx context.Context, prev, s *blocks.Snapshot) error {
	if time.Since(r.viewed) < viewsServe {
		s.Hosts = prev.Hosts
		return nil
	}
	r.began = time.Now()
	return r.join(ctx, s, false)
}

// join reads the files and asks the agents, and adds all views to a snapshot. With keep
// set, a failing source keeps its earlier views.
func (r *HostReader) join(ctx context.Context, s *blocks.Snapshot, keep bool) error {
	var failed blocks.HostReading
	if r.files == nil || !slices.ContainsFunc(r.paths, pipe) {
		r.show("reading host views")
		opts := r.opts
		opts.Until = r.until(s)
		files, err := hostviews.Read(s, r.paths, opts)
		switch {
		case err == nil:
			r.files = &files
		case !keep || r.files == nil:
			return exit.Usage(err)
		default:
			r.keep(r.files, &failed, err)
		}
	}
	if r.agents != nil {
		r.show("asking agents")
		opts := r.opts
		// The agents' views are taken while the requests run, which may take some time.
		opts.Until = r.until(s).Add(10 * r.ask.Timeout)
		r.ask.Since = map[string]time.Time{}
		for i := range r.asked.Views {
			r.ask.Since[r.asked.Views[i].Node] = r.asked.Views[i].TakenAt
		}
		asked, err := agents.Views(ctx, r.agents.Pods(), s, hostviews.OfAgent(s, opts), r.ask)
		switch {
		case err == nil:
			r.asked = asked
		case !keep || ctx.Err() != nil:
			return exit.Unread(err)
		default:
			r.keep(&r.asked, &failed, err)
		}
	}
	failed.Until = r.until(s)
	s.Hosts = blocks.JoinHostReadings(*r.files, r.asked, failed)
	if s.Hosts.Until = r.until(s); len(failed.Gaps) == 0 {
		r.viewed = time.Now()
	}
	return ctx.Err()
}

// keep marks the views of a failed source as earlier ones, and adds a gap.
func (r *HostReader) keep(of, failed *blocks.HostReading, err error) {
	of.Views = slices.Clone(of.Views) // an earlier snapshot may share them
	for i := range of.Views {
		of.Views[i].Earlier = true
	}
	failed.Gaps = append(failed.Gaps, blocks.HostGap{Reason: "host views could not be read a second time; those of the first reading are used: " + err.Error()})
}

// pipe reports whether a path can only be read once, such as the output of a command.
func pipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// until returns the present time by the clock of the snapshot; for files, the time of the
// files.
func (r *HostReader) until(s *blocks.Snapshot) time.Time {
	if at := s.Cluster.TakenAt; s.Cluster.Live && !at.IsZero() {
		return at.Add(time.Since(r.began))
	}
	return s.Cluster.TakenAt
}
