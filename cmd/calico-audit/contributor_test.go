package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// TestContributor follows the steps of audit/checks/README.md to add a check, and of
// blocks/decode/README.md to add a kind of object, in a copy of the repository. The new check must
// appear in the table, the page, the exporter's metrics and an alert of a real Prometheus. The kind
// must appear in the RBAC rules and in saved snapshots.
func TestContributor(t *testing.T) {
	cluster := testcluster.Shared(t, testcluster.Options{WatchCache: true})
	tree := copyRepository(t)
	followSteps(t, tree, "audit/checks/README.md", "blocks/decode/README.md")

	ctx := t.Context()
	seeder, err := seeding.New(cluster)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(seeder.Init(ctx))
	must(seeder.Pool(ctx, "pods", apiv3.IPPoolSpec{CIDR: "10.0.0.0/24", BlockSize: 26}))
	must(seeder.Namespace(ctx, "shop", nil, nil))
	must(seeder.Node(ctx, seeding.Node{Name: "n1"}))
	used, err := seeder.Pod(ctx, seeding.Pod{Namespace: "shop", Name: "a", Node: "n1"})
	must(err)
	must(seeder.Reservation(ctx, "kept", netip.PrefixFrom(used[0], 32)))

	binary, page := filepath.Join(t.TempDir(), "calico-audit"), filepath.Join(t.TempDir(), "report.html")
	inTree(t, tree, "go", "build", "-ldflags=-s -w", "-o", binary, "./cmd/calico-audit")
	message := fmt.Sprintf("%s is in use and reserved", used[0])
	table := inTree(t, tree, binary, "report", "--kubeconfig", cluster.KubeconfigPath(), "-o", "table", "-o", "html="+page)
	if !strings.Contains(table, "ERROR ip/reserved\n  "+message) {
		t.Errorf("the table lacks the finding:\n%s", table)
	}
	html, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(html), message) {
		t.Errorf("the page lacks the finding: %v", err)
	}

	for _, file := range []string{"examples/kubernetes/rbac/clusterrole.yaml", "examples/helm/calico-audit/templates/_reads.tpl", "cmd/GUIDE.md"} {
		if text, err := os.ReadFile(filepath.Join(tree, file)); err != nil || !strings.Contains(string(text), "hostendpoints") {
			t.Errorf("%s lacks the kind: %v", file, err)
		}
	}
	dump := filepath.Join(tree, "dump.yaml")
	if err := writeFile(dump, []byte("apiVersion: crd.projectcalico.org/v1\nkind: HostEndpoint\nmetadata: {name: eth0}\nspec: {node: machine-x, interfaceName: eth0}\n")); err != nil {
		t.Fatal(err)
	}
	saved := inTree(t, tree, binary, "snapshot", "-f", "examples/snapshots/healthy", "-f", dump, "-o", "-", "--anonymize")
	if !strings.Contains(saved, "kind: HostEndpoint\n") || strings.Contains(saved, "machine-x") {
		t.Errorf("saved as %s", saved)
	}

	exporter := startExporter(t, exec.Command(binary, exporterArgs("--kubeconfig", cluster.KubeconfigPath())...))
	m := monitor(t, tree, exporter)
	m.await("somebody is told", func() bool { return m.firing("CalicoFinding") })
	if n := m.state("CalicoFinding"); !strings.Contains(n.summary, "ip/reserved") || n.receiver != "ticket" {
		t.Errorf("what was told: %+v", n)
	}
	status, body, err := get(ctx, "http://"+exporter+"/metrics")
	if err != nil || status != http.StatusOK || !strings.Contains(string(body), `calico_audit_findings{check="ip/reserved",ippool="pods",severity="error"} 1`) {
		t.Errorf("the metrics lack the finding: %d %v\n%s", status, err, body)
	}
}

// copyRepository copies all files that are tracked or could be added.
func copyRepository(t *testing.T) string {
	t.Helper()
	from, to := filepath.Join("..", ".."), t.TempDir()
	for name := range strings.Lines(inTree(t, from, "git", "ls-files", "--cached", "--others", "--exclude-standard")) {
		name = strings.TrimSpace(name)
		source, err := os.ReadFile(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue // deleted, but not committed
		}
		if err == nil {
			err = writeFile(filepath.Join(to, name), source)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

var (
	stepBlock = regexp.MustCompile("(?ms)^   ```(\\w+)\n(.*?)^   ```$")
	stepFile  = regexp.MustCompile("`([a-z_/.-]+/[a-z_.-]+\\.(?:go|txt))`")
)

// followSteps writes the files of the steps of how-to pages, then runs their commands, each once.
func followSteps(t *testing.T, tree string, pages ...string) {
	t.Helper()
	var commands []string
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(tree, page))
		if err != nil {
			t.Fatal(err)
		}
		steps := regexp.MustCompile(`(?m)^\d\. `).Split(string(text), -1)[1:]
		if len(steps) < 4 {
			t.Fatalf("%s has only %d steps", page, len(steps))
		}
		for _, step := range steps {
			for _, command := range followStep(t, tree, step) {
				if !slices.Contains(commands, command) {
					commands = append(commands, command)
				}
			}
		}
	}
	for _, command := range commands {
		inTree(t, tree, "sh", "-ec", command)
	}
}

// followStep writes the file of a step, or returns the commands of a step that has commands.
func followStep(t *testing.T, tree, step string) (commands []string) {
	t.Helper()
	before, _, _ := strings.Cut(step, "```")
	block := stepBlock.FindStringSubmatch(step)
	if block == nil {
		t.Fatalf("a step without anything to copy:\n%s", step)
	}
	lang, text := block[1], regexp.MustCompile(`(?m)^   `).ReplaceAllString(block[2], "")
	if lang == "sh" {
		return slices.Collect(strings.Lines(text))
	}
	named := stepFile.FindAllStringSubmatch(before, -1)
	if named == nil {
		t.Fatalf("a step that names no file:\n%s", step)
	}
	path := filepath.Join(tree, filepath.FromSlash(named[len(named)-1][1]))
	old, err := os.ReadFile(path)
	switch {
	case os.IsNotExist(err):
	case err != nil:
		t.Fatal(err)
	case lang == "diff":
		text = patched(t, string(old), text)
	default: // a line of a sorted list
		text = intoList(t, string(old), text)
	}
	if err := writeFile(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return nil
}

// patched inserts the added lines of a diff after their context line.
func patched(t *testing.T, text, diff string) string {
	t.Helper()
	before, added, _ := strings.Cut(diff, "\n")
	before, added = before[1:]+"\n", strings.TrimPrefix(strings.ReplaceAll("\n"+added, "\n+", "\n"), "\n")
	if strings.Count(text, before) != 1 {
		t.Fatalf("the file has no place after %q", before)
	}
	return strings.Replace(text, before, before+added, 1)
}

// intoList inserts a line into a sorted list.
func intoList(t *testing.T, text, line string) string {
	t.Helper()
	for next := range strings.Lines(text) {
		if strings.HasPrefix(next, line[:2]) && next > line {
			return strings.Replace(text, next, line+next, 1)
		}
	}
	t.Fatalf("the list has no place for %q", line)
	return ""
}

// inTree runs a command in a directory and returns its output. The command must succeed.
func inTree(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	// As in the Makefile: vetting and debug information take longer than the tests themselves.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -vet=off -ldflags=-s")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &said)
	}
	return string(out)
}
