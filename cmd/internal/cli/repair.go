package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// repairCommand is the repair command with its flags.
type repairCommand struct {
	env
	sources source.Flags
	hosts   source.HostFlags
	grace   graceFlag
	print   planOutputs
	carry   carryFlags
	flags   *pflag.FlagSet

	request repair.Request
	// terminated is the value of --terminated, which may be "all".
	terminated []string
	// ips and cidrs are the values of --ip and --block.
	ips, cidrs []string
	out        string
	apply      bool
	exit       bool // --detailed-exitcode
}

// repairKinds are the kinds of repair: the flag, and what it answers.
var repairKinds = []struct {
	flag, help, answers string
	of                  func(*repair.Request) *bool
}{
	{"empty-blocks", "release empty blocks that no node has to keep", "block/empty, block/dead-node",
		func(r *repair.Request) *bool { return &r.EmptyBlocks }},
	{"orphan-affinities", "delete affinities whose block does not exist or is another node's", "affinity/no-block, affinity/not-owner, affinity/dead-node",
		func(r *repair.Request) *bool { return &r.OrphanAffinities }},
	{"missing-affinities", "restore the missing BlockAffinity of blocks", "block/no-affinity",
		func(r *repair.Request) *bool { return &r.MissingAffinities }},
	{"leaked-ips", "free addresses that nothing owns", "ip/leaked",
		func(r *repair.Request) *bool { return &r.LeakedIPs }},
	{"leaked-handles", "delete handles that no block refers to, and put right what others count", "handle/leaked, handle/count",
		func(r *repair.Request) *bool { return &r.LeakedHandles }},
	{"dead-nodes", "release what nodes that no longer exist have left: empty blocks and affinities, and blocks that only pods of other nodes use", "block/dead-node, affinity/dead-node",
		func(r *repair.Request) *bool { return &r.DeadNodes }},
	{"unrecorded-ips", "record the addresses that live pods use and no block records, as after a restore of the datastore", "ip/unallocated",
		func(r *repair.Request) *bool { return &r.UnrecordedIPs }},
	{"missing-handles", "create handles that blocks refer to and that do not exist", "handle/missing",
		func(r *repair.Request) *bool { return &r.MissingHandles }},
	{"soft-deleted", "finish deletions that were begun and left", "block/soft-deleted",
		func(r *repair.Request) *bool { return &r.SoftDeleted }},
	{"whereabouts-stranded", "release addresses of secondary networks (Whereabouts) that pods which are gone have left in pools and reservations", "whereabouts/stranded, whereabouts/stale, whereabouts/reservation-only",
		func(r *repair.Request) *bool { return &r.WhereaboutsStranded }},
	{"whereabouts-reservations", "record the address of a live pod in its pool again where only its reservation (Whereabouts) is left, and delete reservations that nothing explains", "whereabouts/reservation-only",
		func(r *repair.Request) *bool { return &r.WhereaboutsReservations }},
	{"consolidate", "move the pods out of a block of a node that has several, and give it to a node that can get none", "node/no-block",
		func(r *repair.Request) *bool { return &r.Consolidate }},
	{"rehome", "evict pods that borrow their address, where their node has addresses by now", "ip/borrowed",
		func(r *repair.Request) *bool { return &r.Rehome }},
}

const strictAnswers = "config/strict-affinity"

