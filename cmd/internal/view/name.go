package view

import (
	"io"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

type namePrinter struct{}

func newName(string, Options) (Printer, error) { return namePrinter{}, nil }

// Print writes the subjects of the findings as "kubectl get -o name" does, each
// once, in order.
func (namePrinter) Print(w io.Writer, r *audit.Report) error {
	names := make([]string, 0, len(r.Findings))
	for i := range r.Findings {
		names = append(names, clean(r.Findings[i].Subject.ResourceName())+"\n")
	}
	slices.Sort(names)
	_, err := io.WriteString(w, strings.Join(slices.Compact(names), ""))
	return err
}
