package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// reader reads a snapshot from wherever it comes from.
type reader interface {
	// Read reads everything. Its errors are exit errors.
	Read(ctx context.Context) (*blocks.Snapshot, error)
	// Reread reads some resources again; it is called for live snapshots only.
	Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource) (*blocks.Snapshot, error)
}

// sources are the flags that say where data come from, the same for every
// command that reads.
type sources struct {
	files   []string
	at      string
	cluster *genericclioptions.ConfigFlags
	// record keeps the objects that are read; nil keeps none.
	record *files.Recorder
	// budgets has PodDisruptionBudgets read, too.
	budgets bool
	// warnIgnored warns of objects that no audit reads; said warnings are not said again.
	warnIgnored bool
	said        map[string]bool

	fileFlags, clusterFlags *pflag.FlagSet
}

// addFlags adds the flags to a command.
func (s *sources) addFlags(c *cobra.Command) {
	s.fileFlags = pflag.NewFlagSet("source", pflag.ContinueOnError)
	s.fileFlags.StringArrayVarP(&s.files, "filename", "f", nil,
		"file or directory `PATH` of Kubernetes objects to read instead of a cluster; repeatable, \"-\" is standard input")
	s.fileFlags.StringVar(&s.at, "at", "", "the `TIME` at which the files were read from the cluster, such as 2026-01-31T08:00:00Z (default: the time recorded in them, or the newest)")
	inGroup(s.fileFlags, groupSource)
	c.Flags().AddFlagSet(s.fileFlags)
	noFiles(c, "at")
	s.addClusterFlags(c)
}

// addClusterFlags adds the flags that name a cluster alone, for commands that need
// a running one.
func (s *sources) addClusterFlags(c *cobra.Command) {
	s.cluster = genericclioptions.NewConfigFlags(true)
	s.cluster.Namespace = nil // an audit reads all namespaces
	s.cluster.CacheDir = nil  // and keeps no cache
	s.clusterFlags = pflag.NewFlagSet("cluster", pflag.ContinueOnError)
	s.cluster.AddFlags(s.clusterFlags)
	inGroup(s.clusterFlags, groupCluster)

	c.Flags().AddFlagSet(s.clusterFlags)
	s.completeFlags(c)
}

// completeFlags completes names out of the kubeconfig.
func (s *sources) completeFlags(c *cobra.Command) {
	contexts := func(c api.Config) iter.Seq[string] { return maps.Keys(c.Contexts) }
	for flag, names := range map[string]func(api.Config) iter.Seq[string]{
		"context": contexts, "contexts": contexts, // the latter is of some commands only
		"cluster": func(c api.Config) iter.Seq[string] { return maps.Keys(c.Clusters) },
		"user":    func(c api.Config) iter.Seq[string] { return maps.Keys(c.AuthInfos) },
	} {
		_ = c.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			raw, _ := s.cluster.ToRawKubeConfigLoader().RawConfig() // without one there is nothing to name
			return slices.Sorted(names(raw)), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// open checks the flags and returns what reads from the source they name. show
// is called with what is being read.
func (s *sources) open(streams genericiooptions.IOStreams, show func(string)) (reader, error) {
	if len(s.files) == 0 {
		if s.at != "" {
			return nil, usagef("--at goes with files (-f): a cluster has a clock of its own")
		}
		return s.openCluster(streams, show)
	}
	if set := changedFlags(s.clusterFlags); len(set) > 0 {
		return nil, usagef("--filename and --%s name two sources: give one of them", set[0].Name)
	}
	r := &fileReader{paths: s.files, opts: files.FileOptions{
		Record: s.record, WarnIgnored: s.warnIgnored, Warn: func(text string) {
			if !s.said[text] {
				say(streams, "warning: %s", text)
			}
			s.said[text] = true
		},
	}}
	s.said = map[string]bool{}
	if s.at != "" {
		at, err := time.Parse(time.RFC3339, s.at)
		if err != nil {
			return nil, usagef("reading --at: %q is not a time such as 2026-01-31T08:00:00Z", s.at)
		}
		r.opts.At = at
	}
	return r, nil
}

// openSource opens a source as the flags say, with the host views that they ask for.
func openSource(s *sources, h *hostFlags, streams genericiooptions.IOStreams, show func(string)) (reader, error) {
	from, err := s.open(streams, show)
	if err != nil {
		return nil, err
	}
	return h.wrap(from, show)
}

func (s *sources) openCluster(streams genericiooptions.IOStreams, show func(string)) (reader, error) {
	cfg, err := s.restConfig(streams)
	if err != nil {
		return nil, err
	}
	k, err := s.openKubernetes(cfg, show)
	if err != nil {
		return nil, err
	}
	return &clusterReader{k}, nil
}

// restConfig returns the configuration of the cluster's client.
func (s *sources) restConfig(streams genericiooptions.IOStreams) (*rest.Config, error) {
	if s.nowhere() {
		return nil, usagef("no cluster to read: there is no kubeconfig (--kubeconfig, KUBECONFIG or ~/.kube/config), " +
			"and this is not inside a cluster. Files are read with -f")
	}
	cfg, err := s.cluster.ToRESTConfig()
	if err != nil {
		return nil, usagef("reading the cluster's configuration: %w", err)
	}
	cfg.UserAgent = "calico-audit/" + buildVersion().Version
	cfg.WarningHandler = rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	return cfg, nil
}

// readerGCPercent is how much the heap may grow between collections while a cluster is read,
// in percent: most of what is read stays. Of 5,000 nodes with 150,000 pods a report then
// had 299 MB at its peak, 329 MB at 50 and 347 MB at 100, in as much processor time
// within what differs from run to run (4.6, 4.6, and 3.8 to 5.1 s).
const readerGCPercent = 25

func (s *sources) openKubernetes(cfg *rest.Config, show func(string)) (*cluster.Kubernetes, error) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(readerGCPercent)
	}
	k, err := cluster.NewKubernetes(cfg, cluster.KubernetesOptions{
		Progress: func(p cluster.Progress) { show(progressText(p)) }, Record: s.record, Budgets: s.budgets,
	})
	if err != nil {
		return nil, unreadError(err)
	}
	return k, nil
}

