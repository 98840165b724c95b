package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/journal"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// told is a journal of one step. Its lines are words: start, end:STATUS[:CODE[:REASON]], resume,
// and VERB:RESOURCE:NAME[:STATE] for a change of an object that existed; or its sequence number,
// #N, instead of the state.
func told(t *testing.T, step repair.Step, specs map[blocks.Resource]string, words string) *journal.File {
	t.Helper()
	f := &journal.File{Header: journal.Header{Plan: &repair.Plan{Steps: []repair.Step{step}}}}
	for word := range strings.FieldsSeq(words) {
		p := append(strings.Split(word, "|"), "", "", "")
		e := journal.Entry{Event: journal.Event(p[0]), Step: step.ID, At: audit.Time{Time: statedsl.Clock}}
		switch journal.Event(p[0]) {
		case journal.EventStart:
		case journal.EventResume:
			e.Step = ""
		case journal.EventEnd:
			e.Status, e.Code, e.Reason = repair.Status(p[1]), repair.SkipCode(p[2]), p[3]
		default:
			r, name := blocks.Resource(p[1]), p[2]
			c := &repair.Change{Step: step.ID, Verb: p[0], Resource: r, Name: name}
			if p[0] != repair.VerbCreate {
				c.Before = json.RawMessage(fmt.Sprintf(`{"metadata":{"name":%q,"uid":"uid-%s"},"spec":%s}`, name, name, specs[r]))
			}
			if sequence, is := strings.CutPrefix(p[3], "#"); is {
				c.After = json.RawMessage(fmt.Sprintf(`{"spec":{"sequenceNumber":%s}}`, sequence))
			} else if p[3] != "" {
				c.After = json.RawMessage(fmt.Sprintf(`{"spec":{"state":%q}}`, p[3]))
			}
			e.Event, e.Change = journal.EventChange, c
		}
		f.Entries = append(f.Entries, e)
	}
	return f
}

// undoOf is the undo of a journal's only step.
func undoOf(t *testing.T, world string, f *journal.File) *begun {
	t.Helper()
	b := (&run{Site: &repair.Site{State: parseState(t, world)}, file: f}).begunStep(f, "x", true)
	b.Prove()
	return b
}

const (
	undoAffinity  = "n2-10.0.3.0/26"
	leftPatch     = "start patch|blockaffinities|n2-10.0.3.0/26|pendingDeletion "
	sentDelete    = "patch|blockaffinities|n2-10.0.3.0/26 delete|blockaffinities|n2-10.0.3.0/26 "
	freedPatch    = "start patch|ipamblocks|10-0-0-0-26 "
	handleMark    = "start patch|ipamhandles|k8s-pod-network.gone "
	handleDelete  = "delete|ipamhandles|k8s-pod-network.gone "
	blockDelete   = "patch|ipamblocks|10-0-3-0-26 delete|ipamblocks|10-0-3-0-26 "
	noReservation = "start delete|overlappingrangeipreservations|multus/10.9.0.7 "
	created       = "start create|blockaffinities|n2-10.0.3.0/26|pending "
	undoWorld     = "pool pods 10.0.0.0/16\nnode n1\nnode n2\nblock 10.0.0.0/26 n1\naffinity 10.0.0.0/26 n1\n"
	undoLeft      = undoWorld + "affinity 10.0.3.0/26 n2 state=pendingDeletion\n"
	undoMarked    = undoWorld + "affinity 10.0.3.0/26 n2 state=pendingDeletion deleted\n"
	numbered      = "start patch|ipamblocks|10-0-0-0-26|#1000 "
	freedWorld    = "pool pods 10.0.0.0/16\nnode n1\nnode n2\nblock 10.0.0.0/26 n1 ours created=24h age=0s\naffinity 10.0.0.0/26 n1\n"
	kept          = "handle k8s-pod-network.gone 10.0.0.0/26=1"
	undoPending   = undoWorld + "affinity 10.0.3.0/26 n2 state=pending\n"
)

