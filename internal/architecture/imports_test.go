// Package architecture tests the layout of the repository: which package may import
// which, where files may be, and which words they use.
package architecture

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/calico-audit/calico-audit"

// mayImport lists the project's packages that each directory may import. Data flows one
// way: objects, snapshot, state, findings, plan. A directory that is not listed follows
// its nearest listed parent.
var mayImport = map[string][]string{
	"blocks":                   {},
	"blocks/alias":             {"blocks"},
	"blocks/decode/protobuf":   {},
	"blocks/decode/parse":      {"blocks/decode/protobuf"},
	"blocks/decode/multus":     {"blocks", "blocks/alias", "blocks/decode/parse"},
	"blocks/decode/keep":       {"blocks", "blocks/alias", "blocks/decode/multus", "blocks/decode/parse"},
	"blocks/decode":            {"blocks", "blocks/alias", "blocks/decode/keep", "blocks/decode/multus", "blocks/decode/parse", "blocks/decode/protobuf"},
	"blocks/cluster/request":   {"blocks", "blocks/decode/parse"},
	"blocks/cluster":           {"blocks", "blocks/cluster/request", "blocks/decode"},
	"blocks/cluster/agents":    {"blocks", "blocks/cluster", "blocks/cluster/request"},
	"blocks/etcd":              {"blocks", "blocks/decode"},
	"blocks/files":             {"blocks", "blocks/alias", "blocks/decode"},
	"blocks/hostviews":         {"blocks", "blocks/decode", "blocks/files"},
	"affinity":                 {"blocks"},
	"affinity/host":            {"blocks", "affinity"},
	"audit/phrase":             {"blocks"},
	"audit/state/hosts":        {"blocks", "audit/phrase"},
	"audit/state":              {"blocks", "affinity", "audit/phrase", "audit/state/hosts"},
	"audit/remedies":           {"blocks", "affinity", "audit/phrase", "audit/state"},
	"audit/state/whereabouts":  {"blocks", "audit/state"},
	"audit/state/waiting":      {"blocks", "audit/errortext", "audit/phrase", "audit/state", "audit/capacity"},
	"audit/runway":             {"audit/phrase"},
	"audit":                    {"blocks", "audit/phrase", "audit/state", "audit/remedies", "audit/runway", "audit/state/whereabouts"},
	"audit/capacity":           {"blocks", "affinity", "audit/phrase", "audit/state"},
	"audit/checks":             {"blocks", "affinity", "audit/phrase", "audit/state", "audit/remedies", "audit/state/whereabouts", "audit"},
	"audit/errortext":          {},
	"audit/explain":            {"blocks", "affinity", "audit/errortext", "audit/phrase", "audit/state", "audit/remedies", "audit/state/whereabouts", "audit", "audit/checks"},
	"repair":                   {"blocks", "affinity", "audit", "audit/phrase", "audit/state"},
	"repair/moves":             {"blocks", "audit/phrase", "audit/state", "audit/remedies", "repair"},
	"repair/planner":           {"blocks", "affinity", "audit", "audit/phrase", "audit/state", "audit/remedies", "audit/state/whereabouts", "repair", "repair/moves"},
	"repair/journal":           {"blocks", "audit", "repair", "repair/planner"},
	"repair/apply":             {"blocks", "audit", "audit/phrase", "audit/state", "audit/remedies", "repair", "repair/moves", "repair/planner", "repair/journal"},
	"repair/datastore":         {"blocks", "blocks/cluster/request", "blocks/decode", "affinity", "audit", "audit/state", "audit/remedies", "audit/checks", "repair"},
	"repair/workloads":         {"blocks", "blocks/cluster/request", "repair"},
	"metrics":                  {"blocks", "affinity", "audit", "audit/phrase", "audit/state", "audit/checks"},
	"metrics/query":            {"audit/runway"},
	"metrics/events":           {"blocks", "audit", "audit/state", "audit/checks", "metrics"},
	"cmd":                      {"audit/runway", "metrics/query", "blocks", "blocks/cluster", "blocks/etcd", "blocks/files", "blocks/hostviews", "affinity", "affinity/host", "audit", "audit/phrase", "audit/state", "audit/remedies", "audit/capacity", "audit/checks", "audit/errortext", "audit/explain", "repair", "repair/moves", "repair/planner", "repair/journal", "repair/apply", "repair/datastore", "repair/workloads", "metrics", "metrics/events", "cmd/internal"},
	"cmd/internal/gendoc":      {"blocks", "blocks/decode", "blocks/files", "blocks/hostviews", "audit", "audit/checks", "audit/errortext", "audit/remedies", "audit/state", "metrics", "cmd/internal", "internal/testcluster/programs"},
	"cmd/internal/cli/clitest": {"audit", "audit/explain", "repair", "cmd/internal", "internal/testcluster"},
	"internal/statedsl":        {"blocks"},
	"internal/law":             {"blocks", "audit/state", "audit/capacity", "repair"},
	"internal/story":           {},
	"internal/testcluster":     {"blocks/decode", "internal/testcluster"},
	"internal/storm":           {"blocks", "blocks/cluster", "blocks/files", "affinity", "audit", "audit/state", "audit/checks", "repair", "repair/moves", "repair/planner", "repair/journal", "repair/apply", "repair/datastore", "internal/law", "internal/testcluster", "internal/testenv"},
	"internal/architecture":    {},
	"internal/mutants":         {},
	"internal/release":         {},
	"internal/testenv":         {},
	"internal/scale":           {"blocks", "audit", "audit/state", "audit/checks", "internal/testcluster"},
	"internal/lab":             {"blocks", "blocks/cluster", "blocks/files", "affinity", "affinity/host", "audit", "audit/state", "audit/checks", "internal/testcluster", "internal/testenv"},

	"cmd/internal/view/blockmap": {"blocks", "audit", "audit/phrase", "audit/state", "repair"},
	"cmd/internal/view":          {"blocks", "audit", "audit/capacity", "audit/runway", "repair", "cmd/internal/view/blockmap"},
	"cmd/internal/view/page":     {"blocks", "audit", "audit/capacity", "repair", "cmd/internal/view", "cmd/internal/view/blockmap"},
}

