package view

import (
	"fmt"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/remedies"
)

// diagnoses writes the common causes of findings with their remedies, which readers need first.
func (p *printer) diagnoses(ds []audit.Diagnosis) {
	for i := range ds {
		d := &ds[i]
		p.blank()
		p.line(severitySpan(d.Severity), span{text: " " + DiagnosisTitle(d)})
		p.wrap("  ", 2, d.Message)
		for j, r := range d.Remedies {
			p.wrap(fmt.Sprintf("  %d. ", j+1), 5, RemedyTitle(&r))
			for k := range r.Commands {
				p.commands("     ", r.Commands[k:k+1])
				if k == 0 && r.Manifest != "" { // the commands after it need the object
					p.wrap("     ", 7, "create  "+r.Manifest)
				}
			}
			p.wrap("     effect  ", 13, r.Effect)
			p.wrap("     risk    ", 13, r.Risk)
		}
	}
}

// commands writes each command on one line for copying.
func (p *printer) commands(indent string, commands []string) {
	for _, c := range commands {
		p.say(indent + "$ " + p.Command(c))
	}
}

// DiagnosisTitle returns the ID of a diagnosis with the number of its findings.
func DiagnosisTitle(d *audit.Diagnosis) string {
	return fmt.Sprintf("%s (%s)", d.ID, phrase.Plural(len(d.Findings), "finding"))
}

// RemedyTitle returns the title of a remedy, and marks manual ones.
func RemedyTitle(r *remedies.Remedy) string {
	if r.Manual {
		return "By hand: " + r.Title
	}
	return r.Title
}

// Explained returns the fingerprints of the findings in diagnoses.
func Explained(ds ...audit.Diagnosis) map[string]bool {
	out := map[string]bool{}
	for _, d := range ds {
		for _, f := range d.Findings {
			out[f] = true
		}
	}
	return out
}