// TestUndoNeedsProof: a change is recorded before it is sent, so the journal also contains rejected
// changes. Undo does not recreate objects that others deleted, and writes nothing that a plan would
// refuse.
func TestUndoNeedsProof(t *testing.T) {
	specs := map[blocks.Resource]string{
		blocks.Affinities: `{"cidr":"10.0.3.0/26","node":"n2","state":"confirmed"}`,
		blocks.Blocks:     `{"cidr":"10.0.0.0/26","affinity":"host:n1"}`,
		blocks.Handles:    `{"handleID":"k8s-pod-network.gone"}`,

		blocks.WhereaboutsReservations: `{"podref":"a/gone"}`,
	}
	for name, c := range map[string]struct {
		kind        repair.Kind
		says, world string
		want        string
	}{
		"an affinity that was deleted":                  {repair.DeleteAffinity, leftPatch + sentDelete + "end|done", undoWorld, "skipped Harm"},
		"an affinity, and its node has it again":        {repair.DeleteAffinity, leftPatch + sentDelete + "end|done", undoWorld + "block 10.0.3.0/26 n2\naffinity 10.0.3.0/26 n2 uid=new", "already"},
		"an affinity, and its node has the block":       {repair.DeleteAffinity, leftPatch + sentDelete + "end|done", undoWorld + "block 10.0.3.0/26 n2", "skipped Harm"},
		"counts that were right":                        {repair.FixHandleCount, handleMark + "end|done", undoWorld + "handle k8s-pod-network.gone 10.0.0.0/26=1\nalloc 10.0.0.7 handle=k8s-pod-network.gone pod=a/b node=n1", "skipped Harm"},
		"counts of a handle that is gone":               {repair.FixHandleCount, handleMark + "end|done", undoWorld, "not-needed"},
		"counts of a handle that was made again":        {repair.FixHandleCount, handleMark + "end|done", undoWorld + "handle k8s-pod-network.gone 10.0.0.0/26=1 uid=new\nalloc 10.0.0.7 handle=k8s-pod-network.gone pod=a/b node=n1", "not-needed"},
		"an affinity whose patch was refused":           {repair.DeleteAffinity, leftPatch + "end|skipped|Changed", undoWorld, "not-needed"},
		"an affinity that somebody deleted first":       {repair.DeleteAffinity, leftPatch + "end|already", undoWorld, "not-needed"},
		"a crash before the deletion was sent":          {repair.DeleteAffinity, leftPatch, undoWorld, "skipped Harm"},
		"a crash after the deletion was sent":           {repair.DeleteAffinity, leftPatch + sentDelete, undoWorld, "skipped Harm"},
		"a failure before the deletion was sent":        {repair.DeleteAffinity, leftPatch + "end|failed", undoWorld, "skipped Harm"},
		"a deletion refused, tried again in vain":       {repair.DeleteAffinity, leftPatch + sentDelete + leftPatch + "end|failed", undoWorld, "skipped Harm"},
		"found deleted by the run that went on":         {repair.DeleteAffinity, leftPatch + sentDelete + "resume end|already", undoWorld, "skipped Harm"},
		"done, and not tried by the run that went on":   {repair.DeleteAffinity, leftPatch + sentDelete + "end|done resume end|not-tried|Interrupted", undoWorld, "skipped Harm"},
		"an affinity still as it was left":              {repair.DeleteAffinity, leftPatch, undoLeft + "block 10.0.3.0/26 n2", "planned"},
		"skipped, and still as it was left":             {repair.DeleteAffinity, leftPatch + "end|skipped|Changed", undoLeft + "block 10.0.3.0/26 n2", "planned"},
		"left, and its block is gone":                   {repair.DeleteAffinity, leftPatch, undoLeft, "planned Finished"},
		"left, and its block is another node's":         {repair.DeleteAffinity, leftPatch, undoLeft + "block 10.0.3.0/26 n1", "planned Finished"},
		"left, and a pod uses an address of it":         {repair.DeleteAffinity, leftPatch, undoLeft + "pod a/b n2 10.0.3.7", "skipped HalfDone"},
		"left, and the datastore is locked":             {repair.ReleaseBlock, leftPatch, undoLeft + "locked", "skipped DatastoreLocked"},
		"left, and pods were not read":                  {repair.ReleaseBlock, leftPatch + blockDelete, undoLeft + "gap pods forbidden", "skipped HalfDone"},
		"marked deleted, and left":                      {repair.DeleteAffinity, leftPatch + sentDelete, undoMarked, "planned Finished"},
		"marked deleted, and its node claims the block": {repair.DeleteAffinity, leftPatch + sentDelete, undoMarked + "block 10.0.3.0/26 n2", "skipped Changed"},
		"an affinity of a node that has vanished":       {repair.DeleteAffinity, leftPatch + sentDelete + "end|done", strings.ReplaceAll(undoWorld, "node n2\n", ""), "skipped Harm"},
		"an affinity, and nodes were not read":          {repair.DeleteAffinity, leftPatch + sentDelete + "end|done", undoWorld + "gap nodes forbidden", "skipped Harm"},
		"a released block's affinity, left pending":     {repair.ReleaseBlock, leftPatch + blockDelete, undoLeft, "planned Finished"},
		"a released block's affinity, left marked":      {repair.ReleaseBlock, leftPatch + blockDelete + sentDelete, undoMarked, "planned Finished"},
		"a failed release's affinity, left marked":      {repair.ReleaseBlock, leftPatch + blockDelete + sentDelete + "end|failed", undoMarked, "planned Finished"},
		"a block that was released":                     {repair.ReleaseBlock, leftPatch + blockDelete + sentDelete, undoWorld, "not-needed"},
		"a disowned block's affinity, as it was left":   {repair.DisownBlock, leftPatch, undoLeft + "block 10.0.3.0/26 n2\nuse 10.0.3.1 a/b n1", "planned"},
		"a disowned block's affinity, and no owner":     {repair.DisownBlock, leftPatch + "patch|ipamblocks|10-0-3-0-26 ", undoLeft + "block 10.0.3.0/26 -\nuse 10.0.3.1 a/b n1", "planned Finished"},
		"a disowned block's affinity, left marked":      {repair.DisownBlock, leftPatch + "patch|ipamblocks|10-0-3-0-26 " + sentDelete, undoMarked + "block 10.0.3.0/26 -\nuse 10.0.3.1 a/b n1", "planned Finished"},
		"a block that was disowned":                     {repair.DisownBlock, leftPatch + "patch|ipamblocks|10-0-3-0-26 " + sentDelete + "end|done", undoWorld + "block 10.0.3.0/26 -\nuse 10.0.3.1 a/b n1", "not-needed"},
		"a block left marked":                           {repair.ReleaseBlock, leftPatch + blockDelete, undoLeft + "block 10.0.3.0/26 n2 deleted", "planned Finished"},
		"a block left marked, with an address":          {repair.ReleaseBlock, leftPatch + blockDelete, undoLeft + "block 10.0.3.0/26 n2 deleted\nalloc 10.0.3.4 handle=h pod=a/b node=n2", "skipped HalfDone"},
		"an affinity that could not be read":            {repair.DeleteAffinity, leftPatch + sentDelete + "end|done", undoWorld + "gap blockaffinities name=n2-10.0.3.0/26 malformed", "skipped NotRead"},
		"a block made again, and marked by others":      {repair.ReleaseBlock, leftPatch + blockDelete, undoLeft + "block 10.0.3.0/26 n2 deleted uid=new", "skipped HalfDone"},
		"a block that another node claimed instead":     {repair.ClaimBlock, created + "create|ipamblocks|10-0-3-0-26 ", undoWorld + "block 10.0.3.0/26 n1\naffinity 10.0.3.0/26 n1", "not-needed"},
		"a block that its node claimed":                 {repair.ClaimBlock, created + "create|ipamblocks|10-0-3-0-26 ", undoPending + "block 10.0.3.0/26 n2", "planned Finished"},
		"a claim left pending":                          {repair.RestoreAffinity, created, undoPending + "block 10.0.3.0/26 n2", "planned Finished"},
		"a claim left pending, and the block is gone":   {repair.RestoreAffinity, created, undoPending, "planned Finished"},
		"a claim that its node goes on with by now":     {repair.RestoreAffinity, created, undoWorld + "affinity 10.0.3.0/26 n2 state=pending age=-10m", "already"},
		"a claim left pending by a node that vanished":  {repair.RestoreAffinity, created, strings.ReplaceAll(undoPending, "node n2\n", "") + "block 10.0.3.0/26 n2", "skipped Harm"},
		"a handle left marked":                          {repair.DeleteHandle, handleMark, undoWorld + "handle k8s-pod-network.gone deleted", "planned Finished"},
		"a handle left marked, and in use":              {repair.DeleteHandle, handleMark, undoWorld + "handle k8s-pod-network.gone deleted 10.0.0.0/26=1\nalloc 10.0.0.7 handle=k8s-pod-network.gone pod=a/b node=n1", "skipped Changed"},
		"an address's handle left marked":               {repair.ReleaseIP, freedPatch + "patch|ipamhandles|k8s-pod-network.gone", undoWorld + "handle k8s-pod-network.gone deleted", "planned Finished"},
		"an address's handle left as it was":            {repair.ReleaseIP, freedPatch, undoWorld + "handle k8s-pod-network.gone 10.0.0.0/26=1", "planned Finished"},
		"left, and its block is being released":         {repair.DeleteAffinity, leftPatch, undoLeft + "block 10.0.3.0/26 n2 deleted", "skipped Changed"},
		"put back, and marked again by somebody else":   {repair.DeleteAffinity, leftPatch + "patch|blockaffinities|n2-10.0.3.0/26|confirmed", undoLeft + "block 10.0.3.0/26 n2", "skipped Changed"},
		"in its state again, and marked deleted":        {repair.DeleteAffinity, leftPatch, undoWorld + "affinity 10.0.3.0/26 n2 deleted\nblock 10.0.3.0/26 n2", "skipped Changed"},
		"a block's affinity still as it was left":       {repair.ReleaseBlock, leftPatch, undoLeft + "block 10.0.3.0/26 n2", "planned"},
		"an address that was freed":                     {repair.ReleaseIP, freedPatch + "end|done", undoWorld, "planned"},
		"freed, and its block is gone":                  {repair.ReleaseIP, freedPatch + "end|done", "pool pods 10.0.0.0/16\nnode n1\n", "skipped Gone"},
		"freed, and its block is another by now":        {repair.ReleaseIP, freedPatch + "end|done", strings.Replace(undoWorld, "block 10.0.0.0/26 n1", "block 10.0.0.0/26 n1 uid=new", 1), "skipped Changed"},
		"freed, and its block is marked":                {repair.ReleaseIP, freedPatch + "end|done", strings.Replace(undoWorld, "block 10.0.0.0/26 n1", "block 10.0.0.0/26 n1 deleted", 1), "skipped Changed"},
		"freed, and its block is corrupt":               {repair.ReleaseIP, freedPatch + "end|done", undoWorld + "use 10.0.0.9 a/c n1\ncorrupt 10.0.0.0/26", "skipped Corrupt"},
		"freed, and another pod has it":                 {repair.ReleaseIP, freedPatch + "end|done", undoWorld + "use 10.0.0.5 a/c n1", "skipped InUse"},
		"an address that its node freed":                {repair.ReleaseIP, freedPatch + "end|skipped|Changed", undoWorld, "not-needed"},
		"a crash after the address's patch was noted":   {repair.ReleaseIP, freedPatch, undoWorld, "skipped Unknown"},
		"freed, and the block not written since":        {repair.ReleaseIP, numbered, freedWorld + kept, "planned"},
		"freed, and the block written by its node":      {repair.ReleaseIP, numbered, strings.Replace(freedWorld, "ours", "", 1) + kept, "planned Finished"},
		"freed, and the block written twice since":      {repair.ReleaseIP, strings.Replace(numbered, "1000", "999", 1), freedWorld + kept, "planned Finished"},
		"freed, and the block written much later":       {repair.ReleaseIP, numbered, strings.Replace(freedWorld, "age=0s", "age=-1h", 1) + kept, "planned Finished"},
		"freed, and the block is of before":             {repair.ReleaseIP, numbered, strings.Replace(freedWorld, "age=0s", "age=1h", 1) + kept, "planned Finished"},
		"freed, and the block made again":               {repair.ReleaseIP, numbered, strings.Replace(freedWorld, "ours", "ours uid=new", 1) + kept, "planned Finished"},
		"freed, and its handle marked by others":        {repair.ReleaseIP, numbered, freedWorld + "handle k8s-pod-network.gone deleted", "skipped Changed"},
		"freed, and its handle is gone":                 {repair.ReleaseIP, numbered, freedWorld, "planned"},
		"freed, and recorded again by an undo":          {repair.ReleaseIP, numbered, freedWorld + kept + "\nalloc 10.0.0.5 handle=k8s-pod-network.gone pod=a/gone node=n1 seq=1000", "already"},
		"a crash after the address's handle":            {repair.ReleaseIP, freedPatch + "patch|ipamhandles|h", undoWorld, "planned"},
		"an address whose answer was lost":              {repair.ReleaseIP, freedPatch + "end|done||lost", undoWorld, "skipped Unknown"},
		"an address of a secondary network":             {repair.DeleteWhereaboutsReservation, noReservation + "end|done", undoWorld, "planned"},
		"a crash after a reservation's deletion":        {repair.DeleteWhereaboutsReservation, noReservation, undoWorld, "skipped Unknown"},
		"a reservation that its pod got back":           {repair.DeleteWhereaboutsReservation, noReservation + "create|overlappingrangeipreservations|multus/10.9.0.7 end|done", undoWorld, "skipped Unknown"},
		"a crash while its pod may get it back":         {repair.DeleteWhereaboutsReservation, noReservation, undoWorld + "pod a/gone n1 phase=Pending\n", "planned Finished"},
		"a handle that was deleted, and made again":     {repair.DeleteHandle, handleMark + handleDelete + "end|done", undoWorld + "handle k8s-pod-network.gone 10.0.0.0/26=1 uid=new", "already"},
		"a handle that was not deleted after all":       {repair.DeleteHandle, handleMark + handleDelete + "end|done", undoWorld + "handle k8s-pod-network.gone", "already"},
		"a handle that was deleted":                     {repair.DeleteHandle, handleMark + handleDelete + "end|done", undoWorld, "planned"},
		"a handle whose mark was refused":               {repair.DeleteHandle, handleMark + "end|skipped|Changed", undoWorld, "not-needed"},
		"a crash before the handle's deletion was sent": {repair.DeleteHandle, handleMark, undoWorld, "skipped Unknown"},
		"the datastore is locked":                       {repair.DeleteHandle, handleMark + handleDelete + "end|done", undoWorld + "locked", "skipped DatastoreLocked"},
		"a newer Calico":                                {repair.DeleteHandle, handleMark + handleDelete + "end|done", undoWorld + "version v3.33.0", "skipped NewerCalico"},
		"a newer Calico, and nothing to write":          {repair.DeleteHandle, handleMark + "end|skipped|Changed", undoWorld + "version v3.33.0", "not-needed"},
	} {
		t.Run(name, func(t *testing.T) {
			step := repair.Step{ID: "x", Kind: c.kind, Target: state.Subject{CIDR: "10.0.3.0/26", IP: "10.0.0.5", Node: "n2"},
				Guards: guards(repair.GuardUID, "uid-10-0-3-0-26", repair.GuardOwner, "host:n2", repair.GuardHandle, "k8s-pod-network.gone")}
			f := told(t, step, specs, c.says)
			b := undoOf(t, c.world, f)
			o := b.Action().Outcome()
			if got := strings.TrimSpace(string(o.Status) + " " + string(o.Code)); got != c.want || o.Reason == "" {
				t.Errorf("%s (%s), want %s", got, o.Reason, c.want)
			}
			if left := strings.HasPrefix(name, "left, "); left && o.Status == repair.Skipped && !o.HalfDone {
				t.Error("the step does not count as half-done")
			}
			asks := false
			for _, r := range b.Refs() {
				asks = asks || r == blocks.Ref{Resource: blocks.ClusterInfos, Name: "default"}
			}
			if !asks {
				t.Error("the lock and the version are not read again")
			}
		})
	}
}

