package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/files"
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

	fileFlags, clusterFlags *pflag.FlagSet
}

// addFlags adds the flags to a command.
func (s *sources) addFlags(c *cobra.Command) {
	s.fileFlags = pflag.NewFlagSet("source", pflag.ContinueOnError)
	s.fileFlags.StringArrayVarP(&s.files, "filename", "f", nil,
		"file or directory `PATH` of Kubernetes objects to read instead of a cluster; repeatable, \"-\" is standard input")
	s.fileFlags.StringVar(&s.at, "at", "", "the `TIME` at which the files were read from the cluster, such as 2026-01-31T08:00:00Z (default: what the files tell)")
	inGroup(s.fileFlags, groupSource)
	c.Flags().AddFlagSet(s.fileFlags)
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
	names := func(list func() []string) cobra.CompletionFunc {
		return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			out := list()
			slices.Sort(out)
			return out, cobra.ShellCompDirectiveNoFileComp
		}
	}
	for flag, list := range map[string]func() []string{
		"context": func() []string { return s.kubeconfigNames().contexts },
		"cluster": func() []string { return s.kubeconfigNames().clusters },
		"user":    func() []string { return s.kubeconfigNames().users },
	} {
		_ = c.RegisterFlagCompletionFunc(flag, names(list))
	}
}

type kubeconfigNames struct{ contexts, clusters, users []string }

func (s *sources) kubeconfigNames() kubeconfigNames {
	var out kubeconfigNames
	raw, err := s.cluster.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return out
	}
	for name := range raw.Contexts {
		out.contexts = append(out.contexts, name)
	}
	for name := range raw.Clusters {
		out.clusters = append(out.clusters, name)
	}
	for name := range raw.AuthInfos {
		out.users = append(out.users, name)
	}
	return out
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
		Warn: func(text string) { say(streams, "warning: %s", text) }, Record: s.record,
	}}
	if s.at != "" {
		at, err := time.Parse(time.RFC3339, s.at)
		if err != nil {
			return nil, usagef("reading --at: %q is not a time such as 2026-01-31T08:00:00Z", s.at)
		}
		r.opts.At = at
	}
	return r, nil
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

func (s *sources) openKubernetes(cfg *rest.Config, show func(string)) (*cluster.Kubernetes, error) {
	k, err := cluster.NewKubernetes(cfg, cluster.KubernetesOptions{
		Progress: func(p cluster.Progress) { show(progressText(p)) }, Record: s.record,
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
	var out []string
	for _, f := range s.files {
		out = append(out, "-f "+shellQuote(f))
	}
	if s.at != "" {
		out = append(out, "--at "+shellQuote(s.at))
	}
	if args := s.clusterArguments(); args != "" {
		out = append(out, args)
	}
	return strings.Join(out, " ")
}

// clusterArguments returns those that name the cluster.
func (s *sources) clusterArguments() string {
	var out []string
	for _, f := range changedFlags(s.clusterFlags) {
		switch f.Name {
		case "kubeconfig", "context", "cluster", "user", "server", "as", "as-group", "as-uid", "tls-server-name", "certificate-authority":
			out = append(out, "--"+f.Name+" "+shellQuote(f.Value.String()))
		}
	}
	return strings.Join(out, " ")
}

func changedFlags(fs *pflag.FlagSet) []*pflag.Flag {
	var out []*pflag.Flag
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			out = append(out, f)
		}
	})
	return out
}

// shellQuote quotes a word for a POSIX shell if it needs it.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@,+=%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
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