func newRepair(e env) *cobra.Command {
	r := &repairCommand{env: e}
	c := e.command(&cobra.Command{
		Use:   "repair --KIND...",
		Short: "Plan repairs, and apply them",
		Args:  filesByFlag,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := r.complete(); err != nil {
				return err
			}
			return r.run(c.Context())
		},
	})
	r.sources.AddTo(c)
	r.hosts.AddTo(c)
	fs := c.Flags()
	r.flags = fs
	for _, k := range repairKinds {
		fs.BoolVar(k.of(&r.request), k.flag, false, k.help+" (answers "+k.answers+")")
	}
	fs.Func("strict-affinity", "set strict affinity to `BOOL`, true or false (answers "+strictAnswers+")", func(value string) error {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is not true or false", value)
		}
		r.request.StrictAffinity = &on
		return nil
	})
	fs.StringSliceVar(&r.request.Pools, "pool", nil, "plan only what concerns the pool of this `NAME`; repeatable, or joined by commas")
	fs.StringSliceVar(&r.request.Nodes, "node", nil, "plan only what concerns the node of this `NAME`; repeatable, or joined by commas")
	fs.StringSliceVar(&r.ips, "ip", nil, "plan only what is about this `ADDRESS`, its block or its handle; repeatable, or joined by commas")
	fs.StringSliceVar(&r.cidrs, "block", nil, "plan only what is about the block of this `CIDR`, or an address in it; repeatable, or joined by commas")
	fs.IntVar(&r.request.MaxSteps, "max-steps", 0, "plan at most this `NUMBER` of steps; 0 for no bound")
	r.grace.addFlag(c, "how long a state must have held before it is acted on")
	fs.BoolVar(&r.request.ObserveTwice, "observe-twice", false, "trust no age that is written in an object: after a datastore was restored from a backup")
	fs.BoolVar(&r.request.AllowNewer, "allow-newer-calico", false, "plan steps although the cluster's Calico is newer than this program knows")
	fs.StringSliceVar(&r.terminated, "terminated", nil,
		"consent, with --leaked-ips, --whereabouts-stranded or --whereabouts-reservations: the machine of this `NODE` is known to be off; repeatable, or joined by commas; refused for one that is Ready; \"all\" for all nodes that no longer exist or are NotReady, and leave addresses behind or may have left some of secondary networks")
	fs.BoolVar(&r.request.LastBlocks, "last-blocks", false,
		"consent, with --empty-blocks, before Calico v3.32: release the last empty block of a node that is cordoned or runs no pod of the pod network, while another node cannot allocate")
	fs.BoolVar(&r.request.WithoutHostEvidence, "without-host-evidence", false,
		"consent, with --leaked-ips, --whereabouts-stranded or --whereabouts-reservations: release addresses although no host view proves that their node does not use them, as Calico's own collector does")
	fs.BoolVar(&r.request.CordonFull, "cordon-full", false,
		"consent, with --consolidate or --rehome: nodes without addresses of their own may be cordoned while pods move, with --consolidate even more than half of a pool's; the plan says how many are left")
	fs.BoolVar(&r.request.EvictSingletons, "evict-singletons", false,
		"consent, with --consolidate or --rehome: pods that nothing stands in for may be evicted, those without a controller and the only ones of it that no PodDisruptionBudget covers")
	fs.StringVar(&r.out, "out", "", "write the plan to this `FILE`, for \"repair apply\"")
	fs.BoolVar(&r.apply, "apply", false, "apply the plan, after a question")
	fs.BoolVar(&r.exit, "detailed-exitcode", false, "exit with 1 if the plan has steps")
	r.print.addFlags(c, planFormats)
	r.carry.addAllFlags(c)
	flags.OneOf(c, "strict-affinity", "true", "false")
	r.sources.CompleteNames(c, "pool", "pool", "secondary pool")
	r.sources.CompleteNames(c, "node", "node")
	r.sources.CompleteNames(c, "terminated", "node")
	flags.NoFiles(c, "ip", "block", "max-steps")
	c.AddCommand(newRepairShow(e), newRepairApply(e), newRepairUndo(e))
	return c
}

// complete checks the flags. All its errors are errors of usage, found before
// anything is read.
func (r *repairCommand) complete() error {
	if err := r.parseTargets(); err != nil {
		return err
	}
	asked := r.request.StrictAffinity != nil
	for _, k := range repairKinds {
		asked = asked || *k.of(&r.request)
	}
	switch {
	case !asked:
		return noKind()
	case r.grace.check() != nil:
		return r.grace.check()
	case r.request.MaxSteps < 0:
		return exit.Usagef("--max-steps %d is negative", r.request.MaxSteps)
	case !r.request.ReleasesAddresses() && (len(r.terminated) > 0 || r.request.WithoutHostEvidence):
		return exit.Usagef("--terminated and --without-host-evidence go with --leaked-ips, --whereabouts-stranded or --whereabouts-reservations: nothing else needs these consents")
	case !r.request.EmptyBlocks && r.request.LastBlocks:
		return exit.Usagef("--last-blocks goes with --empty-blocks: nothing else needs this consent")
	case r.request.CordonFull && !r.request.Consolidate && !r.request.Rehome:
		return exit.Usagef("--cordon-full goes with --consolidate or --rehome: nothing else needs this consent")
	case r.request.EvictSingletons && !r.request.Consolidate && !r.request.Rehome:
		return exit.Usagef("--evict-singletons goes with --consolidate or --rehome: nothing else needs this consent")
	case slices.Contains(r.terminated, ""):
		return exit.Usagef("--terminated names no node")
	case r.apply && len(r.sources.Files) > 0:
		return exit.Usagef("--apply needs the cluster: a plan made from files (-f) is kept with --out, and applied there with \"%s repair apply\"", r.program)
	case !r.apply && r.carry.set():
		return exit.Usagef("--yes, --wait, --pace and --journal go with --apply: without it nothing is written")
	}
	if r.out != "" {
		if err := document.CheckTarget(r.out); err != nil {
			return exit.Usagef("--out %s: %w", r.out, err)
		}
	}
	if err := r.print.complete(r.out); err != nil {
		return err
	}
	if r.apply {
		if r.print.plans.page() {
			return exit.Usagef("-o html shows a plan upon the report of the same moment: it goes with \"repair\" without --apply")
		}
		if err := r.carry.complete(r.streams); err != nil {
			return err
		}
		_, err := r.carry.exists()
		return err
	}
	return nil
}

