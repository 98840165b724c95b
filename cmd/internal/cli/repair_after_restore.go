package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/repair"
)

// checkAfterRestore validates the other flags with --after-restore, which concerns the whole
// cluster and chooses its own repairs.
func (r *repairCommand) checkAfterRestore() error {
	for _, q := range repair.Requests {
		if q.In(&r.request) {
			return exit.Usagef("--after-restore chooses the repairs of each stage itself, and cannot be used with --%s", q.Flag)
		}
	}
	for _, name := range []string{"pool", "node", "ip", "block", "apply", "detailed-exitcode"} {
		if r.flags.Changed(name) {
			return exit.Usagef("--after-restore concerns the whole cluster, and people apply one stage after the other: it cannot be used with --%s", name)
		}
	}
	if len(r.print.values) != 1 || r.print.values[0] != "table" {
		return exit.Usagef("--after-restore prints the way for people: for other formats, save the plans with --out FILE, and print one with \"%s repair show\"", r.program)
	}
	return nil
}

// stageFile is the file of a stage's plan: plan.json becomes plan-1.json.
func stageFile(out string, s repair.Stage) string {
	ext := filepath.Ext(out)
	return fmt.Sprintf("%s-%d%s", strings.TrimSuffix(out, ext), s, ext)
}

// runAfterRestore makes the plan of each stage, writes the plans to files, and prints the commands
// in order.
func (r *repairCommand) runAfterRestore(ctx context.Context) error {
	progress := terminal.ProgressOn(r.streams)
	from, err := r.sources.OpenWith(&r.hosts, r.streams, progress.Show)
	if err != nil {
		return err
	}
	plans, st, err := r.plans(ctx, from, progress)
	progress.Clear()
	if err != nil {
		return err
	}
	saved, out := r.out != "", r.out
	if !saved {
		out = "after-restore.json"
	}
	cluster := r.sources.ClusterArguments() + r.hosts.Arguments()
	var stages []view.StagePlan
	for _, plan := range plans {
		file := stageFile(out, plan.Request.AfterRestore)
		if saved {
			if err := document.WriteAtomically(file, func(w io.Writer) error { return view.WriteJSON(w, plan) }); err != nil {
				return exit.Usagef("writing the plan: %w", err)
			}
		}
		apply := r.program + " repair apply " + phrase.Arg(file) + cluster
		if len(plan.Steps) > 0 {
			apply += " --wait"
		}
		stages = append(stages, view.StagePlan{Plan: plan, Apply: apply})
	}
	again := r.program + " repair " + r.arguments() + " --out " + phrase.Arg(out)
	o := r.print.options(r.streams, r.env.viewOptions(&r.sources, r.hosts.Arguments(), r.hosts.Portable()))(true)
	o.Now = time.Now()
	var text bytes.Buffer
	if err := view.WriteStages(&text, stages, again, o); err != nil {
		return exit.Failure(err)
	}
	if !saved {
		fmt.Fprintf(&text, "\nNothing was written, neither to the cluster nor to files. Save the plans first:\n  %s\n", again)
	}
	errs := []error{put(r.streams.Out, "plan", "", text.Bytes())}
	if !st.Complete() {
		errs = append(errs, exit.Unread(incomplete("plan", st.Gaps)))
	}
	return errors.Join(errs...)
}
