package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/runner"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

type repairCommand struct {
	env
	sources source.Flags
	hosts   source.HostFlags
	grace   graceFlag
	print   planOutputs
	carry   runner.Flags
	flags   *pflag.FlagSet

	request repair.Request
	// terminated is the value of --terminated; it may contain "all".
	terminated []string
	// ips and cidrs are the values of --ip and --block.
	ips, cidrs []string
	out        string
	apply      bool
	exit       bool // --detailed-exitcode
	// afterRestore makes one plan per stage of the repair after a restore.
	afterRestore bool
}

// arguments returns the arguments that make the same plan again.
func (r *repairCommand) arguments() string {
	out := flags.Arguments(r.flags, "after-restore")
	for _, q := range repair.Requests {
		if q.Field != nil {
			out += flags.Arguments(r.flags, q.Flag)
		} else if on := r.request.StrictAffinity; on != nil {
			out += " --" + q.Flag + "=" + strconv.FormatBool(*on)
		}
	}
	out += flags.Arguments(r.flags, "pool", "node", "ip", "block", "max-steps", "grace", "observe-twice", "allow-newer-calico")
	for _, n := range r.request.Terminated {
		out += " --terminated " + phrase.Arg(n)
	}
	out += flags.Arguments(r.flags, "without-host-evidence", "last-blocks", "cordon-full", "evict-singletons")
	return strings.TrimSpace(out + " " + strings.TrimSpace(r.sources.Arguments()+r.hosts.Arguments()))
}

// viewOptions returns the options for an output of the plan.
func (r *repairCommand) viewOptions(plan *repair.Plan, report *audit.Report) view.Options {
	o := r.env.viewOptions(&r.sources, r.hosts.Arguments(), r.hosts.Portable())
	if o.Report = report; !r.apply {
		o.Next = r.next(plan)
	}
	return o
}

// confirmedBy are the resources that are read a second time before a plan is shown. Kinds are read
// one after the other, so objects that appear or disappear in between look like damage.
var confirmedBy = []blocks.Resource{
	blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.IPAMConfigs, blocks.Pools, blocks.Nodes, blocks.Namespaces, blocks.Pods,
	blocks.WhereaboutsPools, blocks.WhereaboutsReservations, blocks.NodeSlicePools, blocks.NetworkAttachments,
}
