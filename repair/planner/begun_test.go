package planner

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
)

// sent is a write that a run recorded five seconds ago. Its object had the given spec, unless the
// write created it.
func sent(verb string, r blocks.Resource, name, uid, spec string) repair.Sent {
	c := &repair.Change{Verb: verb, Resource: r, Name: name}
	if verb != repair.VerbCreate {
		c.Before = json.RawMessage(fmt.Sprintf(`{"metadata":{"uid":%q},"spec":%s}`, uid, spec))
	}
	return repair.Sent{Change: c, At: audit.Time{Time: statedsl.Clock.Add(-5 * time.Second)}}
}

// begunStep is a planned step that a run has begun, in a later state.
func begunStep(t *testing.T, before, id, now string, log *repair.StepLog) (*repair.Begun, *callLog) {
	t.Helper()
	s, refusal := Derive(parseState(t, before, 0), everything, id)
	if s == nil {
		t.Fatalf("%s is not planned: %+v", id, refusal)
	}
	calls := &callLog{}
	return &repair.Begun{Site: &repair.Site{State: parseState(t, now, 0), Writer: calls}, Log: log, Step: s, Kind: KindOf(s.Kind), Request: everything}, calls
}

// wantMove compares the call that a move makes, or its outcome, with want. If want is empty, the
// move must have neither.
func wantMove(t *testing.T, m repair.Move, calls *callLog, want string) {
	t.Helper()
	got := strings.TrimSpace(fmt.Sprintf("%s %s", m.Status, m.Code))
	if m.Do != nil {
		if err := m.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		got = strings.Join(calls.calls, "; ")
	}
	if got != want {
		t.Errorf("%s (%s), want %s", got, m.What, want)
	}
}

const (
	network         = "pool pods 10.0.0.0/24\nnode n1\nview n1 complete\nnad shop/fast 10.9.0.0/24\n"
	rangePool       = "wpool 10.9.0.0-24 10.9.0.0/24\n"
	strandedEntry   = "walloc 10.9.0.0-24 10.9.0.5 shop/gone id=c5 if=net1\n"
	reserved        = "wres 10.9.0.5 shop/gone if=net1\n"
	releaseStranded = "release-whereabouts:kube-system/10.9.0.0-24:10.9.0.5"
	deleteAlone     = "delete-whereabouts-reservation:kube-system/10.9.0.5"
	restoreOfV      = "restore-whereabouts:kube-system/10.9.0.7"

	thePool        = "ippools.whereabouts.cni.cncf.io/kube-system/10.9.0.0-24@uid-10.9.0.0-24:1"
	itsReservation = "overlappingrangeipreservations/kube-system/10.9.0.5@uid-10.9.0.5:1"
)

