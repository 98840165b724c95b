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

// scene is a cluster's state at one moment: the values in etcd by key. A story that is
// played many times from there restores the scene, which takes seconds, instead of
// starting over.
type scene map[string]string

// scenery lists the key prefixes under which the API server stores the state of a story.
var scenery = []string{
	"pods/", "minions/", "namespaces/" + shop, "deployments/", "replicasets/", "daemonsets/", "controllerrevisions/",
	"poddisruptionbudgets/", "crd.projectcalico.org/", "leases/kube-system/",
}

// scene reads the current state.
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

// enter restores a scene in a cluster without running components. Then it starts them.
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

// run starts the controller manager, the scheduler and the kubelets.
func (s *story) run(t *testing.T) {
	t.Helper()
	s.manager, s.scheduler = s.StartControllerManager(t), s.StartScheduler(t, "")
	s.kubelets = kubelets.Start(t, s.seeder, kubelets.Options{})
}

// stop stops them if they run.
func (s *story) stop() {
	if s.kubelets == nil {
		return
	}
	s.kubelets.Stop()
	s.manager.Stop()
	s.scheduler.Stop()
	s.kubelets = nil
}

// begin starts the history that checkBudgets reads.
func (s *story) begin(t *testing.T) {
	t.Helper()
	now, err := s.Etcd.Get(t.Context(), "/registry/none")
	must(t, err)
	s.began = now.Header.Revision
}

// stages returns clusters on which to play the scenes of a story, as many as tests run in
// parallel. The first is the story's own, with its components stopped; the others are
// empty.
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

// write is a write of the program.
type write struct {
	what string
	at   time.Time
}

// raise starts an empty cluster.
func raise(t *testing.T) *story {
	t.Helper()
	c := testcluster.Start(t, testcluster.Options{
		// checkBudgets reads the whole history at the end.
		APIServerArgs: []string{"--etcd-compaction-interval=0"},
	})
	seeder, err := seeding.New(c)
	must(t, err)
	return &story{Cluster: c, seeder: seeder}
}
