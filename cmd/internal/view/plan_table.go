package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/repair"
)

// planTable is a plan for people, and with wide set the same in full.
type planTable struct {
	PlanOptions
	wide bool
}

// planShown is how many alike steps, and how many refusals for one reason, are
// written out.
const planShown = 10

// print writes the plan in the order in which it is to be decided on: what would
// be done, what that gives, what would not be done, what people have to do.
func (t *planTable) print(w io.Writer, plan *repair.Plan) error {
	p := newPage(t.Options)
	t.head(p, plan)
	t.steps(p, plan)
	t.pools(p, plan)
	t.maps(p, plan)
	t.strict(p, plan.Strict)
	t.refused(p, plan)
	t.manual(p, plan)
	writeNext(p, t.Next)
	return p.writeTo(w)
}

// head says what the plan is for, and how sound its data are.
func (t *planTable) head(p *page, plan *repair.Plan) {
	c := plan.Cluster
	guid := c.GUID
	switch {
	case guid == "":
		guid = "(GUID not known)"
	case len(guid) > 12 && !t.wide:
		guid = guid[:8]
	}
	spans := []span{{text: "Plan for cluster " + guid}}
	if c.CalicoVersion != "" {
		spans = append(spans, span{text: "Calico " + c.CalicoVersion})
	}
	if t.Source != "" {
		spans = append(spans, span{text: "from " + t.Source})
	}
	made := audit.FormatTime(plan.CreatedAt.Time)
	if made == "" {
		made = "at a time not known"
	}
	spans = append(spans, span{text: "made " + made}, span{text: "grace " + shortGrace(plan.Grace)})
	if !plan.Complete {
		spans = append(spans, span{"INCOMPLETE", styleWarning})
	}
	p.flow(spans...)
	for _, warning := range plan.Warnings {
		p.wrap("Note: ", 6, warning)
	}
	if len(plan.Gaps) > 0 {
		p.blank()
		p.line(span{"NOT SEEN", styleWarning})
		for _, g := range plan.Gaps {
			p.wrap("  ", 4, g)
		}
	}
}

// shortGrace writes a duration without the zeros at its end.
func shortGrace(d repair.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// steps writes what would be done.
func (t *planTable) steps(p *page, plan *repair.Plan) {
	p.blank()
	if len(plan.Steps) == 0 {
		p.line(span{text: "STEPS: none. There is nothing that may be done."})
		return
	}
	p.line(span{text: fmt.Sprintf("STEPS (%d)", len(plan.Steps))})
	for i := 0; i < len(plan.Steps); {
		kind := plan.Steps[i].Kind
		n := i
		for n < len(plan.Steps) && plan.Steps[n].Kind == kind {
			n++
		}
		shown := n
		if !t.wide && n-i > planShown+1 {
			shown = i + planShown
		}
		for ; i < shown; i++ {
			t.step(p, i+1, plan)
		}
		if rest := n - shown; rest > 0 {
			p.wrap("  … ", 4, fmt.Sprintf("and %d more of %s (-o wide shows each)", rest, kind))
		}
		i = n
	}
}

func (t *planTable) step(p *page, number int, plan *repair.Plan) {
	s := &plan.Steps[number-1]
	lead := fmt.Sprintf("%3d. ", number)
	p.wrap(lead, 5, string(s.Kind)+" "+targetText(s.Target))
	p.wrap("     ", 5, s.Because)
	if s.TwoObservations {
		p.wrap("     ", 5, dueTwice(plan, "must be seen twice: not before %s"))
	}
	if !t.wide {
		return
	}
	for _, e := range s.Evidence {
		p.wrap("     - ", 9, e.Name+": "+e.Value)
	}
	for _, g := range s.Guards {
		p.wrap("     only if ", 14, g.Name+" is "+g.Value)
	}
}

// targetText names what a step is about as people call it.
func targetText(s audit.Subject) string {
	if s.Kind == audit.KindConfig {
		return "IPAM configuration"
	}
	id := s.ID()
	if s.Node != "" && s.Kind != audit.KindAffinity && s.Kind != audit.KindNode {
		return id + " (" + s.Node + ")"
	}
	return id
}

// pools writes what the steps would change of the pools' numbers.
func (t *planTable) pools(p *page, plan *repair.Plan) {
	if len(plan.Steps) == 0 || len(plan.Before) == 0 {
		return
	}
	g := &grid{columns: []column{{title: "POOL"}, {title: "BLOCKS TO CLAIM", right: true}, {title: "AVAILABLE ADDRESSES", right: true}}}
	for i := range plan.Before {
		before, after := &plan.Before[i], poolNamed(plan.After, plan.Before[i].Name)
		if after == nil {
			continue
		}
		claim := [2]string{short(before.Blocks.Allocatable), short(after.Blocks.Allocatable)}
		avail := [2]string{short(before.Addresses.Available), short(after.Addresses.Available)}
		g.add(poolLabel(before), beforeAfter(claim), beforeAfter(avail))
	}
	p.blank()
	p.grid(g, 0)
}

func beforeAfter(v [2]string) string {
	if v[0] == v[1] {
		return v[0]
	}
	return v[0] + " → " + v[1]
}

func poolNamed(pools []audit.PoolReport, name string) *audit.PoolReport {
	for i := range pools {
		if pools[i].Name == name {
			return &pools[i]
		}
	}
	return nil
}

// strict says what a change of strict affinity would mean.
func (t *planTable) strict(p *page, s *repair.StrictPreview) {
	if s == nil {
		return
	}
	p.blank()
	p.line(span{text: fmt.Sprintf("STRICT AFFINITY: %t → %t", s.From, s.To)})
	for _, line := range strictLines(s) {
		names := line.names
		if !t.wide && len(names) > planShown {
			names = append(names[:planShown:planShown], fmt.Sprintf("… %d more", len(names)-planShown))
		}
		p.wrap("  ", 4, line.text+strings.Join(names, ", "))
	}
}

type strictLine struct {
	text  string
	names []string
}

// strictLines says what a change of strict affinity would mean, a fact a line.
func strictLines(s *repair.StrictPreview) []strictLine {
	var out []strictLine
	if n := len(s.Borrowers); n > 0 {
		out = append(out, strictLine{plural(n, "address is borrowed now and stays so until its pod restarts: ",
			"addresses are borrowed now and stay so until their pods restart: "), s.Borrowers})
	} else {
		out = append(out, strictLine{text: "No address is borrowed now."})
	}
	if n := len(s.Starve); n > 0 {
		out = append(out, strictLine{plural(n, "node's next pod gets no address: ", "nodes' next pods get no address: "), s.Starve})
	}
	if s.Unusable > 0 {
		out = append(out, strictLine{text: plural(s.Unusable, "free address cannot be used any more: its block belongs to no node.",
			"free addresses cannot be used any more: their blocks belong to no node.")})
	}
	if n := len(s.Windows); n > 0 {
		out = append(out, strictLine{"Windows nodes need strict affinity: ", s.Windows})
	}
	return out
}

// writeNext says how to go on.
func writeNext(p *page, next []NextStep) {
	for _, n := range next {
		p.blank()
		if n.Text != "" {
			p.wrap("", 0, n.Text)
		}
		if n.Command != "" {
			p.line(span{text: "  " + n.Command})
		}
	}
}
