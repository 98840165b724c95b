package events

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/state"
)

// wants is what is to be told of an audit.
type wants struct {
	// findings are those severe enough, worst first, and wanted their fingerprints;
	// milder are the others.
	findings []*audit.Finding
	wanted   map[string]bool
	milder   map[string]*audit.Finding
	// silent are the checks that gave no verdict, or not on everything, and muted
	// the fingerprints of muted findings: that those are not found means nothing.
	silent, muted map[string]bool
	// nodes are those that exist.
	nodes map[string]bool
}

func newWants(r *audit.Report, least state.Severity) *wants {
	w := &wants{
		wanted: map[string]bool{}, milder: map[string]*audit.Finding{}, silent: map[string]bool{}, muted: map[string]bool{}, nodes: map[string]bool{},
	}
	explained := map[string]bool{}
	for i := range r.Diagnoses {
		d := &r.Diagnoses[i]
		if d.Severity < least {
			continue
		}
		for _, f := range d.Findings {
			explained[f] = true
		}
		f := diagnosisFinding(d)
		w.findings = append(w.findings, f)
		w.wanted[f.Fingerprint] = true
		w.silent[f.Check] = len(r.SkippedChecks) > 0
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		switch {
		case explained[f.Fingerprint] && f.Subject.Kind != state.KindNode:
			// Told of with the others; that it is not by itself is no end. What is about a
			// node is looked for there.
			w.muted[f.Fingerprint] = true
		case f.Severity < least:
			w.milder[f.Fingerprint] = f
		case !w.wanted[f.Fingerprint]:
			w.findings = append(w.findings, f)
			w.wanted[f.Fingerprint] = true
		}
	}
	slices.SortStableFunc(w.findings, func(a, b *audit.Finding) int { return cmp.Compare(b.Severity, a.Severity) })
	for _, s := range r.SkippedChecks {
		w.silent[s.Check] = true
	}
	for _, m := range r.Muted {
		for i := range m.Findings {
			w.muted[m.Findings[i].Fingerprint] = true
		}
	}
	for _, n := range r.Nodes {
		if !n.Missing {
			w.nodes[n.Name] = true
		}
	}
	return w
}

// diagnosisFinding is a diagnosis as what an Event tells of: one for all that it explains.
func diagnosisFinding(d *audit.Diagnosis) *audit.Finding {
	kind, _, _ := strings.Cut(d.ID, "/")
	f := &audit.Finding{
		Check: "diagnosis/" + kind, Severity: d.Severity, Subject: state.Subject{Kind: state.KindCluster, Name: d.ID},
		Message: fmt.Sprintf("%s (%d findings)", d.Message, len(d.Findings)),
	}
	f.Fingerprint = audit.Fingerprint(f.Check, f.Subject)
	if len(d.Remedies) > 0 {
		f.Fix = audit.FixOf(d.Remedies)
	}
	return f
}

// node returns the node that an Event about a finding belongs to; empty if there is
// none that exists.
func (w *wants) node(f *audit.Finding) string {
	name := f.Subject.Node
	if owners := slices.Compact(slices.Sorted(slices.Values(f.Nodes))); name == "" && f.Subject.Kind == state.KindBlock && len(owners) == 1 {
		name = owners[0]
	}
	if !w.nodes[name] {
		return ""
	}
	return name
}

// board is what Events say.
type board struct {
	records map[string]*record // by fingerprint
	counts  map[key]int32      // of each Event that is known to exist
}

type key struct{ namespace, name string }

// record is what the Events of a finding say.
type record struct {
	check, subject string
	// severity is the one that was told of last; 0 after the end was.
	severity state.Severity
	// node is the node that the Events are about; empty for the common object.
	// elsewhere is true if that was another one.
	node      string
	elsewhere bool
	// last is when that was written, and retry when a refused Event may be tried
	// again, after so many tries.
	last, retry time.Time
	tries       int
}

// What a task is about, in the order of importance.
const (
	tell = iota
	tellEnd
	refresh
)

// task is one Event to be written.
type task struct {
	what        int
	fingerprint string
	finding     *audit.Finding // nil if there is none any more
	before      state.Severity // what was told of before, for an end
	record                     // what Events say afterwards
}

