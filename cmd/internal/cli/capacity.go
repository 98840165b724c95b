package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit/capacity"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/fleet"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

var (
	capacityFormats      = view.CapacityFormats(page.Capacity)
	fleetCapacityFormats = view.FleetCapacityFormats(page.FleetCapacity)
)

type capacityCommand struct {
	env
	sources source.Flags
	fleet   fleetFlags
	output  outputFlags

	labels, pools, sizes, reserve []string
	strict                        string
	maxBlocks                     int
	scenario                      capacity.Scenario

	outputs      outputs[*view.CapacityReport]
	fleetOutputs outputs[*view.FleetCapacity]
	progress     *terminal.Progress
}

func newCapacity(e env) *cobra.Command {
	x := &capacityCommand{env: e}
	c := e.command(&cobra.Command{
		Use:   "capacity",
		Short: "Print how many nodes and pods still fit, and simulate changes",
		Args:  filesByFlag,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := x.complete(c); err != nil {
				return err
			}
			if x.progress = terminal.ProgressOn(x.streams); x.fleet.members != nil {
				return x.runFleet(c.Context())
			}
			return x.run(c.Context())
		},
	})
	x.fleet.addFlags(c)
	x.sources.AddTo(c)
	addOutputFlags(c, &x.output, capacityFormats, "")
	fs := c.Flags()
	fs.IntVar(&x.scenario.AddNodes, "add-nodes", 0, "assume that this `NUMBER` of nodes joins")
	fs.IntVar(&x.scenario.MaxNodes, "max-nodes", 0, "assume that nodes join until the cluster has this `NUMBER`, such as the autoscaler's maximum")
	fs.StringSliceVar(&x.labels, "node-labels", nil, "labels of the joining nodes, `KEY=VALUE`, in addition to those that Kubernetes sets; repeatable or comma-separated")
	fs.IntVar(&x.scenario.PodsPerNode, "pods-per-node", 0, "`NUMBER` of pods of the pod network on each joining node (default: 1, which makes the node claim a block)")
	fs.StringArrayVar(&x.scenario.RemoveNodes, "remove-node", nil, "assume that the node with this `NAME` is removed and its pods restart on the others; repeatable")
	fs.IntVar(&x.scenario.Pods, "pods", 0, "assume that this `NUMBER` of pods starts, spread over the nodes like the existing pods")
	fs.StringArrayVar(&x.pools, "add-pool", nil, "assume another pool, `CIDR/SIZE[,SELECTOR]` with the prefix length of its blocks and a node selector, such as 10.0.0.0/24/28,rack == 'a'; repeatable")
	fs.StringArrayVar(&x.sizes, "block-size", nil, "assume that a pool is replaced by one with the same CIDR and another block size, `[POOL=]BITS`, such as 28; repeatable (default POOL: the only one for workloads)")
	fs.StringVar(&x.strict, "strict-affinity", "", "assume strict affinity on or off: `true|false`")
	fs.IntVar(&x.maxBlocks, "max-blocks", 0, "assume that a node may hold at most this `NUMBER` of blocks (maxBlocksPerHost)")
	fs.StringArrayVar(&x.reserve, "reserve", nil, "assume that this `CIDR` is reserved; repeatable")
	flags.NoFiles(c, "add-nodes", "max-nodes", "node-labels", "pods-per-node", "pods", "add-pool", "block-size", "max-blocks", "reserve")
	flags.OneOf(c, "strict-affinity", "true", "false")
	x.sources.CompleteNames(c, "remove-node", "node")
	return c
}

