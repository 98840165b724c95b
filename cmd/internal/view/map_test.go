package view

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
	"github.com/calico-audit/calico-audit/internal/statedsl"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/planner"
)

// everyState is a cluster whose maps contain every glyph and mark.
func everyState(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "every-state.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mapReports are the reports with golden maps: three shipped snapshots, an empty cluster,
// and generated ones.
var mapReports = []string{"story", "healthy", "dual-stack", "empty", "16384", "states"}

func mapReport(t *testing.T, name string) *audit.Report {
	t.Helper()
	switch name {
	case "empty":
		return loadReport(t, name)
	case "16384":
		return crowdedReport()
	case "states":
		return parseReport(t, everyState(t))
	}
	s, err := files.ReadFiles([]string{"../../../examples/snapshots/" + name}, files.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := audited(s)
	r.Cluster.TakenAt = audit.Time{Time: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)} // the examples are regenerated at times
	return r
}

func parseReport(t *testing.T, text string) *audit.Report {
	t.Helper()
	s, err := statedsl.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return audited(s)
}

func audited(s *blocks.Snapshot) *audit.Report {
	st := state.New(s, state.Options{})
	return audit.NewReport(st, audit.Run(st, checks.All))
}

// crowdedReport has a pool of 16,384 slots with 9,000 blocks at its beginning and some far
// away, owned by 4,000 nodes.
func crowdedReport() *audit.Report {
	r := &audit.Report{
		Complete: true, Cluster: audit.ReportCluster{GUID: "crowd", Datastore: "files"},
		Pools: []audit.PoolReport{{Name: "pods", CIDR: "10.0.0.0/12", BlockSize: 26}},
	}
	for i := range 16384 {
		if i >= 9000 && i%1024 != 7 {
			continue
		}
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 10), byte(i >> 2), byte(i << 6)}), 26)
		b := audit.BlockReport{
			CIDR: cidr.String(), Pool: "pods", Owner: fmt.Sprintf("host:node-%04d", i*7919%4000), InUse: i * 31 % 65,
		}
		b.Available = 64 - b.InUse
		if i == 4321 {
			b.Conditions = []audit.Condition{audit.BlockCorrupt}
		}
		if i%500 == 99 {
			b.LentTo, b.Lent = []string{"new-1"}, 1
		}
		r.Blocks = append(r.Blocks, b)
	}
	r.Summary.Blocks, r.Summary.Pools = len(r.Blocks), 1
	return r
}

func TestMapGolden(t *testing.T) {
	for _, name := range mapReports {
		r := mapReport(t, name)
		for _, width := range []int{80, 200} {
			o := testOptions(width)
			plain := render(t, "map", r, o)
			golden(t, fmt.Sprintf("map.%s.%d", name, width), plain)
			o.Color = true
			coloured := render(t, "map", r, o)
			golden(t, fmt.Sprintf("map.%s.%d.color", name, width), coloured)
			if diff := cmp.Diff(plain, stripColor(coloured)); diff != "" {
				t.Errorf("%s: colour changes the map (-plain +coloured):\n%s", name, diff)
			}
			for _, line := range strings.Split(plain, "\n") {
				if w := displayWidth(line); w > width {
					t.Errorf("%s: a line is %d columns wide: %q", name, w, line)
				}
			}
		}
		o := testOptions(80)
		o.ASCII = true
		ascii := render(t, "map", r, o)
		golden(t, "map."+name+".ascii", ascii)
		if i := strings.IndexFunc(ascii, func(r rune) bool { return r > '~' }); i >= 0 {
			t.Errorf("%s: the map in ASCII holds %q", name, ascii[i:i+4])
		}
	}
}

// TestMapShort: the map in the report stays short for pools of any size.
func TestMapShort(t *testing.T) {
	for _, name := range mapReports {
		o := testOptions(80)
		text := render(t, "table", mapReport(t, name), o)
		golden(t, "map."+name+".short", text)
		begin := strings.Index(text, "MAP of ")
		if begin < 0 {
			continue
		}
		picture, _, _ := strings.Cut(text[begin:], "\n\nCRITICAL")
		for _, m := range strings.Split(picture, "MAP of ")[1:] {
			if n := strings.Count(m, "\n"); n > mapShort.rows+12 {
				t.Errorf("%s: the map of one pool takes %d lines:\n%s", name, n, m)
			}
		}
	}
}