// parseTargets reads the values of --ip and --block.
func (r *repairCommand) parseTargets() error {
	for _, text := range r.ips {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return exit.Usagef("--ip %q is not an IP address", text)
		}
		r.request.IPs = append(r.request.IPs, a.Unmap())
	}
	for _, text := range r.cidrs {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return exit.Usagef("--block %q is not a CIDR such as 10.0.0.0/26", text)
		case p != p.Masked():
			return exit.Usagef("--block %s: a block of that size begins at %s", text, p.Masked())
		}
		r.request.Blocks = append(r.request.Blocks, p)
	}
	return nil
}

// checkTargets reports whether the addresses and blocks of --ip and --block are there: as
// a block or an affinity, or as what a live pod or a reservation of ours says of one.
func (r *repairCommand) checkTargets(st *state.State) error {
	if !st.Complete() {
		return nil
	}
	for _, a := range r.request.IPs {
		pool := st.PoolOf(netip.PrefixFrom(a, a.BitLen()))
		switch {
		case st.CoveringBlock(a) != nil || st.UnrecordedUser(netip.PrefixFrom(a, a.BitLen())) != "" || secondary(st, a):
		case pool == nil:
			return exit.Usagef("--ip %s is in no block and in no pool", a)
		default:
			return exit.Usagef("--ip %s is in no block, and nothing uses it: pool %s has not given it out", a, pool.Name)
		}
	}
	for _, p := range r.request.Blocks {
		pool := st.PoolOf(p)
		switch {
		case st.BlockOf(p) != nil || len(st.AffinitiesOf(p)) > 0 || reserved(st, p):
		case pool == nil:
			return exit.Usagef("--block %s: there is no such block, no affinity to one, and no pool that it would be in", p)
		case p.Bits() != pool.BlockSize:
			return exit.Usagef("--block %s: there is no such block; those of pool %s are of /%d, and %s is in %s", p, pool.Name, pool.BlockSize, p.Addr(), netip.PrefixFrom(p.Addr(), pool.BlockSize).Masked())
		case st.UnrecordedUser(p) == "":
			return exit.Usagef("--block %s: there is no such block: pool %s has not given it out", p, pool.Name)
		}
	}
	return nil
}

// secondary reports whether an address is in a range of Whereabouts' or reserved there.
func secondary(st *state.State, a netip.Addr) bool {
	return slices.ContainsFunc(st.WhereaboutsPools, func(p blocks.WhereaboutsPool) bool { return p.Range.Masked().Contains(a) }) ||
		slices.ContainsFunc(st.WhereaboutsReservations, func(r blocks.WhereaboutsReservation) bool {
			return slices.Contains(slices.Collect(maps.Values(r.Addresses())), a)
		})
}

func reserved(st *state.State, p netip.Prefix) bool {
	return slices.ContainsFunc(remedies.Of(st).Begun(), func(c *remedies.Consolidation) bool { return c.CIDR == p })
}

// noKind says which kinds of repair there are.
func noKind() error {
	var b strings.Builder
	b.WriteString("no kind of repair was asked for. Give one or several of:\n")
	for _, k := range repairKinds {
		fmt.Fprintf(&b, "  --%-27s %s\n  %-29s (answers %s)\n", k.flag, k.help, "", k.answers)
	}
	fmt.Fprintf(&b, "  --%-27s %s\n  %-29s (answers %s)", "strict-affinity=true|false", "set strict affinity", "", strictAnswers)
	return &exit.Error{Code: exit.CodeUsage, Err: fmt.Errorf("%s", b.String())}
}