// TestDoSecondary: only the planned entry is removed or added, together with its reservation.
func TestDoSecondary(t *testing.T) {
	const release = "ReleaseWhereabouts " + thePool + ": kube-system/10.9.0.0-24+5 of shop/gone c5 net1"
	const ofV = "wres 10.9.0.7 shop/v if=net1\n"
	const waiting = network + rangePool + "pod shop/v n1 nets=shop/fast@10.9.0.7 cid=v\n"
	for name, c := range map[string]struct{ step, before, now, want string }{
		"with its reservation": {releaseStranded, network + rangePool + strandedEntry + reserved, network + rangePool + strandedEntry + reserved,
			release + ", " + itsReservation + ", beside 1"},
		"without one": {releaseStranded, network + rangePool + strandedEntry, network + rangePool + strandedEntry, release + ", none, beside 1"},
		"another pool records it, too": {releaseStranded, network + rangePool + strandedEntry, network + "wpool 10.9.0.0-16 10.9.0.0/16\nwalloc 10.9.0.0-16 10.9.0.5 shop/gone id=c5 if=net1\n" + rangePool + strandedEntry,
			release + ", none, beside 2"},
		"another sandbox has it": {releaseStranded, network + rangePool + strandedEntry, network + rangePool + strings.Replace(strandedEntry, "c5", "c6", 1), "changed"},
		"another pod has it":     {releaseStranded, network + rangePool + strandedEntry, network + rangePool + strings.Replace(strandedEntry, "gone", "new", 1), "changed"},
		"another interface":      {releaseStranded, network + rangePool + strandedEntry, network + rangePool + strings.Replace(strandedEntry, "net1", "net2", 1), "changed"},
		"only another pool":      {releaseStranded, network + rangePool + strandedEntry, network + "wpool 10.9.0.0-16 10.9.0.0/16\nwalloc 10.9.0.0-16 10.9.0.5 shop/gone id=c5 if=net1\n", "changed"},

		"a lone reservation":         {deleteAlone, network + rangePool + reserved, network + rangePool + reserved, "DeleteWhereaboutsReservation " + itsReservation + ", places 1"},
		"a reservation with a entry": {deleteAlone, network + rangePool + reserved, network + rangePool + strandedEntry + reserved, "changed"},

		"a reservation in use": {restoreOfV, waiting + ofV, waiting + ofV,
			"RestoreWhereabouts " + thePool + ": kube-system/10.9.0.0-24+7 of shop/v v net1, overlappingrangeipreservations/kube-system/10.9.0.7@uid-10.9.0.7:1"},
		"its pod is gone":              {restoreOfV, waiting + ofV, network + rangePool + ofV, "changed"},
		"its entry is there":           {restoreOfV, waiting + ofV, waiting + "walloc 10.9.0.0-24 10.9.0.7 shop/v id=v if=net1\nwres 10.9.0.7 shop/v if=net1\n", "changed"},
		"its pod has another sandbox":  {restoreOfV, waiting + ofV, strings.Replace(waiting, "cid=v", "cid=w", 1) + ofV, "changed"},
		"its pod has no sandbox":       {restoreOfV, waiting + ofV, strings.Replace(waiting, "cid=v", "", 1) + ofV, "changed"},
		"another pool takes its place": {restoreOfV, waiting + ofV, strings.Replace(waiting, rangePool, "wpool another 10.9.0.0/24\n", 1) + ofV, "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			b, calls := begunStep(t, c.before, c.step, c.now, nil)
			switch err := b.Kind.Do(t.Context(), calls, b.State, b.Step); {
			case c.want == "changed" && (!strings.Contains(fmt.Sprint(err), repair.ErrChanged.Error()) || calls.calls != nil):
				t.Errorf("%v, calls %q, want an object that has changed", err, calls.calls)
			case c.want != "changed" && (err != nil || strings.Join(calls.calls, "; ") != c.want):
				t.Errorf("%v, calls %q\nwant %s", err, calls.calls, c.want)
			}
		})
	}
}

