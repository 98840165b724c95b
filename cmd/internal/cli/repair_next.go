package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// next says how to go on from the plan.
func (r *repairCommand) next(plan *repair.Plan) []view.NextStep {
	if len(plan.Steps) == 0 {
		return []view.NextStep{{Text: "Nothing was written, and there is nothing to carry out."}}
	}
	n := applyNext(plan)
	if r.out == "" {
		n.Text = "Nothing was written. To carry the plan out, keep it first:"
		n.Command = r.program + " repair " + r.arguments() + " --out plan.json"
		return []view.NextStep{n}
	}
	if len(r.hosts.paths) > 0 && slices.ContainsFunc(plan.Steps, func(s repair.Step) bool { return s.Kind == repair.ReleaseIP }) {
		n.Text = strings.TrimSuffix(n.Text, ":") + ". Take the host views anew before: they are read again then, and count for 10 minutes:"
	}
	n.Command = r.program + " repair apply " + shellQuote(r.out)
	if args := strings.TrimSpace(r.sources.clusterArguments() + r.hosts.arguments()); args != "" {
		n.Command += " " + args
	}
	if len(r.sources.files) > 0 {
		n.Text += " Where the cluster can be reached:"
	}
	return []view.NextStep{n}
}

// applyNext says when a plan can be carried out.
func applyNext(plan *repair.Plan) view.NextStep {
	twice := 0
	for i := range plan.Steps {
		if plan.Steps[i].TwoObservations {
			twice++
		}
	}
	text := "Nothing was written. To carry the plan out:"
	switch {
	case twice > 0 && plan.OfFiles():
		text = fmt.Sprintf("Nothing was written. %d of the %d steps must be seen twice before they are carried out, and files are no observation: apply the plan with --wait:",
			twice, len(plan.Steps))
	case twice > 0 && plan.Unobserved() != "":
		text = fmt.Sprintf("Nothing was written. %d of the %d steps must be seen twice before they are carried out, and %s: apply it with --wait:",
			twice, len(plan.Steps), plan.Unobserved())
	case twice > 0:
		due := state.FormatTime(plan.CreatedAt.Add(plan.Grace.Duration))
		text = fmt.Sprintf("Nothing was written. %d of the %d steps must be seen a second time before they are carried out: apply the plan not before %s, or with --wait:",
			twice, len(plan.Steps), due)
	}
	return view.NextStep{Text: text}
}

// arguments returns the flags that make another run plan the same.
func (r *repairCommand) arguments() string {
	var out []string
	for _, k := range repairKinds {
		if *k.of(&r.request) {
			out = append(out, "--"+k.flag)
		}
	}
	if r.strict != "" {
		out = append(out, "--strict-affinity="+r.strict)
	}
	for _, p := range r.request.Pools {
		out = append(out, "--pool "+shellQuote(p))
	}
	for _, n := range r.request.Nodes {
		out = append(out, "--node "+shellQuote(n))
	}
	if r.request.MaxSteps > 0 {
		out = append(out, fmt.Sprintf("--max-steps %d", r.request.MaxSteps))
	}
	if r.grace != state.DefaultGrace {
		out = append(out, "--grace "+r.grace.String())
	}
	if r.request.ObserveTwice {
		out = append(out, "--observe-twice")
	}
	if r.request.AllowNewer {
		out = append(out, "--allow-newer-calico")
	}
	for _, n := range r.request.Terminated {
		out = append(out, "--terminated "+shellQuote(n))
	}
	if r.request.WithoutHostEvidence {
		out = append(out, "--without-host-evidence")
	}
	if args := strings.TrimSpace(r.sources.arguments() + r.hosts.arguments()); args != "" {
		out = append(out, args)
	}
	return strings.Join(out, " ")
}
