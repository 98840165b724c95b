package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/law"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/apply"
)

// maxHealing is the maximum number of undisturbed repairs after a storm. Several may be
// necessary because a step may have to wait for another.
const maxHealing = 8

// Heal runs repairs without disturbances until there is nothing left to repair. It
// returns the number of runs.
func (w *World) Heal(ctx context.Context) (int, error) {
	t, err := w.tool(nil, nil)
	if err != nil {
		return 0, err
	}
	for n := range maxHealing {
		st, err := t.read(ctx, w.Grace)
		if err != nil {
			return n, err
		}
		plan := planOf(st, everything, w.Grace)
		if len(plan.Steps) == 0 && !waits(plan) {
			return n, nil
		}
		res, err := t.apply(ctx, plan, filepath.Join(w.Journals, fmt.Sprintf("heal-%d-%d.journal", time.Now().UnixNano(), n)), apply.Options{Wait: true})
		if err != nil {
			return n, err
		}
		after, err := t.read(ctx, w.Grace)
		if err != nil {
			return n, err
		}
		for _, worse := range law.New(st).Worse(after, plan) {
			w.tb.Errorf("after healing, run %d, %s", n, worse)
		}
		for _, o := range res.Outcomes {
			w.made.add(fmt.Sprintf("healing: %s: %s", o.Step.Kind, o.Status))
			if o.Open() {
				w.tb.Logf("healing, run %d: %s is %s: %s", n, o.Step.ID, o.Status, o.Reason)
			}
		}
		if len(plan.Steps) == 0 {
			time.Sleep(w.Grace) // the refused objects are too young
		}
	}
	plan, err := t.plan(ctx, everything, w.Grace)
	if err != nil {
		return maxHealing, err
	}
	if len(plan.Steps) > 0 {
		return maxHealing, fmt.Errorf("after %d repairs with nobody else about there are still steps, the first: %s, because %s", maxHealing, plan.Steps[0].ID, plan.Steps[0].Because)
	}
	return maxHealing, nil
}

// waits reports whether something was refused only because of its age.
func waits(p *repair.Plan) bool {
	return slices.ContainsFunc(p.Refused, func(r repair.Refusal) bool { return r.Code == repair.RefusedYoung })
}