// run makes the plan, prints it, and carries it out if that was asked for.
func (r *repairCommand) run(ctx context.Context) error {
	r.sources.Budgets = r.request.Evicts()
	progress := view.ProgressOn(r.streams)
	from, err := r.sources.OpenWith(&r.hosts, r.streams, progress.Show)
	if err != nil {
		return err
	}
	plan, state, err := r.plan(ctx, from, progress)
	progress.Clear()
	if err != nil {
		return err
	}
	c := &carrier{env: r.env, sources: &r.sources, hosts: &r.hosts, flags: &r.carry, print: &r.print, planFile: r.out}
	if r.apply {
		switch begun, err := c.finishBegun(ctx, plan.Cluster.GUID, r.request); {
		case err != nil:
			return err
		case begun: // which changed the cluster
			if plan, state, err = r.plan(ctx, from, progress); err != nil {
				progress.Clear()
				return err
			}
		}
	}
	report, err := r.report(ctx, from, state, progress)
	progress.Clear()
	if err != nil {
		return err
	}
	if r.out != "" {
		err := document.WriteAtomically(r.out, func(w io.Writer) error { return view.WriteJSON(w, plan) })
		if err != nil {
			return exit.Usagef("writing the plan: %w", err)
		}
	}
	var errs []error
	if !state.Complete() {
		errs = append(errs, exit.Unread(incomplete("plan", state.Gaps)))
	}
	if r.exit && len(plan.Steps) > 0 {
		errs = append(errs, exit.Findings(fmt.Errorf("the plan has %d steps", len(plan.Steps))))
	}
	o := r.viewOptions(plan, report)
	if !r.apply {
		return exit.Together(append(errs, r.print.plan(r.streams, plan, o))...)
	}
	if err = c.show(plan, o); err == nil {
		err = c.applyPlan(ctx, plan, nil)
	}
	errs = append(errs, err)
	return exit.Together(errs...)
}

// report makes the report that the plan is shown with. Only a page shows more of it
// than the map, and needs what the checks find.
func (r *repairCommand) report(ctx context.Context, from source.Reader, state *state.State, progress *view.ProgressLine) (*audit.Report, error) {
	if !r.print.plans.page() {
		return audit.NewReport(state, &audit.Result{}), nil
	}
	j, err := evaluate(ctx, &alreadyRead{from, state.Snapshot}, checks.All, r.grace, progress)
	if err != nil {
		return nil, err
	}
	rep := j.report()
	rep.Usage = audit.NewUsage(j.state, j.result)
	return rep, nil
}

// alreadyRead is a source of which a snapshot was taken before.
type alreadyRead struct {
	source.Reader
	snapshot *blocks.Snapshot
}

func (a *alreadyRead) Read(context.Context) (*blocks.Snapshot, error) { return a.snapshot, nil }

// viewOptions returns what an output of the plan needs to know.
func (r *repairCommand) viewOptions(plan *repair.Plan, report *audit.Report) view.Options {
	o := view.Options{
		Program: r.program, Source: r.sources.Describe(), Report: report,
		ReportArgs: strings.TrimSpace(r.sources.Arguments() + r.hosts.Arguments()), PortableArgs: strings.TrimSpace(r.sources.Portable() + r.hosts.Portable()),
	}
	if !r.apply {
		o.Next = r.next(plan)
	}
	return o
}

// plan reads the source and builds the plan. From a running cluster what the steps
// rest on is read a second time, and only steps that both readings give are held. The
// state is the one that the plan is made of.
func (r *repairCommand) plan(ctx context.Context, from source.Reader, progress *view.ProgressLine) (*repair.Plan, *state.State, error) {
	snapshot, err := from.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	opts := r.grace.options()
	progress.Show("planning")
	st := state.New(snapshot, opts)
	if err := cmp.Or(r.checkNames(st), r.checkTargets(st)); err != nil {
		return nil, nil, err
	}
	if r.request.Terminated, err = r.terminatedNodes(st); err != nil {
		return nil, nil, err
	}
	req := r.request
	if snapshot.Cluster.Live {
		req.MaxSteps = 0 // which steps the bound cuts off is decided after the second reading
	}
	plan := planner.Build(st, req)
	if snapshot.Cluster.Live && len(plan.Steps) > 0 {
		second, err := from.Reread(ctx, snapshot, confirmedBy)
		if err != nil {
			return nil, nil, exit.Unread(fmt.Errorf("reading the cluster a second time, to confirm the plan: %w", err))
		}
		st = state.New(second, opts)
		plan = planner.Confirm(plan, st, r.request)
	}
	plan.Grace.Duration = r.grace.grace
	plan.Seal()
	return plan, st, nil
}

