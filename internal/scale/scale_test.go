package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/scale/states"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

func TestMain(m *testing.M) {
	asMeasurer()
	os.Exit(m.Run())
}

// TestRig performs a short run on a small cluster. Reports of the cluster, of a snapshot
// and of the exporter must find exactly the planted damage.
func TestRig(t *testing.T) {
	testcluster.SkipIfShort(t)
	testenv.Linux(t) // reads memory and time from /proc
	path := filepath.Join(t.TempDir(), "calico-audit")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "../../cmd/calico-audit")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	r := &run{
		programs: []program{{"calico-audit", path}}, parts: allParts, pods: 4, share: 0.02, seed: 1,
		pairs: 1, rivalPairs: 1, idle: time.Second, load: 2 * time.Second, rate: 20, probes: 1,
	}
	c, err := newCluster(t.Context(), 50, r.pods)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := r.cluster(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, err := range r.errs {
		t.Error(err)
	}
}

// TestDamageIsNotMissed checks that verify rejects a report that lacks a planted finding,
// has another one, or is incomplete.
func TestDamageIsNotMissed(t *testing.T) {
	want := expected{}
	want.add("ip/leaked", "10.0.0.1")
	want.add("affinity/stuck", "n1 10.0.0.0/26")
	const leak = `{"check":"ip/leaked","subject":{"kind":"IP","ip":"10.0.0.1","node":"n1"}}`
	const stuck = `{"check":"affinity/stuck","subject":{"kind":"BlockAffinity","name":"a","node":"n1","cidr":"10.0.0.0/26"}}`
	const other = `{"check":"node/no-block","subject":{"kind":"Node","name":"n2","node":"n2"}}`
	for text, wrong := range map[string]string{
		`{"complete":true,"findings":[` + leak + `,` + stuck + `]}`:                                                  "",
		`{"complete":true,"findings":[` + leak + `]}`:                                                                "not found: affinity/stuck n1",
		`{"complete":true,"findings":[` + leak + `,` + stuck + `,` + other + `]}`:                                    "not planted: node/no-block n2",
		`{"complete":true,"findings":[` + leak + `,` + leak + `,` + stuck + `]}`:                                     "twice: ip/leaked",
		`{"complete":false,"findings":[` + leak + `,` + stuck + `]}`:                                                 "not whole",
		`{"complete":true,"findings":[` + leak + `,` + stuck + `],"skippedChecks":[{"check":"x/y","reason":"why"}]}`: "not whole",
	} {
		err := want.verify([]byte(text))
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: got %v, want %q", text, err, wrong)
		}
	}
}

// TestStates checks that each state in memory has exactly the damage in its name, in
// proportion to the number of nodes.
func TestStates(t *testing.T) {
	for name, want := range map[string]map[string]int{
		"healthy":                      {},
		"200 pools, one for each rack": {},
		"32,000 leaked handles":        {"handle/leaked": 640},
		"a block that cannot be read":  {"block/corrupt": 1},
		// Pools of 64 and 16 blocks; 20 nodes without a block, each with two pods.
		"1,000 nodes without a block that borrow": {
			"ip/borrowed": 40, "node/no-block": 20, "pool/no-free-blocks": 2, "pool/low-free-blocks": 2, "pool/undersized": 2,
		},
	} {
		for _, layout := range states.Shapes {
			if layout.Name != name {
				continue
			}
			got := map[string]int{}
			for _, f := range audit.Run(state.New(layout.Make(100, 30), state.Options{}), checks.All).Findings {
				got[f.Check]++
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: findings %v, want %v", name, got, want)
			}
		}
	}
}

// TestTable checks that a cell is in its program's column, with median and range.
func TestTable(t *testing.T) {
	table := newTable("Reports")
	table.set("wall", "a", series{3, 1, 2}.show(seconds))
	table.set("wall", "b", "")
	table.set("CPU", "b", series{0.5}.show(seconds))
	var out bytes.Buffer
	table.write(&out)
	const want = "\n### Reports\n\n| | a | b |\n|---|---|---|\n| wall | 2.0 s (1.0 s–3.0 s, n=3) |  |\n| CPU |  | 500 ms |\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
