package checks_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/hosts"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// leak is a state in which only a host view can show whether 10.0.0.5 is in use. Ages are
// relative to the reading; the allocation is an hour old.
const leak = `
pool pods 10.0.0.0/24
node n1
node n2
pod shop/x n1 10.0.0.1
block 10.0.0.0/26 n1
alloc 10.0.0.1 pod=shop/x node=n1 handle=x
alloc 10.0.0.5 pod=shop/gone node=n1 handle=h age=1h
`

func TestHostEvidence(t *testing.T) {
	const (
		unknown = hosts.Unknown
		inUse   = hosts.ShowsInUse
		free    = hosts.ShowsFree
	)
	for name, c := range map[string]struct {
		state, addr string
		want        hosts.Verdict
		say, renew  string
	}{
		"no view":                        {leak, "", unknown, "there is no host view of node n1", "calico-audit agent --once --node n1 -o json > n1.json"},
		"no view, and why":               {leak + "hostgap n1 its kernel is silent\n", "", unknown, "(its kernel is silent)", "--node n1"},
		"another node's view":            {leak + "view n2 complete\nnetns n2 1 10.0.0.9\n", "", unknown, "there is no host view of node n1", "--node n1"},
		"complete":                       {leak + "view n1 complete age=9m\nnetns n1 1 10.0.0.1\n", "", free, "the host view of n1 (views/n1.json, taken at 2026-01-02T11:51:00Z) is complete and does not show it", ""},
		"routes alone":                   {leak + "view n1 routes complete\n", "", unknown, "it lists only routes", "--node n1"},
		"not complete":                   {leak + "view n1\nnetns n1 1 10.0.0.1\n", "", unknown, "it does not claim to list all network namespaces", "--node n1"},
		"a namespace could not be read":  {leak + "view n1 lacks=process_7_may_not_be_read\n", "", unknown, "its list of network namespaces may be incomplete: process 7 may not be read", "--node n1"},
		"unauthenticated":                {leak + "view n1 complete unauth\n", "", unknown, "can block a repair, but never allow one", "--node n1"},
		"too old":                        {leak + "view n1 complete age=11m\n", "", unknown, "more than 10 minutes before the cluster was read", "--node n1"},
		"of the future":                  {leak + "view n1 complete age=-2m\n", "", unknown, "in the future", "--node n1"},
		"older than the allocation":      {strings.ReplaceAll(leak, "age=1h", "age=1m") + "view n1 complete age=2m\n", "", unknown, "it may predate the setup of the pod's network", "--node n1"},
		"while the pod was being set up": {strings.ReplaceAll(leak, "age=1h", "age=9m") + "view n1 complete age=8m\n", "", unknown, "it may predate the setup of the pod's network", "--node n1"},
		"after the pod was set up":       {strings.ReplaceAll(leak, "age=1h", "age=9m") + "view n1 complete age=7m\n", "", free, "is complete and does not show it", ""},
		"two views, one of them whole":   {leak + "view n1 age=11m\nview n1 complete source=b.json\n", "", free, "b.json", ""},
		"two views, the nearer is named": {leak + "view n1 routes\nview n1 complete unauth source=b.json\n", "", unknown, "b.json", "--node n1"},

		"shown":                                 {leak + "view n1 complete\nnetns n1 42 10.0.0.5\n", "", inUse, "it is in use in namespace 42 on n1", ""},
		"shown, unauthenticated":                {leak + "view n1 unauth\nnetns n1 42 10.0.0.5\n", "", inUse, "it is in use in namespace 42 on n1", ""},
		"shown in the host's own namespace":     {leak + "view n1 complete\nnetns n1 42 10.0.0.5/26 host\n", "", inUse, "in the host's own namespace", ""},
		"shown by another node":                 {leak + "view n1 complete\nview n2\nnetns n2 7 10.0.0.5\n", "", inUse, "it is in use in namespace 7 on n2", ""},
		"shown by a machine that is not a node": {leak + "view n1 complete\nview n9\nnetns n9 7 10.0.0.5\n", "", inUse, "it is in use in namespace 7 on n9", ""},
		"shown once, stale":                     {leak + "view n1 complete age=11m\nnetns n1 42 10.0.0.5\n", "", inUse, "it was in use in namespace 42 on n1", "--node n1"},
		"shown once by a machine that is none":  {leak + "view n1 complete\nview n9 age=3h\nnetns n9 7 10.0.0.5\n", "", inUse, "too old to show whether it still is", "--node n9"},
		"shown before it was assigned":          {strings.ReplaceAll(leak, "age=1h", "age=3m") + "view n1 complete age=5m\nnetns n1 42 10.0.0.5\n", "", inUse, "it was in use", "--node n1"},
		"shown twice, the fresh one first":      {leak + "view n1 age=2h\nnetns n1 1 10.0.0.5\nview n2\nnetns n2 2 10.0.0.5\n", "", inUse, "it is in use in namespace 2 on n2", ""},

		"no node is named":                       {leak + "alloc 10.0.0.6 pod=shop/gone handle=h6\nview n1 complete\n", "10.0.0.6", unknown, "names no node", ""},
		"shown, and no node is named":            {leak + "alloc 10.0.0.6 pod=shop/gone handle=h6\nview n1 complete\nnetns n1 1 10.0.0.6\n", "10.0.0.6", inUse, "in use in namespace 1", ""},
		"a tunnel, by its handle":                {leak + "alloc 10.0.0.6 handle=vxlan-tunnel-addr-n2\nview n2 complete\n", "10.0.0.6", free, "view of n2", ""},
		"a vanished node, a view of its machine": {leak + "alloc 10.0.0.6 pod=shop/y node=n9 handle=y\nview n9 complete\n", "10.0.0.6", free, "view of n9", ""},
		"a virtual machine, by its attributes":   {leak + "alloc 10.0.0.6 pod=shop/y node=n1 handle=y vm\nview n1 complete\n", "10.0.0.6", unknown, "virtual machine", ""},
		"a virtual machine, by its handle":       {leak + "alloc 10.0.0.6 node=n1 handle=k8s-pod-network.vmi.shop.db\nview n1 complete\n", "10.0.0.6", unknown, "virtual machine", ""},
		"a live migration, by its other owner":   {leak + "alloc 10.0.0.6 pod=shop/y node=n1 handle=y alt=shop/z altnode=n2\nview n1 complete\n", "10.0.0.6", unknown, "virtual machine", ""},
		"a virtual machine, by its pod's name":   {leak + "alloc 10.0.0.6 pod=shop/virt-launcher-db-abc node=n1 handle=y\nview n1 complete\n", "10.0.0.6", unknown, "virtual machine", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.addr == "" {
				c.addr = "10.0.0.5"
			}
			st := parseState(t, c.state)
			r, ok := st.Allocation(netip.MustParseAddr(c.addr))
			if !ok {
				t.Fatalf("no allocation of %s", c.addr)
			}
			got := st.HostEvidence(r)
			if got.Verdict != c.want || !strings.Contains(got.Reason, c.say) {
				t.Errorf("%d, %q; want %d, %q", got.Verdict, got.Reason, c.want, c.say)
			}
			if !strings.Contains(got.Renew, c.renew) || (got.Renew == "") != (c.renew == "") {
				t.Errorf("renew %q, want %q", got.Renew, c.renew)
			}
			if (len(got.Uses) > 0) != (c.want == inUse) {
				t.Errorf("uses %v", got.Uses)
			}
		})
	}
}

