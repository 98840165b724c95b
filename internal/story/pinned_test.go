package story

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
)

// TestPinnedPods plays pods that a nodeSelector or node affinity restricts to one node.
// They stay if that node keeps no other free address for them. Their block is not
// emptied, although it has the fewest pods, and pods that borrow are not moved. Each
// refusal names its pod.
func TestPinnedPods(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := play(t, small)
	ipam, err := s.ReadIPAM(ctx, testcluster.CRDv1)
	must(t, err)
	home := ownerOf(ipam, fewest(ipam))
	for _, on := range []bool{true, false} {
		for _, node := range append(slices.Clone(newNodes), home) {
			s.cordonNode(t, node, on)
		}
		if on {
			must(t, s.workload(ctx, shop, "stock", 4, intstr.FromInt32(1)))
			s.awaitHealthy(t)
		}
	}
	s.pinned(t, "local", `{"nodeSelector":{"kubernetes.io/hostname":"`+home+`"}}`)
	s.awaitHealthy(t)
	s.freeBeside(t, home)
	eventually(t, time.Minute, func() error { return s.Backdate(ctx, 3*time.Hour) })
	must(t, s.Heartbeat(ctx))
	s.begin(t)

	before, err := s.ReadIPAM(ctx, testcluster.CRDv1)
	must(t, err)
	bound, held := s.podsOf(t, "local"), fewest(before)
	kubeconfig := newProxy(t, s.Config).kubeconfig(t)
	there := 0
	for name, pod := range bound {
		if !held.Contains(netip.MustParseAddr(pod.Status.PodIP)) {
			continue
		}
		there++
		refused(t, kubeconfig, []string{"--consolidate", "--block", held.String()},
			repair.RefusedNothing, pod.Status.PodIP+": pod shop/"+name+" may only run on "+home+" (its nodeSelector and node affinity: kubernetes.io/hostname in ("+home+"))")
	}
	if there == 0 || ownerOf(before, held) != home {
		t.Fatalf("%d of the pods are in %s, the block with the fewest pods", there, held)
	}

	succeeds(t, kubeconfig, consolidate)
	s.awaitHealthy(t)
	after, err := s.ReadIPAM(ctx, testcluster.CRDv1)
	must(t, err)
	if !slices.Contains(after.Blocks[home], held) {
		t.Errorf("the blocks are %v: %s should stay %s's", after.Blocks, held, home)
	}
	for name, pod := range s.podsOf(t, "local") {
		own := slices.ContainsFunc(after.Blocks[home], func(b netip.Prefix) bool { return b.Contains(netip.MustParseAddr(pod.Status.PodIP)) })
		if pod.Spec.NodeName != home || !own {
			t.Errorf("pod %s runs on %s with %s: it may run on %s alone, which has %v", name, pod.Spec.NodeName, pod.Status.PodIP, home, after.Blocks[home])
		}
	}
	s.checkBudgets(t)

	without := newNodes[slices.IndexFunc(newNodes, func(n string) bool { return len(after.Blocks[n]) == 0 })]
	s.pinned(t, "edge", `{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["`+without+`"]}]}]}}}}`)
	s.awaitHealthy(t)
	for name := range s.podsOf(t, "edge") {
		refused(t, kubeconfig, []string{"--rehome"}, repair.RefusedNowhere, "pod shop/"+name+" may only run on "+without+" (its nodeSelector and node affinity: kubernetes.io/hostname in ("+without+"))")
	}
	s.clean(t)
}

// freeBeside deletes one pod of the node outside the block with the fewest pods. The
// replacement starts on another node. Except for pinned pods, the node could then do
// without that block.
func (s *story) freeBeside(t *testing.T, node string) {
	t.Helper()
	ipam, err := s.ReadIPAM(t.Context(), testcluster.CRDv1)
	must(t, err)
	held := fewest(ipam)
	s.cordonNode(t, node, true)
	for name, pod := range s.podsOf(t, "cart") {
		if pod.Spec.NodeName == node && !held.Contains(netip.MustParseAddr(pod.Status.PodIP)) {
			s.end(t, name)
			break
		}
	}
	s.awaitHealthy(t)
	s.cordonNode(t, node, false)
}

// pinned creates a Deployment of two pods whose pod spec restricts where they run.
func (s *story) pinned(t *testing.T, app, where string) {
	t.Helper()
	must(t, s.workload(t.Context(), shop, app, 0, intstr.FromInt32(1)))
	_, err := s.Kube.AppsV1().Deployments(shop).Patch(t.Context(), app, types.StrategicMergePatchType,
		[]byte(`{"spec":{"replicas":2,"template":{"spec":`+where+`}}}`), metav1.PatchOptions{})
	must(t, err)
	b := &s.budgets[len(s.budgets)-1]
	b.replicas, b.healthy = 2, 1
}

// podsOf returns the pods of an app by name.
func (s *story) podsOf(t *testing.T, app string) map[string]corev1.Pod {
	t.Helper()
	list, err := s.Kube.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	must(t, err)
	out := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		out[pod.Name] = pod
	}
	return out
}

// fewest returns the block with the fewest addresses in use.
func fewest(ipam *testcluster.IPAMState) netip.Prefix {
	used := map[netip.Prefix]int{}
	for _, held := range ipam.Blocks {
		for _, b := range held {
			for _, of := range ipam.Allocations {
				for _, addr := range of {
					if b.Contains(addr) {
						used[b]++
					}
				}
			}
		}
	}
	return slices.MinFunc(slices.Collect(maps.Keys(used)), func(a, b netip.Prefix) int { return used[a] - used[b] })
}

func ownerOf(ipam *testcluster.IPAMState, block netip.Prefix) string {
	for owner, held := range ipam.Blocks {
		if slices.Contains(held, block) {
			return owner
		}
	}
	return ""
}

// refused fails the test unless the plan has a refusal with the code whose reason
// contains the text.
func refused(t *testing.T, kubeconfig string, args []string, code repair.RefusalCode, text string) {
	t.Helper()
	dir := t.TempDir()
	exit, out, log := run(t, dir, slices.Concat([]string{"repair", "--cordon-full", "--kubeconfig", kubeconfig, "-o", "json=plan.json", "-o", "wide"}, args)...)
	if exit != 0 {
		t.Fatalf("%v ends with %d:\n%s%s", args, exit, out, log)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "plan.json"))
	must(t, err)
	var plan repair.Plan
	must(t, json.Unmarshal(raw, &plan))
	if !slices.ContainsFunc(plan.Refused, func(r repair.Refusal) bool { return r.Code == code && strings.Contains(r.Reason, text) }) {
		t.Errorf("%v does not refuse as %s what says %q:\n%s", args, code, text, out)
	}
}