// onlyIn lists the directories that may import libraries which talk to clusters, kernels
// or other programs. Pure packages, such as libcalico-go's selectors and types, are
// exempt.
var onlyIn = []struct {
	imports string
	except  []string
	dirs    []string
}{
	{"k8s.io/client-go", []string{"k8s.io/client-go/util/jsonpath"}, []string{"blocks/cluster", "repair/datastore", "repair/workloads", "metrics/events", "internal/testcluster", "internal/storm", "internal/scale", "cmd"}},
	{"github.com/projectcalico/calico", []string{"github.com/projectcalico/calico/libcalico-go/lib/selector", "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"}, []string{"blocks/etcd", "repair/datastore", "internal/testcluster", "internal/storm", "internal/scale"}},
	{"go.etcd.io/etcd", nil, []string{"blocks/etcd", "repair/datastore/etcd", "internal/testcluster", "internal/storm", "internal/scale", "internal/story"}},
	{"github.com/prometheus/client_golang/api", nil, []string{"metrics/query"}},
	{"github.com/vishvananda/netlink", nil, []string{"affinity/host"}},
	{"github.com/spf13/cobra", nil, []string{"cmd"}},
	{"os/exec", nil, []string{"internal/testcluster", "internal/architecture", "internal/testenv", "internal/lab", "internal/mutants", "internal/scale"}}, // and tests
}

type goPackage struct {
	ImportPath string
	Imports    []string
	GoFiles    []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,GoFiles", "./...")
	cmd.Dir = root(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("listing packages: %v", err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("reading the list of packages: %v", err)
		}
		all = append(all, p)
	}
	if len(all) < 5 {
		t.Fatalf("only %d packages were listed", len(all))
	}
	return all
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestImports checks every import against mayImport and onlyIn.
func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		dir := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		home := nearest(dir)
		if home == "" {
			t.Errorf("%s has no place in the architecture: give it one in this test, or move it", dir)
			continue
		}
		for _, imp := range p.Imports {
			if own, ok := strings.CutPrefix(imp, module+"/"); ok && own != dir && !within(own, mayImport[home]) && nearest(own) != home {
				t.Errorf("%s must not import %s", dir, own)
			}
			for _, rule := range onlyIn {
				if within(imp, []string{rule.imports}) && !within(imp, rule.except) && !within(dir, rule.dirs) {
					t.Errorf("%s must not import %s: only %s may", dir, imp, strings.Join(rule.dirs, ", "))
				}
			}
		}
	}
}

func within(path string, roots []string) bool {
	for _, r := range roots {
		if path == r || strings.HasPrefix(path, r+"/") {
			return true
		}
	}
	return false
}

func nearest(dir string) string {
	for d := dir; d != "." && d != "/" && d != ""; d = filepath.Dir(d) {
		if _, ok := mayImport[d]; ok {
			return d
		}
	}
	return ""
}

// maxLines is the largest size of a package, without tests.
const maxLines = 5000

// TestPackagesAreSmall checks that a reader can get to know each package.
func TestPackagesAreSmall(t *testing.T) {
	for _, p := range packages(t) {
		lines := 0
		for _, name := range p.GoFiles {
			raw, err := os.ReadFile(filepath.Join(root(t), strings.TrimPrefix(p.ImportPath, module), name))
			if err != nil {
				t.Fatal(err)
			}
			lines += strings.Count(string(raw), "\n")
		}
		if lines > maxLines {
			t.Errorf("%s has %d lines, more than %d: what is a package of its own in it?", p.ImportPath, lines, maxLines)
		}
	}
}

// TestTopLevel keeps the top of the repository small.
func TestTopLevel(t *testing.T) {
	allowed := map[string]bool{
		"go.mod": true, "go.sum": true, "Makefile": true, "README.md": true, "LICENSE": true,
		"cmd": true, "audit": true, "blocks": true, "affinity": true, "repair": true, "metrics": true,
		"examples": true, "internal": true, "bin": true, "dist": true,
	}
	entries, err := os.ReadDir(root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !allowed[e.Name()] && !strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s has no place at the top of the repository", e.Name())
		}
	}
}

// TestNoReplace rejects replace and exclude directives in go.mod, because "go install
// …@version" fails with them.
func TestNoReplace(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(raw), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "replace") || strings.HasPrefix(strings.TrimSpace(line), "exclude") {
			t.Errorf("go.mod: %s", line)
		}
	}
}
