package audit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
)

func finding(check string, sev state.Severity, s state.Subject, change ...func(*audit.Finding)) audit.Finding {
	f := audit.Finding{Check: check, Severity: sev, Subject: s, Message: s.ID(), Evidence: []state.Evidence{}, Fingerprint: audit.Fingerprint(check, s)}
	for _, c := range change {
		c(&f)
	}
	return f
}

func onNodes(names ...string) func(*audit.Finding) { return func(f *audit.Finding) { f.Nodes = names } }
func inPoolsOf(names ...string) func(*audit.Finding) {
	return func(f *audit.Finding) { f.Pools = names }
}

// known has a finding for every kind of subject.
func known() []audit.Finding {
	return []audit.Finding{
		finding("pool/no-free-blocks", state.Critical, state.Subject{Kind: state.KindPool, Name: "gold"}, inPoolsOf("gold"), onNodes("n1", "n2")),
		finding("ip/borrowed", state.Warning, state.Subject{Kind: state.KindIP, IP: "10.0.0.1", Node: "n1"}, inPoolsOf("gold"), onNodes("n2")),
		finding("ip/borrowed", state.Warning, state.Subject{Kind: state.KindIP, IP: "10.0.0.2", Node: "n2"}, inPoolsOf("tin"), onNodes("n1")),
		finding("block/empty", state.Info, state.Subject{Kind: state.KindBlock, Name: "b", CIDR: "10.0.0.0/26"}, inPoolsOf("gold"), onNodes("n1")),
		finding("block/overlap", state.Critical, state.Subject{Kind: state.KindBlock, Name: "c", CIDR: "10.0.1.0/26"}, inPoolsOf("gold", "tin"), onNodes("n1", "n2")),
		finding("block/empty", state.Info, state.Subject{Kind: state.KindBlock, Name: "d", CIDR: "10.0.2.0/26"}, onNodes("")),
		finding("config/strict-affinity", state.Error, state.Subject{Kind: state.KindConfig, Name: "default"}, onNodes("n1")),
		finding("node/no-block", state.Error, state.Subject{Kind: state.KindNode, Name: "n1", Node: "n1"}, inPoolsOf("gold", "tin")),
		finding("pool/overlap", state.Error, state.Subject{Kind: state.KindPool, Name: "tin"}, inPoolsOf("gold", "tin")),
	}
}

func idsOf(findings []audit.Finding) (out []string) {
	for i := range findings {
		out = append(out, findings[i].Check+" "+findings[i].Subject.ID())
	}
	return out
}

func TestMuteRules(t *testing.T) {
	for rule, want := range map[string][]string{
		"check=ip/borrowed":           {"ip/borrowed 10.0.0.1", "ip/borrowed 10.0.0.2"},
		"check=ip":                    {"ip/borrowed 10.0.0.1", "ip/borrowed 10.0.0.2"},
		"check = block/* ,node= n1":   {"block/empty 10.0.0.0/26"},
		"node=n1":                     {"ip/borrowed 10.0.0.1", "block/empty 10.0.0.0/26", "config/strict-affinity default", "node/no-block n1"},
		"node=n2":                     {"ip/borrowed 10.0.0.2"},
		"pool=gold":                   {"pool/no-free-blocks gold", "ip/borrowed 10.0.0.1", "block/empty 10.0.0.0/26"},
		"pool=tin":                    {"ip/borrowed 10.0.0.2", "pool/overlap tin"},
		"pool=gold,node=n1,check=ip":  {"ip/borrowed 10.0.0.1"},
		"pool=tin,node=n1":            nil,
		"check=pool,until=2026-01-31": {"pool/no-free-blocks gold", "pool/overlap tin"},
		"check=pool,until=2026-01-30": nil,
		"check=config,until=" + "2026-01-31T12:00:01Z": {"config/strict-affinity default"},
		"check=config,until=2026-01-31T12:00:00Z":      nil,
		"check=config,until=2026-01-31T12:00:01+00:01": nil,
	} {
		r, err := checks.All.ParseMuteRule(rule)
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		m := audit.Mutes{Rules: []audit.MuteRule{r}}
		left, muted := m.Apply(known(), time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
		if d := cmp.Diff(want, idsOf(muted[0].Findings)); d != "" {
			t.Errorf("%s mutes (-want +got):\n%s", rule, d)
		}
		if len(left)+muted[0].Count != len(known()) || muted[0].Count != len(want) || muted[0].Rule != rule {
			t.Errorf("%s: %d left, %+v", rule, len(left), muted[0])
		}
	}
}

func TestMuteRuleErrors(t *testing.T) {
	for rule, want := range map[string]string{
		"":                         `"" is not KEY=VALUE`,
		"ip/borrowed":              `"ip/borrowed" is not KEY=VALUE`,
		"chek=ip/borrowed":         `unknown key "chek": want one of check, node, pool, until`,
		"check=ip/lost":            `unknown check "ip/lost": did you mean`,
		"check=nonsense":           `unknown check "nonsense"`,
		"check=":                   "check is empty",
		"node=n1,node=n2":          "node is given twice",
		"until=2026-01-31":         "would mute everything",
		"node=n1,until=tomorrow":   "until=tomorrow is neither a time",
		"node=n1,until=2026-02-30": "is neither a time",
		"node=n1,":                 `"" is not KEY=VALUE`,
	} {
		_, err := checks.All.ParseMuteRule(rule)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ignore entry") {
			t.Errorf("%q: %v, want %q", rule, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), `"`+rule+`"`) {
			t.Errorf("%q: the error does not name the entry: %v", rule, err)
		}
	}
}