// deletions is a writer that only records which affinities it is asked to delete.
type deletions struct {
	repair.Writer
	calls []string
}

func (d *deletions) DeleteAffinity(_ context.Context, a repair.ObjectRef) error {
	d.calls = append(d.calls, a.Name)
	return nil
}

// resumeDelete continues a run that was interrupted after an affinity became pendingDeletion.
func resumeDelete(t *testing.T, world, cidr string, edit func(p *repair.Plan)) (repair.Outcome, bool, *deletions) {
	t.Helper()
	specs := map[blocks.Resource]string{blocks.Affinities: `{"cidr":"10.0.3.0/26","node":"n2","state":"confirmed"}`}
	step := repair.Step{ID: "x", Kind: repair.DeleteAffinity, Target: state.Subject{Kind: state.KindAffinity, CIDR: cidr, Node: "n2"}, Guards: guards(repair.GuardName, undoAffinity, repair.GuardUID, "uid-"+undoAffinity)}
	f := told(t, step, specs, leftPatch)
	snap, err := statedsl.Parse(world)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &fakeCluster{s: snap, now: statedsl.Clock}
	plan := *f.Plan
	plan.Steps = []repair.Step{step}
	if edit != nil {
		edit(&plan)
	}
	log := &deletions{}
	x := newRun(cluster, log, newTestJournal(t), 0, Options{Resume: f})
	x.guid = snap.Cluster.GUID
	if err := x.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := &applying{run: x, plan: &plan, request: plan.Request}
	o, settled := a.resume(t.Context(), &plan.Steps[0])
	return o, settled, log
}

