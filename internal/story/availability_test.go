package story

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// checkBudgets fails the test if, at any moment since the story began, a workload had
// fewer healthy pods than its budget requires, or two fewer than its replicas. It replays
// etcd's history, which records every change. It returns the number of removed pods.
func (s *story) checkBudgets(t *testing.T) (removed int) {
	t.Helper()
	ctx := t.Context()
	const pods = "/registry/pods/"
	at, err := s.Etcd.Get(ctx, pods, clientv3.WithPrefix(), clientv3.WithRev(s.began))
	must(t, err)
	healthy := map[string]map[string]bool{} // etcd keys by app
	count := func(key, app string, is bool) {
		if healthy[app] == nil {
			healthy[app] = map[string]bool{}
		}
		if is {
			healthy[app][key] = true
		} else {
			delete(healthy[app], key)
		}
	}
	for _, kv := range at.Kvs {
		pod := decodePod(t, kv.Value)
		count(string(kv.Key), pod.Labels["app"], isHealthy(pod))
	}
	lowest := map[string]int{}
	for _, b := range s.budgets {
		lowest[b.app] = len(healthy[b.app])
	}
	for _, e := range s.changes(t, pods) {
		value := e.Kv.Value
		if e.Type == mvccpb.DELETE {
			value = e.PrevKv.Value
			removed++
		}
		pod := decodePod(t, value)
		app := pod.Labels["app"]
		count(string(e.Kv.Key), app, e.Type != mvccpb.DELETE && isHealthy(pod))
		if low, ok := lowest[app]; ok {
			lowest[app] = min(low, len(healthy[app]))
		}
	}
	for _, b := range s.budgets {
		t.Logf("%s/%s: %d replicas, at least %d must be healthy, at least %d were", b.namespace, b.app, b.replicas, b.healthy, lowest[b.app])
		if lowest[b.app] < max(b.healthy, b.replicas-1) {
			t.Errorf("of %d pods %s/%s, of which %d must be healthy, only %d were once", b.replicas, b.namespace, b.app, b.healthy, lowest[b.app])
		}
	}
	return removed
}

// changes returns all writes under a prefix since the story began.
func (s *story) changes(t *testing.T, prefix string) (out []*clientv3.Event) {
	t.Helper()
	// Our own write marks the end. The API server never writes this key.
	end, err := s.Etcd.Put(t.Context(), "/registry/end", "")
	must(t, err)
	watch := s.Etcd.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(s.began+1), clientv3.WithPrevKV())
	for response := range watch {
		must(t, response.Err())
		for _, e := range response.Events {
			if e.Kv.ModRevision >= end.Header.Revision {
				return out
			}
			if strings.HasPrefix(string(e.Kv.Key), prefix) {
				out = append(out, e)
			}
		}
	}
	t.Fatal("etcd's history broke off")
	return nil
}

func decodePod(t *testing.T, stored []byte) *corev1.Pod {
	t.Helper()
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(stored, nil, nil)
	must(t, err)
	pod, ok := object.(*corev1.Pod)
	if !ok {
		t.Fatalf("etcd has a %T among the pods", object)
	}
	return pod
}

// isHealthy reports whether a PodDisruptionBudget counts the pod as healthy.
func isHealthy(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}