// TestBegunSecondary: a run died while it released an address of a secondary network. The next run
// deletes the leftover reservation, or restores it if the pod may have the address again. An undo
// restores the entry and the reservation only if this run removed them and no other pod has them.
func TestBegunSecondary(t *testing.T) {
	const before = network + rangePool + strandedEntry + reserved
	patched := sent(repair.VerbPatch, blocks.WhereaboutsPools, "kube-system/10.9.0.0-24", "uid-10.9.0.0-24", `{"range":"10.9.0.0/24"}`)
	deleted := sent(repair.VerbDelete, blocks.WhereaboutsReservations, "kube-system/10.9.0.5", "uid-10.9.0.5", `{"podref":"shop/gone"}`)
	ofNobody := sent(repair.VerbDelete, blocks.WhereaboutsReservations, "kube-system/10.9.0.5", "uid-10.9.0.5", `{"podref":""}`)
	long := deleted
	long.At = audit.Time{Time: statedsl.Clock.Add(-21 * time.Second)}
	const back = "ReserveWhereabouts {\"metadata\":{\"uid\":\"uid-10.9.0.5\"},\"spec\":{\"podref\":\"shop/gone\"}}, places 1"
	const record = "RecordWhereabouts " + thePool + "+5, entry true, reservation "
	for name, c := range map[string]struct {
		now  string
		sent []repair.Sent
		want string
	}{
		"the entry is there":                       {rangePool + strandedEntry + reserved, []repair.Sent{patched}, ""},
		"the reservation is left":                  {rangePool + reserved, []repair.Sent{patched}, "DeleteWhereaboutsReservation " + itsReservation + ", places 1"},
		"the reservation is left, of another pool": {rangePool + strandedEntry + reserved + "wpool other 10.9.0.0/24\n", []repair.Sent{patched}, ""},
		"both are gone":                            {rangePool, []repair.Sent{patched, deleted}, ""},
		"another pod has the entry":                {rangePool + strings.Replace(strandedEntry, "gone", "new", 1), []repair.Sent{patched, deleted}, ""},
		"its pod has the entry again":              {rangePool + strings.Replace(strandedEntry, "c5", "c6", 1), []repair.Sent{patched, deleted}, back},
		"its pod exists again":                     {rangePool + "pod shop/gone n1 phase=Pending\n", []repair.Sent{patched, deleted}, back},
		"its pod exists again, for long":           {rangePool + "pod shop/gone n1 phase=Pending\n", []repair.Sent{patched, long}, ""},
		"its pod was not recorded":                 {rangePool + "pod shop/gone n1 phase=Pending\n", []repair.Sent{patched, ofNobody}, ""},
		"it was created by the run":                {rangePool + "pod shop/gone n1 phase=Pending\n", []repair.Sent{patched, sent(repair.VerbCreate, blocks.WhereaboutsReservations, "kube-system/10.9.0.5", "", "")}, ""},
		"it is reserved again":                     {rangePool + "pod shop/gone n1 phase=Pending\n" + reserved, []repair.Sent{patched, deleted}, ""},
	} {
		t.Run("completed/"+name, func(t *testing.T) {
			b, calls := begunStep(t, before, releaseStranded, network+c.now, &repair.StepLog{Changes: c.sent, Unfinished: true})
			wantMove(t, b.Completion(), calls, c.want)
		})
	}
	for name, c := range map[string]struct {
		now  string
		sent []repair.Sent
		want string
	}{
		"the address is free":                {rangePool, []repair.Sent{patched, deleted}, record + "true"},
		"it had no reservation":              {rangePool, []repair.Sent{patched}, record + "false"},
		"its own reservation is there":       {rangePool + reserved, []repair.Sent{patched, deleted}, record + "true"},
		"it is recorded again":               {rangePool + strandedEntry, []repair.Sent{patched, deleted}, "already"},
		"another pod has the entry":          {rangePool + strings.Replace(strandedEntry, "gone", "new", 1), []repair.Sent{patched, deleted}, "skipped InUse"},
		"another pod has the reservation":    {rangePool + strings.Replace(reserved, "gone", "new", 1), []repair.Sent{patched, deleted}, "skipped InUse"},
		"another pod names it":               {rangePool + "pod shop/new n1 nets=shop/fast@10.9.0.5\n", []repair.Sent{patched, deleted}, "skipped InUse"},
		"a pod that has ended names it":      {rangePool + "pod shop/new n1 nets=shop/fast@10.9.0.5 phase=Succeeded\n", []repair.Sent{patched, deleted}, record + "true"},
		"its own pod names it":               {rangePool + "pod shop/gone n1 nets=shop/fast@10.9.0.5\n", []repair.Sent{patched, deleted}, record + "true"},
		"the journal does not hold the pool": {rangePool, []repair.Sent{deleted}, "skipped Unknown"},
		"the pool is gone":                   {"", []repair.Sent{patched, deleted}, "skipped Gone"},
		"the pool was created again":         {"wpool 10.9.0.0-24 10.9.0.0/24 uid=new\n", []repair.Sent{patched, deleted}, "skipped Changed"},
		"the pool has another range":         {"wpool 10.9.0.0-24 10.9.0.0/23\n", []repair.Sent{patched, deleted}, "skipped Changed"},
	} {
		t.Run("undone/"+name, func(t *testing.T) {
			b, calls := begunStep(t, before, releaseStranded, network+c.now, &repair.StepLog{Changes: c.sent, Freed: true})
			wantMove(t, b.Kind.Undo(b), calls, c.want)
			b.Log.Freed = false
			if m := b.Kind.Undo(b); m.Do != nil {
				t.Errorf("without proof that this run freed it: %s", m.What)
			}
		})
	}
}

