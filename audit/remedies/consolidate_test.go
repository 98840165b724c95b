package remedies_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
)

// shortage is a state in which moving one pod empties 10.0.0.24/29 of node b.
const shortage = statedsl.ShortOfBlocks + `use 10.0.0.1 shop/web-1 a of=ReplicaSet/web ready
use 10.0.0.2 shop/web-2 a of=ReplicaSet/web ready
use 10.0.0.9 shop/web-3 a of=ReplicaSet/web ready
use 10.0.0.17 shop/web-4 b of=ReplicaSet/web ready
use 10.0.0.18 shop/web-5 b of=ReplicaSet/web ready
use 10.0.0.25 shop/web-6 b of=ReplicaSet/web ready
use 10.0.0.10 shop/borrower new of=ReplicaSet/web ready
`

func consolidations(t *testing.T, text string) (out []string) {
	t.Helper()
	snap, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(snap, state.Options{})
	for _, n := range remedies.Of(st).NodesWithoutBlock() {
		for _, c := range remedies.Of(st).Consolidations(n) {
			var moves []string
			for _, m := range c.Moves {
				moves = append(moves, m.Pod.Name)
			}
			line := fmt.Sprintf("%s moves %s cordons %s", c.Name(), strings.Join(moves, ","), strings.Join(c.Cordon, ","))
			for _, m := range c.Unguarded {
				line += " unguarded " + m.Pod.Name
			}
			for _, b := range c.Barred {
				line += " barred: " + b.String()
			}
			out = append(out, line)
		}
	}
	return out
}

// TestConsolidations: the first proposal moves the fewest pods. Each obstacle bars its block and is
// named.
func TestConsolidations(t *testing.T) {
	best := "10.0.0.24/29 from b for new moves web-6 cordons new"
	if got := consolidations(t, shortage); len(got) != 4 || got[0] != best {
		t.Errorf("the blocks are\n%s\nand the first should be\n%s", strings.Join(got, "\n"), best)
	}
	pod := "use 10.0.0.25 shop/web-6 b of=ReplicaSet/web ready"
	for name, c := range map[string]struct{ old, to, want string }{
		"a virtual machine's":      {pod, pod + " vmi=db", "10.0.0.25: pod shop/web-6 runs a virtual machine"},
		"marked against eviction":  {pod, pod + " noevict", "pod shop/web-6 is marked against eviction"},
		"storage":                  {pod, pod + " claim", "has storage"},
		"a static address":         {pod, pod + " static", "asks for its address by name"},
		"a Job's":                  {pod, strings.Replace(pod, "ReplicaSet/web", "Job/once", 1), "belongs to Job once"},
		"one that runs once":       {pod, pod + " once", "pod shop/web-6 runs to completion"},
		"a static pod":             {pod, strings.Replace(pod, "ReplicaSet/web", "Node/b", 1), "is a static pod"},
		"unreadable":               {pod, pod + " unreadable=status.podIPs", "cannot be read: status.podIPs"},
		"a tunnel's":               {pod, "alloc 10.0.0.25 handle=vxlan-tunnel-addr-b type=vxlanTunnelAddress node=b", "it is a tunnel's"},
		"a service's":              {pod, "alloc 10.0.0.25 service=shop/lb", "LoadBalancer"},
		"leaked":                   {pod, "alloc 10.0.0.25 pod=shop/gone node=b handle=h", "it is leaked"},
		"nobody knows whose":       {pod, "alloc 10.0.0.25 handle=podman.x", "its user is not known"},
		"a budget that is used up": {"budget none", "budget shop/all allows=0", "PodDisruptionBudget shop/all allows no disruption"},
		"another pool to claim of": {"node new", "node new\npool more 10.1.0.0/24", ""},
		"an empty block":           {pod, "", ""}, // --empty-blocks releases it
		"a reserved block":         {"node new", "node new\nreserve 10.0.0.24/29", ""},
		"a Windows node":           {"node b", "node b windows", "b is a Windows node"},
		"a node that is not ready": {"node b", "node b notready", "b is not ready"},
		"a pod of such a node":     {pod + "\n", strings.Replace(pod, " b ", " old ", 1) + "\nnode old notready\n", "node old of pod shop/web-6 is not ready"},
		"an address unrecorded":    {pod, pod + "\npod shop/other b 10.0.0.26", "10.0.0.26: pod shop/other uses 10.0.0.26"},
		"an address of two":        {pod, pod + "\npod shop/other b 10.0.0.25", "10.0.0.25: several pods use it"},
		"an address seen in use":   {pod, pod + "\nview b\nnetns b x 10.0.0.26/32 pids=1 cmd=app state=S", "10.0.0.26 is in use in"},
		"a second object of it":    {pod, pod + "\nblock 10.0.0.24/29 b name=second", "several block objects"},
		"a move from Flannel":      {"node b", "node b label=projectcalico.org/node-network-during-migration=flannel", "moved from Flannel"},
		"pools by annotation":      {pod, pod + " pools=pods", "pod shop/web-6 asks for pools by name"},
		"only where it is":         {pod, pod + " on=disk=ssd\nnode c label=disk=ssd", "10.0.0.25: pod shop/web-6 may only run on c (its nodeSelector and node affinity: disk in (ssd)), where no address of the node's own is left for it"},
		"nowhere":                  {pod, pod + " on=disk=ssd", "10.0.0.25: pod shop/web-6 may run on no node that exists (its nodeSelector and node affinity: disk in (ssd))"},
		"a needy, dead node":       {"node new", "node new notready", ""},
		"a node that has but one":  {"block 10.0.0.16/29 b", "block 10.0.0.16/29 b deleted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := consolidations(t, strings.Replace(shortage, c.old, c.to, 1))
			for _, line := range got {
				if strings.HasPrefix(line, "10.0.0.24/29") && (c.want == "" || !strings.Contains(line, c.want)) {
					t.Errorf("got %q, should be barred by %q", line, c.want)
				}
			}
			if len(got) > 0 && strings.HasPrefix(got[0], "10.0.0.24/29") && !strings.Contains(got[0], "barred") {
				t.Errorf("it comes first: %q", got[0])
			}
		})
	}
}

