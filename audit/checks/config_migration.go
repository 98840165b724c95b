package checks

import (
	"cmp"
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

var configMigration = audit.Check{
	ID:         "config/migration",
	Title:      "Calico's objects are moving to the other API group",
	Severities: []state.Severity{state.Warning},
	Why:        "Both API groups hold blocks, and one of them is out of date. Calico's migration from crd.projectcalico.org/v1 to projectcalico.org/v3 locks both groups. From phase Converged on, Calico's programs use the newer group; the older one stays locked until the DatastoreMigration is deleted. This report reads the group in use.",
	Confirm:    "kubectl get datastoremigrations; compare datastoreReady in kubectl get clusterinformations.crd.projectcalico.org default -o yaml and kubectl get clusterinformations.projectcalico.org default -o yaml.",
	Remedies:   []remedies.Remedy{remedies.EndMigration},
	Never:      "Never unlock a datastore while both groups serve blocks: Calico's programs would write to two datastores and assign addresses twice.",
	Requires:   []blocks.Resource{blocks.Migrations, blocks.ClusterInfos},
	Run: func(st *state.State, f *audit.Findings) {
		c := &st.Cluster
		x := audit.Finding{
			Severity: state.Warning, Subject: state.ClusterSubject(st), Fix: audit.Look("kubectl get clusterinformations.crd.projectcalico.org default -o yaml"),
			Evidence: state.Evidences("API group read", c.APIGroup, "because", c.APIGroupReason, "other API group with blocks", c.OtherGroup),
		}
		switch {
		case len(st.Migrations) > 0:
			m := &st.Migrations[0]
			phase := cmp.Or(m.Phase, blocks.MigrationPending)
			x.Message = fmt.Sprintf("DatastoreMigration %s is in phase %s: %s", m.Name, phase, migrationNext[phase])
			x.Evidence = append(x.Evidence, state.Evidence{Name: "phase", Value: phase})
			x.Remedies = []remedies.Remedy{remedies.EndMigration}
		case c.OtherGroup != "" && (c.OtherLocked || st.Info.Locked):
			locked := c.OtherGroup
			if !c.OtherLocked {
				locked = c.APIGroup
			}
			x.Message = fmt.Sprintf("both API groups serve blocks, and %s is locked: this report reads %s", locked, c.APIGroup)
		default:
			return
		}
		f.Add(x)
	},
}

// migrationNext explains, for each phase, its effect and what ends it.
var migrationNext = map[string]string{
	blocks.MigrationPending:   "the datastore will be locked, and new pods get no address until phase Converged",
	blocks.MigrationMigrating: "the datastore is locked, and new pods get no address until phase Converged",
	blocks.MigrationWaiting:   "the datastore is locked until its conflicts are resolved",
	blocks.MigrationConverged: "projectcalico.org/v3 is in use, and Calico's programs restart with it",
	blocks.MigrationComplete:  "projectcalico.org/v3 is in use, and the older CRDs are removed when the DatastoreMigration is deleted",
	blocks.MigrationFailed:    "the datastore may be locked until it is deleted, which reverts the migration",
}
