package story

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/kubelets"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// scene is the cluster of a story at one moment: what etcd holds, by key. A story that is
// played many times from there goes back to it, which takes seconds, and is not played
// from its beginning.
type scene map[string]string

// scenery is where the API server stores what a story consists of.
var scenery = []string{
	"pods/", "minions/", "namespaces/" + shop, "deployments/", "replicasets/", "daemonsets/", "controllerrevisions/",
	"poddisruptionbudgets/", "crd.projectcalico.org/", "leases/kube-system/",
}

// scene reads what is stored now.
func (s *story) scene(t *testing.T) scene {
	t.Helper()
	out := scene{}
	for _, prefix := range scenery {
		stored, err := s.Etcd.Get(t.Context(), "/registry/"+prefix, clientv3.WithPrefix())
		must(t, err)
		for _, kv := range stored.Kvs {
			out[string(kv.Key)] = string(kv.Value)
		}
	}
	return out
}

// enter makes a cluster in which nothing runs a scene's, and has everything run until the
// test ends.
func (s *story) enter(t *testing.T, to scene) {
	t.Helper()
	ctx := t.Context()
	now := s.scene(t)
	for key := range now {
		if _, stays := to[key]; !stays {
			_, err := s.Etcd.Delete(ctx, key)
			must(t, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(to)) {
		if now[key] != to[key] {
			_, err := s.Etcd.Put(ctx, key, to[key])
			must(t, err)
		}
	}
	must(t, s.Heartbeat(ctx))
	s.run(t)
	s.awaitHealthy(t)
	s.begin(t)
}

// run starts the controllers, the scheduler and the kubelets.
func (s *story) run(t *testing.T) {
	t.Helper()
	s.manager, s.scheduler = s.StartControllerManager(t), s.StartScheduler(t, "")
	s.kubelets = kubelets.Start(t, s.seeder, kubelets.Options{})
}

// stop stops them, if they run.
func (s *story) stop() {
	if s.kubelets == nil {
		return
	}
	s.kubelets.Stop()
	s.manager.Stop()
	s.scheduler.Stop()
	s.kubelets = nil
}

// begin has the history that is looked at begin now.
func (s *story) begin(t *testing.T) {
	t.Helper()
	now, err := s.Etcd.Get(t.Context(), "/registry/none")
	must(t, err)
	s.began = now.Header.Revision
}

// stages are clusters to play the scenes of a story on, as many as tests run beside each
// other: the story's own, in which nothing runs any more, and empty ones.
func (s *story) stages(t *testing.T, most int) chan *story {
	t.Helper()
	n := 1
	if f := flag.Lookup("test.parallel"); f != nil {
		n = min(f.Value.(flag.Getter).Get().(int), most)
	}
	out := make(chan *story, max(n, 1))
	s.stop()
	out <- s
	for len(out) < n {
		other := raise(t)
		other.budgets = s.budgets
		out <- other
	}
	return out
}

// write is one of the program's.
type write struct {
	what string
	at   time.Time
}

// raise starts a cluster in which nothing is yet.
func raise(t *testing.T) *story {
	t.Helper()
	c := testcluster.Start(t, testcluster.Options{
		// The history is read at the end.
		APIServerArgs: []string{"--etcd-compaction-interval=0"},
	})
	seeder, err := seeding.New(c)
	must(t, err)
	return &story{Cluster: c, seeder: seeder}
}