// TestConsolidationsOfEmptyBlocks: an empty block that is too young to be released stays so, even
// for a node in need.
func TestConsolidationsOfEmptyBlocks(t *testing.T) {
	text := strings.Replace(shortage, "use 10.0.0.25 shop/web-6 b of=ReplicaSet/web ready\n", "", 1)
	got := consolidations(t, strings.Replace(text, "block 10.0.0.24/29 b", "block 10.0.0.24/29 b age=1m", 1))
	if len(got) != 4 || !strings.Contains(got[2], `10.0.0.24/29 from b for new moves  cordons  barred: it is empty: use "repair --empty-blocks" (it was written at`) {
		t.Errorf("got %q", got)
	}
}

// TestUnguarded: bare pods and single replicas without a budget are named, and their block comes
// last.
func TestUnguarded(t *testing.T) {
	for name, to := range map[string]string{
		"bare":        "use 10.0.0.25 shop/web-6 b ready",
		"the only":    "use 10.0.0.25 shop/web-6 b of=StatefulSet/db ready",
		"not covered": "use 10.0.0.25 shop/web-6 b of=StatefulSet/db ready label=app=db\nbudget shop/other match=app=web allows=1",
	} {
		got := consolidations(t, strings.Replace(shortage, "use 10.0.0.25 shop/web-6 b of=ReplicaSet/web ready", to, 1))
		want := "10.0.0.24/29 from b for new moves web-6 cordons new unguarded web-6"
		if len(got) != 4 || got[3] != want || strings.Contains(got[0], "unguarded") {
			t.Errorf("%s: got %v", name, got)
		}
	}
	replicas := func(ready bool) string {
		second := ""
		if ready {
			second = " ready"
		}
		return strings.Replace(shortage, "use 10.0.0.25 shop/web-6 b of=ReplicaSet/web ready", "use 10.0.0.25 shop/db-0 b of=StatefulSet/db ready\nuse 10.0.0.2 shop/db-1 a of=StatefulSet/db"+second, 1)
	}
	for _, ready := range []bool{false, true} {
		text := strings.Replace(replicas(ready), "use 10.0.0.2 shop/web-2 a of=ReplicaSet/web ready\n", "", 1)
		if got := strings.Contains(strings.Join(consolidations(t, text), "\n"), "unguarded db-0"); got == ready {
			t.Errorf("with another replica, ready: %t: unguarded: %t", ready, got)
		}
	}
	covered := "use 10.0.0.25 shop/web-6 b of=StatefulSet/db ready label=app=db\nbudget shop/db match=app=db allows=1"
	if got := consolidations(t, strings.Replace(shortage, "use 10.0.0.25 shop/web-6 b of=ReplicaSet/web ready", covered, 1)); strings.Contains(got[0], "unguarded") {
		t.Errorf("covered by a budget, and yet %v", got)
	}
}