// next returns the most important Event that is due, and how many are; nil if none
// is, and how long nothing is due if nothing else changes.
func (b *board) next(w *wants, p pace, refreshAfter time.Duration, now time.Time) (first *task, due int, wait time.Duration) {
	b.forget(now)
	wait = refreshAfter
	consider := func(t task, at time.Time) {
		if at.After(now) {
			wait = min(wait, at.Sub(now))
			return
		}
		due++
		if first == nil || t.what < first.what || t.what == tellEnd && first.what == tellEnd && t.graver(first) {
			first = &t
		}
	}
	for _, f := range w.findings {
		t := task{what: tell, fingerprint: f.Fingerprint, finding: f, record: record{
			check: f.Check, subject: f.Subject.ResourceName(), severity: f.Severity, node: w.node(f),
		}}
		var at time.Time
		if r := b.records[f.Fingerprint]; r != nil {
			at = r.last.Add(p.quiet)
			if r.severity == f.Severity && !r.elsewhere && r.node == t.node {
				t.what, at = refresh, r.last.Add(refreshAfter)
			}
			at = later(at, r.retry)
		}
		consider(t, at)
	}
	for fingerprint, r := range b.records {
		if r.severity != 0 && !w.wanted[fingerprint] && !w.silent[r.check] && !w.muted[fingerprint] {
			consider(task{what: tellEnd, fingerprint: fingerprint, finding: w.milder[fingerprint], before: r.severity, record: record{
				check: r.check, subject: r.subject, node: r.node,
			}}, later(r.last.Add(p.quiet), r.retry))
		}
	}
	return first, due, wait
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (t *task) graver(o *task) bool {
	return cmp.Or(cmp.Compare(o.before, t.before), cmp.Compare(t.fingerprint, o.fingerprint)) < 0
}

// forget drops what ended so long ago that its Events are gone, too.
func (b *board) forget(now time.Time) {
	for fingerprint, r := range b.records {
		if r.severity == 0 && now.Sub(later(r.last, r.retry)) > 24*time.Hour {
			delete(b.records, fingerprint)
			for k := range b.counts {
				if fingerprintOf(k.name) == fingerprint {
					delete(b.counts, k)
				}
			}
		}
	}
}

// Labels and annotations of Events.
const (
	labelManagedBy   = "app.kubernetes.io/managed-by"
	labelFingerprint = "calico-audit/fingerprint"
	noteCheck        = "calico-audit/check"
	noteSubject      = "calico-audit/subject"
	noteSeverity     = "calico-audit/severity" // empty for the end
	noteLease        = "calico-audit/lease"
)

// load reads which Events there are, so that a new writer does not repeat what the
// one before has told, and tells the end of what ended meanwhile. It is nil if they
// cannot be read.
func (w *Writer) load(ctx context.Context) *board {
	namespaces := []string{metav1.NamespaceDefault}
	common, err := w.target(ctx)
	if err != nil {
		return nil
	}
	if common != nil && !slices.Contains(namespaces, namespaceOf(common)) {
		namespaces = append(namespaces, namespaceOf(common))
	}
	b := &board{records: map[string]*record{}, counts: map[key]int32{}}
	for _, namespace := range namespaces {
		list, err := w.events.Events(namespace).List(ctx, metav1.ListOptions{LabelSelector: labelManagedBy + "=" + component})
		if !w.went(ctx, troubleList, namespace, err, "namespace", namespace) {
			return nil
		}
		for i := range list.Items {
			w.learn(b, &list.Items[i], common)
		}
	}
	return b
}

// learn takes an Event for what it says, if it is one of ours. What the writer of
// another Lease tells of is not ours to end. common is the object for what concerns no
// node.
func (w *Writer) learn(b *board, v *corev1.Event, common *corev1.ObjectReference) {
	fingerprint := fingerprintOf(v.Name)
	severity, err := state.ParseSeverity(v.Annotations[noteSeverity])
	if err != nil {
		severity = 0
	}
	if fingerprint == "" || v.Name != nameOf(fingerprint, severity) {
		return
	}
	b.counts[key{v.Namespace, v.Name}] = v.Count
	if r := b.records[fingerprint]; r != nil && !v.LastTimestamp.After(r.last) || v.Annotations[noteLease] != w.leaseNote() {
		return
	}
	r := &record{check: v.Annotations[noteCheck], subject: v.Annotations[noteSubject], severity: severity, last: v.LastTimestamp.Time}
	switch about := v.InvolvedObject; {
	case about.Kind == "Node":
		r.node = about.Name
	case common != nil:
		r.elsewhere = about.Kind != common.Kind || about.Namespace != common.Namespace || about.Name != common.Name || about.UID != common.UID
	}
	b.records[fingerprint] = r
}

func (w *Writer) leaseNote() string { return w.opts.Namespace + "/" + w.opts.Lease }

// nameOf is the name of the Event that tells of a finding at a severity, or, at
// none, of its end. That it is always the same is what keeps two writers from
// telling the same thing twice.
func nameOf(fingerprint string, s state.Severity) string {
	if s == 0 {
		return component + "." + fingerprint + ".ended"
	}
	return component + "." + fingerprint + "." + s.String()
}

// fingerprintOf returns the fingerprint in the name of an Event; empty if it is no
// such name.
func fingerprintOf(name string) string {
	parts := strings.Split(name, ".")
	if len(parts) != 3 || parts[0] != component {
		return ""
	}
	return parts[1]
}
