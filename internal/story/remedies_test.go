package story

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
	"github.com/calico-audit/calico-audit/internal/testenv"
	"github.com/calico-audit/calico-audit/repair"
)

// shown matches a command in human-readable output: after a shell prompt, or one of
// calico-audit's own after a label or in the footer. footer matches one on the line after a text that
// ends with a colon.
var (
	shown  = regexp.MustCompile(`^(?:\s+(then )?\$ (.*)|(?:\s+(?:now|next|then)\s+|More about a check: )(calico-audit .*))$`)
	footer = regexp.MustCompile(`:\n  (calico-audit .*)\n`)
)

// reader pastes every command that an output about a state shows, and every command in
// the answers to those. It pastes each command once.
type reader struct {
	*testing.T
	dir    string
	source []string
	// cluster is the cluster in that state; nil for files.
	cluster *testcluster.Cluster
	// told lists the commands still to be pasted, in order. later holds all commands seen
	// so far; its value is true if the command follows another that must run first.
	told  []string
	later map[string]bool
}

// reads pastes all commands of a state's outputs.
func reads(t *testing.T, f *fixture, dir string, cluster *testcluster.Cluster, source ...string) {
	t.Helper()
	r := &reader{T: t, dir: dir, source: source, cluster: cluster, later: map[string]bool{}}
	if cluster == nil { // a cluster's ages differ from the fixture's
		for _, finding := range f.report().Findings { // JSON findings omit their remedies
			r.hearRemedies(finding.Remedies, func(command string) string {
				if writing.MatchString(command) {
					return command
				}
				return sourced.ReplaceAllString(command, "${0}"+strings.Join(source, " ")+" ")
			})
		}
	}
	r.hear("calico-audit report "+strings.Join(source, " ")+" -o wide", false)
	for len(r.told) > 0 { // pasting a command may add more
		command := r.told[0]
		r.told = r.told[1:]
		if why := r.paste(command); why != "" {
			t.Errorf("%s: %s", command, why)
		}
	}
}

// hear adds a command to be pasted.
func (r *reader) hear(command string, later bool) {
	if was, known := r.later[command]; known && (later || !was) {
		return
	}
	r.told, r.later[command] = append(r.told, command), later
}

func (r *reader) hearRemedies(ways []remedies.Remedy, write func(string) string) {
	for _, way := range ways {
		for i, command := range way.Commands {
			r.hear(write(command), i > 0)
		}
	}
}

func (r *reader) hearFindings(findings []audit.Finding) {
	for i := range findings {
		f := &findings[i]
		if f.Fix.Kind != "manual" {
			r.hear(f.Fix.Command, false)
		}
		for j, command := range f.Fix.Commands {
			r.hear(command, j > 0)
		}
	}
}

// sourced matches commands that read a state and therefore need the source flags. writing
// matches those that write to the cluster, whatever the source of the report was.
var (
	sourced = regexp.MustCompile(`^calico-audit (report|explain|repair) `)
	writing = regexp.MustCompile(`^calico-audit repair (undo|apply)\b`)
)

// paste runs a command as pasted from an output. It returns why the command is useless,
// or an empty string.
func (r *reader) paste(command string) string {
	switch {
	case !strings.HasPrefix(command, "calico-audit "):
		return r.other(command)
	case writing.MatchString(command):
		if out, err := r.sh(command); err == nil || !strings.Contains(out, "no terminal to ask for confirmation") {
			return fmt.Sprintf("it does not come to ask for confirmation: %v\n%s", err, out)
		}
		return ""
	case sourced.MatchString(command) && !documents(command):
		for _, flag := range r.source {
			if !strings.Contains(command, flag) {
				return "it has lost the source flag " + flag
			}
		}
	}
	answer := filepath.Join(r.TempDir(), "answer.json")
	pasted := command
	if sourced.MatchString(command) {
		pasted += " -o 'json=" + answer + "'"
		if !strings.Contains(command, " -o ") {
			pasted += " -o wide"
		}
	}
	out, err := r.sh(pasted)
	if err != nil {
		return fmt.Sprintf("it ends with %v:\n%s", err, out)
	}
	if strings.Contains(out, "No findings") {
		return "it prints \"No findings\""
	}
	r.hearShown(out)
	switch {
	case strings.HasPrefix(command, "calico-audit report "):
		var report audit.Report
		r.parse(answer, &report)
		for _, d := range report.Diagnoses {
			r.hearRemedies(d.Remedies, strings.Clone)
		}
		r.hearFindings(report.Findings)
		asked := map[string]int{}
		for i := range report.Findings {
			f := &report.Findings[i]
			for _, c := range f.Fix.Commands {
				if strings.Contains(command, " -o wide") && report.DiagnosisOf(f) == nil && !strings.Contains(out, "$ "+c+"\n") {
					return "it does not show the command of an instruction: " + c
				}
			}
			if subject := query(f.Subject); subject != "" && (asked[f.Check] < 3 || testenv.EveryCase()) {
				asked[f.Check]++
				r.hear("calico-audit explain "+strings.Join(r.source, " ")+" "+subject, false)
			}
		}
	case strings.HasPrefix(command, "calico-audit explain "):
		var explanation explain.Explanation
		r.parse(answer, &explanation)
		for _, s := range explanation.Subjects {
			for _, d := range s.Diagnoses {
				r.hearRemedies(d.Remedies, strings.Clone)
			}
			r.hearFindings(s.Findings)
			r.hearFindings(s.Related)
		}
	case strings.HasPrefix(command, "calico-audit repair "):
		var plan repair.Plan
		r.parse(answer, &plan)
		reasons := slices.ContainsFunc(plan.Refused, func(x repair.Refusal) bool { return x.Code != repair.RefusedNothing && x.Reason != "" })
		if len(plan.Steps) == 0 && !reasons && !r.later[command] {
			return "it plans nothing, and says of nothing why:\n" + out
		}
	}
	return ""
}

