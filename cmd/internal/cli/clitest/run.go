// Package clitest runs the program in the process of a test.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/cmd/internal/cli"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
)

// Outcome is the visible result of one run.
type Outcome struct {
	Code        int
	Stdout, Err string
}

// Run runs the program with the given arguments.
func Run(t *testing.T, args ...string) Outcome {
	t.Helper()
	return RunUntil(t, t.Context(), args...)
}

// RunUntil runs the program until the context ends.
func RunUntil(t *testing.T, ctx context.Context, args ...string) Outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	code := cli.Main(ctx, append([]string{"calico-audit"}, args...),
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	return Outcome{code, out.String(), errOut.String()}
}

// Report decodes the standard output as a report.
func (o Outcome) Report(t *testing.T) *audit.Report { t.Helper(); return decode[audit.Report](t, o) }

// Explanation decodes the standard output as an explanation.
func (o Outcome) Explanation(t *testing.T) *explain.Explanation {
	t.Helper()
	return decode[explain.Explanation](t, o)
}

// Plan decodes the standard output as a plan.
func (o Outcome) Plan(t *testing.T) *repair.Plan { t.Helper(); return decode[repair.Plan](t, o) }

// Result decodes the standard output as the result of an apply.
func (o Outcome) Result(t *testing.T) *repair.Result { t.Helper(); return decode[repair.Result](t, o) }

// decode decodes the standard output. The test fails if it is not JSON of the type.
func decode[T any](t *testing.T, o Outcome) *T {
	t.Helper()
	v := new(T)
	if err := json.Unmarshal([]byte(o.Stdout), v); err != nil {
		t.Fatalf("decoding a %T: %v\nexit code %d\n%s\n%s", v, err, o.Code, o.Stdout, o.Err)
	}
	return v
}

// Comparable returns the report without its source.
func (o Outcome) Comparable(t *testing.T) string {
	t.Helper()
	r := o.Report(t)
	r.Cluster.Datastore, r.Cluster.APIGroup, r.Cluster.APIGroupReason, r.Cluster.TakenAt, r.Cluster.Assumes = "", "", "", audit.Time{}, nil
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return WithoutSource(raw)
}

// WithoutSource removes the flags that name the source of commands.
func WithoutSource(text []byte) string {
	return string(regexp.MustCompile(` (-f|--kubeconfig) [^ "]+`).ReplaceAll(text, nil))
}

// Findings returns the findings of a check.
func Findings(r *audit.Report, check string) (out []audit.Finding) {
	for _, f := range r.Findings {
		if f.Check == check {
			out = append(out, f)
		}
	}
	return out
}

// Evidence returns the value of a finding's evidence with the given name, or "".
func Evidence(f audit.Finding, name string) string {
	for _, e := range f.Evidence {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// Play returns a cluster in the state of a scenario.
func Play(t *testing.T, scenario func(context.Context, *testcluster.Cluster) error) *testcluster.Cluster {
	t.Helper()
	c := testcluster.Shared(t, testcluster.Options{})
	c.Play(t, scenario)
	return c
}

// RunOn runs the program on a cluster.
func RunOn(t *testing.T, c *testcluster.Cluster, args ...string) Outcome {
	t.Helper()
	return Run(t, append(args, "--kubeconfig", c.KubeconfigPath())...)
}

// EmptyBlocks counts the blocks without an allocated address.
func EmptyBlocks(t *testing.T, c *testcluster.Cluster) int {
	t.Helper()
	state, err := c.ReadIPAM(t.Context(), testcluster.CRDv1)
	if err != nil {
		t.Fatal(err)
	}
	return len(state.Empty)
}

// Dump writes a cluster's objects of an API group, and Kubernetes' own, to a directory.
func Dump(t *testing.T, c *testcluster.Cluster, g testcluster.Group) string {
	t.Helper()
	dir := t.TempDir()
	if err := c.Dump(t.Context(), dir, g); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Statuses lists the outcomes of the steps of an apply.
func Statuses(r *repair.Result) string {
	var out []string
	for _, o := range r.Outcomes {
		out = append(out, strings.TrimSpace(string(o.Status)+" "+string(o.Code)))
	}
	return strings.Join(out, ", ")
}

// AwaitReport waits for a good report, because the API server needs a moment to apply
// changed rights.
func AwaitReport(t *testing.T, with string, ask func() *audit.Report, good func(*audit.Report) bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	for {
		r := ask()
		if good(r) {
			return
		}
		select {
		case <-ctx.Done():
			text, _ := json.Marshal([]any{r.Complete, r.Gaps, r.HostViews, r.HostGaps})
			t.Fatalf("with %s: %s", with, text)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
