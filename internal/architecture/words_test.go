package architecture

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var update = flag.Bool("update", false, "lower the limits in words.txt to what there is")

// avoided lists words that no one in the field searches for or that are ambiguous here,
// and the words to use instead. In a name, the word is compared with each part of the
// identifier.
var avoided = []struct{ word, instead, in string }{
	{"keeper", "reflector, store, confirmed owner", "name text comment document asset file"},
	{"keepers", "reflectors, stores, confirmed owners", "name text comment document asset file"},
	{"column", "descriptor; of a table only", "name"},
	{"form", "schema", "name"},
	{"role", "redaction class; of RBAC only", "name"},
	{"roles", "redaction classes; of RBAC only", "name"},
	{"question", "probe, scenario", "name"},
	{"needs", "requires, optional", "name"},
	{"release", "what is released, as a type", "type"},
	{"beat", "liveness or freshness probe", "name"},
	{"patience", "stalenessTimeout", "name"},
	{"hurry", "probeInterval", "name"},
	{"settle", "propagationDelay", "name"},
	{"stall", "reconnectAfter, stale", "name"},
	{"mourn", "markUnavailable", "name text comment document asset file"},
	{"gone", "errUnavailable, deleted", "name"},
	{"revive", "reset", "name"},
	{"poke", "notify", "name text comment document asset file"},
	{"kick", "trigger", "name text comment document asset file"},
	{"shape", "field mask, schema, redaction class", "name"},
	{"hold", "RetainReason, Releasability", "name"},
	{"held", "RetainReason, Releasability", "name"},
	{"judge", "Evaluate, Classify", "name text comment document asset file"},
	{"judged", "Result", "name text comment document asset file"},
	{"judgement", "Result", "name text comment document asset file"},
	{"unjudged", "Inconclusive", "name text comment document asset file"},
	{"withhold", "SkipPartial", "name"},
	{"withheld", "SkipPartial", "name"},
	{"stray", "foreign blackhole, unreferenced address, orphan affinity", "name text comment document asset file"},
	{"claims", "affinities", "name"},
	{"ledger", "confirmation tracker", "name text comment document asset file"},
	{"sift", "filter", "name text comment document asset file"},
	{"outlook", "remedy", "name text comment document asset file"},
	{"sheet", "builder", "name text comment document asset file"},
	{"ruin", "damage fixture", "name text comment document asset file"},
	{"ruined", "damage fixture", "name"},
	{"referee", "invariant checker", "name text comment document asset file"},
	{"chronicle", "etcd history", "name text comment document asset file"},
	{"gate", "fault proxy", "name text comment document asset file"},
	{"house", "architecture", "name text comment document asset file"},
	{"room", "package", "name"},
	{"sketch", "state DSL", "name text comment document asset file"},
	{"sketched", "state DSL", "name"},
	{"fate", "RouteOutcome", "name text comment document asset file"},
	{"standing", "AffinityStatus", "name"},
	{"supposed", "hypothetical", "name"},
	{"hoarder", "node that holds several blocks", "name text comment document asset file"},
	{"hoarders", "nodes that hold several blocks", "name text comment document asset file"},
	{"tells whether", "reports whether", "comment"},
	{"whoever", "name the component", "text comment document asset"},
	{"nobody", "no one, or name it", "text comment document asset"},
	{"anew", "again", "text comment document asset"},
	// Further words for texts that users read.
	{"is no node", `node "X" no longer exists`, "text document asset"},
	{"leads to no block", "BlockAffinity exists, its IPAMBlock does not", "text document asset"},
	{"answers blackhole", "matches blackhole route P (proto bird, table main)", "text document asset"},
	{"lent", "borrowed from", "text document asset"},
	{"starve", "cannot allocate", "text document asset"},
	{"starves", "cannot allocate", "text document asset"},
	{"starving", "that cannot allocate", "text document asset"},
	{"take the reservation back", "delete the IPReservation", "text document asset"},
	{"nothing that may be done", "no automatic steps", "text document asset"},
	{"what has the same number", "steps with the same number: any order", "text document asset"},
	{"a grace apart", "one grace period (15m) apart", "text document asset"},
	{"makes no sense", "invalid usage", "text document asset"},
	{"make no sense", "invalid", "text document asset"},
	{"to carry the plan out", "apply it with", "text document asset"},
	{"fires when", "description", "text document asset"},
	{"TO CLAIM", "FREE", "text document asset"}, // the heading; nodes do claim blocks
	{"end what runs", "network namespace, PID and its state: drain and reboot the node", "text document asset"},
	{"not to be had", "no longer served or no longer permitted", "text document asset"},
	{"breaks off", "unexpected end of JSON input", "text document asset"},
	{"which is no", "which is not a", "text document asset"},
	{"it is no", "it is not a", "text document asset"},
	{"answer is no", "answer is not a", "text document asset"},
	{"takes note of", "records", "text comment document asset"},
}

// occurrences holds the places of avoided words, by scope and word.
type occurrences map[string]map[string]bool

func (o occurrences) add(scope, what string, has func(word string) bool) {
	for _, a := range avoided {
		if strings.Contains(a.in, scope) && has(a.word) {
			key := scope + " " + a.word
			if o[key] == nil {
				o[key] = map[string]bool{}
			}
			o[key][what] = true
		}
	}
}

