package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
)

func (o outcome) plan(t *testing.T) *repair.Plan {
	t.Helper()
	p := new(repair.Plan)
	if err := json.Unmarshal([]byte(o.stdout), p); err != nil {
		t.Fatalf("reading the plan: %v\nexit code %d\n%s\n%s", err, o.code, o.stdout, o.err)
	}
	return p
}

func (o outcome) result(t *testing.T) *repair.Result {
	t.Helper()
	r := new(repair.Result)
	if err := json.Unmarshal([]byte(o.stdout), r); err != nil {
		t.Fatalf("reading the result: %v\nexit code %d\n%s\n%s", err, o.code, o.stdout, o.err)
	}
	return r
}

func statuses(r *repair.Result) string {
	var out []string
	for _, o := range r.Outcomes {
		out = append(out, strings.TrimSpace(string(o.Status)+" "+string(o.Code)))
	}
	return strings.Join(out, ", ")
}

// onCluster runs the program on a cluster.
func onCluster(t *testing.T, c *testcluster.Cluster, args ...string) outcome {
	t.Helper()
	return calicoAudit(t, append(args, "--kubeconfig", c.KubeconfigPath())...)
}

func emptyBlocks(t *testing.T, c *testcluster.Cluster) int {
	t.Helper()
	state, err := c.ReadIPAM(t.Context(), testcluster.CRDv1)
	if err != nil {
		t.Fatal(err)
	}
	return len(state.Empty)
}