// complete validates the flags, before anything is read. All its errors are usage errors.
func (x *capacityCommand) complete(c *cobra.Command) (err error) {
	if err := x.fleet.complete(&x.sources); err != nil {
		return err
	}
	if x.fleet.members != nil {
		x.fleetOutputs, err = parseOutputs(fleetCapacityFormats, &x.output, places{})
	} else {
		x.outputs, err = parseOutputs(capacityFormats, &x.output, places{})
	}
	if err != nil {
		return err
	}
	q := &x.scenario
	if q.AddNodes != 0 && q.MaxNodes != 0 {
		return exit.Usagef("--add-nodes and --max-nodes both set the number of joining nodes: give one of them")
	}
	for _, l := range x.labels {
		key, value, found := strings.Cut(l, "=")
		if !found || key == "" {
			return exit.Usagef("--node-labels %q: want KEY=VALUE", l)
		}
		if q.NodeLabels == nil {
			q.NodeLabels = map[string]string{}
		}
		q.NodeLabels[key] = value
	}
	for _, text := range x.pools {
		p, err := parsePool(text)
		if err != nil {
			return err
		}
		q.AddPools = append(q.AddPools, p)
	}
	for _, text := range x.sizes {
		pool, bits, named := strings.Cut(text, "=")
		if !named {
			pool, bits = "", text
		}
		n, err := strconv.Atoi(strings.TrimPrefix(bits, "/"))
		if err != nil {
			return exit.Usagef("--block-size %q: want a prefix length such as 28, or POOL=28", text)
		}
		q.BlockSizes = append(q.BlockSizes, capacity.BlockSize{Pool: pool, Bits: n})
	}
	for _, text := range x.reserve {
		cidr, err := netip.ParsePrefix(text)
		if addr, is := netip.ParseAddr(text); is == nil {
			cidr, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return exit.Usagef("--reserve %q: want a CIDR such as 10.0.0.0/28, or an address", text)
		}
		q.Reserve = append(q.Reserve, cidr.Masked())
	}
	if c.Flags().Changed("strict-affinity") {
		strict, err := strconv.ParseBool(x.strict)
		if err != nil {
			return exit.Usagef("--strict-affinity %q: want true or false", x.strict)
		}
		q.StrictAffinity = &strict
	}
	if c.Flags().Changed("max-blocks") {
		q.MaxBlocks = &x.maxBlocks
	}
	return nil
}

// parsePool parses a value of --add-pool: CIDR/SIZE[,SELECTOR].
func parsePool(text string) (capacity.NewPool, error) {
	spec, selector, _ := strings.Cut(text, ",")
	if i := strings.LastIndex(spec, "/"); i > 0 {
		cidr, err := netip.ParsePrefix(spec[:i])
		bits, sizeErr := strconv.Atoi(spec[i+1:])
		if err == nil && sizeErr == nil {
			return capacity.NewPool{CIDR: cidr, BlockSize: bits, NodeSelector: strings.TrimSpace(selector)}, nil
		}
	}
	return capacity.NewPool{}, exit.Usagef("--add-pool %q: want CIDR/SIZE[,SELECTOR], such as 10.0.0.0/24/28", text)
}

func (x *capacityCommand) run(ctx context.Context) error {
	from, err := x.sources.Open(x.streams, x.progress.Show)
	if err != nil {
		return err
	}
	report, err := x.answer(ctx, from)
	x.progress.Clear()
	if err != nil {
		return err
	}
	return errors.Join(x.outputs.write(x.streams, "answer", report, x.viewOptions), notAnswered("answer", report))
}

func (x *capacityCommand) answer(ctx context.Context, from source.Reader) (*view.CapacityReport, error) {
	snapshot, err := from.Read(ctx)
	if err != nil {
		return nil, err
	}
	x.progress.Show("simulating")
	st := state.New(snapshot, state.Options{})
	answer, err := capacity.Ask(ctx, st, x.scenario)
	if err != nil {
		return nil, exit.Usage(err)
	}
	return view.NewCapacityReport(st, answer), nil
}

// notAnswered returns an error if the answer is missing or incomplete.
func notAnswered(what string, r *view.CapacityReport) error {
	switch {
	case r.Complete && r.Inconclusive != "":
		return exit.Unread(errors.New(r.Inconclusive))
	case !r.Complete:
		return exit.Unread(incomplete(what, r.Gaps))
	}
	return nil
}

func (x *capacityCommand) runFleet(ctx context.Context) error {
	items, errs, err := readFleet(ctx, x.env, &x.fleet, &x.sources, x.progress, x.of)
	if err != nil {
		return err
	}
	for _, i := range items {
		if i.Error == "" {
			if err := notAnswered("answer", i.Of); err != nil {
				errs = append(errs, exit.Unread(fmt.Errorf("context %s: %w", i.Context, err)))
			}
		}
	}
	return errors.Join(append(errs, x.fleetOutputs.write(x.streams, "answer", view.NewFleet(view.FleetCapacityKind, fleet.Sort(items)), x.viewOptions))...)
}

func (x *capacityCommand) of(m *member) (view.Options, func(context.Context) (*view.CapacityReport, error)) {
	one := *x
	one.progress, one.streams, one.sources = terminal.NewProgress(nil), m.streams, m.sources
	return one.viewOptions(false), func(ctx context.Context) (*view.CapacityReport, error) {
		from, err := one.sources.Open(one.streams, one.progress.Show)
		if err != nil {
			return nil, err
		}
		return one.answer(ctx, from)
	}
}

func (x *capacityCommand) viewOptions(toStdout bool) view.Options {
	o := x.env.viewOptions(&x.sources, "", "")
	o.ASCII = toStdout && terminal.ASCIIOnly(x.streams.Out)
	return x.output.display(o, x.streams, toStdout)
}