// confirmedBy are the resources that are read a second time before a plan is
// shown: objects of different kinds are read one after the other, and what came or
// went in between looks like damage.
var confirmedBy = []blocks.Resource{
	blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.IPAMConfigs, blocks.Pools, blocks.Nodes, blocks.Namespaces, blocks.Pods,
	blocks.WhereaboutsPools, blocks.WhereaboutsReservations, blocks.NodeSlicePools, blocks.NetworkAttachments,
}

// checkNames reports whether the pools and nodes of --pool and --node are there.
func (r *repairCommand) checkNames(st *state.State) error {
	rep := audit.NewReport(st, &audit.Result{})
	for i := range st.Affinities {
		// A host that has but an affinity is not a node, and in no report.
		if n := st.Affinities[i].Owner.Node(); n != "" && st.NodeState(n) == nil {
			rep.Nodes = append(rep.Nodes, audit.NodeReport{Name: n})
		}
	}
	return r.checkSeen(rep, r.request.Pools, r.request.Nodes)
}

// terminatedNodes returns the nodes that --terminated names, sorted, with those that
// "all" stands for. It is an error to name one that is Ready, or one that does not exist
// and owns nothing.
func (r *repairCommand) terminatedNodes(st *state.State) ([]string, error) {
	var out []string
	for _, name := range r.terminated {
		if name == "all" {
			out = append(out, planner.UnansweredNodes(st, r.request)...)
			continue
		}
		h := st.NodeState(name)
		switch {
		case h != nil && h.Node != nil && h.Node.Ready:
			return nil, exit.Usagef("--terminated %s: the node is Ready, so that its machine runs", name)
		case h == nil && st.Complete() && !planner.Leaves(st, name):
			return nil, exit.Usagef("--terminated %s: no such node, and no allocation of one", name)
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// next says how to go on from the plan.
func (r *repairCommand) next(plan *repair.Plan) []view.NextStep {
	if len(plan.Steps) == 0 {
		return []view.NextStep{{Text: "Nothing was written, and there are no steps to apply."}}
	}
	n := applyNext(plan)
	if r.out == "" {
		n.Text = "Nothing was written. To apply the plan, keep it first:"
		n.Command = r.program + " repair " + r.arguments() + " --out plan.json"
		return []view.NextStep{n}
	}
	if len(r.hosts.Paths) > 0 && slices.ContainsFunc(plan.Steps, func(s repair.Step) bool { return s.AsksHosts() }) {
		n.Text = strings.Replace(n.Text, "Nothing was written.",
			"Nothing was written. Applying it reads the host views again, which count for 10 minutes: take new ones first.", 1)
	}
	n.Command = r.program + " repair apply " + phrase.Arg(r.out)
	n.Command += r.sources.ClusterArguments() + r.hosts.Arguments()
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
	text := "Nothing was written. Apply it with:"
	switch {
	case twice > 0 && plan.OfFiles():
		text = fmt.Sprintf("Nothing was written. %d of the %d steps must be seen twice before they are applied, and files do not count: apply the plan with --wait, where the cluster can be reached:",
			twice, len(plan.Steps))
	case plan.OfFiles():
		text = "Nothing was written. Apply it where the cluster can be reached:"
	case twice > 0 && plan.Unobserved() != "":
		text = fmt.Sprintf("Nothing was written. %d of the %d steps must be seen twice before they are applied, and %s: apply it with --wait:",
			twice, len(plan.Steps), plan.Unobserved())
	case twice > 0:
		due := phrase.Time(plan.CreatedAt.Add(plan.Grace.Duration))
		text = fmt.Sprintf("Nothing was written. %d of the %d steps must be seen a second time before they are applied: apply the plan not before %s, or with --wait:",
			twice, len(plan.Steps), due)
	}
	return view.NextStep{Text: text}
}

// arguments returns the flags that make another run plan the same.
func (r *repairCommand) arguments() string {
	var out string
	for _, k := range repairKinds {
		out += flags.Arguments(r.flags, k.flag)
	}
	if on := r.request.StrictAffinity; on != nil {
		out += " --strict-affinity=" + strconv.FormatBool(*on)
	}
	out += flags.Arguments(r.flags, "pool", "node", "ip", "block", "max-steps", "grace", "observe-twice", "allow-newer-calico")
	for _, n := range r.request.Terminated {
		out += " --terminated " + phrase.Arg(n)
	}
	out += flags.Arguments(r.flags, "without-host-evidence", "last-blocks", "cordon-full", "evict-singletons")
	return strings.TrimSpace(out + " " + strings.TrimSpace(r.sources.Arguments()+r.hosts.Arguments()))
}