// TestStoryIsRepaired: from the drained old nodes to a cluster without errors, with the
// commands that an operator would type and the manual steps of the plan.
func TestStoryIsRepaired(t *testing.T) {
	c := play(t, seeding.StoryDrained)
	t.Chdir(t.TempDir())
	ctx := t.Context()
	if got := onCluster(t, c, "report", "--fail-on", "error"); got.code != exit.CodeFindings {
		t.Fatalf("before, the report ends with %d:\n%s", got.code, got.stdout)
	}

	got := onCluster(t, c, "repair", "--empty-blocks", "--out", "plan.json", "-o", "json", "--detailed-exitcode")
	if got.code != exit.CodeFindings {
		t.Errorf("the plan ends with %d under --detailed-exitcode: %s", got.code, got.err)
	}
	plan := got.plan(t)
	if len(plan.Steps) != 2 || !plan.Complete || emptyBlocks(t, c) != 2 {
		t.Fatalf("%d steps, complete %v, %d empty blocks", len(plan.Steps), plan.Complete, emptyBlocks(t, c))
	}
	got = onCluster(t, c, "repair", "apply", "plan.json", "--yes", "-o", "json")
	if s := statuses(got.result(t)); got.code != exit.CodeOK || s != "done, done" || emptyBlocks(t, c) != 0 {
		t.Fatalf("apply ends with %d: %s; %d empty blocks\n%s", got.code, s, emptyBlocks(t, c), got.err)
	}
	for i, o := range got.result(t).Outcomes { // without a terminal each step is a line in the log
		line := fmt.Sprintf("step %d of 2: %s: ", i+1, o.Step.ID)
		if n := strings.Count("\n"+got.err, "\n"+line); n != 1 {
			t.Errorf("%d lines of the log begin with %q:\n%s", n, line, got.err)
		}
	}
	if j := got.result(t).Journal; !strings.HasPrefix(j, "calico-audit-journal-5ca1ab1e-") || !exists(j) {
		t.Errorf("the journal is %q", j)
	}

	s, err := seeding.New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"new-1", "new-2"} {
		// The next pod of each new node claims a block.
		if _, err := s.Pod(ctx, seeding.Pod{Namespace: "shop", Name: "next-" + node, Node: node}); err != nil {
			t.Fatal(err)
		}
	}
	restarted := 0
	rehome := onCluster(t, c, "repair", "--rehome", "--evict-singletons", "-o", "json").plan(t)
	for _, step := range rehome.Steps {
		if step.Kind == repair.EvictPod {
			namespace, name, _ := strings.Cut(step.Guard(repair.GuardPod), "/")
			restart(ctx, t, s, namespace, name, step.Target.Node)
			restarted++
		}
	}
	if restarted != 4 {
		t.Errorf("%d pods are to be started again, not the 4 that borrow: %+v, refused %+v", restarted, rehome.Steps, rehome.Refused)
	}
	got = onCluster(t, c, "report", "--fail-on", "error", "-o", "json")
	var grave []string
	for _, f := range got.report(t).Findings {
		if f.Severity >= state.Error {
			grave = append(grave, f.Check+": "+f.Message)
		}
	}
	if got.code != exit.CodeOK || len(grave) > 0 {
		t.Errorf("afterwards the report ends with %d: %v", got.code, grave)
	}
	if len(findings(got.report(t), "pool/low-free-blocks")) != 1 {
		t.Error("with four blocks for four nodes, the warning about low free blocks is gone")
	}

	// A second run finds all steps done, and the released blocks need no undo.
	got = onCluster(t, c, "repair", "apply", "plan.json", "--yes", "-o", "json")
	if s := statuses(got.result(t)); got.code != exit.CodeOK || s != "already, already" {
		t.Errorf("applied again it ends with %d: %s", got.code, s)
	}
	journals, err := filepath.Glob("calico-audit-journal-*.jsonl")
	if err != nil || len(journals) != 1 { // the second run wrote nothing
		t.Fatalf("journals %v, %v", journals, err)
	}
	got = onCluster(t, c, "repair", "undo", journals[0], "--yes", "-o", "json")
	if s := statuses(got.result(t)); got.code != exit.CodeOK || s != "not-needed, not-needed" {
		t.Errorf("undo ends with %d: %s\n%s", got.code, s, got.err)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// restart ends a pod and starts it again on a node.
func restart(ctx context.Context, t *testing.T, s *seeding.Seeder, namespace, name, node string) {
	t.Helper()
	if err := s.DeletePod(ctx, namespace, name, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pod(ctx, seeding.Pod{Namespace: namespace, Name: name + "-anew", Node: node}); err != nil {
		t.Fatal(err)
	}
}

// TestRepairAndUndo: --apply plans and applies in one run. Undo restores everything
// possible, names the rest, and exits accordingly.
func TestRepairAndUndo(t *testing.T) {
	c := play(t, seeding.Story)
	t.Chdir(t.TempDir())
	before := config(t, c)
	got := onCluster(t, c, "repair", "--strict-affinity=true", "--apply", "--yes", "--out", "plan.json", "--journal", "j.jsonl")
	if got.code != exit.CodeOK || config(t, c)["strictAffinity"] != true {
		t.Fatalf("it ends with %d, the configuration is %v\n%s%s", got.code, config(t, c), got.stdout, got.err)
	}
	for _, want := range []string{"Of 1 step: 1 done.", "repair undo j.jsonl"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the result does not say %q:\n%s", want, got.stdout)
		}
	}
	for _, want := range []string{"STRICT AFFINITY: false → true", "new-1"} { // the plan, before anything is written
		if !strings.Contains(got.err, want) {
			t.Errorf("standard error does not show %q:\n%s", want, got.err)
		}
	}
	if got := onCluster(t, c, "repair", "apply", "plan.json", "--yes", "--journal", "j.jsonl"); got.code != exit.CodeUsage {
		t.Errorf("a second run overwrites the journal: exit code %d", got.code)
	}
	got = onCluster(t, c, "repair", "undo", "j.jsonl", "--yes", "-o", "json")
	if s := statuses(got.result(t)); got.code != exit.CodeOK || s != "done" || fmt.Sprint(config(t, c)) != fmt.Sprint(before) {
		t.Errorf("undo ends with %d: %s; the configuration is %v", got.code, s, config(t, c))
	}
	if undone := got.result(t).Journal; !exists(undone) {
		t.Errorf("the undo's own journal is %q", undone)
	} else if got := onCluster(t, c, "repair", "undo", undone, "--yes"); got.code != exit.CodeUsage || !strings.Contains(got.err, "make a new plan") {
		t.Errorf("undoing the undo ends with %d: %s", got.code, got.err)
	}
	// Another user changes it, so undo leaves it alone.
	if got := onCluster(t, c, "repair", "--strict-affinity=true", "--apply", "--yes", "--journal", "k.jsonl"); got.code != exit.CodeOK {
		t.Fatal(got.err)
	}
	if err := c.Delete(t.Context(), testcluster.CRDv1.Resource("ipamconfigs"), "", "default"); err != nil {
		t.Fatal(err)
	}
	got = onCluster(t, c, "repair", "undo", "k.jsonl", "--yes")
	if got.code != exit.CodeOK || !strings.Contains(got.stdout, "already done") {
		t.Errorf("undo of what is so already ends with %d\n%s%s", got.code, got.stdout, got.err)
	}
}

func config(t *testing.T, c *testcluster.Cluster) map[string]any {
	t.Helper()
	o, err := c.Get(t.Context(), testcluster.CRDv1.Resource("ipamconfigs"), "", "default")
	if err != nil {
		t.Fatal(err)
	}
	return o.Object["spec"].(map[string]any)
}

// TestApplyExits: each reason not to apply a plan has its exit code and message, and
// nothing is written.
func TestApplyExits(t *testing.T) {
	c := play(t, seeding.StoryDrained)
	t.Chdir(t.TempDir())
	if got := onCluster(t, c, "repair", "--empty-blocks", "--out", "plan.json"); got.code != exit.CodeOK || !strings.Contains(got.stdout, "repair apply plan.json --kubeconfig ") {
		t.Fatalf("exit code %d\n%s%s", got.code, got.stdout, got.err)
	}
	edited := func(change func(*repair.Plan)) string {
		raw, err := os.ReadFile("plan.json")
		if err != nil {
			t.Fatal(err)
		}
		p := new(repair.Plan)
		if err := json.Unmarshal(raw, p); err != nil {
			t.Fatal(err)
		}
		change(p)
		if raw, err = json.Marshal(p); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "plan.json")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, x := range map[string]struct {
		plan string
		code int
		text string
	}{
		"another cluster": {edited(func(p *repair.Plan) { p.Cluster.GUID = "another" }), exit.CodeUnfinished, "not for this cluster"},
		"another group":   {edited(func(p *repair.Plan) { p.Cluster.APIGroup = "projectcalico.org/v3" }), exit.CodeUnfinished, "make a new plan"},
		"no group":        {edited(func(p *repair.Plan) { p.Cluster.APIGroup = "" }), exit.CodeUnfinished, "API groups"},
		"no time":         {edited(func(p *repair.Plan) { p.CreatedAt = audit.Time{} }), exit.CodeUsage, "when it was made"},
		"seen once":       {edited(func(p *repair.Plan) { p.Request.ObserveTwice, p.Grace.Duration = true, 1<<62 }), exit.CodeUnfinished, "2 of 2 steps were not applied"},
		"no steps":        {edited(func(p *repair.Plan) { p.Steps = nil }), exit.CodeOK, ""},
	} {
		got := onCluster(t, c, "repair", "apply", x.plan, "--yes")
		if got.code != x.code || !strings.Contains(got.err, x.text) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s", name, got.code, x.code, x.text, got.err)
		}
	}
	if emptyBlocks(t, c) != 2 {
		t.Error("something was released")
	}
	if journals, _ := filepath.Glob("calico-audit-journal-*"); len(journals) > 0 {
		t.Errorf("journals of runs that wrote nothing were left: %v", journals)
	}
	got := onCluster(t, c, "repair", "apply", "plan.json", "--yes", "--max-steps", "1", "--journal", "m.jsonl")
	if got.code != exit.CodeUnfinished || emptyBlocks(t, c) != 1 || !strings.Contains(got.stdout, "To continue:") {
		t.Errorf("--max-steps 1 ends with %d, %d empty blocks left\n%s", got.code, emptyBlocks(t, c), got.stdout)
	}
	other := edited(func(p *repair.Plan) { p.Steps = p.Steps[1:] })
	if got := onCluster(t, c, "repair", "apply", other, "--yes", "--resume", "m.jsonl"); got.code != exit.CodeUsage || !strings.Contains(got.err, "another plan") {
		t.Errorf("going on with another plan ends with %d: %s", got.code, got.err)
	}
	got = onCluster(t, c, "repair", "apply", "plan.json", "--yes", "--resume", "m.jsonl", "-o", "json")
	if s := statuses(got.result(t)); got.code != exit.CodeOK || s != "already, done" || got.result(t).Journal != "m.jsonl" || emptyBlocks(t, c) != 0 {
		t.Errorf("going on ends with %d: %s, %d empty blocks left\n%s", got.code, s, emptyBlocks(t, c), got.err)
	}
}