// TestMapShowsEveryBlock: for any size of rows and cells, the map contains every block, and
// counts each used address once for each cell of its block.
func TestMapShowsEveryBlock(t *testing.T) {
	for _, name := range mapReports {
		r := mapReport(t, name)
		seen := map[int]bool{}
		m := blockmap.New(r, nil)
		for i := range m.Pools {
			p := &m.Pools[i]
			whole := 0
			for _, c := range p.Cells {
				whole += c.InUse
				for _, b := range c.Blocks {
					seen[b] = true
				}
			}
			for columns := 1; columns <= 64; columns *= 4 {
				for _, maxRows := range []int{1, 8, 1 << 20} {
					drawn := 0
					for _, row := range layOut(p, columns, maxRows).rows {
						for _, c := range row.cells {
							drawn += c.InUse
						}
					}
					if drawn != whole {
						t.Errorf("%s, pool %s: %d columns and %d rows show %d addresses in use of %d", name, p.Name, columns, maxRows, drawn, whole)
					}
				}
			}
		}
		if len(seen) != len(r.Blocks) {
			t.Errorf("%s: the map has %d of %d blocks", name, len(seen), len(r.Blocks))
		}
	}
}

// TestMapStates: each cell has the state of its block.
func TestMapStates(t *testing.T) {
	m := blockmap.New(mapReport(t, "states"), nil)
	got := map[string]string{}
	for _, p := range m.Pools {
		for _, c := range p.Cells {
			text := fmt.Sprintf("%s %d", c.State, c.Fill)
			if c.Owner >= 0 {
				text += " " + p.Owners[c.Owner].Owner
			}
			for _, x := range []struct {
				is   bool
				text string
			}{{c.Lent > 0, "lent"}, {c.DeadNode, "dead"}, {c.NoOwner, "unowned"}, {len(c.Blocks) > 1, "several"}, {c.OrphanAffinity, "stray"}} {
				if x.is {
					text += " " + x.text
				}
			}
			got[c.CIDR.String()] = strings.TrimSpace(text + " " + c.Severity.String())
		}
	}
	want := map[string]string{
		"10.0.0.0/26":              "used 8 host:n1",
		"10.0.0.64/26":             "used 6 host:n1 lent warning",
		"10.0.0.128/26":            "used 1 host:gone dead warning",
		"10.0.0.192/26":            "empty 0 host:n2 info",
		"10.0.1.0/26":              "used 1 unowned info",
		"10.0.1.64/26":             "broken 1 host:n2 error",
		"10.0.1.128/26":            "broken 2 host:n2 error",
		"10.0.1.192/26":            "broken 1 several critical",
		"10.0.2.64/26":             "broken 0 host:n2 warning",
		"10.0.2.128/26":            "free 0 stray error",
		"10.0.3.0/26":              "reserved 0",
		"10.0.3.64/26":             "reserved 0",
		"fd00:10:244::/122":        "used 1 host:n1",
		"fd00:10:244:8000::40/122": "used 7 host:n2",
		"fd00:10:244:8000::80/122": "used 8 host:n2",
		"172.16.0.0/26":            "used 1 host:n1 warning",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the cells (-want +got):\n%s", diff)
	}
}

