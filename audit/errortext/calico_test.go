package errortext

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// calicoSources are the files of Calico's module with messages about addresses, as patterns below
// the module's directory. If logs is set, logged warnings and errors count, too: users find a
// controller's errors in its log, while a library's errors reach them in other messages.
var calicoSources = []struct {
	files string
	logs  bool
}{
	{"libcalico-go/lib/ipam/*.go", false},
	{"libcalico-go/lib/errors/*.go", false},
	{"cni-plugin/pkg/*/*.go", false},
	{"cni-plugin/pkg/dataplane/linux/*.go", false},
	{"cni-plugin/internal/pkg/utils/*.go", false},
	{"kube-controllers/pkg/controllers/node/ipam*.go", true},
	{"kube-controllers/pkg/controllers/node/pool_manager.go", true},
	{"kube-controllers/pkg/controllers/node/errors.go", true},
	{"kube-controllers/pkg/controllers/loadbalancer/*.go", true},
	{"node/pkg/allocateip/*.go", true},
	{"calicoctl/calicoctl/commands/ipam/*.go", false},
}

// TestCalicosErrorsAreKnown extracts the error messages from Calico's module of the version in
// go.mod. Each must be explained, or be listed in testdata/not_addresses.txt as not about
// addresses. An entry of that list that Calico no longer has must be removed.
func TestCalicosErrorsAreKnown(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/projectcalico/calico").Output()
	if err != nil {
		t.Fatalf("finding Calico's module: %v", err)
	}
	raw, err := os.ReadFile("testdata/not_addresses.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{} // whether Calico still has it
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			text, err := strconv.Unquote(line)
			if err != nil {
				t.Fatalf("not_addresses.txt: %s: %v", line, err)
			}
			listed[text] = false
		}
	}
	seen := map[string]bool{}
	for _, s := range calicoSources {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), s.files))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file of Calico matches %s: %v", s.files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, text := range messagesIn(t, file, s.logs) {
				if _, known := listed[text]; known {
					listed[text] = true
					continue
				}
				if !seen[text] && !known(text) {
					t.Errorf("neither explained nor listed: %q (%s)", text, strings.TrimPrefix(file, strings.TrimSpace(string(dir))+"/"))
				}
				seen[text] = true
			}
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d messages were extracted", len(seen))
	}
	for text, met := range listed {
		if !met {
			t.Errorf("listed in not_addresses.txt, and Calico has no such message: %q", text)
		}
	}
}

var verb = regexp.MustCompile(`%[-+#]?[a-zA-Z]`)

// known reports whether a format string of Calico is explained, for any values.
func known(format string) bool {
	for _, value := range []string{"10.0.0.0/26", "[10.0.0.0/26 10.0.0.64/26]", "10.0.0.5", "n1"} {
		text := verb.ReplaceAllStringFunc(format, func(v string) string {
			switch {
			case strings.HasSuffix(v, "d"):
				return "3"
			case strings.HasSuffix(v, "q"):
				return `"` + value + `"`
			}
			return value
		})
		if found, _ := Find(text); len(found) > 0 {
			return true
		}
	}
	return false
}

// messagesIn returns the literals of a Go file that become error messages: the first arguments of
// fmt.Errorf, errors.New, fmt.Sprintf and AddMsg, and literals that are converted to an error type
// or assigned to a format. If logs is set, it includes logged warnings and errors. Literals without
// two words are ignored.
func messagesIn(t *testing.T, file string, logs bool) (out []string) {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	add := func(e ast.Expr) {
		l, ok := e.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			return
		}
		if text, err := strconv.Unquote(l.Value); err == nil && len(strings.Fields(verb.ReplaceAllString(text, ""))) > 1 {
			out = append(out, text)
		}
	}
	logged := regexp.MustCompile(`^(Error|Warn|Fatal|Panic)`)
	ast.Inspect(syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			var name, of string
			switch f := n.Fun.(type) {
			case *ast.SelectorExpr:
				name = f.Sel.Name
				if x, ok := f.X.(*ast.Ident); ok {
					of = x.Name
				}
			case *ast.Ident:
				name = f.Name
			}
			isError := of == "fmt" && slices.Contains([]string{"Errorf", "Sprintf"}, name) || of == "errors" && name == "New" ||
				name == "AddMsg" || regexp.MustCompile(`^[a-z]\w*Error$|^err[A-Z]`).MatchString(name)
			if len(n.Args) > 0 && (isError || logs && of != "fmt" && logged.MatchString(name)) {
				add(n.Args[0])
			}
		case *ast.AssignStmt: // f := "…"; return fmt.Errorf(f, …)
			for i, to := range n.Lhs {
				if x, ok := to.(*ast.Ident); ok && (x.Name == "f" || x.Name == "s") && i < len(n.Rhs) {
					add(n.Rhs[i])
				}
			}
		}
		return true
	})
	return out
}