// TestApplyWithoutServer: a plan is neither made nor applied without an API server.
func TestApplyWithoutServer(t *testing.T) {
	testcluster.SkipIfShort(t) // it waits a quarter of a minute for the API server
	t.Parallel()
	plan, away := filepath.Join(t.TempDir(), "plan.json"), []string{"--kubeconfig", fleetConfig(t, nil), "--context", "dead"}
	if got := calicoAudit(t, "repair", "--empty-blocks", "-f", "../../../examples/snapshots/story-drained", "--out", plan); got.code != exit.CodeOK {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	journal := filepath.Join(t.TempDir(), "journal.jsonl")
	if got := calicoAudit(t, append([]string{"repair", "apply", plan, "--yes", "--journal", journal}, away...)...); got.code != exit.CodeUnfinished || !strings.Contains(got.err, "nothing was written") || exists(journal) {
		t.Errorf("without an API server it ends with %d, journal: %t: %s", got.code, exists(journal), got.err)
	}
	if got := calicoAudit(t, append([]string{"repair", "--empty-blocks"}, away...)...); got.code != exit.CodeUnread {
		t.Errorf("without an API server a plan ends with %d: %s", got.code, got.err)
	}
}

// TestInterruptedApply: after Ctrl-C before the first step, all steps are left and the exit
// code is that of an unfinished run.
func TestInterruptedApply(t *testing.T) {
	c := play(t, seeding.StoryDrained)
	t.Chdir(t.TempDir())
	if got := onCluster(t, c, "repair", "--empty-blocks", "--out", "plan.json"); got.code != exit.CodeOK {
		t.Fatal(got.err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := calicoAuditUntil(t, ctx, "repair", "apply", "plan.json", "--yes", "--kubeconfig", c.KubeconfigPath())
	if got.code != exit.CodeUnfinished || emptyBlocks(t, c) != 2 {
		t.Errorf("it ends with %d, %d empty blocks\n%s%s", got.code, emptyBlocks(t, c), got.stdout, got.err)
	}
}

// TestKindsAnswerChecks: on a real cluster with each problem, the checks name the kind of
// repair that answers them as the next step.
func TestKindsAnswerChecks(t *testing.T) {
	c := play(t, seeding.StoryDrained)
	got := onCluster(t, c, "report", "-o", "json", "--check", "block/empty")
	fixes := map[string]bool{}
	for _, f := range got.report(t).Findings {
		fixes[f.Fix.Kind+" "+f.Fix.Command] = true
	}
	if !fixes["repair calico-audit repair --kubeconfig "+c.KubeconfigPath()+" --empty-blocks"] || len(fixes) != 1 {
		t.Errorf("the releasable blocks' next step is %v", fixes)
	}
	table := onCluster(t, c, "report", "--check", "block/empty").stdout
	if !slices.ContainsFunc(strings.Split(table, "\n"), func(l string) bool {
		return strings.HasPrefix(l, "     $ calico-audit repair --kubeconfig ") && strings.HasSuffix(l, " --empty-blocks --pool pods-v4")
	}) {
		t.Errorf("the table's remedy does not read the same cluster:\n%s", table)
	}
}
