package planner

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
)

// TestPlans makes plans of the states in testdata/plans. A file holds cases:
//
//	== name of the case
//	a state in few lines (see internal/statedsl)
//	-- request empty-blocks leaked-ips … [strict=true|false] [pool=P] [node=N] [ip=A] [block=C] [max=N]
//	   [stage=N] [grace=D] [observe-twice] [allow-newer] [last-blocks] [terminated=NODE] [without-host-evidence]
//	-- want
//	step ID                      the steps, in order
//	refused KIND TARGET CODE     the refusals, in order
//	manual ORDER TARGET          what only people should do, in order
//	~ text                       the line before holds the text somewhere
//	!~ text                      … and does not hold this
//	warning text                 a warning holds the text
//	strict starve=A,B borrowers=N unusable=N windows=A
//	pool NAME allocatable=N->N   the pool's numbers before and after
//
// Every plan is also held to what all plans must keep: see checkPlan.
func TestPlans(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "plans", "*.txt"))
	if err != nil || len(files) < 8 {
		t.Fatalf("found %d files of plans (%v)", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			name, rest, _ := strings.Cut(text, "\n")
			state, rest, ok := strings.Cut(rest, "-- request")
			request, want, ok2 := strings.Cut(rest+"\n", "-- want\n")
			if !ok || !ok2 {
				t.Fatalf("%s: case %q lacks \"-- request\" or \"-- want\"", file, name)
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+name, func(t *testing.T) {
				req, grace := parseRequest(t, request)
				st := parseState(t, state, grace)
				plan := Build(st, req)
				comparePlan(t, plan, want)
				checkPlan(t, st, req, plan)
			})
		}
	}
}

func parseState(t *testing.T, text string, grace time.Duration) *state.State {
	t.Helper()
	snap, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return state.New(snap, state.Options{Grace: grace})
}

func parseRequest(t *testing.T, text string) (req repair.Request, grace time.Duration) {
	t.Helper()
	flags := map[string]*bool{
		"last-blocks": &req.LastBlocks, "observe-twice": &req.ObserveTwice, "allow-newer": &req.AllowNewer,
		"without-host-evidence": &req.WithoutHostEvidence, "cordon-full": &req.CordonFull, "evict-singletons": &req.EvictSingletons,
	}
	for _, q := range repair.Requests {
		if q.Field != nil {
			flags[q.Flag] = q.Field(&req)
		}
	}
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch {
		case key == "all":
			for name, f := range flags {
				*f = name != "observe-twice" && name != "allow-newer" && name != "last-blocks" && name != "without-host-evidence"
			}
		case key == "strict":
			on := value == "true"
			req.StrictAffinity = &on
		case key == "pool":
			req.Pools = append(req.Pools, value)
		case key == "node":
			req.Nodes = append(req.Nodes, value)
		case key == "ip":
			req.IPs = append(req.IPs, netip.MustParseAddr(value))
		case key == "block":
			req.Blocks = append(req.Blocks, netip.MustParsePrefix(value))
		case key == "terminated":
			req.Terminated = append(req.Terminated, value)
		case key == "max":
			req.MaxSteps, err = strconv.Atoi(value)
		case key == "stage":
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			req = req.Stage(repair.Stage(n))
		case key == "grace":
			grace, err = time.ParseDuration(value)
		case flags[key] != nil:
			*flags[key] = true
		default:
			t.Fatalf("unknown word %q in a request", word)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return req, grace
}

// comparePlan compares a plan with the lines of a case.
func comparePlan(t *testing.T, p *repair.Plan, want string) {
	t.Helper()
	var got, texts []string
	line := func(value any, format string, args ...any) {
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf(format, args...))
		texts = append(texts, strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\"`, `"`).Replace(string(raw)))
	}
	for _, s := range p.Steps {
		line(s, "step %s", s.ID)
	}
	for _, r := range p.Refused {
		line(r, "refused %s %s %s", r.Kind, r.Target.ID(), r.Code)
	}
	for _, m := range p.Manual {
		line(m, "manual %d %s", m.Order, m.Target.ID())
	}
	var wanted []string
	at := -1
	for _, l := range strings.Split(strings.TrimSpace(want), "\n") {
		switch word, rest, _ := strings.Cut(l, " "); word {
		case "":
		case "~", "!~":
			if at >= 0 && at < len(texts) && strings.Contains(texts[at], rest) != (word == "~") {
				t.Errorf("%s\nwant %q, have\n%s", wanted[at], l, texts[at])
			}
		case "warning":
			if !slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, rest) }) {
				t.Errorf("want %q, have %q", l, p.Warnings)
			}
		case "nowarning":
			if slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, rest) }) {
				t.Errorf("want %q, have %q", l, p.Warnings)
			}
		case "strict":
			compareStrict(t, p.Strict, rest)
		case "pool":
			comparePool(t, p, rest)
		case "step", "refused", "manual":
			at++
			wanted = append(wanted, l)
		default:
			t.Errorf("unknown line %q in a case", l)
		}
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s\n%s", diff, strings.Join(texts, "\n"))
	}
}

func compareStrict(t *testing.T, s *repair.StrictPreview, want string) {
	t.Helper()
	if s == nil {
		if want != "none" {
			t.Error("the plan has no preview of strict affinity")
		}
		return
	}
	got := fmt.Sprintf("starve=%s borrowers=%d unusable=%d windows=%s",
		strings.Join(s.Starve, ","), len(s.Borrowers), s.Unusable, strings.Join(s.Windows, ","))
	if got != want {
		t.Errorf("strict affinity: want %s, have %s", want, got)
	}
}

func comparePool(t *testing.T, p *repair.Plan, want string) {
	t.Helper()
	for i := range p.Before {
		b, a := p.Before[i], p.After[i]
		if strings.HasPrefix(want, b.Name+" ") {
			got := fmt.Sprintf("%s allocatable=%s->%s available=%s->%s", b.Name,
				b.Blocks.Allocatable, a.Blocks.Allocatable, b.Addresses.Available, a.Addresses.Available)
			if got != want {
				t.Errorf("pool: want %s, have %s", want, got)
			}
			return
		}
	}
	t.Errorf("no pool for %q", want)
}
