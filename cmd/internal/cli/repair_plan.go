package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// plan reads the source and builds the plan. From a running cluster what the steps
// rest on is read a second time, and only steps that both readings give are held. The
// state is the one that the plan is made of.
func (r *repairCommand) plan(ctx context.Context, from reader, progress *view.ProgressLine) (*repair.Plan, *state.State, error) {
	snapshot, err := from.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	opts := state.Options{Grace: r.grace}
	if r.grace == 0 {
		opts.Grace = 1 // no grace at all; zero would mean the default
	}
	progress.Show("planning")
	st := state.New(snapshot, opts)
	if err := r.checkNames(st); err != nil {
		return nil, nil, err
	}
	if r.request.Terminated, err = r.terminatedNodes(st); err != nil {
		return nil, nil, err
	}
	req := r.request
	if snapshot.Cluster.Live {
		req.MaxSteps = 0 // which steps the bound cuts off is decided after the second reading
	}
	plan := repair.Build(st, req)
	if snapshot.Cluster.Live && len(plan.Steps) > 0 {
		second, err := from.Reread(ctx, snapshot, confirmedBy)
		if err != nil {
			return nil, nil, unreadError(fmt.Errorf("reading the cluster a second time, to confirm the plan: %w", err))
		}
		st = state.New(second, opts)
		plan = repair.Confirm(plan, st, r.request)
	}
	plan.Grace.Duration = r.grace
	plan.Seal()
	return plan, st, nil
}

// confirmedBy are the resources that are read a second time before a plan is
// shown: objects of different kinds are read one after the other, and what came or
// went in between looks like damage.
var confirmedBy = []blocks.Resource{
	blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.IPAMConfigs, blocks.Pools, blocks.Nodes, blocks.Namespaces, blocks.Pods,
}

// checkNames tells whether the pools and nodes of --pool and --node are there.
func (r *repairCommand) checkNames(st *state.State) error {
	rep := audit.NewReport(st, &audit.Result{})
	for i := range st.Affinities {
		// A host that has but an affinity is no node and in no report.
		if n := st.Affinities[i].Owner.Node(); n != "" && st.NodeState(n) == nil {
			rep.Nodes = append(rep.Nodes, audit.NodeReport{Name: n})
		}
	}
	warnings, err := checkNames(rep, r.request.Pools, r.request.Nodes)
	for _, w := range warnings {
		say(r.streams, "warning: %s", w)
	}
	return err
}

