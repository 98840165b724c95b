package apply

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/repair"
)

// TestEditedPlanIsNoObservation: no edit of a plan lets a step run earlier. A plan that differs
// from its seal counts from the run's own first reading, with at least the default grace period. So
// does a plan of an earlier version.
func TestEditedPlanIsNoObservation(t *testing.T) {
	req := repair.Request{EmptyBlocks: true, ObserveTwice: true}
	for name, c := range map[string]struct {
		edit func(*repair.Plan)
		want string
	}{
		"kept and read again":      {func(*repair.Plan) {}, "done"},
		"made earlier":             {func(p *repair.Plan) { p.CreatedAt.Time = p.CreatedAt.Add(-time.Hour) }, "skipped TooSoon"},
		"with a shorter grace":     {func(p *repair.Plan) { p.Grace.Duration = time.Second }, "skipped TooSoon"},
		"of an earlier version":    {func(p *repair.Plan) { p.Digest = "" }, "skipped TooSoon"},
		"with a step of no matter": {func(p *repair.Plan) { p.Steps[0].Because = "why not" }, "skipped TooSoon"},
		"without the second look": {func(p *repair.Plan) {
			for i := range p.Steps {
				p.Steps[i].TwoObservations = false
			}
		}, "skipped TooSoon"},
	} {
		for format, convert := range map[string]func([]byte) ([]byte, error){"json": nil, "yaml": yaml.JSONToYAML} {
			t.Run(name+" as "+format, func(t *testing.T) {
				f := storyDrained(t)
				f.s.Cluster.Datastore = "kubernetes"
				raw, err := json.Marshal(f.plan(t, req))
				if err == nil && convert != nil {
					if raw, err = convert(raw); err == nil {
						raw, err = yaml.YAMLToJSON(raw)
					}
				}
				p := new(repair.Plan)
				if err := errors.Join(err, json.Unmarshal(raw, p)); err != nil {
					t.Fatal(err)
				}
				c.edit(p)
				f.now = f.now.Add(state.DefaultGrace)
				r, err := f.apply(t, t.Context(), p, Options{})
				if err != nil {
					t.Fatal(err)
				}
				wantOutcomes(t, outcomes(r), c.want, c.want)
				if c.want == "done" {
					return
				}
				due := f.now.Add(state.DefaultGrace)
				if why := r.Outcomes[0].Reason; !strings.Contains(why, "edited, or an earlier version made it") || !strings.Contains(why, phrase.Time(due)) {
					t.Errorf("the reason is %q, want it due at %s", why, due)
				}
				wantOutcomes(t, f.mustApply(t, p, Options{Wait: true}), "done", "done")
				if f.now.Before(due) {
					t.Errorf("it was done at %s, and due at %s", f.now, due)
				}
			})
		}
	}
}