// prose records avoided words in a text that begins at the given line of a file.
func (o occurrences) prose(scope, path string, line int, text string) {
	for l := range strings.Lines(text) {
		lower := contract.Replace(strings.ToLower(l))
		o.add(scope, fmt.Sprintf("%s:%d", path, line), func(word string) bool {
			if word == strings.ToLower(word) {
				return contains(lower, word)
			}
			return contains(l, word)
		})
		line++
	}
}

// contains reports whether a line contains the pattern of a word as a whole word. Most lines do
// not contain even its letters, and that is cheap to see.
func contains(line, word string) bool {
	return (regexp.QuoteMeta(word) != word || strings.Contains(line, word)) && wholeWord[word].MatchString(line)
}

// contract removes identifiers that contain an avoided word but that users rely on.
var contract = strings.NewReplacer("stray-blackhole", "", "stray_blackhole", "")

// names records avoided words in declared identifiers.
func (o occurrences) names(names ...*ast.Ident) {
	for _, n := range names {
		if n != nil {
			parts := partsOf(n.Name)
			o.add("name", n.Name, func(word string) bool { return slices.Contains(parts, word) })
		}
	}
}

// named calls names for the identifiers among the expressions.
func (o occurrences) named(all ...ast.Expr) {
	for _, e := range all {
		if id, ok := e.(*ast.Ident); ok {
			o.names(id)
		}
	}
}

// source checks a Go file. It skips string literals in tests.
func (o occurrences) source(t *testing.T, path string, raw []byte) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, raw, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if ast.IsGenerated(file) {
		return
	}
	for _, group := range file.Comments {
		o.prose("comment", path, set.Position(group.Pos()).Line, group.Text())
	}
	tags := map[*ast.BasicLit]bool{} // field tags are part of the contract
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.FuncDecl:
			o.names(n.Name)
		case *ast.TypeSpec:
			o.names(n.Name)
			o.add("type", n.Name.Name, func(word string) bool { return strings.EqualFold(n.Name.Name, word) })
		case *ast.ValueSpec:
			o.names(n.Names...)
		case *ast.Field:
			tags[n.Tag] = true
			o.names(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				o.named(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				o.named(n.Key, n.Value)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && !tags[n] && !strings.HasSuffix(path, "_test.go") {
				o.prose("text", path, set.Position(n.Pos()).Line, text)
			}
		}
		return true
	})
}

// partsOf returns the parts of an identifier in lower case. HTTPServerOf2Kinds has the
// parts http, server, of2 and kinds.
func partsOf(name string) []string {
	var parts []string
	start := 0
	r := []rune(name)
	for i := 1; i <= len(r); i++ {
		end := i == len(r) || r[i] == '_' || unicode.IsUpper(r[i]) && (!unicode.IsUpper(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1]))
		if end {
			parts = append(parts, strings.ToLower(strings.Trim(string(r[start:i]), "_")))
			start = i
		}
	}
	return parts
}

var wholeWord = func() map[string]*regexp.Regexp {
	out := map[string]*regexp.Regexp{}
	for _, a := range avoided {
		out[a.word] = regexp.MustCompile(`\b` + a.word + `\b`)
	}
	return out
}()

// TestWords checks names, messages, comments and documents, and also templates, pages and
// examples, for avoided words. words.txt limits how many names or lines may still contain
// each word. Limits only go down: "go test ./internal/architecture -run Words -update"
// lowers them to the current counts.
func TestWords(t *testing.T) {
	found := occurrences{}
	out, err := exec.Command("git", "-C", root(t), "ls-files", "*.go", "*.md", "*.tmpl", "*.html", "*.js", "*.css",
		"examples/*.yaml", "examples/grafana/*.json").Output()
	if err != nil {
		t.Skipf("this is no checkout: %v", err)
	}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		raw, err := os.ReadFile(filepath.Join(root(t), path))
		switch {
		case errors.Is(err, fs.ErrNotExist), strings.Contains(path, "testdata/"), strings.HasSuffix(path, "architecture/words_test.go"):
		case err != nil:
			t.Fatal(err)
		case strings.HasSuffix(path, ".md"):
			found.prose("document", path, 1, string(raw))
		case !strings.HasSuffix(path, ".go"):
			found.prose("asset", path, 1, string(raw))
		default:
			base := partsOf(strings.TrimSuffix(contract.Replace(filepath.Base(path)), ".go"))
			found.add("file", path, func(word string) bool { return slices.Contains(base, word) })
			found.source(t, path, raw)
		}
	}
	limits := map[string]int{}
	raw, err := os.ReadFile("words.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var n int
		var scope string
		if _, err := fmt.Sscan(line, &n, &scope); err != nil {
			t.Fatalf("words.txt: %q: %v", line, err)
		}
		_, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		limits[key] = n
	}
	var lowered strings.Builder
	for _, key := range slices.Sorted(maps.Keys(found)) {
		all := slices.Sorted(maps.Keys(found[key]))
		if len(all) > limits[key] {
			scope, word, _ := strings.Cut(key, " ")
			t.Errorf("%ss with the word %q: %d, words.txt allows %d; say %s instead. They are: %s",
				scope, word, len(all), limits[key], insteadOf(word), strings.Join(all, ", "))
		}
		fmt.Fprintf(&lowered, "%d %s\n", min(len(all), limits[key]), key)
	}
	if *update {
		if err := os.WriteFile("words.txt", []byte(lowered.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func insteadOf(word string) string {
	for _, a := range avoided {
		if a.word == word {
			return a.instead
		}
	}
	return ""
}