// TestReplacementsNeedAddresses: replacements need addresses on other nodes, those of a DaemonSet
// on their own node. The holder keeps a free address: it is cordoned when one is left, and its only
// block with room is not emptied.
func TestReplacementsNeedAddresses(t *testing.T) {
	first := func(text string) string {
		for _, line := range consolidations(t, text) {
			if strings.HasPrefix(line, "10.0.0.24/29") {
				return line
			}
		}
		return ""
	}
	daemon := strings.NewReplacer("shop/web-6 b of=ReplicaSet/web", "shop/web-6 b of=DaemonSet/log")
	aFull := "fill 10.0.0.0/29 6 a\nfill 10.0.0.8/29 6 a\n"
	const block = "10.0.0.24/29 from b for new moves "
	for name, c := range map[string]struct{ text, want string }{
		"room for two":                     {shortage + "fill 10.0.0.16/29 4 b\n", block + "web-6 cordons new"},
		"room for one":                     {shortage + "fill 10.0.0.16/29 5 b\n", block + "web-6 cordons b,new"},
		"the only block with room":         {shortage + "fill 10.0.0.16/29 6 b\n", ""},
		"all could come back":              {shortage + "fill 10.0.0.16/29 4 b\nuse 10.0.0.26 shop/web-7 b of=ReplicaSet/web ready\n", block + "web-6,web-7 cordons b,new"},
		"all could, and must":              {shortage + aFull + "fill 10.0.0.16/29 3 b\nuse 10.0.0.26 shop/web-7 b of=ReplicaSet/web ready\n", block + "web-6,web-7 cordons a,new"},
		"nobody else has room":             {shortage + aFull + "fill 10.0.0.16/29 4 b\nuse 10.0.0.26 shop/web-7 b of=ReplicaSet/web ready\n", block + "web-6,web-7 cordons a,new barred: IPv4 addresses to move: 2, but the nodes that take pods have room for 1"},
		"a DaemonSet's pod with room":      {daemon.Replace(shortage + "fill 10.0.0.16/29 4 b\n"), block + "web-6 cordons "},
		"a DaemonSet's pod takes the last": {daemon.Replace(shortage + "fill 10.0.0.16/29 5 b\n"), block + "web-6 cordons  barred: b keeps no other block with a free address"},
	} {
		if got := first(c.text); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := consolidations(t, shortage+aFull+"fill 10.0.0.16/29 6 b\nfill 10.0.0.24/29 7 b\n"); len(got) > 0 {
		t.Errorf("nobody has room, and yet %q", got)
	}
}

// TestBegun: only our reservation shows that a consolidation is under way, and work continues on
// the block that it names. A reservation that someone edited is theirs.
func TestBegun(t *testing.T) {
	emptied := strings.Replace(shortage, "use 10.0.0.25 shop/web-6 b of=ReplicaSet/web ready\n", "", 1) + "reserve 10.0.0.24/29 mine=b,new\n"
	released := strings.Replace(strings.Replace(emptied, "block 10.0.0.24/29 b\n", "", 1), "affinity 10.0.0.24/29 b\n", "", 1)
	end := "10.0.0.24/29 from b for new: moves 0, cordons none, cordoned none, over false, "
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"begun":                      {shortage + "reserve 10.0.0.0/29 mine=a,new", []string{"10.0.0.0/29 from a for new: moves 2, cordons new, cordoned none, over false, barred []"}},
		"cordoned":                   {strings.Replace(shortage, "node new", "node new mine=10.0.0.0/29,a,new", 1) + "reserve 10.0.0.0/29 mine=a,new", []string{"10.0.0.0/29 from a for new: moves 2, cordons none, cordoned new, over false, barred []"}},
		"claimed":                    {strings.Replace(shortage, "block 10.0.0.24/29 b", "block 10.0.0.24/29 new", 1) + "reserve 10.0.0.24/29 mine=b,new", []string{"10.0.0.24/29 from b for new: moves 0, cordons none, cordoned none, over true, barred []"}},
		"emptied":                    {emptied, []string{end + "barred []"}},
		"an unrecorded address":      {emptied + "pod shop/web-6 b 10.0.0.25\n", []string{end + "barred [10.0.0.25: pod shop/web-6 uses 10.0.0.25 of it, although the block does not record it: \"repair --unrecorded-ips\" comes first]"}},
		"seen before it was written": {strings.Replace(emptied, "24/29 b\n", "24/29 b age=1h\n", 1) + "view b age=2h\nnetns b x 10.0.0.25/32 pids=1 cmd=app state=S\n", []string{end + "barred []"}},
		"released":                   {released, []string{"10.0.0.24/29 from b for new: moves 0, cordons none, cordoned none, over false, barred []"}},
		"released, and used":         {released + "pod shop/web-6 b 10.0.0.25\n", []string{"10.0.0.24/29 from b for new: moves 0, cordons none, cordoned none, over false, barred [pod shop/web-6 uses 10.0.0.25 of it, and no block records it: the block's next owner would assign it again]"}},
		"not ours":                   {shortage + "reserve 10.0.0.0/29", nil},
		"reserved by others":         {shortage + "reserve 10.0.0.0/29 mine=a,new\nreserve 10.0.0.0/29", []string{"10.0.0.0/29 from a for new: moves 0, cordons none, cordoned none, over false, barred [IPReservation 10-0-0-0-29 covers it, so new would get no address of it]"}},
		"for a node not ready":       {strings.Replace(shortage, "node new", "node new notready", 1) + "reserve 10.0.0.0/29 mine=a,new", []string{"10.0.0.0/29 from a for new: moves 0, cordons none, cordoned none, over false, barred [new is not ready, so none of its pods would start with the block]"}},
		"enough":                     {shortage + "pool more 10.1.0.0/24\nreserve 10.0.0.0/29 mine=a,new", []string{"10.0.0.0/29 from a for new: moves 0, cordons none, cordoned none, over false, barred [new does not need a block any more]"}},
		"node gone":                  {shortage + "reserve 10.0.0.0/29 mine=a,other", []string{"10.0.0.0/29 from a for other: moves 0, cordons none, cordoned none, over false, barred [other or a no longer exists]"}},
	} {
		snap, err := statedsl.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range remedies.Of(state.New(snap, state.Options{})).Begun() {
			got = append(got, fmt.Sprintf("%s: moves %d, cordons %v, cordoned %v, over %t, barred %v", c.Name(), len(c.Moves), c.Cordon, c.Cordoned, c.Over(), c.Barred))
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestRehomes: pods rehome if they borrow although their own node has addresses. On each node, at
// most as many pods rehome as it has addresses.
func TestRehomes(t *testing.T) {
	text := strings.Replace(shortage, "block 10.0.0.24/29 b", "block 10.0.0.24/29 new", 1)
	text = strings.Replace(text, "use 10.0.0.25 shop/web-6 b", "use 10.0.0.25 shop/web-6 new", 1)
	for more, want := range map[string]int{"": 1, "fill 10.0.0.24/29 7 new": 1, "use 10.0.0.11 shop/vm new vmi=db": 1, "use 10.0.0.12 shop/two new": 2, "block 10.1.0.0/29 b\naffinity 10.1.0.0/29 b\npool more 10.1.0.0/28 size=29\nfill 10.0.0.24/29 7 new\nuse 10.0.0.12 shop/two new": 2} {
		snap, err := statedsl.Parse(text + more)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := remedies.Of(state.New(snap, state.Options{})).Rehomes(); len(got) != want {
			t.Errorf("with %q: %v, want %d", more, got, want)
		}
	}
	snap, err := statedsl.Parse(strings.Replace(text, "shop/borrower new of=ReplicaSet/web", "shop/borrower new of=Job/once", 1) + "fill 10.0.0.24/29 6 new\nuse 10.0.0.12 shop/two new")
	if err != nil {
		t.Fatal(err)
	}
	now, later := remedies.Of(state.New(snap, state.Options{})).Rehomes()
	if len(now) != 1 || now[0].Pod.Name != "two" || len(later) != 1 || later[0].Pod.Name != "borrower" {
		t.Errorf("the one address goes to %v before %v; a Job's pod, which stays, takes no turn", now, later)
	}
}

// TestRehomesElsewhere: if its node has no address of its own, a pod moves to a node that has one.
// If it cannot be shown to find one there, it stays, with a reason.
func TestRehomesElsewhere(t *testing.T) {
	borrower := "use 10.0.0.10 shop/borrower new of=ReplicaSet/web ready"
	for name, c := range map[string]struct{ old, to, want string }{
		"room on other nodes": {borrower, borrower, ""},
		"a DaemonSet's":       {borrower, "use 10.0.0.10 shop/borrower new of=DaemonSet/log ready", "starts on new again"},
		"pools by annotation": {borrower, borrower + " pools=pods", "asks for pools by name"},
		"a Job's":             {borrower, "use 10.0.0.10 shop/borrower new of=Job/once ready", "belongs to Job once"},
		"no room":             {borrower, borrower + "\nfill 10.0.0.0/29 6 a\nfill 10.0.0.8/29 6 a\nfill 10.0.0.16/29 6 b\nfill 10.0.0.24/29 7 b", "no node that takes pods has an address of its own left"},
		"others cordoned":     {"node a\nnode b\n", "node a cordoned\nnode b cordoned\n", "no node that takes pods has an address of its own left"},
		"strict affinity":     {"node new", "node new\nconfig strict", "strict affinity is on"},
		"full of one family":  {"node new", "node new\npool six fd00::/125 size=125\nblock fd00::/125 a\naffinity fd00::/125 a\nfill fd00::/125 8 a", "no node that takes pods has an address of its own left"},
		"its node not ready":  {"node new", "node new notready", "node new of pod shop/borrower is not ready"},
		"a namespaces' pool":  {"node new", "node new\npool team 10.9.0.0/29 size=29 namespaces=team=='a'", "some pools serve only some namespaces"},
	} {
		snap, err := statedsl.Parse(strings.Replace(shortage, c.old, c.to, 1))
		if err != nil {
			t.Fatal(err)
		}
		now, later := remedies.Of(state.New(snap, state.Options{})).Rehomes()
		switch {
		case c.want == "" && (len(now) != 1 || !now[0].Elsewhere || len(later) > 0):
			t.Errorf("%s: now %+v, later %+v", name, now, later)
		case c.want != "" && (len(now) > 0 || len(later) != 1 || !strings.Contains(later[0].Stays, c.want)):
			t.Errorf("%s: now %+v, later %+v, want it to stay because %q", name, now, later, c.want)
		}
	}
}

// TestAddressesForAnyPod: addresses that a restarted pod may not get are not counted: those on a
// cordoned node, and those of pools reserved for some namespaces or for pods that request them.
func TestAddressesForAnyPod(t *testing.T) {
	own := strings.Replace(shortage, "0.24/29 b\naffinity 10.0.0.24/29 b", "0.24/29 new\naffinity 10.0.0.24/29 new", 1)
	own = strings.Replace(own, "shop/web-6 b", "shop/web-6 new", 1)
	team := "\nblock 10.9.0.0/29 new\naffinity 10.9.0.0/29 new\nuse 10.9.0.1 team/x new of=ReplicaSet/x ready"
	for name, c := range map[string]struct{ text, full, stays string }{
		"room at home":       {own, "", ""},
		"cordoned by people": {strings.Replace(own, "node new", "config strict\nnode new cordoned", 1), "", "strict affinity is on"},
		"namespaces' alone":  {shortage + "config strict\npool team 10.9.0.0/29 size=29 namespaces=team=='a'" + team, "new", "strict affinity is on"},
		"by request alone":   {shortage + "config strict\npool sp 10.9.0.0/29 size=29 manual" + team + " pools=sp", "new", "strict affinity is on"},
		"asks for pools":     {strings.Replace(own, "shop/borrower new", "shop/borrower new pools=pods", 1), "", "asks for pools by name"},
	} {
		snap, err := statedsl.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		st := state.New(snap, state.Options{})
		now, later := remedies.Of(st).Rehomes()
		if c.stays == "" && len(now) != 1 || c.stays != "" && (len(now) > 0 || len(later) != 1 || !strings.Contains(later[0].Stays, c.stays)) {
			t.Errorf("%s: now %+v, later %+v, want it to stay because %q", name, now, later, c.stays)
		}
		if got := strings.Join(remedies.Of(st).Full(), ","); got != c.full {
			t.Errorf("%s: full are %s, want %s", name, got, c.full)
		}
	}
}

// TestConsolidationIsOfferedWithItsConsents: the offered command plans steps when pasted, so it
// includes the consent for single replicas. It is not offered if it would end a bare pod for good.
func TestConsolidationIsOfferedWithItsConsents(t *testing.T) {
	for _, c := range []struct{ of, want string }{
		{"of=ReplicaSet/web ready scratch", "calico-audit repair --consolidate --pool pods --cordon-full"},
		{"of=StatefulSet/db%d ready", "calico-audit repair --consolidate --pool pods --cordon-full --evict-singletons"},
		{"ready", ""},
	} {
		text := shortage
		for i := 1; strings.Contains(text, " of=ReplicaSet/web ready\n"); i++ {
			of := c.of
			if strings.Contains(of, "%d") {
				of = fmt.Sprintf(of, i)
			}
			text = strings.Replace(text, " of=ReplicaSet/web ready\n", " "+of+"\n", 1)
			if of == "of=ReplicaSet/web ready" {
				break
			}
		}
		snap, err := statedsl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, risk := "", ""
		for _, r := range remedies.Of(state.New(snap, state.Options{})).Root("shortage/pods").Remedies() {
			if strings.Contains(r.Commands[0], "--consolidate") {
				got, risk = r.Commands[0], r.Risk
			}
		}
		if got != c.want {
			t.Errorf("with pods %q: %q, want %q", c.of, got, c.want)
		}
		if strings.Contains(c.of, "scratch") && !strings.Contains(risk, "pods that lose emptyDir data: 1") {
			t.Errorf("what is lost is not said: %s", risk)
		}
	}
}

// TestPlacements: pods limited to some nodes need room there for all of them. A node is not
// cordoned if none of the pods may run on it.
func TestPlacements(t *testing.T) {
	const pod, block = "use 10.0.0.25 shop/web-6 b of=ReplicaSet/web ready", "10.0.0.24/29 from b for new moves "
	on := func(node string) string {
		return strings.Replace(shortage, "node "+node+"\n", "node "+node+" label=zone=z\n", 1)
	}
	full := "use 10.0.0.17 shop/more-%d b of=ReplicaSet/web ready\n"
	for name, c := range map[string]struct{ text, want string }{
		"room elsewhere":          {strings.Replace(on("a"), pod, pod+" on=zone=z", 1), block + "web-6 cordons "},
		"room in other blocks":    {strings.Replace(on("b"), pod, pod+" on=zone=z", 1), block + "web-6 cordons "},
		"on the node in need":     {strings.Replace(on("new"), pod, pod+" on=zone=z", 1), block + "web-6 cordons new barred: 10.0.0.25: pod shop/web-6 may only run on new"},
		"a DaemonSet's":           {strings.Replace(on("b"), pod, "use 10.0.0.25 shop/log-b b of=DaemonSet/log ready on=zone=z", 1), block + "log-b cordons "},
		"DaemonSet, label lost":   {strings.Replace(shortage, pod, "use 10.0.0.25 shop/log-b b of=DaemonSet/log ready on=zone=z", 1), block + "log-b cordons  barred: 10.0.0.25: pod shop/log-b would not start on b again"},
		"one of two moves freely": {strings.Replace(on("a"), pod, pod+" on=zone=z\n"+strings.NewReplacer("17", "26", "%d", "1").Replace(full), 1), block + "more-1,web-6 cordons new"},
		"room for one of two": {strings.Replace(strings.Replace(on("b"), pod, pod+" on=zone=z\nuse 10.0.0.26 shop/web-7 b of=ReplicaSet/web ready on=zone=z", 1),
			"use 10.0.0.18", "reserve 10.0.0.20/30\nuse 10.0.0.16 shop/x b of=ReplicaSet/web ready\nuse 10.0.0.18", 1), block + "web-6,web-7 cordons b barred: 10.0.0.25: pod shop/web-6 may only run on b"},
	} {
		found := false
		for _, line := range consolidations(t, c.text) {
			if strings.HasPrefix(line, block) {
				if found = true; line != c.want && (!strings.Contains(c.want, "barred") || !strings.HasPrefix(line, c.want)) {
					t.Errorf("%s: got %q, not %q", name, line, c.want)
				}
			}
		}
		if !found {
			t.Errorf("%s: nothing is found", name)
		}
	}
}

// TestRehomesInBothFamilies: a pod that borrows in both families moves only if one node has an address of
// each for it.
func TestRehomesInBothFamilies(t *testing.T) {
	text := "node a\nnode b\nnode new\npool pods 10.0.0.0/28 size=30\npool six fd00::/124 size=126\nblock 10.0.0.8/30 gone\nblock fd00::8/126 gone\n" +
		"block 10.0.0.12/30 gone\nalloc 10.0.0.12\nblock fd00::c/126 gone\nalloc fd00::c\n" +
		"block 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nfill 10.0.0.0/30 3 a\nblock fd00::/126 a\naffinity fd00::/126 a\n" +
		"block 10.0.0.4/30 b\naffinity 10.0.0.4/30 b\nblock fd00::4/126 b\naffinity fd00::4/126 b\nfill fd00::4/126 3 b\n"
	for _, x := range []string{"8", "9", "a"} {
		v4 := map[string]string{"8": "10.0.0.8", "9": "10.0.0.9", "a": "10.0.0.10"}[x]
		text += fmt.Sprintf("alloc %s pod=shop/%s node=new handle=h%s\nalloc fd00::%s pod=shop/%s node=new handle=h%s\npod shop/%s new %s,fd00::%s of=ReplicaSet/web ready\n", v4, x, x, x, x, x, x, v4, x)
	}
	snap, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	now, later := remedies.Of(state.New(snap, state.Options{})).Rehomes()
	pods := map[string]bool{}
	for _, m := range now {
		pods[m.Pod.Name] = true
	}
	if len(pods) != 2 || len(later) == 0 {
		t.Errorf("pods %v move, and %+v stay: a and b have one address of one family each", pods, later)
	}
}

// TestEveryFamilyCounts: a pod with addresses of both families needs room in both.
func TestEveryFamilyCounts(t *testing.T) {
	const six = "pool six fd00::/125 size=125\nblock fd00::/125 a\naffinity fd00::/125 a\n"
	dual := six + strings.Replace(shortage, "shop/web-6 b of=ReplicaSet/web ready", "shop/web-6 b of=ReplicaSet/web ready ann=10.0.0.25,fd00::1\nalloc fd00::1 pod=shop/web-6 node=b handle=six", 1)
	const block = "10.0.0.24/29 from b for new moves web-6 cordons "
	for name, c := range map[string]struct{ text, want string }{
		"a pod of one family":       {six + shortage + "use fd00::1 shop/x a of=ReplicaSet/x ready\n", block + "new"},
		"nodes without room in one": {dual, block + "b,new"},
		"no room in one":            {dual + "fill fd00::/125 7 a\n", block + "a,b,new barred: 10.0.0.25: no node that takes pod shop/web-6 has an address of its own left for it"},
		"pools by annotation":       {strings.Replace(dual, "ann=10", "pools=six ann=10", 1), block + "b,new barred: 10.0.0.25: pod shop/web-6 asks for pools by name"},
		"only where one is missing": {strings.Replace(strings.Replace(dual, "node b\n", "node b label=zone=z\n", 1), "ann=10", "on=zone=z ann=10", 1), block + "b barred: 10.0.0.25: pod shop/web-6 may only run on b"},
		"a DaemonSet's":             {strings.Replace(dual+"fill fd00::/125 7 a\n", "shop/web-6 b of=ReplicaSet", "shop/web-6 b of=DaemonSet", 1), block + " barred: 10.0.0.25: pod shop/web-6 of a DaemonSet starts on b again, where too few IPv6 addresses are free in the other blocks (0)"},
	} {
		found := false
		for _, line := range consolidations(t, c.text) {
			if strings.HasPrefix(line, "10.0.0.24/29") {
				if found = true; line != c.want && (!strings.Contains(c.want, "barred") || !strings.HasPrefix(line, c.want)) {
					t.Errorf("%s: got %q, want %q", name, line, c.want)
				}
			}
		}
		if !found {
			t.Errorf("%s: nothing is found", name)
		}
	}
	borrower := strings.Replace(dual, "shop/borrower new of=ReplicaSet/web ready", "shop/borrower new of=ReplicaSet/web ready ann=10.0.0.10,fd00::2\nalloc fd00::2 pod=shop/borrower node=new handle=more", 1)
	for text, want := range map[string]int{borrower: 1, borrower + "fill fd00::/125 6 a\n": 0} {
		snap, err := statedsl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		now, later := remedies.Of(state.New(snap, state.Options{})).Rehomes()
		moved := 0
		for _, m := range now {
			if m.Pod.Name == "borrower" && m.Addr.Is4() {
				moved++
			}
		}
		if moved != want {
			t.Errorf("%d borrowers move, want %d: %+v, %+v", moved, want, now, later)
		}
	}
}

// TestTolerationsCount: a pod may start on a node whose taint it tolerates, so the node is cordoned
// if it has no address for it. If the pod also tolerates cordons, it is not moved.
func TestTolerationsCount(t *testing.T) {
	const pod, role = "use 10.0.0.25 shop/web-6 b of=ReplicaSet/web ready", "node-role.kubernetes.io/control-plane"
	const block = "10.0.0.24/29 from b for new moves web-6 cordons "
	tolerating := func(what string) string {
		return "node cp taint=" + role + "\nnode gpu taint=dedicated=gpu\n" + strings.Replace(shortage, pod, pod+what, 1)
	}
	for name, c := range map[string]struct{ what, want string }{
		"nothing":           {"", block + "new"},
		"the control plane": {" tolerates=" + role, block + "cp,new"},
		"a value":           {" tolerates=dedicated=gpu", block + "gpu,new"},
		"another value":     {" tolerates=dedicated=db", block + "new"},
		"cordons":           {" tolerates=node.kubernetes.io/unschedulable", block + "new barred: 10.0.0.25: pod shop/web-6 tolerates the cordon of a node, and may start on new without"},
		"everything":        {" tolerates=all", block + "cp,gpu,new barred: 10.0.0.25: pod shop/web-6 tolerates the cordon of a node, and may start on cp, gpu and new without"},
	} {
		found := false
		for _, line := range consolidations(t, tolerating(c.what)) {
			if strings.HasPrefix(line, "10.0.0.24/29") {
				if found = true; line != c.want && (!strings.Contains(c.want, "barred") || !strings.HasPrefix(line, c.want)) {
					t.Errorf("%s: got %q, want %q", name, line, c.want)
				}
			}
		}
		if !found {
			t.Errorf("%s: nothing is found", name)
		}
	}
	const borrower = "shop/borrower new of=ReplicaSet/web ready"
	for what, c := range map[string]struct{ full, stays string }{
		"":                  {"new", ""},
		"tolerates=" + role: {"cp,new", ""},
		"tolerates=all":     {"new", "tolerates the cordon"},
	} {
		snap, err := statedsl.Parse(strings.Replace(tolerating(""), borrower, borrower+" "+what, 1))
		if err != nil {
			t.Fatal(err)
		}
		st := remedies.Of(state.New(snap, state.Options{}))
		now, later := st.Rehomes()
		if got := strings.Join(st.Full(), ","); got != c.full || c.stays == "" && len(now) != 1 || c.stays != "" && (len(later) != 1 || !strings.Contains(later[0].Stays, c.stays)) {
			t.Errorf("%q: full are %s, want %s; now %+v, later %+v", what, got, c.full, now, later)
		}
	}
}

// TestMayFill: nodes with fewer addresses than pods that may start there are named.
func TestMayFill(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"room everywhere":      {shortage, ""},
		"less room":            {shortage + "fill 10.0.0.0/29 5 a\nfill 10.0.0.8/29 6 a\nuse 10.0.0.26 shop/web-7 b of=ReplicaSet/web ready\n", "a"},
		"a block left for it":  {shortage + "node c label=x=c\nuse 10.0.0.26 shop/web-7 b of=ReplicaSet/web ready\npool more 10.1.0.0/26 nodes=x=='c'\n", ""},
		"a block left for two": {shortage + "node c label=x=c\nnode d label=x=c\nuse 10.0.0.26 shop/web-7 b of=ReplicaSet/web ready\npool more 10.1.0.0/26 nodes=x=='c'\n", "c,d"},
	} {
		snap, err := statedsl.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}
		st := remedies.Of(state.New(snap, state.Options{}))
		for _, n := range st.NodesWithoutBlock() {
			for _, x := range st.Consolidations(n) {
				if x.CIDR.String() == "10.0.0.24/29" {
					if got := strings.Join(st.MayFill(x.Moves, x.Block, x.Cordon), ","); got != c.want {
						t.Errorf("%s: got %q, want %q (%s, %v)", name, got, c.want, x.Name(), x.Barred)
					}
				}
			}
		}
	}
}

// TestTakers: a node that calico-audit has marked counts as cordoned only while it is.
func TestTakers(t *testing.T) {
	snap, err := statedsl.Parse("node a\nnode b cordoned\nnode c notready\nnode d cordoned\n")
	if err != nil {
		t.Fatal(err)
	}
	for i := range snap.Nodes {
		if n := &snap.Nodes[i]; n.Name != "d" {
			n.Ours = "run"
		}
	}
	if now, cordoned := remedies.Of(state.New(snap, state.Options{})).Takers(); now != 1 || cordoned != 1 {
		t.Errorf("got %d and %d, want 1 and 1", now, cordoned)
	}
}

// TestRehomesLeaveBlocksInUse: v3.32 may give a block to another node once it is empty. A pod stays if
// it has the last address of the block in use, or if all others are leaks, which Calico frees.
func TestRehomesLeaveBlocksInUse(t *testing.T) {
	const text = "version v3.32.1\nnode a\nnode b\nnode new\npool pods 10.0.0.0/29 size=30\n" +
		"block 10.0.0.0/30 a\naffinity 10.0.0.0/30 a\nblock 10.0.0.4/30 new\naffinity 10.0.0.4/30 new\nuse 10.0.0.1 shop/borrower new of=ReplicaSet/web ready\n"
	for more, stays := range map[string]bool{
		"": true,
		"alloc 10.0.0.2 pod=shop/gone node=new handle=k8s-pod-network.gone age=3h\n": true,
		"use 10.0.0.2 shop/own a\n": false,
	} {
		snap, err := statedsl.Parse(text + more)
		if err != nil {
			t.Fatal(err)
		}
		now, later := remedies.Of(state.New(snap, state.Options{})).Rehomes()
		if stays != (len(now) == 0 && len(later) == 1 && strings.Contains(later[0].Stays, "may take the block from a")) {
			t.Errorf("with %q: now %+v, later %+v; want it to stay: %v", more, now, later, stays)
		}
	}
}