func TestMuteFile(t *testing.T) {
	rules, err := checks.All.ReadMuteRules(strings.NewReader("\ufeff# known\r\n\ncheck=ip/borrowed # TICKET-1\n  node=n#1\t# odd\n"), "ignore.txt")
	if err != nil || len(rules) != 2 || rules[0].Text != "check=ip/borrowed" || rules[1].Node != "n#1" {
		t.Errorf("%+v, %v", rules, err)
	}
	_, err = checks.All.ReadMuteRules(strings.NewReader("check=pool\n\nnode\n"), "ignore.txt")
	if err == nil || !strings.Contains(err.Error(), "ignore.txt, line 3: ") || !strings.Contains(err.Error(), `"node"`) {
		t.Errorf("%v", err)
	}
}

// TestExpired: an expired rule mutes nothing and is marked as expired. If the time is unknown,
// every rule with an end counts as expired.
func TestExpired(t *testing.T) {
	r, err := checks.All.ParseMuteRule("node=n1,until=2026-01-31")
	if err != nil {
		t.Fatal(err)
	}
	m := audit.Mutes{Rules: []audit.MuteRule{r}}
	for at, expired := range map[time.Time]bool{
		time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC): false, time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC): true, {}: true,
	} {
		_, muted := m.Apply(known(), at)
		if muted[0].Expired != expired || (muted[0].Count == 0) != expired || phrase.Time(muted[0].Until.Time) != "2026-02-01T00:00:00Z" {
			t.Errorf("at %s: %+v", at, muted[0])
		}
	}
}

func report(findings ...audit.Finding) *audit.Report {
	r := &audit.Report{APIVersion: audit.APIVersion, Kind: audit.ReportKind, Complete: true, Findings: findings}
	r.Filter(nil, nil) // updates the counts
	return r
}

// reread returns the report after a round trip through JSON.
func reread(t *testing.T, r *audit.Report) *audit.Report {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	out := new(audit.Report)
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestBaseline: old findings are muted unless they got worse; rules come first.
func TestBaseline(t *testing.T) {
	old := report(known()[:4]...)
	old.Findings[3].Severity = state.Info
	base := audit.NewBaseline("old.json", reread(t, old))
	rule, err := checks.All.ParseMuteRule("check=ip/borrowed,pool=gold")
	if err != nil {
		t.Fatal(err)
	}
	now := report(known()...)
	now.Findings[3].Severity = state.Warning // worse than before
	now.Findings[2].Severity = state.Info    // better
	now.Mute(&audit.Mutes{Rules: []audit.MuteRule{rule}, Baselines: []*audit.Baseline{base}})
	want := []string{"block/empty 10.0.0.0/26", "block/overlap 10.0.1.0/26", "block/empty 10.0.2.0/26", "config/strict-affinity default",
		"node/no-block n1", "pool/overlap tin"}
	if d := cmp.Diff(want, idsOf(now.Findings)); d != "" {
		t.Errorf("left (-want +got):\n%s", d)
	}
	if now.Summary.Muted != 3 || now.Summary.Critical != 1 || now.Summary.Warning != 1 || now.Muted[0].Count != 1 || now.Muted[1].Count != 2 || !now.Muted[1].Baseline {
		t.Errorf("%+v, %+v", now.Summary, now.Muted)
	}

	// A baseline made from this report keeps the findings muted by the first baseline, but
	// not those muted by the rule.
	next := report(known()...)
	next.Mute(&audit.Mutes{Baselines: []*audit.Baseline{audit.NewBaseline("now.json", reread(t, now))}})
	if d := cmp.Diff([]string{"ip/borrowed 10.0.0.1", "ip/borrowed 10.0.0.2"}, idsOf(next.Findings)); d != "" {
		t.Errorf("left by the next baseline (-want +got):\n%s", d)
	}
}

// TestMutedDoNotCount: muted findings do not fail a run.
func TestMutedDoNotCount(t *testing.T) {
	r := report(known()[0])
	rule, err := checks.All.ParseMuteRule("pool=gold")
	if err != nil {
		t.Fatal(err)
	}
	if !r.AtOrAbove(state.Critical) {
		t.Fatal("the state is not the one meant")
	}
	r.Mute(&audit.Mutes{Rules: []audit.MuteRule{rule}})
	if r.AtOrAbove(state.Info) || len(r.Findings) != 0 || r.Findings == nil {
		t.Errorf("%+v", r)
	}
}