// TestMapOfUnreadableBlock: an unreadable block occupies its place in pools of any size,
// and is not claimable.
func TestMapOfUnreadableBlock(t *testing.T) {
	for _, c := range []struct {
		pool, block, object string
		readBack            bool
	}{
		{"10.0.0.0/24", "10.0.0.128/26", "bad", false},
		{"fd00::/48", "fd00::1:80/122", "bad", false},
		{"10.0.0.0/24", "10.0.0.128/26", "10-0-0-128-26", true},
	} {
		pool, block := netip.MustParsePrefix(c.pool), netip.MustParsePrefix(c.block)
		first := netip.PrefixFrom(pool.Addr(), block.Bits())
		r := &audit.Report{
			Pools:  []audit.PoolReport{{Name: "pods", CIDR: c.pool, BlockSize: block.Bits()}},
			Blocks: []audit.BlockReport{{CIDR: first.String(), Pool: "pods", Owner: "host:n1", InUse: 1, Available: 63}},
			Gaps:   []blocks.Gap{{Resource: blocks.Blocks, Name: c.object, Field: "spec.allocations", Prefix: block}},
			Findings: []audit.Finding{
				{Check: "block/corrupt", Severity: state.Error, Subject: state.Subject{Kind: state.KindBlock, Name: c.object}},
				{Check: "affinity/dead-node", Severity: state.Warning, Subject: state.Subject{Kind: state.KindAffinity, Name: "gone-bad", CIDR: c.block, Node: "gone"}},
			},
		}
		if c.readBack { // a report's JSON omits it
			r.Gaps[0].Prefix = netip.Prefix{}
		}
		r.Summary.Blocks, r.Summary.Pools = 1, 1
		m := blockmap.New(r, nil)
		var got []string
		for _, cell := range m.Pools[0].Cells {
			got = append(got, fmt.Sprintf("%s %s %d %v %v", cell.CIDR, cell.State, len(cell.Blocks), cell.Findings, cell.OrphanAffinity))
		}
		if want := []string{first.String() + " used 1 [] false", c.block + " broken 0 [0 1] false"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.pool, got, want)
		}
		if text := render(t, "map", r, testOptions(80)); !strings.Contains(text, "✕ broken: corrupt or unreadable") {
			t.Errorf("drawn:\n%s", text)
		}
	}
}

