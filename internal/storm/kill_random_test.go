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
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair/journal"
)

// followUps are the commands that follow a kill. In those that begin with "killed", the first of
// them is killed, too.
var followUps = []string{"again", "resumed", "undone", "nothing", "killed-again", "killed-resumed", "killed-undone", "again-undone"}

// atRandom kills the program at random writes, before or after one arrives, or at random moments, and
// continues with commands that finish the run or undo it, or not at all. The next report names the
// leftovers: with the journal, in one finding with the two commands that end it. A continued run must
// reach the same state as an undisturbed one. An undo must leave each object as it was before the run,
// or as an undo of the undisturbed run leaves it; otherwise it exits with code 4 and names the object.
func (v *victim) atRandom(t *testing.T, kills int, ends ...string) {
	r := rand.New(rand.NewPCG(testenv.Seed(t), 3))
	dir, apply, undo := v.planned(t), []string{"repair", "apply", "plan.json", "--journal", "journal"}, []string{"repair", "undo", "journal", "-o", "wide"}
	resume := []string{"repair", "apply", "--resume", "journal"}
	v.was, v.had = settledEssence(v.essence(t)), map[string]state.Severity{}
	for _, f := range audit.Run(v.state(t), checks.All).Findings {
		v.had[f.Fingerprint] = f.Severity
	}
	began := time.Now()
	v.ends(t, dir, apply...)
	took := time.Since(began)
	v.run(t, dir, undo...)
	v.back = settledEssence(v.essence(t))
	r.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	for i := range kills {
		p := killPoint{k: r.IntN(len(v.writes)) + 1, after: r.IntN(2) == 0}
		if r.IntN(3) == 0 {
			p = killPoint{moment: time.Duration(r.Int64N(int64(took)))}
		}
		second := killPoint{k: r.IntN(min(len(v.writes), 4)) + 1, after: r.IntN(2) == 0}
		end := ends[i%len(ends)]
		t.Run(fmt.Sprintf("random-%d-%s-%s", i, p, end), func(t *testing.T) {
			dir := v.planned(t)
			v.killed(t, p, dir, apply...)
			v.leftBy(t, p, filepath.Join(dir, "journal"))
			next, last := map[string][]string{"again": apply, "resumed": resume, "undone": undo}, strings.Split(end, "-")
			if _, err := journal.Read(filepath.Join(dir, "journal")); err != nil {
				next = map[string][]string{"again": apply, "resumed": apply, "undone": nil} // it was killed before it had a journal
			}
			for _, end := range last {
				switch args := next[end]; {
				case end == "killed":
					if args := next[last[1]]; args != nil && !v.cut(t, p, second, dir, args...) {
						return // it ended before
					}
				case args == nil:
				case end == "undone":
					code, out := v.run(t, dir, args...)
					v.tookBack(t, p, code, out)
				default:
					v.ends(t, dir, args...)
					v.is(t, v.want, "continued after it was killed "+v.at(p))
					v.whole(t, p)
				}
			}
		})
	}
}

// cut runs a command that follows a kill, and kills it, too. It returns false if the command ended
// before.
func (v *victim) cut(t *testing.T, first, p killPoint, dir string, args ...string) bool {
	t.Helper()
	records := v.secondaryRecords(t)
	killed, _ := v.kill(t, p, dir, args...)
	v.unharmed(t)
	if killed {
		v.reported(t, first, records)
	}
	return killed
}

// tookBack fails the test unless each object is as before the run or as after an undo of the whole
// run, or the undo has exited with code 4 and named it.
func (v *victim) tookBack(t *testing.T, p killPoint, code int, out string) {
	t.Helper()
	v.unharmed(t)
	now := settledEssence(v.essence(t))
	for _, name := range notOneOf(now, v.was, v.back) {
		if code != 4 || !namesAll(out, name, v.was[name], now[name]) {
			t.Errorf("killed %s, and undone with exit code %d: %s is\n  %s\nand was\n  %s\nand after an undo of the whole run\n  %s\n%s",
				v.at(p), code, name, now[name], v.was[name], v.back[name], out)
		}
	}
	if code != 0 && code != 4 {
		t.Errorf("killed %s, and undone with exit code %d:\n%s", v.at(p), code, out)
	}
}

// leftBy fails the test unless a report with the journal names all half-done objects, as one
// finding and one diagnosis with the two commands that end it. It names them at once, and not only
// when they are older than the grace period.
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
	named := map[string]bool{}
	for i := range report.Findings {
		f := &report.Findings[i]
		if named[f.Fingerprint] = true; f.Check == "config/leftover" && f.Subject.Name == path {
			found = append(found, f)
		}
	}
	if len(found) > 1 {
		t.Fatalf("killed %s, and %d findings say so", v.at(p), len(found))
	}
	objects := ""
	if len(found) == 1 {
		objects = fmt.Sprint(found[0].Evidence)
	}
	for _, name := range left {
		if !strings.Contains(objects, "/"+name) {
			t.Errorf("killed %s, %s is left, and not among %s", v.at(p), name, objects)
		}
	}
	for _, f := range v.news(t) {
		if !named[f.Fingerprint] && !strings.Contains(objects, "/"+f.Subject.Name) {
			t.Errorf("killed %s, the report does not say at once: %s: %s; it names %s", v.at(p), f.Check, f.Message, objects)
		}
	}
	if len(found) == 0 {
		return
	}
	if len(file.Unfinished()) == 0 {
		t.Errorf("killed %s, and nothing is left, but the report says: %s", v.at(p), found[0].Message)
	}
	d := report.DiagnosisOf(found[0])
	if d == nil || len(d.Remedies) != 2 || !strings.Contains(d.Remedies[0].Commands[0], "repair apply --resume "+path) || !strings.Contains(d.Remedies[1].Commands[0], "repair undo "+path) {
		t.Errorf("killed %s, the diagnosis is %+v", v.at(p), d)
	}
}

// news returns the findings that the killed run caused, as they will be when all is older than the
// grace period. An empty block does not count.
func (v *victim) news(t *testing.T) (out []audit.Finding) {
	t.Helper()
	for _, f := range audit.Run(v.state(t), checks.All).Findings {
		if v.had[f.Fingerprint] < f.Severity && v.meant[f.Fingerprint] < f.Severity && f.Check != "block/empty" {
			out = append(out, f)
		}
	}
	return out
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
