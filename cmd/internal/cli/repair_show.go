package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/runner"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// planOutputs are the flags for the output of plans and results.
type planOutputs struct {
	outputFlags

	plans   outputs[*repair.Plan]
	results outputs[*repair.Result]
}

// complete parses the flags. formats are those of a plan. Outputs must not overwrite the
// file in taken.
func (p *planOutputs) complete(formats view.Formats[*repair.Plan], taken string) (err error) {
	var places places
	if taken != "" {
		if err := places.take("--out", "plan", taken); err != nil {
			return err
		}
	}
	if p.plans, err = parseOutputs(formats, &p.outputFlags, places); err != nil || p.plans.page() {
		return err // a page only shows plans that are not applied
	}
	p.results, err = parseOutputs(view.ResultFormats(), &p.outputFlags, places)
	return err
}

// table returns outputs that only print a table.
func (p *planOutputs) table() *planOutputs {
	t := &planOutputs{outputFlags: outputFlags{[]string{"table"}, p.color}}
	if err := t.complete(view.PlanFormats(), ""); err != nil {
		panic(err) // the table exists, and the colour was validated before
	}
	return t
}

// plan prints a plan to every output.
func (p *planOutputs) plan(streams genericiooptions.IOStreams, plan *repair.Plan, o view.Options) error {
	return p.plans.write(streams, "plan", plan, p.options(streams, o))
}

// result prints a result to every output.
func (p *planOutputs) result(streams genericiooptions.IOStreams, r *repair.Result, o view.Options) error {
	return p.results.write(streams, "result", r, p.options(streams, o))
}

// show prints a plan to standard error, before a question.
func (p *planOutputs) show(streams genericiooptions.IOStreams, plan *repair.Plan, o view.Options) error {
	streams.Out = streams.ErrOut
	return p.table().plan(streams, plan, o)
}

// runner returns a Runner that prints results to these outputs.
func (p *planOutputs) runner(e env, from *source.Flags, hosts *source.HostFlags, f *runner.Flags) *runner.Runner {
	shown := e.streams
	shown.Out = shown.ErrOut
	return &runner.Runner{
		Streams: e.streams, Program: e.program, Sources: from, Hosts: hosts, Flags: f, Ask: e.ask,
		Print: func(r *repair.Result, o view.Options) error { return p.result(e.streams, r, o) },
		Show:  func(r *repair.Result, o view.Options) error { return p.table().result(shown, r, o) },
	}
}

func (p *planOutputs) options(streams genericiooptions.IOStreams, o view.Options) func(toStdout bool) view.Options {
	return func(toStdout bool) view.Options {
		o.Now, o.ASCII = time.Now(), toStdout && terminal.ASCIIOnly(streams.Out)
		return p.display(o, streams, toStdout)
	}
}

// readPlan reads a plan from --out, -o json or -o yaml.
func readPlan(path string, stdin io.Reader) (*repair.Plan, error) {
	text, head, done, err := document.Open(path, stdin)
	if err != nil {
		return nil, exit.Usagef("reading the plan: %w", err)
	}
	defer done()
	if _, kind := document.Identity(head); kind != "" && kind != repair.PlanKind {
		return nil, exit.Usagef("%s is kind %s, want %s: \"repair --out\" writes plans", path, kind, repair.PlanKind)
	}
	plan := new(repair.Plan)
	raw, err := document.Decode("plan", "the plan "+path, text, plan)
	if err != nil {
		return nil, exit.Usage(err)
	}
	if plan.APIVersion != audit.APIVersion || plan.Kind != repair.PlanKind {
		return nil, exit.Usagef("reading the plan %s: it is kind %q of %q, want %s of %s", path, plan.Kind, plan.APIVersion, repair.PlanKind, audit.APIVersion)
	}
	var given struct{ Grace *string }
	if err := json.Unmarshal(raw, &given); err != nil || given.Grace == nil {
		return nil, exit.Usagef("reading the plan %s: the field grace is missing", path)
	}
	return plan, nil
}

func newRepairShow(e env) *cobra.Command {
	var p planOutputs
	c := e.command(&cobra.Command{
		Use:   "show PLAN",
		Short: "Print a saved plan",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := p.complete(view.PlanFormats(), ""); err != nil {
				return err
			}
			plan, err := readPlan(args[0], e.streams.In)
			if err != nil {
				return err
			}
			o := view.Options{Program: e.program}
			if len(plan.Steps) > 0 {
				n := applyNext(plan, e.program+" repair apply "+phrase.Arg(args[0]))
				n.Text = strings.Replace(n.Text, "Nothing was written. ", "", 1)
				o.Next = append(o.Next, n)
			}
			return p.plan(e.streams, plan, o)
		},
	})
	addOutputFlags(c, &p.outputFlags, view.PlanFormats(), "")
	return c
}

// applyNext returns the command that applies a plan, and when to run it. It returns no command if
// the plan cannot be applied.
func applyNext(plan *repair.Plan, command string) view.NextStep {
	if why := plan.Unapplicable(); why != "" {
		return view.NextStep{Text: "Nothing was written. This plan cannot be applied: " + why + "."}
	}
	twice := 0
	for i := range plan.Steps {
		if plan.Steps[i].TwoObservations {
			twice++
		}
	}
	text := "Nothing was written. Apply it with:"
	if twice > 0 && plan.Unobserved() != "" { // without it, those steps would be skipped
		command += " --wait"
	}
	switch {
	case twice > 0 && plan.OfFiles():
		text = fmt.Sprintf("Nothing was written. %d of the %d steps need two observations, and files do not count as one: apply the plan with --wait, where the cluster can be reached:",
			twice, len(plan.Steps))
	case plan.OfFiles():
		text = "Nothing was written. Apply it where the cluster can be reached:"
	case twice > 0 && plan.Unobserved() != "":
		text = fmt.Sprintf("Nothing was written. %d of the %d steps need two observations, and %s: apply it with --wait:",
			twice, len(plan.Steps), plan.Unobserved())
	case twice > 0:
		text = fmt.Sprintf("Nothing was written. %d of the %d steps need a second observation: apply the plan after %s, or with --wait:",
			twice, len(plan.Steps), plan.Due())
	}
	return view.NextStep{Text: text, Command: command}
}
