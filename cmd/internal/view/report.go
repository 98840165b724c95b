package view

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/view/blockmap"
)

// ReportFormats returns the formats of a report. page writes it as HTML.
func ReportFormats(page func(io.Writer, *audit.Report, Options) error) Formats[*audit.Report] {
	return slices.Concat(tables((*printer).report, "an overview for people; similar findings are collapsed", "the table with every finding, its evidence, and the nodes"), Formats[*audit.Report]{
		{Name: "map", Help: "the map of the pools' blocks, drawn with characters", Write: forPeople((*printer).mapAlone, false)},
	}, DataFormats[*audit.Report]("the whole report"), Formats[*audit.Report]{
		{Name: "name", Help: "the names of the findings' subjects, one per line", Write: asLines(subjectNames)},
		paths[*audit.Report]("the report"),
		{Name: "custom-columns", Argument: "SPEC", Help: "a line per finding with columns HEADER:PATH,…", with: asColumns},
		{Name: "html", Help: "a self-contained page to keep and share", Write: page},
		{Name: "junit", Help: "a test case per check, for CI systems", Write: writeJUnit},
		tickets[*audit.Report]("report"),
	})
}

// subjectNames returns the distinct subjects of the findings, as "kubectl get -o name"
// would, sorted.
func subjectNames(r *audit.Report) (out []string) {
	for i := range r.Findings {
		out = append(out, Clean(r.Findings[i].Subject.ResourceName()))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (p *printer) report(r *audit.Report) {
	p.head(&r.Cluster, r.Complete)
	if len(r.Findings) > 0 {
		p.totals(r)
	}
	p.diagnoses(r.Diagnoses)
	p.pools(r)
	p.runway(r)
	p.secondary(r)
	if blockmap.Drawable(r) {
		size := mapShort
		if p.wide {
			size = mapWhole
		}
		p.drawMap(r, size)
	}
	if p.wide {
		p.nodes(r)
	}
	p.findings(r.Findings, r.Diagnoses)
	p.notSeen(r.Gaps, r.SkippedChecks, false)
	p.hosts(r)
	p.muted(r)
	p.foot(r)
}

// head writes the cluster, the age of the data and whether they are complete.
func (p *printer) head(c *audit.ReportCluster, complete bool) {
	p.flow(append(spans("Cluster "+p.guid(c.GUID), prefixed("Calico ", c.CalicoVersion), "from "+cmp.Or(p.Source, c.Datastore), c.APIGroup,
		p.taken(c.TakenAt.Time)), completeness(complete, c))...)
	p.assumed(c)
	if p.wide && c.APIGroupReason != "" {
		p.wrap("  ", 2, "API group: "+c.APIGroupReason)
	}
}

// guid returns a cluster's GUID, shortened unless wide is set.
func (p *printer) guid(guid string) string {
	if len(guid) > 12 && !p.wide {
		return guid[:8]
	}
	return cmp.Or(guid, "(GUID unknown)")
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// completeness returns "complete", with its condition if there is one, or a coloured "INCOMPLETE".
func completeness(complete bool, c *audit.ReportCluster) span {
	switch {
	case !complete:
		return span{"INCOMPLETE", styleWarning}
	case len(c.Assumes) > 0:
		return span{text: "complete, if the files hold all objects"}
	}
	return span{text: "complete"}
}

// assumed writes the number of objects of each kind in the files, which are assumed to be all; wide
// output only.
func (p *printer) assumed(c *audit.ReportCluster) {
	if p.wide {
		p.wrapAll("  Assumed: ", 2, c.Assumes)
	}
}

// taken formats the time of the data, and its age unless it is recent.
func (p *printer) taken(at time.Time) string {
	s := cmp.Or(phrase.Time(at), "time unknown")
	if at.IsZero() || p.Now.IsZero() || p.Now.Sub(at) < 2*time.Minute {
		return s
	}
	return s + " (" + age(p.Now.Sub(at)) + " ago)"
}

func age(d time.Duration) string {
	switch {
	case d < 2*time.Hour:
		return phrase.Plural(int(d.Minutes()), "minute")
	case d < 48*time.Hour:
		return phrase.Plural(int(d.Hours()), "hour")
	}
	return phrase.Plural(int(d.Hours()/24), "day")
}

func (p *printer) nodes(r *audit.Report) {
	if len(r.Nodes) == 0 {
		return
	}
	p.blank()
	g := &Table{Columns: []Heading{
		{Title: "NODE"}, {"BLOCKS", true}, {"EMPTY", true}, {"ADDRESSES", true},
		{Title: "BORROWED FROM"}, {Title: "BORROWED BY"}, {Title: "BLOCK CIDRS"},
	}}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		name := n.Name
		if n.Missing {
			name += " (no longer exists)"
		}
		x := numbersOfNode(r, n)
		g.add(name, x.Blocks, x.Empty, x.Addresses, x.Borrowed, x.Lent, cmp.Or(strings.Join(n.Blocks, " "), "-"))
	}
	p.grid(g, 0)
}

// nodeNumbers are a node's formatted numbers.
type nodeNumbers struct{ Blocks, Empty, Addresses, Borrowed, Lent string }

// boundsOfNode returns how exact the numbers of a node's own blocks are, and of the addresses that
// it borrows and lends. An undecodable block may belong to the node, or the node may borrow from it.
func boundsOfNode(r *audit.Report, n *audit.NodeReport) (own, borrowed, lent bound) {
	if lacks(r, blocks.Blocks) {
		seen := func(n int) bound { // in the blocks that were read
			if n > 0 {
				return atLeast
			}
			return unknown
		}
		return unknown, seen(n.Borrowed), seen(n.Lent)
	}
	if n.UnreadableBlocks > 0 {
		own = atLeast
	}
	if unreadable(r, blocks.Blocks) > 0 {
		borrowed = atLeast
	}
	return own, borrowed, own
}

// NodeSigns returns the signs of the numbers of a node's own blocks, and of the addresses that it
// borrows and lends: "", "≥", or "-" if a number is unknown.
func NodeSigns(r *audit.Report, n *audit.NodeReport) [3]string {
	own, borrowed, lent := boundsOfNode(r, n)
	return [3]string{own.sign(""), borrowed.sign(""), lent.sign("")}
}

// numbersOfNode formats a node's numbers.
func numbersOfNode(r *audit.Report, n *audit.NodeReport) nodeNumbers {
	own, borrowed, lent := boundsOfNode(r, n)
	// counted formats a number of addresses with the nodes involved.
	counted := func(n int, nodes []string, is bound) string {
		if n == 0 && len(nodes) == 0 {
			return "-"
		}
		return is.sign(strconv.Itoa(n)) + ": " + strings.Join(nodes, " ")
	}
	held := func(n int) string { return own.sign(strconv.Itoa(n)) }
	return nodeNumbers{held(len(n.Blocks)), held(n.EmptyBlocks), held(n.Addresses), counted(n.Borrowed, n.BorrowedFrom, borrowed), counted(n.Lent, n.LentTo, lent)}
}

// NothingSeen is the message for a report without pools and blocks.
const NothingSeen = "No IP pools and no blocks were read, so there was nothing to audit. Does this cluster use Calico's IPAM? If Tigera's operator should create its pools, the operator's log and kubectl describe tigerastatus name the obstacle, such as kubeadm without a podSubnet."

// Seen counts the objects that were read, and the undecodable ones.
func Seen(r *audit.Report) string {
	s := r.Summary
	// counted counts objects of a kind.
	counted := func(n int, noun string, kind blocks.Resource) string {
		switch bad := unreadable(r, kind); {
		case lacks(r, kind) && n == 0:
			return strings.TrimPrefix(phrase.Plural(2, noun), "2 ") + " not read"
		case lacks(r, kind):
			return "at least " + phrase.Plural(n, noun)
		case bad > 0:
			return fmt.Sprintf("%d of %s", n, phrase.Plural(n+bad, noun))
		}
		return phrase.Plural(n, noun)
	}
	allocations := counted(s.Allocations, "allocated address", blocks.Blocks)
	if !lacks(r, blocks.Blocks) && unreadable(r, blocks.Blocks) > 0 {
		allocations = atLeast.word(phrase.Plural(s.Allocations, "allocated address"))
	}
	return strings.Join([]string{counted(s.Nodes, "node", blocks.Nodes), counted(s.Pools, "pool", blocks.Pools), counted(s.Blocks, "block", blocks.Blocks), allocations}, ", ")
}

func (p *printer) foot(r *audit.Report) {
	p.blank()
	s := r.Summary
	if len(r.Findings) == 0 {
		none := "No findings"
		if s.Muted > 0 {
			none += " except muted ones"
		}
		switch {
		case s.Pools == 0 && s.Blocks == 0 && !lacks(r, blocks.Blocks):
			p.wrap("", 0, NothingSeen)
		case !r.Complete:
			p.wrap("", 0, none+" in the parts that could be read: "+Seen(r)+".")
		default:
			p.wrap("", 0, none+". Audited: "+Seen(r)+".")
		}
		return
	}
	p.totals(r)
	p.wrap("Audited: ", 2, Seen(r)+".")
	p.say("More about a check: " + p.Program + " checks " + r.Findings[0].Check)
}

// totals writes the number of findings by severity.
func (p *printer) totals(r *audit.Report) {
	var spans []span
	for i, c := range CountSeverities(r.Summary.FindingCounts) {
		if i > 0 {
			spans = append(spans, span{text: ", "})
		}
		spans = append(spans, span{c.Text, styleOf(c.Severity)})
	}
	if n := r.Summary.Muted; n > 0 {
		spans = append(spans, span{text: fmt.Sprintf(", %d muted", n)})
	}
	p.line(spans...)
}

// notSeen writes the gaps and the checks without a verdict. Unless each is set, long lists
// are cut, and only wide output has the reasons of the checks.
func (p *printer) notSeen(gaps []blocks.Gap, skipped []audit.Skipped, each bool) {
	most := p.atMost
	if each {
		most = func(int) int { return math.MaxInt }
	}
	title := func(title string) { p.blank(); p.line(span{title, styleWarning}) }
	list := func(gaps []blocks.Gap) {
		for _, alike := range Runs(gaps, func(a, b *blocks.Gap) bool { return a.Resource == b.Resource }) {
			some, rest := cut(alike, most(gapsShown))
			p.wrapAll("  ", 4, texts(some))
			p.rest(rest, string(alike[0].Resource))
		}
	}
	if unseen := blocks.Untolerated(gaps); len(unseen) > 0 {
		title("NOT SEEN")
		list(blocks.JoinForbidden(unseen))
	}
	if held := toleratedGaps(gaps); len(held) > 0 {
		title("UNREADABLE")
		p.wrap("  ", 2, toleratedMeans+":")
		list(held)
	}
	if !each && !p.wide {
		p.notEvaluated(skipped)
		return
	}
	if len(skipped) > 0 {
		title("NOT EVALUATED")
	}
	for _, alike := range groupBy(skippedByReason(skipped), func(s *[]*audit.Skipped) string { return skippedChecks(*s) }) {
		some, rest := cut(alike, p.atMost(gapsShown))
		for _, s := range some {
			p.wrap("  ", 4, skippedChecks(*s)+": "+(*s)[0].Reason)
		}
		p.rest(rest, skippedChecks(*alike[0]))
	}
}

// notEvaluated writes the checks without a verdict on one line.
func (p *printer) notEvaluated(skipped []audit.Skipped) {
	var checks []string
	for _, s := range skipped {
		checks = append(checks, s.Check)
	}
	slices.Sort(checks)
	if checks = slices.Compact(checks); len(checks) == 0 {
		return
	}
	some, rest := cut(checks, shown)
	text := strings.Join(some, ", ")
	if rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	p.blank()
	p.flow(span{"NOT EVALUATED", styleWarning}, span{text: text + " (-o wide says why)"})
}

// rest writes the number of items that are not listed.
func (p *printer) rest(n int, what string) {
	if n > 0 {
		p.wrap("  ", 4, fmt.Sprintf("… and %d more of %s (-o wide lists all)", n, what))
	}
}

func texts[T fmt.Stringer](list []T) (out []string) {
	for _, x := range list {
		out = append(out, x.String())
	}
	return out
}

// toleratedMeans explains the effect of tolerated gaps.
const toleratedMeans = "the report is complete: these pods keep every address that is recorded for them"

// toleratedGaps returns the gaps that do not make a report incomplete.
func toleratedGaps(gaps []blocks.Gap) []blocks.Gap {
	return slices.DeleteFunc(slices.Clone(gaps), func(g blocks.Gap) bool { return !g.Tolerated })
}

// skippedByReason groups skipped checks by reason.
func skippedByReason(skipped []audit.Skipped) [][]*audit.Skipped {
	return groupBy(skipped, func(s *audit.Skipped) string { return s.Reason })
}

func skippedChecks(skipped []*audit.Skipped) string {
	return strings.Join(audit.Names(skipped, func(s *audit.Skipped) string { return s.Check }), ", ")
}

// muted writes the rules with the numbers of muted findings, on one line; with wide set it
// lists the findings.
func (p *printer) muted(r *audit.Report) {
	if len(r.Muted) == 0 {
		return
	}
	p.blank()
	if p.wide {
		p.say("MUTED")
		for i := range r.Muted {
			p.wrap("  ", 4, mutedBy(&r.Muted[i]))
			p.wrapAll("    ", 6, MutedFindings(&r.Muted[i]))
		}
		return
	}
	var parts []string
	for i := range r.Muted {
		if m := &r.Muted[i]; m.Count > 0 || m.Expired {
			parts = append(parts, mutedBy(m))
		}
	}
	text := phrase.Plural(r.Summary.Muted, "finding") + prefixed(": ", strings.Join(parts, "; "))
	if r.Summary.Muted > 0 {
		text += "; -o wide lists them"
	}
	p.wrap("Muted: ", 2, text)
}

// mutedBy describes a rule and the number of findings that it muted.
func mutedBy(m *audit.Muted) string {
	text := m.Rule
	if m.Baseline {
		text = "baseline " + text
	}
	if m.Expired {
		text += " (expired"
		if m.Until != nil {
			text += " " + m.Until.String()
		}
		return text + ")"
	}
	return text + " (" + phrase.Plural(m.Count, "finding") + ")"
}

// MutedFindings lists the findings that a rule muted.
func MutedFindings(m *audit.Muted) (out []string) {
	for i := range m.Findings {
		f := &m.Findings[i]
		out = append(out, f.Severity.String()+" "+f.Check+": "+Message(f))
	}
	return out
}
