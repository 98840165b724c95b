// Package fleet reads several clusters: each context of a kubeconfig once, a few at the
// same time. A cluster that cannot be read does not affect the others.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// All selects all contexts of the kubeconfig.
const All = "all"

// atOnce limits how many clusters are read at the same time. Each is held in memory during
// its evaluation.
const atOnce = 4

// allowed are the flags that may be combined with --contexts. All others are for a single cluster,
// would send requests for all clusters to one address, or would send one cluster's credentials to
// all.
var allowed = []string{
	"contexts", "cluster-timeout", "output", "color", "ascii", "fail-on", "check", "pool", "node", "ignore", "ignore-file", "grace",
	"agents", "agents-selector", "agents-namespace", "agents-scheme", "agents-ca-file", "agents-server-name", "agents-timeout",
	"add-nodes", "node-labels", "pods-per-node", "pods", "add-pool", "block-size", "strict-affinity", "max-blocks", "reserve",
	"kubeconfig", "as", "as-group", "as-uid", "as-user-extra", "request-timeout", "disable-compression",
}

// ofOne are the formats for a single cluster: their output names no context.
var ofOne = []string{"map", "name", "custom-columns"}

// CheckFlags returns an error if a given flag cannot be combined with several clusters.
func CheckFlags(fs *pflag.FlagSet) (err error) {
	fs.Visit(func(f *pflag.Flag) {
		if err == nil && !slices.Contains(allowed, f.Name) {
			err = fmt.Errorf("--%s applies to one cluster: it cannot be used with --contexts", f.Name)
		}
	})
	if err != nil {
		return err
	}
	formats, err := fs.GetStringArray("output")
	for _, o := range formats {
		if name, _, _ := strings.Cut(o, "="); slices.Contains(ofOne, name) {
			return fmt.Errorf("--output %s shows one cluster: it cannot be used with --contexts", name)
		}
	}
	return err
}

// CopyFlags copies the given values of flags to another set. Each set keeps its own record
// of the flags that were given.
func CopyFlags(from, to *pflag.FlagSet) (err error) {
	from.VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		x := to.Lookup(f.Name)
		if list, ok := f.Value.(pflag.SliceValue); ok {
			err, x.Changed = errors.Join(err, x.Value.(pflag.SliceValue).Replace(list.GetSlice())), true
			return
		}
		err = errors.Join(err, to.Set(f.Name, f.Value.String()))
	})
	return err
}

// Member is a cluster of a fleet.
type Member struct {
	// Context is the context for reading it.
	Context string
	// Same are the other requested contexts of the same API server.
	Same []string
	// Broken describes missing parts of the kubeconfig. Without this check the Kubernetes
	// client would use localhost:8080.
	Broken error
}

// Members returns the clusters of the requested contexts, in the same order; for [All] they
// are sorted by name. Contexts with the same server and connection settings are one
// cluster.
func Members(config api.Config, asked []string) (out []Member, err error) {
	names := slices.Sorted(maps.Keys(config.Contexts))
	if len(names) == 0 {
		return nil, fmt.Errorf("--contexts: no kubeconfig with contexts found (--kubeconfig, KUBECONFIG or ~/.kube/config)")
	}
	if slices.Contains(asked, All) {
		asked = names
	}
	at := map[string]int{} // index in out by server
	seen := map[string]bool{}
	for _, name := range asked {
		if config.Contexts[name] == nil {
			return nil, fmt.Errorf("--contexts: no context %q%s", name, view.Suggestion(name, names, "contexts"))
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		key, err := server(config, name)
		if err != nil {
			out = append(out, Member{Context: name, Broken: err})
			continue
		}
		if i, known := at[key]; known {
			out[i].Same = append(out[i].Same, name)
			continue
		}
		at[key] = len(out)
		out = append(out, Member{Context: name})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--contexts names no context; contexts: %s", strings.Join(names, ", "))
	}
	return out, nil
}

// server identifies the API server of a context by its address. Behind another proxy or TLS server
// name, the same address may be another server.
func server(config api.Config, context string) (string, error) {
	name := config.Contexts[context].Cluster
	c := config.Clusters[name]
	switch {
	case c == nil:
		return "", fmt.Errorf("the kubeconfig has no cluster %q, which the context refers to", name)
	case c.Server == "":
		return "", fmt.Errorf("cluster %q has no server in the kubeconfig", name)
	}
	return strings.Join([]string{strings.TrimRight(strings.ToLower(c.Server), "/"), c.ProxyURL, c.TLSServerName}, "\n"), nil
}

// Reader reads a cluster.
type Reader[T view.FleetMember] struct {
	view.FleetCluster // without an error
	Read              func(context.Context) (T, error)
}

// Read reads all clusters, a few at the same time. Each must finish within limit; zero
// means unlimited. Errors and panics only affect their own cluster. If a reading does not
// end with its context, such as one that waits for credentials, Read abandons it.
func Read[T view.FleetMember](ctx context.Context, readers []Reader[T], limit time.Duration, show func(string)) ([]view.FleetItem[T], []error) {
	items, errs := make([]view.FleetItem[T], len(readers)), make([]error, len(readers))
	var done atomic.Int64
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i, r := range readers {
		all.Go(func() error {
			items[i].FleetCluster = r.FleetCluster
			if items[i].Of, errs[i] = within(ctx, limit, r.Read); errs[i] != nil {
				items[i].Error = errs[i].Error()
			}
			show(fmt.Sprintf("reading clusters: %d of %d", done.Add(1), len(readers)))
			return nil
		})
	}
	_ = all.Wait() // the errors are per cluster
	return items, errs
}

// TimeoutError is returned for a cluster that was not read within the limit.
type TimeoutError struct{ limit time.Duration }

// Error implements error.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("not read within %s (--cluster-timeout)", e.limit)
}

