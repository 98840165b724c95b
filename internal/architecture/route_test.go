package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxFiles is the largest number of files through which a reader follows a finding from
// the API server's bytes to the alert.
const maxFiles = 18

// TestWayOfAFinding checks that the files in the table of README.md exist. A Go file must
// declare the named function; any other file must contain the text.
func TestWayOfAFinding(t *testing.T) {
	raw, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]+)` \\|").FindAllStringSubmatch(string(raw), -1)
	files := map[string]bool{}
	for _, row := range rows {
		path, name := row[1], row[2]
		files[path] = true
		text, err := os.ReadFile(filepath.Join(root(t), path))
		switch {
		case err != nil:
			t.Errorf("README.md: %v", err)
		case !strings.HasSuffix(path, ".go") && !strings.Contains(string(text), name), strings.HasSuffix(path, ".go") && !declares(t, path, text, name):
			t.Errorf("README.md: %s has no %s", path, name)
		}
	}
	if len(files) < 10 || len(files) > maxFiles {
		t.Errorf("the way goes through %d files, at most %d are allowed", len(files), maxFiles)
	}
}

// declares reports whether a file declares a function, or a method given as "Type.Name".
func declares(t *testing.T, path string, text []byte, name string) bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		full := f.Name.Name
		if f.Recv != nil {
			full = receiver(f.Recv.List[0].Type) + "." + full
		}
		if full == name {
			return true
		}
	}
	return false
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
