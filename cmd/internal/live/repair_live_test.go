package live_test

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
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
	"github.com/calico-audit/calico-audit/repair"
)

// TestStoryIsRepaired: from the drained old nodes to a cluster without errors, with the
// commands that an operator would type and the manual steps of the plan.
func TestStoryIsRepaired(t *testing.T) {
	c := clitest.Play(t, seeding.StoryDrained)
	t.Chdir(t.TempDir())
	ctx := t.Context()
	if got := clitest.RunOn(t, c, "report", "--fail-on", "error"); got.Code != exit.CodeFindings {
		t.Fatalf("before, the report ends with %d:\n%s", got.Code, got.Stdout)
	}

	got := clitest.RunOn(t, c, "repair", "--empty-blocks", "--out", "plan.json", "-o", "json", "--detailed-exitcode")
	if got.Code != exit.CodeFindings {
		t.Errorf("the plan ends with %d under --detailed-exitcode: %s", got.Code, got.Err)
	}
	plan := got.Plan(t)
	if len(plan.Steps) != 2 || !plan.Complete || clitest.EmptyBlocks(t, c) != 2 {
		t.Fatalf("%d steps, complete %v, %d empty blocks", len(plan.Steps), plan.Complete, clitest.EmptyBlocks(t, c))
	}
	got = clitest.RunOn(t, c, "repair", "apply", "plan.json", "--yes", "-o", "json")
	if s := clitest.Statuses(got.Result(t)); got.Code != exit.CodeOK || s != "done, done" || clitest.EmptyBlocks(t, c) != 0 {
		t.Fatalf("apply ends with %d: %s; %d empty blocks\n%s", got.Code, s, clitest.EmptyBlocks(t, c), got.Err)
	}
	for i, o := range got.Result(t).Outcomes { // without a terminal each step is a line in the log
		line := fmt.Sprintf("step %d of 2: %s: ", i+1, o.Step.ID)
		if n := strings.Count("\n"+got.Err, "\n"+line); n != 1 {
			t.Errorf("%d lines of the log begin with %q:\n%s", n, line, got.Err)
		}
	}
	if j := got.Result(t).Journal; !strings.HasPrefix(j, "calico-audit-journal-5ca1ab1e-") || !exists(j) {
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
	rehome := clitest.RunOn(t, c, "repair", "--rehome", "--evict-singletons", "-o", "json").Plan(t)
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
	got = clitest.RunOn(t, c, "report", "--fail-on", "error", "-o", "json")
	var grave []string
	for _, f := range got.Report(t).Findings {
		if f.Severity >= state.Error {
			grave = append(grave, f.Check+": "+f.Message)
		}
	}
	if got.Code != exit.CodeOK || len(grave) > 0 {
		t.Errorf("afterwards the report ends with %d: %v", got.Code, grave)
	}
	if len(clitest.Findings(got.Report(t), "pool/low-free-blocks")) != 1 {
		t.Error("with four blocks for four nodes, the warning about low free blocks is gone")
	}

	// A second run finds all steps done, and the released blocks need no undo.
	got = clitest.RunOn(t, c, "repair", "apply", "plan.json", "--yes", "-o", "json")
	if s := clitest.Statuses(got.Result(t)); got.Code != exit.CodeOK || s != "already, already" {
		t.Errorf("applied again it ends with %d: %s", got.Code, s)
	}
	journals, err := filepath.Glob("calico-audit-journal-*.jsonl")
	if err != nil || len(journals) != 1 { // the second run wrote nothing
		t.Fatalf("journals %v, %v", journals, err)
	}
	got = clitest.RunOn(t, c, "repair", "undo", journals[0], "--yes", "-o", "json")
	if s := clitest.Statuses(got.Result(t)); got.Code != exit.CodeOK || s != "not-needed, not-needed" {
		t.Errorf("undo ends with %d: %s\n%s", got.Code, s, got.Err)
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
	c := clitest.Play(t, seeding.Story)
	t.Chdir(t.TempDir())
	before := config(t, c)
	got := clitest.RunOn(t, c, "repair", "--strict-affinity=true", "--apply", "--yes", "--out", "plan.json", "--journal", "j.jsonl")
	if got.Code != exit.CodeOK || config(t, c)["strictAffinity"] != true {
		t.Fatalf("it ends with %d, the configuration is %v\n%s%s", got.Code, config(t, c), got.Stdout, got.Err)
	}
	for _, want := range []string{"Of 1 step: 1 done.", "repair undo j.jsonl"} {
		if !strings.Contains(got.Stdout, want) {
			t.Errorf("the result does not say %q:\n%s", want, got.Stdout)
		}
	}
	for _, want := range []string{"STRICT AFFINITY: false → true", "new-1"} { // the plan, before anything is written
		if !strings.Contains(got.Err, want) {
			t.Errorf("standard error does not show %q:\n%s", want, got.Err)
		}
	}
	if got := clitest.RunOn(t, c, "repair", "apply", "plan.json", "--yes", "--journal", "j.jsonl"); got.Code != exit.CodeUsage {
		t.Errorf("a second run overwrites the journal: exit code %d", got.Code)
	}
	got = clitest.RunOn(t, c, "repair", "undo", "j.jsonl", "--yes", "-o", "json")
	if s := clitest.Statuses(got.Result(t)); got.Code != exit.CodeOK || s != "done" || fmt.Sprint(config(t, c)) != fmt.Sprint(before) {
		t.Errorf("undo ends with %d: %s; the configuration is %v", got.Code, s, config(t, c))
	}
	if undone := got.Result(t).Journal; !exists(undone) {
		t.Errorf("the undo's own journal is %q", undone)
	} else if got := clitest.RunOn(t, c, "repair", "undo", undone, "--yes"); got.Code != exit.CodeUsage || !strings.Contains(got.Err, "make a new plan") {
		t.Errorf("undoing the undo ends with %d: %s", got.Code, got.Err)
	}
	// Another user changes it, so undo does not touch it.
	if got := clitest.RunOn(t, c, "repair", "--strict-affinity=true", "--apply", "--yes", "--journal", "k.jsonl"); got.Code != exit.CodeOK {
		t.Fatal(got.Err)
	}
	if err := c.Delete(t.Context(), testcluster.CRDv1.Resource("ipamconfigs"), "", "default"); err != nil {
		t.Fatal(err)
	}
	got = clitest.RunOn(t, c, "repair", "undo", "k.jsonl", "--yes")
	if got.Code != exit.CodeOK || !strings.Contains(got.Stdout, "already done") {
		t.Errorf("undo of what is so already ends with %d\n%s%s", got.Code, got.Stdout, got.Err)
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
	c := clitest.Play(t, seeding.StoryDrained)
	t.Chdir(t.TempDir())
	if got := clitest.RunOn(t, c, "repair", "--empty-blocks", "--out", "plan.json"); got.Code != exit.CodeOK || !strings.Contains(got.Stdout, "repair apply plan.json --kubeconfig ") {
		t.Fatalf("exit code %d\n%s%s", got.Code, got.Stdout, got.Err)
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
		"no group":        {edited(func(p *repair.Plan) { p.Cluster.APIGroup = "" }), exit.CodeUnfinished, "is not an API group"},
		"no time":         {edited(func(p *repair.Plan) { p.CreatedAt = audit.Time{} }), exit.CodeUsage, "when it was made"},
		"seen once":       {edited(func(p *repair.Plan) { p.Request.ObserveTwice, p.Grace.Duration = true, 1<<62 }), exit.CodeUnfinished, "2 of 2 steps were not applied"},
		"no steps":        {edited(func(p *repair.Plan) { p.Steps = nil }), exit.CodeOK, ""},
	} {
		got := clitest.RunOn(t, c, "repair", "apply", x.plan, "--yes")
		if got.Code != x.code || !strings.Contains(got.Err, x.text) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s", name, got.Code, x.code, x.text, got.Err)
		}
	}
	if clitest.EmptyBlocks(t, c) != 2 {
		t.Error("something was released")
	}
	if journals, _ := filepath.Glob("calico-audit-journal-*"); len(journals) > 0 {
		t.Errorf("journals of runs that wrote nothing were left: %v", journals)
	}
	got := clitest.RunOn(t, c, "repair", "apply", "plan.json", "--yes", "--max-steps", "1", "--journal", "m.jsonl")
	if got.Code != exit.CodeUnfinished || clitest.EmptyBlocks(t, c) != 1 || !strings.Contains(got.Stdout, "To continue:") {
		t.Errorf("--max-steps 1 ends with %d, %d empty blocks left\n%s", got.Code, clitest.EmptyBlocks(t, c), got.Stdout)
	}
	other := edited(func(p *repair.Plan) { p.Steps = p.Steps[1:] })
	if got := clitest.RunOn(t, c, "repair", "apply", other, "--yes", "--resume", "m.jsonl"); got.Code != exit.CodeUsage || !strings.Contains(got.Err, "another plan") {
		t.Errorf("going on with another plan ends with %d: %s", got.Code, got.Err)
	}
	got = clitest.RunOn(t, c, "repair", "apply", "plan.json", "--yes", "--resume", "m.jsonl", "-o", "json")
	if s := clitest.Statuses(got.Result(t)); got.Code != exit.CodeOK || s != "already, done" || got.Result(t).Journal != "m.jsonl" || clitest.EmptyBlocks(t, c) != 0 {
		t.Errorf("going on ends with %d: %s, %d empty blocks left\n%s", got.Code, s, clitest.EmptyBlocks(t, c), got.Err)
	}
}

// TestApplyWithoutServer: a plan is neither made nor applied without an API server.
func TestApplyWithoutServer(t *testing.T) {
	testcluster.SkipIfShort(t) // it waits a quarter of a minute for the API server
	t.Parallel()
	plan, away := filepath.Join(t.TempDir(), "plan.json"), []string{"--kubeconfig", fleetConfig(t, nil), "--context", "dead"}
	if got := clitest.Run(t, "repair", "--empty-blocks", "-f", "../../../examples/snapshots/story-drained", "--out", plan); got.Code != exit.CodeOK {
		t.Fatalf("exit code %d: %s", got.Code, got.Err)
	}
	journal := filepath.Join(t.TempDir(), "journal.jsonl")
	if got := clitest.Run(t, append([]string{"repair", "apply", plan, "--yes", "--journal", journal}, away...)...); got.Code != exit.CodeUnfinished || !strings.Contains(got.Err, "nothing was written") || exists(journal) {
		t.Errorf("without an API server it ends with %d, journal: %t: %s", got.Code, exists(journal), got.Err)
	}
	if got := clitest.Run(t, append([]string{"repair", "--empty-blocks"}, away...)...); got.Code != exit.CodeUnread {
		t.Errorf("without an API server a plan ends with %d: %s", got.Code, got.Err)
	}
}

// TestInterruptedApply: after Ctrl-C before the first step, all steps are left and the exit
// code is that of an unfinished run.
func TestInterruptedApply(t *testing.T) {
	c := clitest.Play(t, seeding.StoryDrained)
	t.Chdir(t.TempDir())
	if got := clitest.RunOn(t, c, "repair", "--empty-blocks", "--out", "plan.json"); got.Code != exit.CodeOK {
		t.Fatal(got.Err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := clitest.RunUntil(t, ctx, "repair", "apply", "plan.json", "--yes", "--kubeconfig", c.KubeconfigPath())
	if got.Code != exit.CodeUnfinished || clitest.EmptyBlocks(t, c) != 2 {
		t.Errorf("it ends with %d, %d empty blocks\n%s%s", got.Code, clitest.EmptyBlocks(t, c), got.Stdout, got.Err)
	}
}

// TestKindsAnswerChecks: on a real cluster with each problem, the checks name the kind of
// repair that answers them as the next step.
func TestKindsAnswerChecks(t *testing.T) {
	c := clitest.Play(t, seeding.StoryDrained)
	got := clitest.RunOn(t, c, "report", "-o", "json", "--check", "block/empty")
	fixes := map[string]bool{}
	for _, f := range got.Report(t).Findings {
		fixes[f.Fix.Kind+" "+f.Fix.Command] = true
	}
	if !fixes["repair calico-audit repair --kubeconfig "+c.KubeconfigPath()+" --empty-blocks"] || len(fixes) != 1 {
		t.Errorf("the releasable blocks' next step is %v", fixes)
	}
	table := clitest.RunOn(t, c, "report", "--check", "block/empty").Stdout
	if !slices.ContainsFunc(strings.Split(table, "\n"), func(l string) bool {
		return strings.HasPrefix(l, "     $ calico-audit repair --kubeconfig ") && strings.HasSuffix(l, " --empty-blocks --pool pods-v4")
	}) {
		t.Errorf("the table's remedy does not read the same cluster:\n%s", table)
	}
}