// TestBegunSteps: the present state of the cluster decides whether a half-done step is completed or
// undone.
func TestBegunSteps(t *testing.T) {
	const (
		nodes   = "pool pods 10.0.0.0/24 size=28\nnode n1\nnode n2\n"
		kept    = nodes + "block 10.0.0.0/28 n1\naffinity 10.0.0.0/28 n1\nuse 10.0.0.1 shop/a n1\n"
		empty   = kept + "block 10.0.0.16/28 n1\naffinity 10.0.0.16/28 n1\n"
		leaving = kept + "block 10.0.0.16/28 n1\naffinity 10.0.0.16/28 n1 state=pendingDeletion\n"
		release = "release-block:10.0.0.16/28"

		orphan  = nodes + "block 10.0.0.16/28 n1\nuse 10.0.0.17 shop/a n1\n"
		pending = orphan + "affinity 10.0.0.16/28 n1 state=pending\n"
		restore = "restore-affinity:10.0.0.16/28"

		lost    = nodes + "pod shop/a n2 10.0.0.7 cid=a\n"
		claimed = lost + "block 10.0.0.0/28 n2 age=1m\naffinity 10.0.0.0/28 n2 age=1m"
		written = "alloc 10.0.0.7 pod=shop/a node=n2 handle=k8s-pod-network.a\nhandle k8s-pod-network.a 10.0.0.0/28=1\n"
		record  = "record-ip:10.0.0.7"

		abandoned = kept + "block 10.0.0.32/28 off\naffinity 10.0.0.32/28 off\nuse 10.0.0.33 shop/b n1\nview off complete\n"
		disown    = "disown-block:10.0.0.32/28"
	)
	affinity := func(name string) []repair.Sent {
		c := sent(repair.VerbPatch, blocks.Affinities, name, "uid-"+name, `{"state":"confirmed"}`)
		c.After = json.RawMessage(`{"spec":{"state":"pendingDeletion"}}`)
		return []repair.Sent{c}
	}
	last := strings.Replace(leaving, "block 10.0.0.0/28 n1\n", "block 10.0.0.0/28 n1 deleted\n", 1)
	created := []repair.Sent{sent(repair.VerbCreate, blocks.Affinities, "n1-10.0.0.16/28", "", "")}
	const confirms = "PutAffinityState blockaffinities/n1-10.0.0.16/28@uid-n1-10.0.0.16/28:1 confirmed"
	const releases = "ReleaseBlock ipamblocks/10-0-0-16-28@uid-10-0-0-16-28:1 blockaffinities/n1-10.0.0.16/28@uid-n1-10.0.0.16/28:1 keeps ipamblocks/10-0-0-0-28@uid-10-0-0-0-28:1"
	for name, c := range map[string]struct {
		before, step, now string
		sent              []repair.Sent
		undo              bool
		want              string
	}{
		"a release goes on":                             {empty, release, leaving, affinity("n1-10.0.0.16/28"), false, releases},
		"a release that is undone does not go on":       {empty, release, leaving, affinity("n1-10.0.0.16/28"), true, ""},
		"a release whose block is in use":               {empty, release, leaving + "use 10.0.0.17 shop/b n1", affinity("n1-10.0.0.16/28"), false, confirms},
		"a release of what is now the last block":       {empty, release, last, affinity("n1-10.0.0.16/28"), false, confirms},
		"a release of the last block, marked":           {empty, release, strings.Replace(last, "pendingDeletion", "pendingDeletion deleted", 1), affinity("n1-10.0.0.16/28"), false, ""},
		"a release that has not begun":                  {empty, release, empty, affinity("n1-10.0.0.16/28"), false, ""},
		"a release of a new block":                      {empty, release, strings.Replace(leaving, "block 10.0.0.16/28 n1", "block 10.0.0.16/28 n1 uid=new", 1), affinity("n1-10.0.0.16/28"), false, confirms},
		"a release, and the block is gone":              {empty, release, kept + "affinity 10.0.0.16/28 n1 state=pendingDeletion", affinity("n1-10.0.0.16/28"), false, "DeleteAffinity blockaffinities/n1-10.0.0.16/28@uid-n1-10.0.0.16/28:1"},
		"a release, and the block is marked":            {empty, release, strings.Replace(leaving, "block 10.0.0.16/28 n1", "block 10.0.0.16/28 n1 deleted", 1), affinity("n1-10.0.0.16/28"), false, "FinishDelete ipamblocks/10-0-0-16-28@uid-10-0-0-16-28:1"},
		"a disowning goes on":                           {abandoned, disown, strings.Replace(abandoned, "affinity 10.0.0.32/28 off", "affinity 10.0.0.32/28 off state=pendingDeletion", 1), affinity("off-10.0.0.32/28"), false, "DisownBlock ipamblocks/10-0-0-32-28@uid-10-0-0-32-28:1 blockaffinities/off-10.0.0.32/28@uid-off-10.0.0.32/28:1"},
		"a disowning that is undone does not go on":     {abandoned, disown, strings.Replace(abandoned, "affinity 10.0.0.32/28 off", "affinity 10.0.0.32/28 off state=pendingDeletion", 1), affinity("off-10.0.0.32/28"), true, ""},
		"a claim left pending":                          {orphan, restore, pending, created, false, confirms},
		"a claim left pending, undone":                  {orphan, restore, pending, created, true, confirms},
		"a claim left pending, of another's block":      {orphan, restore, strings.Replace(pending, "block 10.0.0.16/28 n1", "block 10.0.0.16/28 n2", 1), created, false, ""},
		"a claim left pending, of another's, undone":    {orphan, restore, strings.Replace(pending, "block 10.0.0.16/28 n1", "block 10.0.0.16/28 n2", 1), created, true, "DeleteAffinity blockaffinities/n1-10.0.0.16/28@uid-n1-10.0.0.16/28:1"},
		"a claim of a node that is gone, undone":        {orphan, restore, strings.Replace(pending, "node n1\n", "", 1), created, true, ""},
		"a claim of a node that is unreadable, undone":  {orphan, restore, strings.Replace(pending, "node n1\n", "gap nodes name=n1 broken\n", 1), created, true, ""},
		"a claim of a node that was not read, undone":   {orphan, restore, pending + "gap nodes forbidden\n", created, true, "skipped HalfDone"},
		"a claim that is confirmed":                     {orphan, restore, orphan + "affinity 10.0.0.16/28 n1", created, false, ""},
		"a recording whose affinity is pending":         {lost, record, claimed + " state=pending\n" + written, nil, false, "ClaimBlock 10.0.0.0/28 n2"},
		"a recording without its address":               {lost, record, claimed + "\n", nil, false, "RecordIP ipamblocks/10-0-0-0-28@uid-10-0-0-0-28:1 7 k8s-pod-network.a map[namespace:shop node:n2 pod:a timestamp:2026-01-02 12:00:00 +0000 UTC] invalid Prefix "},
		"a recording that is done":                      {lost, record, claimed + "\n" + written, nil, false, ""},
		"a recording whose pod is gone":                 {lost, record, strings.Replace(claimed, "pod shop/a n2 10.0.0.7 cid=a\n", "", 1) + "\n", nil, false, ""},
		"a recording whose pod is gone, and its handle": {lost, record, strings.Replace(claimed, "pod shop/a n2 10.0.0.7 cid=a\n", "", 1) + "\nhandle k8s-pod-network.a 10.0.0.0/28=1\n", nil, false, "DeleteHandle ipamhandles/k8s-pod-network.a@uid-k8s-pod-network.a:1"},
	} {
		t.Run(name, func(t *testing.T) {
			b, calls := begunStep(t, c.before, c.step, c.now, &repair.StepLog{Changes: c.sent, Unfinished: true})
			b.Undo = c.undo
			wantMove(t, b.Completion(), calls, c.want)
		})
	}
}

