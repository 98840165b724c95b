package checks

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/agents"
	"github.com/calico-audit/calico-audit/blocks"
)

var configDatastoreLocked = audit.Check{
	ID:         "config/datastore-locked",
	Title:      "the datastore is locked",
	Severities: []state.Severity{state.Error},
	Why: "While the datastore is locked, new pods get no network and Calico collects no garbage. Migrations and address checks " +
		"lock it, and a lock is easily forgotten. So does the init container upgrade-ipam of calico-node; it fails again and again on records that an earlier installation left on the node (projectcalico/calico#2699).",
	Confirm:  "kubectl get clusterinformations default -o jsonpath={.spec.datastoreReady}",
	Remedies: []remedies.Remedy{remedies.Unlock, remedies.EndUpgrade},
	Never:    "Never unlock the datastore during a migration.",
	Requires: []blocks.Resource{blocks.ClusterInfos},
	Optional: []blocks.Resource{blocks.Migrations, blocks.Pods},
	Run: func(st *state.State, f *audit.Findings) {
		if !st.Info.Locked {
			return
		}
		end, ways := "it is unlocked", f.Check.Remedies[:1]
		if pods := agents.Upgrading(st); len(pods) > 0 {
			end, ways = fmt.Sprintf("calico-node's init container upgrade-ipam, which moves host-local's records into Calico's IPAM, ends (%s)", pods), []remedies.Remedy{remedies.EndUpgrade}
		}
		if st.Migrating() {
			end, ways = "the migration ends", []remedies.Remedy{remedies.EndMigration}
		}
		f.Add(audit.Finding{
			Severity: state.Error, Subject: state.ClusterSubject(st), Message: "the datastore is locked: new pods get no network until " + end,
			Evidence: state.Evidences("object", "ClusterInformation default", "datastoreReady", "false", "last written", st.Info.Written),
			Remedies: ways,
		})
	},
}
