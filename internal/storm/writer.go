package storm

import (
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// writer returns a writer for the plan's cluster and a journal.
func (t *tool) writer(plan *repair.Plan, journal repair.Recorder) (*datastore.Writer, error) {
	return datastore.New(t.config, plan.Cluster.APIGroup, datastore.Options{Recorder: journal})
}
