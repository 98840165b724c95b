package cli_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"

	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// block is a fenced code block of the README.
type block struct{ lang, text string }

func readmeBlocks(t *testing.T, readme string) (out []block) {
	t.Helper()
	parts := strings.Split(readme, "\n```")
	for i := 1; i < len(parts); i += 2 {
		lang, text, _ := strings.Cut(parts[i], "\n")
		out = append(out, block{lang, text})
	}
	if len(parts)%2 == 0 {
		t.Fatal("a code block does not end")
	}
	return out
}

// TestReadme runs the commands in the README and the guide. The output must match the
// console blocks: "..." matches any number of lines, and "exit code N" is the exit code.
func TestReadme(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	var shown []block
	for _, name := range []string{"README.md", "cmd/GUIDE.md"} {
		raw, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, readmeBlocks(t, string(raw))...)
	}
	t.Setenv("LC_ALL", "C.UTF-8") // the README shows the output of a UTF-8 locale
	cluster := clitest.Play(t, seeding.Story)
	t.Setenv("KUBECONFIG", cluster.KubeconfigPath())
	t.Chdir(root)
	writeTemp(t, "ca.crt", string(cluster.Config.CAData)) // any CA: no agents run here
	writeTemp(t, "token", "a token")
	for _, name := range []string{"cluster.json.gz", "plan.json"} {
		readmeFiles[name] = filepath.Join(t.TempDir(), name)
	}
	ran := map[string]bool{}
	serving := sync.OnceValue(func() *clitest.Exporter {
		e := clitest.StartExporter(t, cluster.KubeconfigPath())
		e.Restarted = true
		return e
	})
	for _, b := range shown {
		switch b.lang {
		case "console":
			for _, c := range strings.Split("\n"+b.text, "\n$ ")[1:] {
				command, shown, _ := strings.Cut(c, "\n")
				t.Run(command, func(t *testing.T) { checkConsole(t, cluster, command, shown) })
				ran[command] = true
			}
		case "sh":
			if strings.Contains(b.text, "kubectl get --raw") { // the test below runs it alone, too
				readmeFiles["dump.tgz"] = filepath.Join(dumpByKubectl(t, cluster, b.text), "dump.tgz")
				continue
			}
			for _, command := range strings.Split(strings.TrimSpace(b.text), "\n") {
				t.Run(command, func(t *testing.T) { checkShell(t, command, serving) })
				ran[command] = true
			}
		case "text":
		default:
			t.Errorf("a code block of kind %q is not tested", b.lang)
		}
	}
	for _, command := range []string{"make test", "go run ./cmd/calico-audit report -f examples/snapshots/story", "calico-audit report"} {
		if !ran[command] {
			t.Errorf("the README does not tell people to run %q", command)
		}
	}
}

// TestDumpByKubectl: the guide's commands dump a cluster without BGPConfigurations, and the report of
// that dump is complete.
func TestDumpByKubectl(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "GUIDE.md"))
	if err != nil {
		t.Fatal(err)
	}
	cluster := clitest.Play(t, seeding.Story)
	if _, err := cluster.Kubectl(t.Context(), "delete", "bgpconfigurations.crd.projectcalico.org", "--all"); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, b := range readmeBlocks(t, string(raw)) {
		if !strings.Contains(b.text, "kubectl get --raw") {
			continue
		}
		ran++
		dir := dumpByKubectl(t, cluster, b.text)
		if got := clitest.Run(t, "report", "-f", filepath.Join(dir, "dump.tgz")); got.Code != 0 || !strings.Contains(got.Stdout, "CRITICAL pool/no-free-blocks") {
			t.Errorf("exit code %d: %s\n%s", got.Code, got.Err, got.Stdout)
		}
	}
	if ran != 1 {
		t.Errorf("the guide has %d ways to dump a cluster", ran)
	}
}