// progressText says how far the reading of a resource has come.
func progressText(p cluster.Progress) string {
	if p.Total > 0 {
		return fmt.Sprintf("reading %s: %d of %d", p.Resource, p.Done, p.Total)
	}
	return fmt.Sprintf("reading %s: %d", p.Resource, p.Done)
}

// nowhere is true where nothing at all names a cluster. The Kubernetes client
// would then try localhost:8080, and its error would not tell why.
func (s *sources) nowhere() bool {
	if *s.cluster.APIServer != "" || os.Getenv("KUBERNETES_MASTER") != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return false
	}
	raw, err := s.cluster.ToRawKubeConfigLoader().RawConfig()
	return err == nil && len(raw.Clusters) == 0 && len(raw.Contexts) == 0
}

// describe says in a few words where the data come from.
func (s *sources) describe() string {
	switch {
	case len(s.files) == 1 && s.files[0] == "-":
		return "standard input"
	case len(s.files) == 1:
		return s.files[0]
	case len(s.files) > 1:
		return fmt.Sprintf("%s and %d more", s.files[0], len(s.files)-1)
	case *s.cluster.Context != "":
		return "context " + *s.cluster.Context
	case *s.cluster.APIServer != "":
		return *s.cluster.APIServer
	}
	raw, err := s.cluster.ToRawKubeConfigLoader().RawConfig()
	if err == nil && raw.CurrentContext != "" {
		return "context " + raw.CurrentContext
	}
	return "inside the cluster"
}

// arguments returns the flags that make another run read the same source, ready
// for a shell; secrets are left out.
func (s *sources) arguments() string {
	var out string
	for _, f := range s.files {
		out += " -f " + phrase.Arg(f)
	}
	if s.at != "" {
		out += " --at " + phrase.Arg(s.at)
	}
	return strings.TrimPrefix(out+s.clusterArguments(), " ")
}

// portable returns those of the arguments that are no paths, nor go with files.
func (s *sources) portable() string {
	return strings.TrimPrefix(flagArguments(s.clusterFlags, clusterNames...), " ")
}

// clusterNames are the flags that name the cluster, and who asks, without paths.
var clusterNames = []string{"context", "cluster", "user", "server", "as", "as-group", "as-uid", "tls-server-name"}

// clusterArguments returns those that name the cluster, each after a blank.
func (s *sources) clusterArguments() string {
	return flagArguments(s.clusterFlags, "kubeconfig") + flagArguments(s.clusterFlags, clusterNames...) + flagArguments(s.clusterFlags, "certificate-authority")
}

// fileReader reads files.
type fileReader struct {
	paths []string
	opts  files.FileOptions
}

func (r *fileReader) Read(context.Context) (*blocks.Snapshot, error) {
	s, err := files.ReadFiles(r.paths, r.opts)
	if err != nil {
		return nil, usageError(err)
	}
	return s, nil
}

func (r *fileReader) Reread(context.Context, *blocks.Snapshot, []blocks.Resource) (*blocks.Snapshot, error) {
	return nil, errors.New("files do not change")
}

// clusterReader reads a running cluster.
type clusterReader struct{ k *cluster.Kubernetes }

func (r *clusterReader) Read(ctx context.Context) (*blocks.Snapshot, error) {
	s, err := r.k.Read(ctx)
	if err != nil {
		return nil, unreadError(err)
	}
	return s, nil
}

func (r *clusterReader) Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource) (*blocks.Snapshot, error) {
	return r.k.Reread(ctx, prev, resources)
}

// evaluation is what a source holds, with what the checks found in it.
type evaluation struct {
	state  *state.State
	result *audit.Result
}

// evaluate reads a source and runs checks. What must be confirmed
// is read a second time, and withheld where that fails.
func evaluate(ctx context.Context, from reader, checks []*audit.Check, grace graceFlag, progress *view.ProgressLine) (*evaluation, error) {
	snapshot, err := from.Read(ctx)
	if err != nil {
		return nil, err
	}
	opts := grace.options()
	progress.Show("checking")
	st := state.New(snapshot, opts)
	result := audit.Run(st, checks)
	again := result.NeedsConfirmation()
	if len(again) == 0 {
		return &evaluation{st, result}, nil
	}
	snapshot = decode.Without(snapshot, again)
	second, failed := rereadAlone(ctx, from, snapshot, again)
	if ctx.Err() != nil {
		return nil, unreadError(ctx.Err())
	}
	if failed != nil { // what the first reading had is not held
		if second, err = from.Read(ctx); err != nil {
			return nil, err
		}
		st = state.New(second, opts)
		return &evaluation{st, audit.Run(st, checks).Unconfirmed(failed)}, nil
	}
	st = state.New(second, opts)
	return &evaluation{st, audit.Confirm(result, audit.Run(st, checks))}, nil
}

// rereadAlone reads resources again into rest, which is the snapshot before without them
// ([decode.Without]). That snapshot is not held any more, nor what was made of it: of
// 5,000 nodes each is some 150 MB.
func rereadAlone(ctx context.Context, from reader, rest *blocks.Snapshot, again []blocks.Resource) (*blocks.Snapshot, error) {
	runtime.GC() // else the heap grows to twice what was there before it is collected
	return from.Reread(ctx, rest, again)
}

func (j *evaluation) report() *audit.Report { return audit.NewReport(j.state, j.result) }
