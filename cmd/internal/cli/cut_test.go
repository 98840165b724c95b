package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
)

// everyRepair requests all kinds of repair without a value.
var everyRepair = []string{
	"--empty-blocks", "--orphan-affinities", "--missing-affinities", "--leaked-ips", "--leaked-handles", "--soft-deleted",
}

// verdicts are the results for a source.
type verdicts struct {
	findings map[string]state.Severity // by check and fingerprint
	steps    map[string]bool           // by ID
	complete bool
	code     int
}

// verdictsOf makes a report and a plan from files. Both must have the same exit code.
func verdictsOf(t *testing.T, what string, paths ...string) verdicts {
	t.Helper()
	v := verdicts{findings: map[string]state.Severity{}, steps: map[string]bool{}}
	source := []string{"-o", "json", "--at", "2026-11-22T00:00:00Z"}
	for _, path := range paths {
		source = append(source, "-f", path)
	}
	streams, out, errOut := testStreams()
	v.code = Main(t.Context(), append([]string{"calico-audit", "report"}, source...), streams)
	if v.code != exit.CodeOK && v.code != exit.CodeUnread {
		if out.Len() > 0 || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%s: not one line: %s%s", what, out, errOut)
		}
		return v
	}
	r, p := new(audit.Report), new(repair.Plan)
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	streams, out, _ = testStreams()
	if code := Main(t.Context(), slices.Concat([]string{"calico-audit", "repair"}, source, everyRepair), streams); code != v.code {
		t.Errorf("%s: the report ended with %d, the plan with %d", what, v.code, code)
	}
	if err := json.Unmarshal(out.Bytes(), p); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	v.complete = r.Complete && p.Complete
	for _, f := range r.Findings {
		v.findings[f.Check+" "+f.Fingerprint] = f.Severity
	}
	for _, s := range p.Steps {
		v.steps[s.ID] = true
	}
	return v
}

// wholeVerdicts returns the results for an example, which must be complete.
func wholeVerdicts(t *testing.T, path string) verdicts {
	t.Helper()
	v := verdictsOf(t, path, path)
	if !v.complete || v.code != exit.CodeOK {
		t.Fatalf("%s: %+v", path, v)
	}
	return v
}

// checkPart compares the results for incomplete files with those for the whole: the files
// are rejected or incomplete, and missing objects cause no finding and no higher severity.
func checkPart(t *testing.T, what string, whole verdicts, paths ...string) verdicts {
	t.Helper()
	part := verdictsOf(t, what, paths...)
	for f, severity := range part.findings {
		if severity > whole.findings[f] {
			t.Errorf("%s: found %s, %s", what, f, severity)
		}
	}
	for step := range part.steps {
		if !whole.steps[step] {
			t.Errorf("%s: step %s", what, step)
		}
	}
	if part.complete || part.code != exit.CodeUsage && part.code != exit.CodeUnread {
		t.Errorf("%s: complete %t, ended with %d; want 2 or 3", what, part.complete, part.code)
	}
	return part
}

func writeFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func example(name string) string {
	return filepath.Join("..", "..", "..", "examples", "snapshots", name)
}

// cuts returns positions to cut a text at: n spread over it, each with the end of its line,
// and some inside the last line.
func cuts(text []byte, n int) (out []int) {
	for i := 1; i < n; i++ {
		at := len(text) * i / n
		out = append(out, at)
		if line := bytes.IndexByte(text[at:], '\n'); line >= 0 && at+line+1 < len(text) {
			out = append(out, at+line, at+line+1)
		}
	}
	for at := len(text) - 40; at < len(text)-1; at += 3 {
		out = append(out, at)
	}
	return out
}

// TestCutSnapshots: a snapshot that is cut off anywhere is rejected, or read with gaps.
// Missing objects cause no findings or steps.
func TestCutSnapshots(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	for name, n := range map[string]int{"story": 8, "story-drained": 16} {
		for _, format := range []string{"yaml", "json", "yaml.gz", "json.gz"} {
			t.Run(name+"."+format, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "a."+format)
				calico(t, "snapshot", "-f", example(name), "-o", path)
				whole, text, printed := wholeVerdicts(t, path), readFile(t, path), 0
				for _, at := range testenv.Sample(t, 6, cuts(text, n)) {
					writeFile(t, path, text[:at])
					if v := checkPart(t, fmt.Sprintf("cut at %d of %d", at, len(text)), whole, path); v.code == exit.CodeUnread {
						printed++
					}
				}
				if packed := strings.HasSuffix(format, ".gz"); packed != (printed == 0) {
					t.Errorf("%d cuts gave a report", printed)
				}
			})
		}
	}
}