// documents reports whether a command prints the documentation of a check, which needs no cluster.
func documents(command string) bool {
	id, explains := strings.CutPrefix(command, "calico-audit explain ")
	_, err := checks.All.ByID(id)
	return explains && err == nil
}

// hearShown adds the commands in a human-readable output.
func (r *reader) hearShown(out string) {
	after := false
	for line := range strings.Lines(out) {
		if m := shown.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			r.hear(m[2]+m[3], after || m[1] != "")
		}
		after = strings.HasPrefix(strings.TrimSpace(line), "$ ")
	}
	for _, m := range footer.FindAllStringSubmatch(out, -1) {
		r.hear(m[1], true)
	}
}

// elsewhereParsed holds the commands of other programs that were already parsed without a
// cluster.
var elsewhereParsed sync.Map

// other runs another program's command on the cluster, without writing. Without a
// cluster, the command must get as far as connecting.
func (r *reader) other(command string) string {
	program, _, _ := strings.Cut(command, " ")
	if program != "kubectl" && program != "calicoctl" {
		return "it is of no program that an operator has"
	}
	if r.cluster == nil {
		if _, done := elsewhereParsed.LoadOrStore(command, true); done {
			return ""
		}
		if out, err := r.sh(command); err == nil || !strings.Contains(out, "refused") {
			return fmt.Sprintf("it does not come to ask the cluster: %v\n%s", err, out)
		}
		return ""
	}
	if strings.HasPrefix(command, "kubectl annotate ") {
		command += " --dry-run=server"
	}
	out, err := r.sh(command)
	if err != nil && !strings.Contains(out, `the server doesn't have a resource type "virtualmachineinstance"`) { // KubeVirt does not run here
		return fmt.Sprintf("it ends with %v:\n%s", err, out)
	}
	return ""
}

// sh runs a command line with an operator's programs in the PATH.
func (r *reader) sh(command string) (string, error) {
	c := exec.CommandContext(r.Context(), "sh", "-c", command)
	c.Dir = r.dir
	kubeconfig := filepath.Join(filepath.Dir(program), "nowhere")
	if r.cluster != nil {
		kubeconfig = r.cluster.KubeconfigPath()
	}
	c.Env = append(c.Environ(), "PATH="+filepath.Dir(program)+":/usr/bin:/bin", "KUBECONFIG="+kubeconfig, "DATASTORE_TYPE=kubernetes")
	out, err := c.CombinedOutput()
	return string(out), err
}

func (r *reader) parse(path string, into any) {
	r.Helper()
	text, err := os.ReadFile(path)
	must(r.T, err)
	must(r.T, json.Unmarshal(text, into))
}

// query returns the argument with which explain finds a subject, or an empty string if
// there is none.
func query(s state.Subject) string {
	switch s.Kind {
	case state.KindAffinity:
		return s.CIDR
	case state.KindIP, state.KindBlock, state.KindNode, state.KindPool, state.KindHandle:
		return phrase.Arg(s.ID())
	}
	return ""
}

// TestCommandsOfReports pastes every command in the outputs about each check's states,
// and every command in the answers. On files and on a cluster, each command must parse,
// read the same source and print an answer. Each day tries a different sample; "make
// soak" tries all states.
func TestCommandsOfReports(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: runs hundreds of commands")
	}
	t.Parallel()
	equip(t)
	all := slices.Concat(fixtures(t), incidents(t))
	t.Run("files", func(t *testing.T) {
		fromFiles := slices.DeleteFunc(slices.Clone(all), func(f *fixture) bool { return !f.files })
		for _, f := range testenv.Sample(t, 3, fromFiles) {
			t.Run(f.String(), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				reads(t, f, dir, nil, f.write(t, dir)...)
			})
		}
	})
	t.Run("cluster", func(t *testing.T) {
		c := testcluster.Start(t, testcluster.Options{Groups: []testcluster.Group{testcluster.CRDv1, testcluster.Attachments}})
		live := slices.DeleteFunc(slices.Clone(all), func(f *fixture) bool { return !f.live() })
		for _, f := range testenv.Sample(t, 2, live) {
			t.Run(f.String(), func(t *testing.T) {
				f.load(t, c)
				reads(t, f, t.TempDir(), c, "--kubeconfig", c.KubeconfigPath())
			})
		}
	})
}

// equip builds the program and links kubectl and calicoctl into the same directory. It writes a
// kubeconfig whose server does not answer.
func equip(t *testing.T) {
	t.Helper()
	build(t)
	dir := filepath.Dir(program)
	for _, tool := range []string{"kubectl", "calicoctl"} {
		path, err := programs.Binary(t.Context(), tool)
		must(t, err)
		must(t, os.Symlink(path, filepath.Join(dir, tool)))
	}
	must(t, os.WriteFile(filepath.Join(dir, "nowhere"), []byte(`apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
`), 0o600))
}