// TestViewReadAfterCluster: agents are read after the cluster, so a view may be newer than the
// cluster. It lies in the future only if it is newer than the end of these reads. It may also be
// older than the cluster.
func TestViewReadAfterCluster(t *testing.T) {
	for _, c := range []struct {
		age   string
		after time.Duration
		want  hosts.Verdict
	}{{"-5m", 5 * time.Minute, hosts.ShowsFree}, {"-5m", 3 * time.Minute, hosts.Unknown}, {"0s", -time.Hour, hosts.ShowsFree}} {
		s, err := statedsl.Parse(leak + "view n1 complete age=" + c.age + "\n")
		if err != nil {
			t.Fatal(err)
		}
		s.Hosts.Until = s.Cluster.TakenAt.Add(c.after)
		st := state.New(s, state.Options{})
		r, _ := st.Allocation(netip.MustParseAddr("10.0.0.5"))
		if got := st.HostEvidence(r); got.Verdict != c.want {
			t.Errorf("age %s, the last agent read %s after the cluster: %d, %q; want %d", c.age, c.after, got.Verdict, got.Reason, c.want)
		}
	}
}

// TestStaleViewsCauseNoFinding: a view that is too old blocks repairs, but causes no findings.
func TestStaleViewsCauseNoFinding(t *testing.T) {
	before, _ := verdicts(t, leak, "")
	for _, node := range []string{"n1", "n2", "n9"} {
		after, _ := verdicts(t, leak+"view "+node+" age=11m\nnetns "+node+" 1 10.0.0.1,10.0.0.5,10.0.0.40 pids=1 uid=u\nroute "+node+" 10.0.0.0/26 blackhole proto=bird\n", "")
		if len(before) != len(after) {
			t.Errorf("a stale view of %s changes the findings: %d before, %d after: %v", node, len(before), len(after), after)
		}
	}
}