// dumpByKubectl runs a shell script that dumps the cluster, and returns its directory.
func dumpByKubectl(t *testing.T, c *testcluster.Cluster, script string) string {
	t.Helper()
	kubectl, err := programs.Binary(t.Context(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.Symlink(kubectl, filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.KubeconfigPath(), "PATH="+bin+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// writeTemp writes a file that the README's commands name, and records its actual path.
func writeTemp(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	readmeFiles[name] = path
}

// readmeFiles maps the file names in the README to their actual paths.
var readmeFiles = map[string]string{}

func checkConsole(t *testing.T, cluster *testcluster.Cluster, command, shown string) {
	t.Helper()
	args := words(command)
	if len(args) < 2 || args[0] != "calico-audit" && args[0] != "calicoctl" {
		t.Fatalf("%q is not a command of calico-audit or calicoctl", command)
	}
	if args[0] == "calicoctl" {
		out, err := cluster.Calicoctl(t.Context(), args[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		checkShown(t, shown, out)
		return
	}
	for i, a := range args {
		if path, ok := readmeFiles[a]; ok {
			args[i] = path
		}
	}
	got := clitest.Run(t, args[1:]...)
	text := got.Stdout
	if got.Code != 0 {
		text += fmt.Sprintf("exit code %d\n", got.Code)
	}
	if got.Code != 0 && !strings.Contains(shown, "exit code") {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
	checkShown(t, shown, text)
}

func checkShown(t *testing.T, shown, printed string) {
	t.Helper()
	if !matches(strings.Split(strings.TrimSpace(printed), "\n"), strings.Split(strings.TrimSpace(shown), "\n")) {
		t.Errorf("the document shows\n%s\nand it prints\n%s", shown, printed)
	}
}

// matches compares lines with a pattern; "..." in it matches any lines. Trailing blank
// lines and indentation do not count.
func matches(lines, pattern []string) bool {
	if len(pattern) == 0 {
		return len(lines) == 0
	}
	if strings.TrimSpace(pattern[0]) == "..." {
		for i := range len(lines) + 1 {
			if matches(lines[i:], pattern[1:]) {
				return true
			}
		}
		return false
	}
	return len(lines) > 0 && strings.TrimRight(lines[0], " ") == strings.TrimRight(pattern[0], " ") && matches(lines[1:], pattern[1:])
}

// words splits a command line at spaces outside single quotes.
func words(s string) (out []string) {
	for i, part := range strings.Split(s, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}

// checkShell runs a shell command of the README. If the command would run this test, or
// needs a cluster's own kubectl or the network, checkShell only checks the names in it.
// serving starts the exporter for curl commands.
func checkShell(t *testing.T, command string, serving func() *clitest.Exporter) {
	t.Helper()
	args := words(command)
	switch {
	case args[0] == "go" && args[1] == "run":
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "CRITICAL pool/no-free-blocks") {
			t.Errorf("%v\n%s", err, out)
		}
	case args[0] == "make":
		if out, err := exec.CommandContext(t.Context(), "make", "--dry-run", args[1]).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	case args[0] == "go" && args[1] == "install":
		pkg, _, _ := strings.Cut(args[2], "@")
		if out, err := exec.CommandContext(t.Context(), "go", "list", pkg).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	case args[0] == "calico-audit" && args[1] == "repair":
		// It would ask a question, or needs files of an earlier run, so only check that the
		// command exists.
		if got := clitest.Run(t, append(args[1:], "--help")...); got.Code != 0 || !strings.Contains(got.Stdout, "calico-audit repair "+args[2]) {
			t.Errorf("exit code %d: %s", got.Code, got.Err)
		}
	case args[0] == "calico-audit" && args[1] == "report":
		page := filepath.Join(t.TempDir(), "report.html")
		last := len(args) - 1
		if got := clitest.Run(t, append(args[1:last:last], strings.Replace(args[last], "report.html", page, 1))...); got.Code != 0 {
			t.Errorf("exit code %d: %s", got.Code, got.Err)
		}
		if got := clitest.Run(t, "report", "-f", page); got.Code != 0 || !strings.Contains(got.Stdout, "CRITICAL pool/no-free-blocks") {
			t.Errorf("read again: exit code %d: %s\n%s", got.Code, got.Err, got.Stdout)
		}
	case args[0] == "calico-audit" && args[1] == "exporter":
		if got := clitest.Run(t, append(args[1:], "--help")...); got.Code != 0 {
			t.Errorf("exit code %d: %s", got.Code, got.Err)
		}
		serving().Ready()
	case args[0] == "curl":
		_, path, ours := strings.Cut(args[1], "127.0.0.1:19099")
		if status, body := serving().Get(path); !ours || status != http.StatusOK || !strings.Contains(body, "pods-v4") {
			t.Errorf("%d %s", status, body)
		}
	case args[0] == "kubectl" && args[1] == "apply" && args[2] == "-k":
		if _, err := os.Stat(filepath.Join(args[3], "kustomization.yaml")); err != nil {
			t.Error(err)
		}
	case args[0] == "export":
		for _, set := range args[1:] {
			name, _, _ := strings.Cut(set, "=")
			if !slices.ContainsFunc(reflect.VisibleFields(reflect.TypeFor[apiconfig.CalicoAPIConfigSpec]()), func(f reflect.StructField) bool {
				return f.Tag.Get("envconfig") == name
			}) {
				t.Errorf("calicoctl knows no variable %s", name)
			}
		}
	default:
		t.Errorf("nothing tests %q", command)
	}
}