// TestMapOfPlan: the changes of a plan are marked before it, and absent after it.
func TestMapOfPlan(t *testing.T) {
	s, err := statedsl.Parse(`
pool pods 10.0.0.0/24
node n1
block 10.0.0.0/26 n1 age=2h
block 10.0.0.64/26 n1 age=2h
affinity 10.0.0.0/26 n1 age=2h
affinity 10.0.0.64/26 n1 age=2h
alloc 10.0.0.70 pod=shop/old node=n1 handle=h age=2h
block 10.0.0.128/26 n1 age=2h
affinity 10.0.0.128/26 n1 age=2h
use 10.0.0.130 shop/web n1
namespace shop
view n1 complete`)
	if err != nil {
		t.Fatal(err)
	}
	st := state.New(s, state.Options{})
	r := audit.NewReport(st, audit.Run(st, checks.All))
	plan := planner.Build(st, repair.Request{EmptyBlocks: true, LeakedIPs: true})
	faces := func(m *blockmap.Map) (out []string) {
		for _, c := range m.Pools[0].Cells {
			text := fmt.Sprintf("%s %d", c.State, c.InUse)
			if c.Planned {
				text += " planned"
			}
			out = append(out, text)
		}
		return out
	}
	before := slices.Clone(r.Blocks)
	po := planOptions()
	po.Report = r
	golden(t, "map.plan.80", written(t, PlanFormats(), "table", plan, po))
	if diff := cmp.Diff([]string{"empty 0 planned", "used 1 planned", "used 1"}, faces(blockmap.New(r, plan))); diff != "" {
		t.Errorf("before the plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"empty 0", "used 1"}, faces(blockmap.New(blockmap.AfterPlan(r, plan), nil))); diff != "" {
		t.Errorf("after the plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, r.Blocks); diff != "" {
		t.Errorf("AfterPlan changed the report (-before +after):\n%s", diff)
	}
}

// TestMapSurvivesOddData: maps of damaged reports and impossible sizes show the valid part.
func TestMapSurvivesOddData(t *testing.T) {
	for _, pool := range []audit.PoolReport{
		{Name: "no CIDR", CIDR: "x"}, {Name: "no size", CIDR: "10.0.0.0/24"}, {Name: "too small", CIDR: "10.0.0.0/28", BlockSize: 26},
		{Name: "one", CIDR: "10.0.0.0/26", BlockSize: 26}, {Name: "all", CIDR: "::/0", BlockSize: 128}, {Name: "beyond", CIDR: "10.0.0.0/24", BlockSize: 99},
		{Name: "unmasked", CIDR: "10.0.0.77/24", BlockSize: 26, Reservations: []string{"y", "10.0.0.0/8"}},
	} {
		r := &audit.Report{Pools: []audit.PoolReport{pool}, Blocks: []audit.BlockReport{
			{CIDR: "0.0.0.0/0"}, {CIDR: "10.0.0.0/26", Pool: pool.Name, Owner: "host:n1", InUse: 70, Available: -6}, {CIDR: "z"}, {CIDR: "::/0", InUse: 1},
		}}
		text := render(t, "map", r, testOptions(80))
		if pool.CIDR != "x" && !strings.Contains(text, "MAP of "+pool.Name) {
			t.Errorf("%s: it is not drawn:\n%s", pool.Name, text)
		}
	}
}

// TestMapAfterPlan: the picture after a plan shows the result of its steps: no borrowers if their
// pods are moved, the new owner of a block that is emptied and claimed, and no owner of a disowned
// block.
func TestMapAfterPlan(t *testing.T) {
	const borrowed = `
pool pods 10.0.0.0/24
node n1
node n2
block 10.0.0.0/26 n1 age=3h
affinity 10.0.0.0/26 n1 age=3h
block 10.0.0.64/26 n2 age=3h
affinity 10.0.0.64/26 n2 age=3h
use 10.0.0.9 shop/a n1 of=ReplicaSet/a ready
use 10.0.0.70 shop/a2 n2 of=ReplicaSet/a ready
use 10.0.0.10 shop/b n2 of=ReplicaSet/b ready
use 10.0.0.71 shop/b2 n2 of=ReplicaSet/b ready
`
	const vanished = `
pool pods 10.0.0.0/24
node n1
block 10.0.0.0/26 off age=3h
affinity 10.0.0.0/26 off age=3h
use 10.0.0.9 shop/a n1
`
	read := func(text string) *state.State {
		s, err := statedsl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return state.New(s, state.Options{})
	}
	example, err := files.ReadFiles([]string{"../../../examples/snapshots/story"}, files.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owners := func(r *audit.Report) (out []string) {
		for i := range r.Blocks {
			out = append(out, fmt.Sprintf("%s %s lent %d %v", r.Blocks[i].CIDR, r.Blocks[i].Owner, r.Blocks[i].Lent, r.Blocks[i].LentTo))
		}
		return out
	}
	for _, c := range []struct {
		name    string
		st      *state.State
		req     repair.Request
		changes []string
	}{
		{"rehome", read(borrowed), repair.Request{Rehome: true}, []string{"10.0.0.0/26 host:n1 lent 1 [n2] -> 10.0.0.0/26 host:n1 lent 0 []"}},
		{"disown", read(vanished), repair.Request{DeadNodes: true}, []string{"10.0.0.0/26 host:off lent 1 [n1] -> 10.0.0.0/26  lent 0 []"}},
		{"consolidate", state.New(example, state.Options{}), repair.Request{Consolidate: true, CordonFull: true, EvictSingletons: true}, []string{"10.64.75.0/26 host:old-2 lent 0 [] -> 10.64.75.0/26 host:new-1 lent 0 []"}},
	} {
		r := audit.NewReport(c.st, audit.Run(c.st, checks.All))
		plan := planner.Build(c.st, c.req)
		before, after := owners(r), owners(blockmap.AfterPlan(r, plan))
		var changes []string
		for i := range before {
			if len(before) == len(after) && before[i] != after[i] {
				changes = append(changes, before[i]+" -> "+after[i])
			}
		}
		if !slices.Equal(changes, c.changes) {
			t.Errorf("%s: %d steps change %q, want %q", c.name, len(plan.Steps), changes, c.changes)
		}
	}
	if r := parseReport(t, borrowed); blockmap.AfterPlan(r, &repair.Plan{}) != nil {
		t.Error("a plan that was read back has blocks")
	}
}