// TestResumeGates: a continued run completes only steps of its journal's own plan, and only if a
// new plan would be allowed.
func TestResumeGates(t *testing.T) {
	const cidr = "10.0.3.0/26"
	for name, c := range map[string]struct {
		world, cidr string
		edit        func(p *repair.Plan)
		code        repair.SkipCode
		wrote       bool
	}{
		"as it was left":                      {world: undoLeft, cidr: cidr, wrote: true},
		"the datastore is locked":             {world: undoLeft + "locked", cidr: cidr, code: repair.SkipCode(repair.RefusedLocked)},
		"a newer Calico":                      {world: undoLeft + "version v3.33.0", cidr: cidr, code: repair.SkipCode(repair.RefusedVersion)},
		"newer, allowed by another plan only": {world: undoLeft + "version v3.33.0", cidr: cidr, edit: func(p *repair.Plan) { p.Request.AllowNewer = true }, code: repair.SkipCode(repair.RefusedVersion)},
		"other guards in the plan at hand":    {world: undoLeft, cidr: cidr, edit: func(p *repair.Plan) { p.Steps[0].Guards = nil }, wrote: true},
		"another target in the plan at hand":  {world: undoLeft, cidr: cidr, edit: func(p *repair.Plan) { p.Steps[0].Target.Node = "n1" }, code: repair.SkipUnknown},
		"an affinity to another block":        {world: undoLeft, cidr: "10.0.0.0/26"},
		"a pod uses an address of it":         {world: undoLeft + "pod a/b n2 10.0.3.7", cidr: cidr, code: repair.SkipHalfDone},
		"blocks were not read":                {world: undoLeft + "gap ipamblocks forbidden", cidr: cidr, code: repair.SkipHalfDone},
	} {
		t.Run(name, func(t *testing.T) {
			o, _, log := resumeDelete(t, c.world, c.cidr, c.edit)
			if wrote := len(log.calls) > 0; wrote != c.wrote || c.code != "" && o.Code != c.code {
				t.Errorf("calls %v, outcome %s %s (%s); want a write %v, code %q", log.calls, o.Status, o.Code, o.Reason, c.wrote, c.code)
			}
		})
	}
}

