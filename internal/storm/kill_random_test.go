package storm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// atRandom kills the program at random writes, before or after one arrives, and continues with the
// same command, with an undo, or not at all. The next report with the journal names the leftovers
// in one finding with the two commands that end it. A continued run must reach the same state as an
// undisturbed one. An undo must leave each object as it was before the run, or as an undo of the
// undisturbed run leaves it; otherwise it exits with code 4 and names the object.
func (v *victim) atRandom(t *testing.T, kills int, ends ...string) {
	r := rand.New(rand.NewPCG(testenv.Seed(t), 3))
	dir := v.planned(t)
	original := settledEssence(v.essence(t))
	v.ends(t, dir, "repair", "apply", "plan.json", "--journal", "journal")
	v.run(t, dir, "repair", "undo", "journal")
	undone := settledEssence(v.essence(t))
	for i := range kills {
		p := killPoint{r.IntN(len(v.writes)) + 1, r.IntN(2) == 0}
		end := ends[i%len(ends)]
		t.Run(fmt.Sprintf("random-%d-%s-%s", i, p, end), func(t *testing.T) {
			dir, apply := v.planned(t), []string{"repair", "apply", "plan.json", "--journal", "journal"}
			v.killed(t, p, dir, apply...)
			v.leftBy(t, p, filepath.Join(dir, "journal"))
			switch end {
			case "again":
				v.ends(t, dir, apply...)
				v.is(t, v.want, "run again after it was killed "+v.at(p))
				v.whole(t, p)
			case "undone":
				code, out := v.run(t, dir, "repair", "undo", "journal", "-o", "wide")
				v.unharmed(t)
				now := settledEssence(v.essence(t))
				for _, name := range notOneOf(now, original, undone) {
					if code != 4 || !namesAll(out, name, original[name], now[name]) {
						t.Errorf("killed %s, and undone with exit code %d: %s is\n  %s\nand was\n  %s\nand after an undo of the whole run\n  %s\n%s",
							v.at(p), code, name, now[name], original[name], undone[name], out)
					}
				}
			}
		})
	}
}

// leftBy fails the test unless a report with the journal names all half-done objects, as one
// finding and one diagnosis with the two commands that end it.
func (v *victim) leftBy(t *testing.T, p killPoint, path string) {
	t.Helper()
	left := halfDone(v.state(t))
	file, err := journal.Read(path)
	if err != nil {
		return // it was killed before its first write
	}
	code, out := v.output(t, filepath.Dir(path), "report", "--journal", path, "-o", "json")
	var report audit.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("the report ends with %d: %v\n%s", code, err, out)
	}
	var found []*audit.Finding
	for i := range report.Findings {
		if f := &report.Findings[i]; f.Check == "config/leftover" && f.Subject.Name == path {
			found = append(found, f)
		}
	}
	switch {
	case len(left) == 0 && len(file.Unfinished()) == 0:
		if len(found) > 0 {
			t.Errorf("killed %s, and nothing is left, but the report says: %s", v.at(p), found[0].Message)
		}
		return
	case len(left) == 0:
		return // its last write did not arrive, or was the step's last
	case len(found) != 1:
		t.Fatalf("killed %s, %v are left, and %d findings say so", v.at(p), left, len(found))
	}
	objects := fmt.Sprint(found[0].Evidence)
	for _, name := range left {
		if !strings.Contains(objects, "/"+name) {
			t.Errorf("killed %s, %s is left, and not among %s", v.at(p), name, objects)
		}
	}
	d := report.DiagnosisOf(found[0])
	if d == nil || len(d.Remedies) != 2 || !strings.Contains(d.Remedies[0].Commands[0], "repair apply --resume "+path) || !strings.Contains(d.Remedies[1].Commands[0], "repair undo "+path) {
		t.Errorf("killed %s, the diagnosis is %+v", v.at(p), d)
	}
}

// settledEssence returns an essence in which each block is reduced to its record of each address,
// independent of the order of its lists.
func settledEssence(essence map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range essence {
		var block struct {
			Spec map[string]any `json:"spec"`
		}
		if out[name] = text; strings.HasPrefix(name, "ipamblocks/") && json.Unmarshal([]byte(text), &block) == nil {
			attributes, _ := block.Spec["attributes"].([]any)
			allocations, _ := block.Spec["allocations"].([]any)
			for i, index := range allocations {
				if n, ok := index.(float64); ok && int(n) < len(attributes) {
					allocations[i] = attributes[int(n)]
				}
			}
			delete(block.Spec, "attributes")
			delete(block.Spec, "unallocated")
			again, _ := json.Marshal(block)
			out[name] = string(again)
		}
	}
	return out
}

// notOneOf returns the objects that differ from both of two essences.
func notOneOf(now, a, b map[string]string) (out []string) {
	names := map[string]bool{}
	for _, e := range []map[string]string{now, a, b} {
		for name := range e {
			names[name] = true
		}
	}
	for name := range names {
		if now[name] != a[name] && now[name] != b[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// namesAll reports whether an output names an object or, for a block, each address that has
// changed.
func namesAll(out, object, was, now string) bool {
	_, name, _ := strings.Cut(object, "/")
	if strings.Contains(out, name) {
		return true
	}
	type block struct {
		Spec struct {
			CIDR        string `json:"cidr"`
			Allocations []any  `json:"allocations"`
		} `json:"spec"`
	}
	var a, b block
	if json.Unmarshal([]byte(was), &a) != nil || json.Unmarshal([]byte(now), &b) != nil || len(a.Spec.Allocations) != len(b.Spec.Allocations) {
		return false
	}
	addr := netip.MustParsePrefix(a.Spec.CIDR).Addr()
	for i := range a.Spec.Allocations {
		if fmt.Sprint(a.Spec.Allocations[i]) != fmt.Sprint(b.Spec.Allocations[i]) && !strings.Contains(out, addr.String()) {
			return false
		}
		addr = addr.Next()
	}
	return true
}
