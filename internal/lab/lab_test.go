package lab

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/calico-audit/calico-audit/affinity"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

var update = flag.Bool("update", false, "write what was measured into affinity/ROUTES.md")

// TestMain runs more networks in parallel than there are processors, because they mostly
// wait for BGP timers.
func TestMain(m *testing.M) {
	if asked, err := ScanIfAsked(context.Background()); asked {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// store returns a datastore with the small story. It skips the test if the machine cannot
// run the lab.
func store(t *testing.T) *Datastore {
	t.Helper()
	testenv.Root(t)
	for program, debian := range map[string]string{"ip": "iproute2", "bird": "bird", "bird6": "bird", "ping": "iputils-ping", "unshare": "util-linux"} {
		testenv.Program(t, program, debian)
	}
	must(t, Sweep(t.Context()))
	d, err := NewDatastore(t.Context(), testcluster.Shared(t, testcluster.Options{}))
	must(t, err)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// document compares a table of affinity/ROUTES.md with the measurements, or rewrites it
// with -update. The measurements of a sample are rows of the table.
func document(t *testing.T, table Table, whole bool) {
	t.Helper()
	if t.Failed() {
		return // rows may be missing
	}
	const path = "../../affinity/ROUTES.md"
	old, err := os.ReadFile(path)
	must(t, err)
	if !whole {
		cells := regexp.MustCompile(` *\| *`)
		for _, row := range table.Rows {
			if want := "|" + strings.Join(row, "|") + "|"; !strings.Contains(cells.ReplaceAllString(string(old), "|"), want) {
				t.Errorf("affinity/ROUTES.md lacks the measured row %s", want)
			}
		}
		return
	}
	text, err := table.Put(string(old))
	must(t, err)
	switch {
	case text == string(old):
	case *update:
		must(t, os.WriteFile(path, []byte(text), 0o644))
	default:
		t.Errorf("affinity/ROUTES.md is stale: run go test ./internal/lab -update. Measured was:\n%s", table)
	}
}

func TestBorrowedAddresses(t *testing.T) {
	d := store(t)
	var mu sync.Mutex
	rows := map[string][]Row{}
	t.Run("topology", func(t *testing.T) {
		for _, topology := range testenv.Sample(t, len(Topologies)/3, Topologies) {
			t.Run(topology.Name, func(t *testing.T) {
				plan, err := d.Plan(t.Context(), topology)
				must(t, err)
				t.Parallel()
				l, err := Start(t, plan)
				must(t, err)
				measured, err := l.Measure(t.Context())
				must(t, err)
				for _, r := range measured {
					agree(t, topology, r)
				}
				mu.Lock()
				defer mu.Unlock()
				rows[topology.Name] = measured
			})
		}
	})
	document(t, blackholeTable(rows), len(rows) == len(Topologies))
	document(t, versions(t), true)
}

// versions returns a table of the measured programs' versions.
func versions(t *testing.T) Table {
	t.Helper()
	release, err := programs.CalicoRelease()
	must(t, err)
	text, err := exec.CommandContext(t.Context(), "bird", "--version").CombinedOutput()
	must(t, err)
	return Table{Name: "versions", Heads: []string{"Program", "Version"}, Rows: [][]string{
		{"Calico (IPAM client, confd, its templates)", release},
		{"BIRD (Debian's)", strings.TrimPrefix(strings.TrimSpace(string(text)), "BIRD version ")},
	}}
}

// agree checks that packets, kernel, host view and prediction agree.
func agree(t *testing.T, topology Topology, r Row) {
	t.Helper()
	if want := map[bool]string{true: "unicast", false: "blackhole"}[r.FromPod || topology.LostBeyond != ""]; r.Kernel != want {
		t.Errorf("%s: packets of a pod of the owner are %s, but its kernel says %q", r.Addr, arrives(r.FromPod), r.Kernel)
	}
	if topology.LostBeyond != "" && (r.FromPod || r.FromThird) {
		t.Errorf("%s: packets arrive, though they should be lost beyond the owner, in %s", r.Addr, topology.LostBeyond)
	}
	if r.FromOwner != r.FromPod {
		t.Errorf("%s: packets of a pod of the owner are %s, those of the owner itself %s", r.Addr, arrives(r.FromPod), arrives(r.FromOwner))
	}
	if r.Seen.Result != r.Kernel || !r.Seen.Lookup {
		t.Errorf("%s: the kernel says %q, the audit reads its view as %s", r.Addr, r.Kernel, r.Seen)
	}
	wantView := map[string]string{"blackhole": "critical", "unicast": "none"}[r.Kernel]
	if r.ByView != wantView {
		t.Errorf("%s: with the kernel's proof of a %s route the finding is %s, not %s", r.Addr, r.Kernel, r.ByView, wantView)
	}
	wantAlone := map[affinity.RouteOutcome]string{affinity.Dropped: "error", affinity.Delivered: "none", affinity.Unknown: "warning"}[r.Predicted.Outcome]
	if r.ByTopology != wantAlone {
		t.Errorf("%s: predicted is %s, the finding without a view is %s, not %s", r.Addr, r.Predicted.Outcome, r.ByTopology, wantAlone)
	}
	predicted := map[affinity.RouteOutcome]string{affinity.Dropped: "blackhole", affinity.Delivered: "unicast"}[r.Predicted.Outcome]
	right := predicted == "" || predicted == r.Kernel
	if right == (topology.Beyond != "") {
		t.Errorf("%s: predicted is %s (%s), the kernel says %q; what the datastore does not tell: %q",
			r.Addr, r.Predicted.Outcome, r.Predicted.Reason, r.Kernel, topology.Beyond)
	}
	if r.Predicted.Outcome == affinity.Unknown && strings.TrimSpace(r.Predicted.DecidedBy) == "" {
		t.Errorf("%s: nothing is said of what would settle the unknown: %s", r.Addr, r.Predicted.Reason)
	}
	t.Logf("%s: %s, predicted %s: %s", r.Addr, r.Kernel, r.Predicted.Outcome, r.Predicted.Reason)
}
