package planner

import (
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/repair"
)

// TestStagesInOrder: a plan after a restore waits for the stages before it, and names the reason.
func TestStagesInOrder(t *testing.T) {
	const (
		base      = "pool pods 10.0.0.0/24\nnode n1\nnode n2\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\n"
		running   = "pod kube-system/calico-kube-controllers-x n1 hostnet\n"
		ending    = "pod kube-system/calico-kube-controllers-x n1 hostnet terminating\n"
		lost      = "pod shop/a n1 10.0.0.5 cid=a\n"
		young     = "pod shop/a n1 10.0.0.5 cid=a age=1m\n"
		duplicate = "alloc 10.0.0.6 pod=shop/b node=n1 handle=h\nhandle h 10.0.0.0/26=1\npod shop/b n1 10.0.0.6\npod shop/c n2 10.0.0.6\n"
		alike     = "pod shop/d n1 10.0.0.7 cid=d\npod shop/e n1 10.0.0.7 cid=e\n"
		leaked    = "alloc 10.0.0.10 pod=shop/left node=n1 handle=left\nhandle left 10.0.0.0/26=1\n"
	)
	for _, x := range []struct {
		name, state string
		stage       repair.Stage
		want        string // "" if the plan may be applied
	}{
		{"the collector runs", base + running, repair.StopCollector, "stage 1 (stop Calico's collector) is not done: pod kube-system/calico-kube-controllers-x runs it: kubectl scale"},
		{"a collector that is being deleted may still run", base + ending, repair.RecordRunning, "stage 1"},
		{"it does not run", base, repair.StopCollector, ""},
		{"pods were not read", base + "gap pods forbidden\n", repair.StopCollector, "stage 1 (stop Calico's collector) is not done: the cluster was read only in part"},
		{"its own steps", base + lost, repair.RecordRunning, ""},
		{"an address is not recorded", base + lost, repair.ResolveDuplicates, "stage 2 (record running pods) is not done: record-ip:10.0.0.5"},
		{"an address is too young to be recorded", base + young, repair.ReleaseUnused, "stage 2 (record running pods) is not done: 10.0.0.5 is not recorded yet: pod shop/a was created at 2026-01-02T11:59:00Z, within the grace period"},
		{"two pods with one address", base + duplicate, repair.ResolveDuplicates, "stage 3 (restart pods with an address that cannot be theirs) is not done: delete pod shop/c"},
		{"two pods with one address, before a release", base + duplicate, repair.ReleaseUnused, "stage 3"},
		{"two pods that cannot be told apart", base + alike, repair.ReleaseUnused, "nothing shows which of them owns it"},
		{"nothing to do", base, repair.ReleaseUnused, ""},
		{"a leak", base + leaked, repair.ReleaseUnused, ""},
		{"a leak, before the collector starts", base + leaked, repair.StartCollector, "stage 4 (release unused objects) is not done: release-ip:10.0.0.10"},
		{"the collector may start", base, repair.StartCollector, ""},
		{"the collector was started", base + running, repair.StartCollector, ""},
		{"the collector was started too early", base + running + lost, repair.StartCollector, "stage 2"},
		{"another repair", base + running + lost, 0, ""},
	} {
		req := repair.Request{WithoutHostEvidence: true, MaxSteps: 1}
		if x.stage > 0 {
			req = req.Stage(x.stage)
		}
		got := ""
		if all := Blockers(parseState(t, x.state, 0), req); len(all) > 0 {
			got = BlockersText(all)
		}
		if (x.want == "") != (got == "") || !strings.Contains(got, x.want) {
			t.Errorf("%s: want %q, have %q", x.name, x.want, got)
		}
	}
}
