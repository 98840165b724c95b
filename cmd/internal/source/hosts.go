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

// HostFlags are the flags that say where host views come from.
type HostFlags struct {
	AgentFlags
	Paths []string
	at    string
}

// AddTo adds the flags to a command.
func (h *HostFlags) AddTo(c *cobra.Command) {
	h.fs = pflag.NewFlagSet("hosts", pflag.ContinueOnError)
	h.fs.StringArrayVar(&h.Paths, "host-views", nil,
		"file or directory `PATH` of host views, by which routes and addresses in use, or not in use, are proven: what \"calico-audit agent --once -o json\" prints, or NODE.json of \"ip -j route show table all\"; repeatable")
	h.fs.StringVar(&h.at, "host-views-at", "", "the `TIME` at which listings of routes were taken, which carry none (default, with -f: the time of the files)")
	flags.NoFiles(c, "host-views-at")
	h.AgentFlags.AddTo(c)
}

// Wrap returns a reader that adds host views to what another reads; that one
// itself if none are asked for. All its errors are errors of usage.
func (h *HostFlags) Wrap(from Reader, show func(string)) (Reader, error) {
	if h.at != "" && len(h.Paths) == 0 {
		return nil, exit.Usagef("--host-views-at goes with --host-views")
	}
	r := &HostReader{inner: from, paths: h.Paths, show: show}
	if h.at != "" {
		at, err := time.Parse(time.RFC3339, h.at)
		if err != nil {
			return nil, exit.Usagef("reading --host-views-at: %q is not a time such as 2026-01-31T08:00:00Z", h.at)
		}
		r.opts.At = at.UTC()
	}
	live, ok := from.(*Cluster)
	if h.Ask && !ok {
		return nil, exit.Usagef("--agents asks a running cluster, and -f names files: of files, host views are read with --host-views")
	}
	var err error
	if r.ask, err = h.Options(); err != nil {
		return nil, err
	}
	if h.Ask {
		r.agents = live.Kubernetes
		r.ask.Progress = func(done, total int) { show(fmt.Sprintf("asking agents: %d of %d", done, total)) }
	}
	if len(h.Paths) == 0 && !h.Ask {
		return from, nil
	}
	return r, nil
}

// Arguments returns the flags that make another run read the same host views,
// ready for a shell.
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

// HostReader adds host views to the snapshots of another reader. They are read
// after the snapshot, so that they are not older than what they are to prove.
type HostReader struct {
	inner  Reader
	paths  []string
	opts   hostviews.Options
	agents *cluster.Kubernetes // nil if they are not asked
	ask    agents.Options
	show   func(string)

	began time.Time
	// viewed is when all views were read last, files what the files among them held, and
	// asked what agents said.
	viewed time.Time
	files  *blocks.HostReading
	asked  blocks.HostReading
}

// viewsServe is for how long host views serve while single objects are read again.
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

// Reread reads some resources again, and the host views. Where the files, or the agents,
// cannot be read again, their views of the first reading stay, with a gap that says so: what
// one source lacks must not cost all that was read. Their ages go on counting, and they
// confirm nothing: see [blocks.HostView.Earlier].
func (r *HostReader) Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource) (*blocks.Snapshot, error) {
	s, err := r.inner.Reread(ctx, prev, resources)
	if err != nil {
		return nil, err
	}
	return s, r.join(ctx, s, true)
}

// Renew puts host views into a snapshot of which single objects were read again:
// those of the snapshot before, unless they were read a while ago.
func (r *HostReader) Renew(ctx context.Context, prev, s *blocks.Snapshot) error {
	if time.Since(r.viewed) < viewsServe {
		s.Hosts = prev.Hosts
		return nil
	}
	r.began = time.Now()
	return r.join(ctx, s, false)
}

// join reads the files, asks the agents and puts all views into a snapshot. With keep, a
// source that fails has the views that were read of it before.
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
		// Their views are taken while they are asked, which may last.
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

// keep marks the views of a source, which could not be read again, as those of an earlier
// reading, and says so.
func (r *HostReader) keep(of, failed *blocks.HostReading, err error) {
	of.Views = slices.Clone(of.Views) // an earlier snapshot may hold them
	for i := range of.Views {
		of.Views[i].Earlier = true
	}
	failed.Gaps = append(failed.Gaps, blocks.HostGap{Reason: "host views could not be read a second time, and are those of the first reading: " + err.Error()})
}

// pipe reports whether a path can be read once only, as the output of a command.
func pipe(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// until is the time now, by the clock that the snapshot's ages are counted from;
// for files that is the time of the files.
func (r *HostReader) until(s *blocks.Snapshot) time.Time {
	if at := s.Cluster.TakenAt; s.Cluster.Live && !at.IsZero() {
		return at.Add(time.Since(r.began))
	}
	return s.Cluster.TakenAt
}