// Touch makes every node do its pending work: it writes the status of waiting pods,
// releases unused tunnel addresses, and allocates and releases one address of each
// family, so that unconfirmed affinities are confirmed.
func (w *World) Touch(ctx context.Context) error {
	for _, k := range w.workers.all {
		for _, p := range k.pods {
			if !p.due.IsZero() {
				p.due = time.Time{}
				k.writeStatus(ctx, p)
			}
		}
	}
	client := NewClient(w.tb, w.cluster, "touch")
	for i, n := range w.machines() {
		k := &worker{World: w, id: 100 + i, node: n, client: client, r: rand.New(rand.NewPCG(w.Seed, uint64(i)))}
		p := &pod{namespace: namespace, name: "touch-" + n.name}
		k.sandbox(p)
		args := k.request(p)
		args.Num4, args.Num6 = 1, 1
		if _, err := client.autoAssign(ctx, args); err != nil {
			w.made.add("touch failed")
		}
		handles := []string{p.handle}
		for _, t := range tunnels {
			if !slices.ContainsFunc(n.tunnels, func(h *Lease) bool { return h.Handle == t.Handle(n.name) }) {
				handles = append(handles, t.Handle(n.name))
			}
		}
		for _, h := range handles {
			if err := client.releaseHandle(ctx, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// Inspect checks the state after the storm was healed. It returns a list of problems.
func (w *World) Inspect(ctx context.Context) ([]string, error) {
	t, err := w.tool(nil, nil)
	if err != nil {
		return nil, err
	}
	st, err := t.read(ctx, w.Grace)
	if err != nil {
		return nil, err
	}
	// If Calico's collector frees the address of a live pod, or a killed API server leaves a
	// second network's handle soft-deleted, the handle may remain while the pod names its
	// sandbox. No repair deletes it earlier.
	living := map[string]bool{}
	for _, k := range w.workers.all {
		for _, p := range k.pods {
			living[p.handle], living[p.secondHandle()] = true, true
		}
	}
	// An affinity that Calico's client left pending is confirmed when an address of its
	// block is assigned, but not while the node has free addresses in another block. No
	// repair changes it. It would be an error if a repair had left it pending.
	theirs := map[string]bool{}
	for i := range st.Affinities {
		a := &st.Affinities[i]
		theirs[a.Name] = a.Effective() == blocks.Pending && !a.ByUs
	}
	// Whether Calico's collector goes on freeing addresses of further interfaces is for a person to
	// decide.
	except := func(f audit.Finding) bool {
		return f.Check == "ip/secondary-interface" || (f.Check == "handle/leaked" || f.Check == "block/soft-deleted") && living[f.Subject.Name] || f.Check == "affinity/stuck" && theirs[f.Subject.Name]
	}
	wrong := append(findings(st, except), w.compare(st)...)
	if len(wrong) > 0 {
		for _, r := range planOf(st, everything, w.Grace).Refused {
			w.tb.Logf("refused: %s %v: %s: %s", r.Kind, r.Target, r.Code, r.Reason)
		}
	}
	return wrong, nil
}

// findings returns the findings that a repair must not leave, and the reasons for an
// incomplete audit. except reports additional findings that may remain; it may be nil.
func findings(st *state.State, except func(audit.Finding) bool) []string {
	var wrong []string
	for _, g := range st.Gaps {
		wrong = append(wrong, "could not be read: "+g.String())
	}
	res := audit.Run(st, checks.All)
	for _, s := range res.Skipped {
		wrong = append(wrong, fmt.Sprintf("no verdict: %s: %s", s.Check, s.Reason))
	}
	for _, f := range res.Findings {
		if !mayStay(f.Check) && (except == nil || !except(f)) {
			wrong = append(wrong, fmt.Sprintf("%s %s: %s", f.Severity, f.Check, f.Message))
		}
	}
	return wrong
}

// mayStay reports whether a storm and a repair may leave findings of a check. Such
// findings describe the use of pools and not contradictions.
func mayStay(check string) bool {
	for _, prefix := range []string{"pool/", "node/", "config/", "block/empty", "block/unaffine", "ip/borrowed", "ip/unknown-owner", "route/blackhole"} {
		if strings.HasPrefix(check, prefix) {
			return true
		}
	}
	return false
}

// compare compares allocated addresses with addresses in use, in both directions. An
// unused address may remain while another address of its handle is in use: if the answer
// to a block's write is lost, Calico's client takes the next block under the same handle
// (libcalico-go ipam/ipam.go, autoAssign) and releases both with the pod.
func (w *World) compare(st *state.State) []string {
	var wrong []string
	used, handles := map[netip.Addr]*Lease{}, map[string]bool{}
	for _, h := range w.checker.Open() {
		used[h.Addr] = h
		handles[h.Handle] = true
	}
	for _, b := range st.IPBlocks {
		for i, o := range b.Ordinals {
			if o == blocks.Free {
				continue
			}
			r := state.AllocationRef{Block: b, Ordinal: i}
			attr := r.Attributes()
			switch {
			case used[r.Addr()] != nil:
				delete(used, r.Addr())
			case attr != nil && (handles[attr.Handle] || attr.WindowsReserved()):
				w.made.add("second address of a handle in use")
			default:
				wrong = append(wrong, fmt.Sprintf("%s is allocated (%+v), and nobody uses it; %s", r.Addr(), attr, st.Classify(r).Why()))
			}
		}
	}
	for addr, h := range used {
		wrong = append(wrong, fmt.Sprintf("%s is used by %s and not allocated", addr, h.User))
	}
	return wrong
}

// objects returns the names of all objects of a kind.
func (w *World) objects(ctx context.Context, plural string) ([]string, error) {
	list, err := w.cluster.List(ctx, testcluster.CRDv1.Resource(plural))
	var names []string
	for i := range list {
		names = append(names, list[i].GetName())
	}
	return names, err
}