// terminatedNodes returns the nodes that --terminated names, sorted, with those that
// "all" stands for. It is an error to name one that is Ready, or one that does not exist
// and owns nothing.
func (r *repairCommand) terminatedNodes(st *state.State) ([]string, error) {
	var out []string
	for _, name := range r.terminated {
		if name == "all" {
			out = append(out, repair.UnansweredNodes(st)...)
			continue
		}
		h := st.NodeState(name)
		switch {
		case h != nil && h.Node != nil && h.Node.Ready:
			return nil, usagef("--terminated %s: the node is Ready, so that its machine runs", name)
		case h == nil && st.Complete() && !ownsAllocations(st, name):
			return nil, usagef("--terminated %s: there is no such node, and no allocation of one", name)
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// ownsAllocations tells whether any allocation is a node's.
func ownsAllocations(st *state.State, node string) bool {
	found := false
	st.EachAllocation(func(_ state.AllocationRef, of string) { found = found || of == node })
	return found
}

// planOutputs are the flags that say how plans and results are printed.
type planOutputs struct {
	outputFlags

	plans   outputs[*repair.Plan]
	results outputs[*repair.Result]
}

func (p *planOutputs) addFlags(c *cobra.Command) { addOutputFlags(c, &p.outputFlags, planFormats, "") }

// complete reads the values. Files that are taken may not be written to.
func (p *planOutputs) complete(taken string) (err error) {
	var places places
	if taken != "" {
		if err := places.take("--out", "plan", taken); err != nil {
			return err
		}
	}
	if p.plans, err = parseOutputs(planFormats, &p.outputFlags, places); err != nil {
		return err
	}
	p.results, err = parseOutputs(view.ResultFormats(), &p.outputFlags, places)
	return err
}

// table returns what prints for people alone, whatever -o says.
func (p *planOutputs) table() *planOutputs {
	t := &planOutputs{outputFlags: outputFlags{[]string{"table"}, p.color}}
	if err := t.complete(""); err != nil {
		panic(err) // there is a table, and the colour was read before
	}
	return t
}

// noPage refuses a page, for what was kept or done.
func (p *planOutputs) noPage() error {
	if !p.plans.page() {
		return nil
	}
	return usagef("-o html shows a plan upon the report of the same moment: it goes with \"repair\" without --apply")
}

// plan prints a plan to every output.
func (p *planOutputs) plan(streams genericiooptions.IOStreams, plan *repair.Plan, o view.Options) error {
	return p.plans.write(streams, "plan", plan, p.options(streams, o))
}

// result prints what became of a plan to every output.
func (p *planOutputs) result(streams genericiooptions.IOStreams, r *repair.Result, o view.Options) error {
	return p.results.write(streams, "result", r, p.options(streams, o))
}

func (p *planOutputs) options(streams genericiooptions.IOStreams, o view.Options) func(toStdout bool) view.Options {
	return func(toStdout bool) view.Options {
		o.Now, o.ASCII = time.Now(), toStdout && asciiOnly(streams.Out)
		return p.display(o, streams, toStdout)
	}
}

// readPlan reads a plan that --out, -o json or -o yaml wrote.
func readPlan(path string, stdin io.Reader) (*repair.Plan, error) {
	text, head, done, err := openText(path, stdin)
	if err != nil {
		return nil, usagef("reading the plan: %w", err)
	}
	defer done()
	if _, kind := identity(head); kind != "" && kind != repair.PlanKind {
		return nil, usagef("%s is of kind %s, not %s: plans are written by \"repair --out\"", path, kind, repair.PlanKind)
	}
	raw, err := io.ReadAll(text)
	if err != nil {
		return nil, usagef("reading the plan %s: %w", path, err)
	}
	raw, err = files.DocumentJSON(bytes.TrimPrefix(raw, []byte("\ufeff")))
	if err != nil {
		return nil, usagef("reading the plan %s: %w", path, err)
	}
	plan := new(repair.Plan)
	if err := json.Unmarshal(raw, plan); err != nil {
		return nil, usagef("reading the plan %s: it is no plan: %w", path, err)
	}
	if plan.APIVersion != audit.APIVersion || plan.Kind != repair.PlanKind {
		return nil, usagef("reading the plan %s: it is a %q of %q, not a %s of %s", path, plan.Kind, plan.APIVersion, repair.PlanKind, audit.APIVersion)
	}
	var given struct{ Grace *string }
	if err := json.Unmarshal(raw, &given); err != nil || given.Grace == nil {
		return nil, usagef("reading the plan %s: grace is missing: it says how long a state must have held", path)
	}
	return plan, nil
}

func newRepairShow(program string, streams genericiooptions.IOStreams) *cobra.Command {
	var p planOutputs
	c := &cobra.Command{
		Use:   "show PLAN",
		Short: "Print a plan that was kept",
		Long: `Print a plan that "repair --out" wrote, in any format, without reading a cluster.
"-" is standard input.

Exit codes: 0 it ran; 2 the file cannot be read, or is no plan.`,
		Example: strings.ReplaceAll(`  PROGRAM repair show plan.json -o markdown`, "PROGRAM", program),
		Args:    cobra.ExactArgs(1),
	}
	p.addFlags(c)
	c.RunE = run(func(_ *cobra.Command, args []string) error {
		if err := together(p.complete(""), p.noPage()); err != nil {
			return err
		}
		plan, err := readPlan(args[0], streams.In)
		if err != nil {
			return err
		}
		o := view.Options{Program: program}
		if len(plan.Steps) > 0 {
			n := applyNext(plan)
			n.Text = strings.Replace(n.Text, "Nothing was written. ", "", 1)
			n.Command = program + " repair apply " + shellQuote(args[0])
			o.Next = append(o.Next, n)
		}
		return p.plan(streams, plan, o)
	})
	return c
}