// TestLostObjects: objects missing from the middle of a snapshot cause gaps of their kinds.
// Results for other objects do not depend on them.
func TestLostObjects(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	for _, name := range []string{"story", "story-drained", "dual-stack", "native"} {
		path := filepath.Join(t.TempDir(), name+".json")
		calico(t, "snapshot", "-f", example(name), "-o", path)
		whole, lines := wholeVerdicts(t, path), bytes.SplitAfter(readFile(t, path), []byte("\n"))
		kind := func(line []byte) string {
			_, kind := document.Identity(line)
			return kind
		}
		last, lost := map[string]bool{}, []int{}
		for i := len(lines) - 3; i > 0; i-- {
			if k := kind(lines[i]); !last[k] || i%20 == 0 { // the last one of each kind, and some others
				last[k], lost = true, append(lost, i)
			}
		}
		for _, i := range testenv.Sample(t, 8, lost) {
			writeFile(t, path, bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil))
			checkPart(t, fmt.Sprintf("%s without line %d, %s", name, i+1, kind(lines[i])), whole, path)
		}
		for _, k := range testenv.Sample(t, 4, slices.Sorted(maps.Keys(last))) {
			writeFile(t, path, bytes.Join(slices.DeleteFunc(slices.Clone(lines), func(line []byte) bool { return kind(line) == k }), nil))
			checkPart(t, name+" without any "+k, whole, path)
		}
	}
}

// TestCutSnapshotsOfEarlierVersion: a snapshot without counts is read, but no result
// depends on objects that may be missing from its end.
func TestCutSnapshotsOfEarlierVersion(t *testing.T) {
	const old = "testdata/snapshot-without-counts.json.gz" // of the example story-drained
	whole := wholeVerdicts(t, example("story-drained"))
	if v := checkPart(t, old, whole, old); v.code != exit.CodeUnread || len(v.findings) == 0 {
		t.Errorf("%+v", v)
	}
	text, _, done, err := document.Open(old, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	var b bytes.Buffer
	if _, err := b.ReadFrom(text); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "old.json")
	for _, at := range cuts(b.Bytes(), 16) {
		writeFile(t, path, b.Bytes()[:at])
		checkPart(t, fmt.Sprintf("cut at %d", at), whole, path)
	}
}

