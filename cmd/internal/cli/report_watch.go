package cli

import (
	"context"
	"time"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// checkWatch validates --watch.
func (r *reportCommand) checkWatch() error {
	files := len(r.sources.Files) > 0
	switch {
	case r.every == 0:
		return nil
	case r.every < 0 || r.every < minWatch && !files:
		return exit.Usagef("--watch=%s is too short: a cluster is read at most every %s", r.every, minWatch)
	case r.fail.severity != 0:
		return exit.Usagef("--fail-on cannot be used with --watch, which runs until interrupted")
	case r.stored != nil || r.storedFleet != nil:
		return exit.Usagef("--watch cannot be used with %s: it is a report, not objects to read again", r.sources.Files[0])
	case files && r.sources.Files[0] == "-":
		return exit.Usagef("--watch cannot be used with standard input, which can be read only once")
	}
	for _, o := range r.outputs {
		if o.File != "" || o.Name != "table" && o.Name != "wide" {
			return exit.Usagef("--watch requires -o table or -o wide on standard output")
		}
	}
	return nil
}

// watch reads repeatedly until ctx ends, and prints the changes. A failed or incomplete
// reading is reported once, and not compared.
func (r *reportCommand) watch(ctx context.Context, last *audit.Report) error {
	format, err := view.DiffFormats().Named(r.outputs[0].Name)
	if err != nil {
		return err
	}
	trouble := ""
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		next, err := r.read(ctx)
		if err == nil && !next.Complete {
			err = incomplete("report", next.Gaps)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if err.Error() != trouble {
				say(r.streams, "warning: reading again: %v", err)
			}
			trouble = err.Error()
			continue
		}
		trouble = ""
		changes := audit.Compare(last, next)
		last = next
		if s := changes.Summary; s.New+s.Fixed+s.Changed == 0 {
			continue
		}
		changes.Old.Source, changes.New.Source = r.sources.Describe(), r.sources.Describe()
		if err := (outputs[*audit.Diff]{{Format: format}}).write(r.streams, "comparison", changes, r.viewOptions); err != nil {
			return err
		}
	}
}