// TestResumeAlongside: an affinity is deleted with a marked block only if it belongs to that block
// and its owner.
func TestResumeAlongside(t *testing.T) {
	for name, c := range map[string]struct {
		cidr, owner string
		want        bool
	}{
		"its own":         {"10.0.3.0/26", "host:n2", true},
		"another block's": {"10.0.9.0/26", "host:n2", false},
		"another owner's": {"10.0.3.0/26", "host:n1", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &repair.Step{ID: "x", Kind: repair.FinishDelete, Target: state.Subject{Kind: state.KindBlock, CIDR: c.cidr}, Guards: guards(
				repair.GuardOwner, c.owner, repair.GuardAffinity, undoAffinity, repair.GuardAffinityUID, "uid-"+undoAffinity, repair.GuardAffinityState, string(blocks.Confirmed))}
			st := parseState(t, undoWorld+"affinity 10.0.3.0/26 n2 state=confirmed")
			b := &repair.Begun{Site: &repair.Site{State: st}, Log: &repair.StepLog{Unfinished: true}, Step: s, Kind: planner.KindOf(s.Kind)}
			if m := b.Completion(); (m.Do != nil) != c.want {
				t.Errorf("deleted: %v, want %v", m.Do != nil, c.want)
			}
		})
	}
}

// TestStartedThroughIdleRuns: a run that did not reach a half-done step leaves it half-done for the
// next run.
func TestStartedThroughIdleRuns(t *testing.T) {
	for end, want := range map[string]bool{
		"end|not-tried|Interrupted": true, "end|skipped|Unread": true, "end|skipped|DatastoreLocked": true,
		"end|skipped|Changed": false, "end|failed": false, "end|done": false,
	} {
		if f := told(t, repair.Step{ID: "x"}, nil, leftPatch+"resume "+end); f.Started("x") != want {
			t.Errorf("after %s: half-done %v, want %v", end, f.Started("x"), want)
		}
	}
}