// TestCutDumps: each kubectl dump that was cut off is rejected.
func TestCutDumps(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	files, err := filepath.Glob(filepath.Join(example("story-drained"), "*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	path := filepath.Join(t.TempDir(), "cut.yaml")
	for _, file := range files {
		text := readFile(t, file)
		// The text after the list's kind, which follows its items, has no meaning.
		text = text[:bytes.LastIndex(text, []byte("\nkind: List"))+len("\nkind:")]
		var cuts []int
		for at := range len(text) + 1 {
			if at >= len(text)-16 || at%(1+len(text)/12) == 0 {
				cuts = append(cuts, at)
			}
		}
		for _, at := range testenv.Sample(t, 3, cuts) {
			writeFile(t, path, text[:at])
			if v := verdictsOf(t, fmt.Sprintf("%s cut at %d", file, at), path); v.code != exit.CodeUsage {
				t.Errorf("%s cut at %d: ended with %d", file, at, v.code)
			}
		}
	}
}

// TestPages: a list of kubectl whose last items are on another page causes a gap of its
// kind, and no results depend on the missing items.
func TestPages(t *testing.T) {
	for _, name := range []string{"story", "story-drained"} {
		whole := wholeVerdicts(t, example(name))
		files, err := filepath.Glob(filepath.Join(example(name), "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for i, file := range files {
			items := bytes.SplitAfter(readFile(t, file), []byte("\n- "))
			if len(items) < 3 {
				continue
			}
			text := bytes.TrimSuffix(bytes.Join(items[:len(items)/2+1], nil), []byte("- "))
			path := filepath.Join(t.TempDir(), "page.yaml")
			writeFile(t, path, append(text, "kind: List\nmetadata:\n  continue: eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ\n  remainingItemCount: 3\n"...))
			v := checkPart(t, "half of "+file, whole, append(slices.Delete(slices.Clone(files), i, i+1), path)...)
			if v.code != exit.CodeUnread {
				t.Errorf("half of %s: ended with %d", file, v.code)
			}
		}
	}
}

// claim matches words, with their context, by which an output claims that something is absent or
// healthy; harmless matches similar words that claim nothing.
var (
	claim    = regexp.MustCompile(`(?i)(\S+ ){0,4}(\bcomplete\b|no findings|\bfixed\b|delivered|\bno [a-z]+( [a-z]+)? exists?\b|no longer exists?|do(es)? not exist|\bit fits\b|every check that ran)`)
	harmless = regexp.MustCompile(`(?i)no findings in the parts (of either )?that could be read|read the missing objects first|complete no : what was not seen`)
)

// markup matches the parts of a page that its reader does not see.
var markup = regexp.MustCompile(`(?s)<(script|style).*?</(script|style)>|<[^>]*>`)

// claims returns the parts of a command's output that match [claim].
func claims(t *testing.T, args ...string) map[string]bool {
	t.Helper()
	streams, out, errOut := testStreams()
	if code := Main(t.Context(), append([]string{"calico-audit"}, args...), streams); code != exit.CodeOK && code != exit.CodeUnread {
		t.Logf("%s ended with %d: %s", strings.Join(args, " "), code, errOut)
	}
	text := strings.Join(strings.Fields(markup.ReplaceAllString(out.String(), " ")), " ")
	found := map[string]bool{}
	for _, said := range claim.FindAllString(harmless.ReplaceAllString(text, ""), -1) {
		found[said] = true
	}
	return found
}

// TestPartialDumpsClaimNothing leaves one kind out of a dump. No command may then claim, in any
// format, that something is complete, fixed, delivered or absent, unless it claims the same for the
// whole dump, because the missing objects may prove the opposite.
func TestPartialDumpsClaimNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: takes long")
	}
	var parts []string
	for _, name := range []string{"story", "healthy"} {
		for _, kind := range []string{"ippools", "ipamblocks", "blockaffinities", "ipamhandles", "ipamconfigs", "nodes", "pods", "bgpconfigurations"} {
			parts = append(parts, name+"/"+kind)
		}
	}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "healthy/bgpconfigurations" }) // it has none
	wholes, made := map[string]map[string]bool{}, 0
	for _, part := range testenv.Sample(t, 4, parts) {
		name, kind := filepath.Split(part)
		whole, dir := example(name), t.TempDir()
		entries, err := os.ReadDir(whole)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != kind+".yaml" {
				writeFile(t, filepath.Join(dir, e.Name()), readFile(t, filepath.Join(whole, e.Name())))
			}
		}
		commands := [][]string{{"capacity"}, {"diff", whole}, {"explain", "route/blackhole"}}
		for _, subject := range map[string][]string{
			"story/":   {"new-1", "old-1", "10.64.75.123", "10.64.75.64/26", "pods-v4"},
			"healthy/": {"worker-1", "10.80.2.128/26"},
		}[name] {
			commands = append(commands, []string{"explain", subject})
		}
		for _, format := range []string{"table", "wide", "markdown", "html", "junit"} {
			commands = append(commands, []string{"report", "-o", format})
		}
		for _, flag := range []string{"--empty-blocks", "--orphan-affinities", "--missing-affinities", "--leaked-ips", "--leaked-handles", "--unrecorded-ips", "--consolidate", "--rehome", "--strict-affinity=true", "--strict-affinity=false"} {
			commands = append(commands, []string{"repair", flag}, []string{"repair", flag, "-o", "markdown"})
		}
		for _, c := range testenv.Sample(t, 12, commands) {
			with := func(source string) []string {
				if c[0] == "diff" {
					return append(slices.Clip(c), source)
				}
				return append(slices.Clip(c), "-f", source)
			}
			key := name + strings.Join(c, " ")
			if wholes[key] == nil {
				wholes[key] = claims(t, with(whole)...)
			}
			made += len(wholes[key])
			for said := range claims(t, with(dir)...) {
				if !wholes[key][said] {
					t.Errorf("%s without %s: %s: %q", name, kind, strings.Join(c, " "), said)
				}
			}
		}
	}
	if made == 0 {
		t.Error("no output of a whole dump says anything of the kind")
	}
}