// TestMarkedHandle: a run died after it marked a leaked handle as deleted. The next run deletes the
// handle, unless it was recreated or an allocation names it.
func TestMarkedHandle(t *testing.T) {
	const (
		block  = "pool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\n"
		leaked = "handle k8s-pod-network.x 10.0.0.0/26=1"
	)
	marked := sent(repair.VerbPatch, blocks.Handles, "k8s-pod-network.x", "uid-k8s-pod-network.x", `{"handleID":"k8s-pod-network.x"}`)
	for name, c := range map[string]struct{ now, want string }{
		"marked":              {leaked + " deleted\n", "FinishDelete ipamhandles/k8s-pod-network.x@uid-k8s-pod-network.x:1"},
		"not marked":          {leaked + "\n", ""},
		"another one, marked": {leaked + " deleted uid=other\n", ""},
		"in use":              {leaked + " deleted\npod shop/a n1 10.0.0.5 cid=a\nalloc 10.0.0.5 pod=shop/a node=n1 handle=k8s-pod-network.x\n", ""},
		"gone":                {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, calls := begunStep(t, block+leaked+"\n", "delete-handle:k8s-pod-network.x", block+c.now, &repair.StepLog{Changes: []repair.Sent{marked}, Unfinished: true})
			wantMove(t, b.Completion(), calls, c.want)
		})
	}
}