// TestUndoProvenByOthers: addresses of one block are freed in one write. If the writer continued
// with one of their handles, that proves the write for all of them; nothing else does.
func TestUndoProvenByOthers(t *testing.T) {
	block := func(step, version string) journal.Entry {
		before := fmt.Sprintf(`{"metadata":{"name":"10-0-0-0-26","uid":"uid-10-0-0-0-26","resourceVersion":%q}}`, version)
		return journal.Entry{Event: journal.EventChange, Step: step, Change: &repair.Change{Step: step, Verb: repair.VerbPatch, Resource: blocks.Blocks, Name: "10-0-0-0-26", Before: json.RawMessage(before)}}
	}
	start := func(step string) journal.Entry { return journal.Entry{Event: journal.EventStart, Step: step} }
	end := func(step string, s repair.Status, reason string) journal.Entry {
		return journal.Entry{Event: journal.EventEnd, Step: step, Status: s, Reason: reason}
	}
	handle := func(step string) journal.Entry {
		return journal.Entry{Event: journal.EventChange, Step: step, Change: &repair.Change{Step: step, Verb: repair.VerbDelete, Resource: blocks.Handles, Name: step, Before: json.RawMessage("{}")}}
	}
	resume := journal.Entry{Event: journal.EventResume}
	for name, c := range map[string]struct {
		then []journal.Entry
		want bool
	}{
		"the write alone":               {nil, false},
		"the first one's handle":        {[]journal.Entry{handle("a")}, true},
		"its own handle":                {[]journal.Entry{handle("c")}, true},
		"another step's handle":         {[]journal.Entry{handle("x")}, false},
		"the first one ended":           {[]journal.Entry{end("a", repair.Done, "")}, true},
		"the first one ended in doubt":  {[]journal.Entry{end("a", repair.Done, "the answer was lost")}, false},
		"the first one was skipped":     {[]journal.Entry{end("a", repair.Skipped, "")}, false},
		"the first one was tried again": {[]journal.Entry{start("a"), block("a", "8"), handle("a")}, false},
		"a run went on":                 {[]journal.Entry{resume, start("a"), handle("a")}, false},
	} {
		f := &journal.File{Header: journal.Header{Plan: &repair.Plan{}}, Entries: append([]journal.Entry{
			start("a"), start("b"), start("c"), block("a", "7"), block("b", "7"), block("c", "7"),
		}, c.then...)}
		if got := f.Log("c").Freed; got != c.want {
			t.Errorf("%s: freed %v", name, got)
		}
	}
}