// TestViewOfUnknownMachine: a fresh view of a machine that is not a node proves which addresses
// are in use there. It causes no findings about its routes, or about uses that may be a node's
// own.
func TestViewOfUnknownMachine(t *testing.T) {
	text := leak + `view n9
netns n9 1 10.0.0.1 uid=uid-x
netns n9 2 10.0.0.1
netns n9 3 10.0.0.5 pids=4
netns n9 4 10.0.0.40 pids=5
route n9 10.0.0.0/26 blackhole proto=bird
`
	got, _ := verdicts(t, text, "")
	want := map[string]string{"ip/host-in-use": "10.0.0.40 is in use on n9", "ip/leaked": "still in use on n9"}
	for _, f := range got {
		switch f.Check {
		case "route/blackhole", "route/stray-blackhole", "ip/duplicate":
			t.Errorf("%s: %s", f.Check, f.Message)
		}
		if strings.Contains(f.Message, want[f.Check]) {
			delete(want, f.Check)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	if gaps := parseState(t, text).Views.Gaps(); len(gaps) != 1 || !strings.Contains(gaps[0].Reason, `node "n9" does not exist`) {
		t.Errorf("gaps %v", gaps)
	}
}

func TestMachineOff(t *testing.T) {
	const nodes = `
node up
node tainted outofservice
node silent notready
node off notready outofservice
`
	st := stateSaying(t, nodes, "other")
	for node, c := range map[string]struct {
		tainted, named, mayRun bool
		say                    string
	}{
		"up":      {false, false, false, "node up is Ready"},
		"tainted": {false, false, false, "is Ready"},
		"silent":  {false, true, true, "does not prove that its machine is off"},
		"off":     {true, true, true, "has the taint node.kubernetes.io/out-of-service"},
		"gone":    {false, true, true, "no longer exists"},
		"":        {false, false, false, "no node"},
	} {
		off, why := st.MachineOff(node)
		if off != c.tainted || !strings.Contains(why, c.say) {
			t.Errorf("%q: off %t, %s; want %t, %s", node, off, why, c.tainted, c.say)
		}
		if off, why := stateSaying(t, nodes, "other", node).MachineOff(node); off != c.named || off && !strings.Contains(why, "--terminated") {
			t.Errorf("%q, named: off %t, %s; want %t", node, off, why, c.named)
		}
		if got := st.MachineMayRun(node); got != c.mayRun {
			t.Errorf("%q may run: %t", node, got)
		}
	}
	// The machine of a node that has never reported Ready may still run.
	snap, err := statedsl.Parse("node mute\n")
	if err != nil {
		t.Fatal(err)
	}
	snap.Nodes[0].Ready = false
	mute := state.New(snap, state.Options{})
	if off, why := mute.MachineOff("mute"); off || !mute.MachineMayRun("mute") || !strings.Contains(why, "nothing shows that the machine") {
		t.Errorf("without a Ready condition: off %t, %s, may run %t", off, why, mute.MachineMayRun("mute"))
	}
	unread := stateSaying(t, "node n1 notready outofservice\ngap nodes forbidden\ngap nodes name=n2 garbage\n", "n1", "n2", "n3")
	for _, node := range []string{"n1", "n2", "n3"} {
		if off, why := unread.MachineOff(node); off || unread.MachineMayRun(node) || !strings.Contains(why, "could not be read") {
			t.Errorf("%s, of nodes not read: off %t, %s", node, off, why)
		}
	}
}

// TestUnreadRoutesProveNoDrop: if the agent could not read all routes, an unread route may lead to
// the address. A blackhole among the others then does not prove a drop.
func TestUnreadRoutesProveNoDrop(t *testing.T) {
	for _, gaps := range [][]string{nil, {"routing table 7 could not be read"}} {
		snap, err := statedsl.Parse("pool pods 10.0.0.0/24\nnode a\nnode b\nblock 10.0.0.0/26 a\naffinity 10.0.0.0/26 a\nuse 10.0.0.5 shop/web b\nview a\nroute a 10.0.0.0/26 blackhole proto=bird\n")
		if err != nil {
			t.Fatal(err)
		}
		snap.Hosts.Views[0].Gaps = gaps
		st := state.New(snap, state.Options{})
		if len(st.Borrows) != 1 {
			t.Fatalf("%d borrowed addresses", len(st.Borrows))
		}
		answer, proven := st.HostAnswer(st.Borrows[0])
		if drops := proven && answer.Outcome == hosts.Drops; drops != (gaps == nil) {
			t.Errorf("gaps %q: %s (proven: %t)", gaps, answer, proven)
		}
	}
}
