package source

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/etcd"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
)

// Etcd reads Calico's own etcd and, if it is configured, the cluster's Kubernetes API.
type Etcd struct {
	calico *etcd.Client
	// kubernetes is nil if no cluster is configured; config is the cluster's client configuration.
	kubernetes *cluster.Kubernetes
	config     *rest.Config
	// reading is the latest reading of etcd, which amends Kubernetes' objects.
	reading *etcd.Reading
}

// settled is the time between two readings. etcd records no ages. A claim in flight takes only
// milliseconds, so a state that could be one must still exist at the second reading.
const settled = 500 * time.Millisecond

// Client returns the client of etcd.
func (e *Etcd) Client() *etcd.Client { return e.calico }

// Joined reports whether the cluster's Kubernetes API is read, too.
func (e *Etcd) Joined() bool { return e.kubernetes != nil }

// Read implements Reader.
func (e *Etcd) Read(ctx context.Context) (*blocks.Snapshot, error) {
	at := time.Now().UTC()
	var err error
	if e.reading, err = e.calico.Read(ctx); err != nil {
		return nil, exit.Unread(err)
	}
	if e.kubernetes == nil {
		s := e.reading.Alone()
		s.Cluster.TakenAt = at
		return s, nil
	}
	s, err := e.kubernetes.Read(ctx)
	if err != nil {
		return nil, exit.Unread(err)
	}
	return e.join(s, func(blocks.Resource) bool { return true })
}

// Reread implements Reader. It reads all of Calico's objects again, at one revision.
func (e *Etcd) Reread(ctx context.Context, prev *blocks.Snapshot, resources []blocks.Resource) (*blocks.Snapshot, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(settled):
	}
	if e.kubernetes == nil {
		s, err := e.Read(ctx)
		if err == nil {
			s.Cluster.TakenAt = prev.Cluster.TakenAt
		}
		return s, err
	}
	var err error
	if e.reading, err = e.calico.Read(ctx); err != nil {
		return nil, exit.Unread(err)
	}
	again := map[blocks.Resource]bool{}
	for _, r := range resources {
		again[r] = true
	}
	s, err := e.kubernetes.Reread(ctx, prev, resources)
	if err != nil {
		return nil, exit.Unread(err)
	}
	return e.join(s, func(r blocks.Resource) bool { return again[r] })
}

// Refresh reads single objects again: see [cluster.Kubernetes.Refresh]. Calico's objects are all of
// one revision. Without Kubernetes it reads everything.
func (e *Etcd) Refresh(ctx context.Context, prev *blocks.Snapshot, refs []blocks.Ref) (*blocks.Snapshot, error) {
	if e.kubernetes == nil {
		return e.Read(ctx)
	}
	last := e.reading
	renewal, err := e.calico.Refresh(ctx, last, refs)
	if err != nil {
		return nil, exit.Unread(err)
	}
	e.reading = renewal.Reading // amends the Kubernetes objects that are read now
	// The API server's response for any object provides the time.
	others := append(slices.DeleteFunc(slices.Clone(refs), func(ref blocks.Ref) bool {
		kind := decode.KindOf(ref.Resource)
		return kind != nil && kind.OfCalico()
	}), blocks.Ref{Resource: blocks.Namespaces, Name: metav1.NamespaceDefault})
	s, err := e.kubernetes.Refresh(ctx, prev, others)
	e.reading = last
	if err != nil {
		return nil, exit.Unread(err)
	}
	if s, err = renewal.Onto(s, last); err != nil {
		return nil, exit.Unread(err)
	}
	last.Learn(renewal)
	return s, nil
}

func (e *Etcd) join(s *blocks.Snapshot, read func(blocks.Resource) bool) (*blocks.Snapshot, error) {
	s, err := e.reading.Join(s, read)
	if err != nil {
		return nil, exit.Unread(err)
	}
	return s, nil
}

// calicoConfig returns the configuration of Calico's datastore, from --calico-config or the
// environment. Its errors are usage errors.
func (f *Flags) calicoConfig() (etcd.Config, error) {
	config, err := etcd.LoadConfig(f.CalicoConfig)
	switch {
	case err != nil:
		return config, exit.Usage(err)
	case f.CalicoConfig != "" && !config.Etcd():
		return config, exit.Usagef("--calico-config %s is for Calico's own etcd, and the file says datastoreType: %s; to read Calico's objects from Kubernetes, use --kubeconfig", f.CalicoConfig, config.Spec.DatastoreType)
	}
	return config, nil
}

// OfEtcd reports whether the source is Calico's own etcd, and names its endpoints.
func (f *Flags) OfEtcd() (where string, yes bool) {
	if len(f.Files) > 0 {
		return "", false
	}
	config, err := f.calicoConfig()
	if err != nil || !config.Etcd() {
		return "", false
	}
	return config.Where(), true
}

// openEtcd returns a reader of Calico's own etcd.
func (f *Flags) openEtcd(config etcd.Config, streams genericiooptions.IOStreams, show func(string)) (*Etcd, error) {
	e := &Etcd{}
	o := etcd.Options{Progress: func(r blocks.Resource, done int) { show(fmt.Sprintf("reading %s: %d", r, done)) }}
	if f.Record != nil {
		o.Record = f.Record.Spool
	}
	var err error
	if o.Timeout, err = time.ParseDuration(*f.Cluster.Timeout); err != nil {
		o.Timeout = 0 // a number of seconds, or nonsense that Kubernetes' client rejects
	}
	if e.calico, err = etcd.New(config, o); err != nil {
		return nil, exit.Usage(err)
	}
	named := f.CalicoConfig != "" && config.Kubeconfig() != ""
	if named && !f.ClusterFlags.Changed("kubeconfig") {
		*f.Cluster.KubeConfig = config.Kubeconfig()
	}
	// The kubeconfig in the default place may belong to another cluster.
	if !named && flags.Arguments(f.ClusterFlags, append([]string{"kubeconfig"}, clusterNames...)...) == "" && os.Getenv("KUBECONFIG") == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return e, nil
	}
	if e.config, err = f.RESTConfig(streams); err != nil {
		return nil, err
	}
	e.kubernetes, err = f.openKubernetes(e.config, cluster.KubernetesOptions{
		CalicoElsewhere: true,
		Amend: map[blocks.Resource]func([]byte) []byte{
			blocks.Nodes: func(object []byte) []byte { return e.reading.AmendNode(object) },
			blocks.Pods:  func(object []byte) []byte { return e.reading.AmendPod(object) },
		},
		Original: func(ref blocks.Ref) blocks.Ref {
			if ref.Node = e.reading.KubernetesName(ref.Node); ref.Resource == blocks.Nodes {
				ref.Name = e.reading.KubernetesName(ref.Name)
			}
			return ref
		},
	}, show)
	return e, err
}
