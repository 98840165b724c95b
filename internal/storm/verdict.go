package storm

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
)

// Harm lists addresses in use that are not allocated to their users or are allocated more
// than once. It reads etcd directly and uses no other code of the project.
func Harm(ctx context.Context, c *testcluster.Cluster, group testcluster.Group, live map[netip.Addr]string) ([]string, error) {
	found := map[netip.Addr][]string{}
	prefix := "/registry/" + group.Resource("ipamblocks").Group + "/ipamblocks/"
	image, err := TakeImage(ctx, c)
	if err != nil {
		return nil, err
	}
	for key, value := range image {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		b := &storedBlock{}
		if err := json.Unmarshal(value, b); err != nil {
			return nil, fmt.Errorf("reading %s: %w", key, err)
		}
		for addr, u := range b.uses() {
			found[addr] = append(found[addr], u.handle)
		}
	}
	var wrong []string
	for addr, handle := range live {
		switch handles := found[addr]; {
		case len(handles) == 0:
			wrong = append(wrong, fmt.Sprintf("%s is in use by %s, and was freed", addr, short(handle)))
		case len(handles) > 1:
			wrong = append(wrong, fmt.Sprintf("%s is allocated %d times", addr, len(handles)))
		case handles[0] != handle:
			wrong = append(wrong, fmt.Sprintf("%s is in use by %s, and allocated to %s", addr, short(handle), short(handles[0])))
		}
	}
	slices.Sort(wrong)
	return wrong, nil
}

// transitional lists the findings that an interrupted step may leave about its own
// target, and why the next run completes it. Any other new or more severe finding is an
// error.
var transitional = map[repair.Kind][]struct{ check, because string }{
	repair.ReleaseBlock: {
		{"affinity/stuck", "the affinity is pendingDeletion, as Calico's own release makes it first"},
		{"block/soft-deleted", "block or affinity is marked deleted, as Calico marks it before it deletes"},
		{"affinity/no-block", "the block is gone, and its affinity is pendingDeletion: the affinity is deleted last, as in Calico"},
		{"affinity/dead-node", "the same, of a vanished node: as long as the block is there, it is the block that is told of"},
	},
	repair.DisownBlock: {
		{"affinity/stuck", "the affinity is pendingDeletion, as Calico's own release makes it first"},
		{"affinity/not-owner", "the block has no owner any more, and the affinity, which is pendingDeletion, is deleted last"},
		{"affinity/dead-node", "the same: as long as the block was its own, it was the block that was told of"},
		{"block/soft-deleted", "the affinity is marked deleted, as Calico marks it before it deletes"},
	},
	repair.DeleteAffinity: {
		{"block/soft-deleted", "the affinity is marked deleted, as Calico marks it before it deletes"},
	},
	repair.RestoreAffinity: {
		{"affinity/stuck", "the affinity was created pending, and not confirmed yet"},
	},
	repair.ClaimBlock: {
		{"affinity/no-block", "the affinity is pending, and its block not made yet, as in Calico"},
		{"affinity/stuck", "the block is made, and the affinity not confirmed yet"},
	},
	repair.RecordIP: {
		{"affinity/no-block", "the block is claimed first: its affinity is pending, and it is not made yet, as in Calico"},
		{"affinity/stuck", "the block is made, and the affinity not confirmed yet"},
		{"handle/leaked", "the handle counts the address before the block records it, as in Calico"},
		{"handle/count", "the same, for a handle that has other addresses"},
		{"block/empty", "the block is claimed, and does not record the address yet"},
		{"block/soft-deleted", "the replaced handle is marked deleted, as Calico marks it before it deletes"},
	},
	repair.ReleaseIP: {
		{"handle/leaked", "the address was freed; its handle is lowered after that"},
		{"handle/count", "the same, for a handle that has other addresses"},
		{"block/soft-deleted", "the handle is marked deleted, as Calico marks it before it deletes"},
		{"block/empty", "the block holds nothing any more"},
	},
	repair.FinishDelete: {
		{"block/soft-deleted", "the affinity of a block that was marked goes with it, and is marked, too"},
		{"affinity/no-block", "the block is gone, and its affinity, which was pendingDeletion, not yet"},
	},
	repair.ReleaseWhereabouts: {
		{"whereabouts/reservation-only", "the entry is taken out of its pool; the reservation is deleted after that, as in Whereabouts"},
	},
	repair.DeleteHandle: {
		{"block/soft-deleted", "the handle is marked deleted, as Calico marks it before it deletes"},
	},
}

// Worse compares the findings of two states. A new or more severe finding in the second
// must be explained by the interrupted step, or be a result of the repair without a
// crash.
func Worse(before, after *state.State, step repair.Kind, meant map[string]state.Severity) []string {
	was := map[string]state.Severity{}
	for _, f := range audit.Run(before, checks.All).Findings {
		was[f.Fingerprint] = f.Severity
	}
	var wrong []string
	for _, f := range audit.Run(after, checks.All).Findings {
		if was[f.Fingerprint] >= f.Severity || meant[f.Fingerprint] >= f.Severity {
			continue
		}
		if !explained(step, f) {
			wrong = append(wrong, fmt.Sprintf("%s %s %s: %s", f.Severity, f.Check, f.Subject.ResourceName(), f.Message))
		}
	}
	return wrong
}

func explained(step repair.Kind, f audit.Finding) bool {
	for _, t := range transitional[step] {
		if t.check == f.Check {
			return true
		}
	}
	// The affinity's earlier problem may have been too young for a finding.
	return step == repair.DeleteAffinity && saysHalfDone(f) && (f.Check == "affinity/no-block" || f.Check == "affinity/not-owner")
}

// saysHalfDone reports whether a finding says that a step of calico-audit left its
// subject half-done. Such findings ignore the grace period.
func saysHalfDone(f audit.Finding) bool {
	return strings.Contains(f.Message, "a repair by calico-audit did not finish")
}

// Essence returns the comparable content of a state: the spec of each IPAM object,
// without sequence numbers and the times at which addresses were recorded.
func Essence(ctx context.Context, c *testcluster.Cluster, group testcluster.Group) (map[string]string, error) {
	out := map[string]string{}
	for _, plural := range []string{"ipamblocks", "blockaffinities", "ipamhandles", "ipamconfigs"} {
		list, err := c.List(ctx, group.Resource(plural))
		if err != nil {
			return nil, err
		}
		for i := range list {
			spec, _ := list[i].Object["spec"].(map[string]any)
			spec = maps.Clone(spec)
			delete(spec, "sequenceNumber")
			delete(spec, "sequenceNumberForAllocation")
			attributes, _ := spec["attributes"].([]any)
			for _, of := range attributes { // time at which an address was recorded
				if secondary, ok := of.(map[string]any)["secondary"].(map[string]any); ok {
					delete(secondary, "timestamp")
				}
			}
			text, err := json.Marshal(map[string]any{"spec": spec, "labels": list[i].GetLabels()})
			if err != nil {
				return nil, err
			}
			out[plural+"/"+list[i].GetName()] = string(text)
		}
	}
	return out, nil
}

// Differ describes the differences between two essences.
func Differ(want, got map[string]string) []string {
	var out []string
	for name, text := range want {
		if other, has := got[name]; !has {
			out = append(out, name+" is missing")
		} else if other != text {
			out = append(out, fmt.Sprintf("%s is\n  %s\nand should be\n  %s", name, other, text))
		}
	}
	for name, text := range got {
		if _, has := want[name]; !has {
			out = append(out, fmt.Sprintf("%s should not be there: %s", name, text))
		}
	}
	slices.Sort(out)
	return out
}