// TestUndoOfResumedRun: a run that was continued with a plan of its own is one run. Its undo
// reverts the writes of each part, the newest first, and the temporary changes still in place.
func TestUndoOfResumedRun(t *testing.T) {
	specs := map[blocks.Resource]string{blocks.Blocks: `{"cidr":"10.0.0.0/26","affinity":"host:n1"}`, blocks.Handles: `{"handleID":"h"}`}
	part := func(ip string, at int) *journal.File {
		step := repair.Step{ID: "release-ip:" + ip, Kind: repair.ReleaseIP, Target: state.Subject{Kind: state.KindIP, IP: ip}, Guards: guards(repair.GuardHandle, "h")}
		f := told(t, step, specs, freedPatch+"patch|ipamhandles|h end|done")
		f.StartedAt = audit.Time{Time: statedsl.Clock.Add(time.Duration(at) * time.Minute)}
		return f
	}
	const mark = "10.0.0.0/26 from n1 for n2"
	first, second := part("10.0.0.5", 1), part("10.0.0.6", 2)
	second.Earlier = []*journal.File{first}
	second.Plan.Steps = append(second.Plan.Steps,
		repair.Step{ID: "unreserve-block:10.0.0.0/26", Kind: repair.UnreserveBlock, Target: state.Subject{Kind: state.KindBlock, CIDR: "10.0.0.0/26"}, Guards: guards(repair.GuardConsolidation, mark)},
		repair.Step{ID: "uncordon-node:n1", Kind: repair.UncordonNode, Target: state.NodeSubject("n1"), Guards: guards(repair.GuardConsolidation, mark)})
	marked := strings.Replace(undoWorld, "node n1", "node n1 cordoned mine=10.0.0.0/26,n1,n2", 1) + "reserve 10.0.0.0/26 mine=n1,n2\n"
	for world, want := range map[string][]string{
		undoWorld: {"release-ip:10.0.0.6 planned", "release-ip:10.0.0.5 planned"},
		marked:    {"release-ip:10.0.0.6 planned", "release-ip:10.0.0.5 planned", "unreserve-block:10.0.0.0/26 planned", "uncordon-node:n1 planned"},
	} {
		snap, err := statedsl.Parse(world)
		if err != nil {
			t.Fatal(err)
		}
		second.Cluster.GUID = snap.Cluster.GUID
		res, err := PreviewUndo(t.Context(), second, &fakeCluster{s: snap, now: statedsl.Clock})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range res.Outcomes {
			got = append(got, o.Step.ID+" "+string(o.Status))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s\n%+v", diff, res.Outcomes)
		}
	}
}