// TestRepairedStays: an undo does not revert a repair while the record that the repair made exists.
func TestRepairedStays(t *testing.T) {
	const (
		secondary = network + rangePool + "pod shop/v n1 nets=shop/fast@10.9.0.7 cid=v\nwres 10.9.0.7 shop/v if=net1\n"
		ordinary  = "pool pods 10.0.0.0/24\nnode n1\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\npod shop/u n1 10.0.0.5 cid=u\nalloc 10.0.0.4 pod=shop/m node=n1 handle=k8s-pod-network.m\npod shop/m n1 10.0.0.4\n"
		recorded  = "alloc 10.0.0.5 pod=shop/u node=n1 handle=k8s-pod-network.u\nhandle k8s-pod-network.u 10.0.0.0/26=1\n"
	)
	for name, c := range map[string]struct{ before, step, now, want string }{
		"an entry":                    {secondary, restoreOfV, secondary + "walloc 10.9.0.0-24 10.9.0.7 shop/v id=v if=net1\n", "skipped Harm"},
		"an entry that is gone":       {secondary, restoreOfV, secondary, "already"},
		"an entry of another sandbox": {secondary, restoreOfV, secondary + "walloc 10.9.0.0-24 10.9.0.7 shop/v id=w if=net1\n", "already"},
		"an entry whose pool is gone": {secondary, restoreOfV, network, "already"},
		"an address":                  {ordinary, "record-ip:10.0.0.5", ordinary + recorded, "skipped Harm"},
		"an address that is free":     {ordinary, "record-ip:10.0.0.5", ordinary, "already"},
		"a handle":                    {ordinary, "create-handle:k8s-pod-network.m", ordinary + "handle k8s-pod-network.m 10.0.0.0/26=1\n", "skipped Harm"},
		"a handle that is gone":       {ordinary, "create-handle:k8s-pod-network.m", ordinary, "already"},
	} {
		t.Run(name, func(t *testing.T) {
			b, calls := begunStep(t, c.before, c.step, c.now, &repair.StepLog{})
			wantMove(t, b.Kind.Undo(b), calls, c.want)
			if err := b.Kind.Verify(b.State, b.Step); (err == nil) != (c.want == "skipped Harm") {
				t.Errorf("verified: %v", err)
			}
		})
	}
}