// leftBehind is how long a reading may continue after its context has ended.
const leftBehind = 2 * time.Second

func within[T view.FleetMember](ctx context.Context, limit time.Duration, read func(context.Context) (T, error)) (T, error) {
	if limit > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, limit, &TimeoutError{limit})
		defer cancel()
	}
	type outcome struct {
		of  T
		err error
	}
	ended := make(chan outcome, 1)
	go func() {
		of, err := safely(ctx, read)
		ended <- outcome{of, err}
	}()
	var got outcome
	select {
	case got = <-ended:
	case <-ctx.Done():
		select {
		case got = <-ended:
		case <-time.After(leftBehind):
			got.err = ctx.Err()
		}
	}
	var late *TimeoutError
	if got.err != nil && errors.As(context.Cause(ctx), &late) {
		got.err = late
	}
	return got.of, got.err
}

// safely turns a panic into an error; in a goroutine it would end the program.
func safely[T view.FleetMember](ctx context.Context, read func(context.Context) (T, error)) (_ T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("calico-audit failed: %v\n\n%s", p, debug.Stack())
		}
	}()
	if err := ctx.Err(); err != nil {
		return *new(T), err
	}
	return read(ctx)
}

// Names returns a report with the pools and nodes of all clusters, to validate filters: a requested
// name must exist in one of them. The report is complete if all are.
func Names(items []view.FleetItem[view.ClusterReport]) *audit.Report {
	all := &audit.Report{Complete: true}
	for _, x := range items {
		if all.Complete = all.Complete && x.Complete(); x.Error == "" {
			all.Pools, all.Nodes = append(all.Pools, x.Of.Pools...), append(all.Nodes, x.Of.Nodes...)
			all.WhereaboutsPools = append(all.WhereaboutsPools, x.Of.WhereaboutsPools...)
		}
	}
	return all
}

// Sort returns the clusters, the most severe first. A cluster with the same GUID and
// content as another is the same one under another address, and is merged with it.
func Sort[T view.FleetMember](items []view.FleetItem[T]) (out []view.FleetItem[T]) {
	for _, x := range items {
		i := slices.IndexFunc(out, func(y view.FleetItem[T]) bool { return x.SameGUID(&y) })
		switch {
		case i < 0:
		case x.SameContent(&out[i]):
			out[i].Same = append(append(out[i].Same, x.Context), x.Same...)
			continue
		default:
			x.Note = fmt.Sprintf("has the GUID of context %s but another result: the same cluster at another time or with other rights, or a copy", out[i].Context)
		}
		out = append(out, x)
	}
	slices.SortStableFunc(out, func(a, b view.FleetItem[T]) int {
		return cmp.Or(a.CompareWorst(&b), strings.Compare(a.Context, b.Context))
	})
	return out
}
