package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/explain"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/source"
	"github.com/calico-audit/calico-audit/cmd/internal/terminal"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

type explainCommand struct {
	env
	sources source.Flags
	hosts   source.HostFlags
	past    pastFlags
	grace   graceFlag
	output  outputFlags
	kind    string
	// namespace is the namespace of pods given by a bare name.
	namespace string

	query   explain.Query
	printed bool // whether the explanation was written
	outputs outputs[*explain.Explanation]
	docs    outputs[view.CheckDocs] // for checks
}

func newExplain(e env) *cobra.Command {
	x := &explainCommand{env: e}
	c := e.command(&cobra.Command{
		Use:               "explain SUBJECT | KIND NAME | 'ERROR TEXT'",
		Short:             "Explain an address, block, node, pod, pool, handle, check or error message",
		ValidArgsFunction: x.completeSubject,
		RunE: func(c *cobra.Command, args []string) error {
			if err := x.complete(args); err != nil {
				return err
			}
			if x.query.Check != nil {
				return x.docs.write(x.streams, "check", view.NewCheckDocs([]*audit.Check{x.query.Check}), func(toStdout bool) view.Options {
					return x.output.display(view.Options{Program: x.program}, x.streams, toStdout)
				})
			}
			if len(x.query.Messages) > 0 && x.sources.Nowhere() {
				return x.outputs.write(x.streams, "explanation", explain.Meanings(x.query), x.viewOptions)
			}
			progress := terminal.ProgressOn(x.streams)
			from, err := x.sources.OpenWith(&x.hosts, x.streams, progress.Show)
			if err == nil {
				err = x.run(c.Context(), from, progress)
			}
			return x.orMeaning(err)
		},
	})
	x.sources.AddTo(c)
	x.sources.Services = true
	x.hosts.AddTo(c)
	x.past.addFlags(c)
	addOutputFlags(c, &x.output, view.ExplainFormats(), "the severities ")
	c.Flags().StringVarP(&x.namespace, "namespace", "n", "", "`NAMESPACE` of a pod that is given by its bare name")
	c.Flags().StringVar(&x.kind, "kind", "", "explain only objects of this `KIND`: "+strings.Join(explain.QueryKinds, "|"))
	x.grace.addFlag(c, "time that a state must last before it counts")
	flags.OneOf(c, "kind", explain.QueryKinds...)
	return c
}

// complete validates the flags. All its errors are usage errors.
func (x *explainCommand) complete(args []string) (err error) {
	subject := strings.Join(args, "/")
	switch {
	case len(args) == 0:
		return exit.Usagef("nothing to explain%s", explainable)
	case len(args) == 1 && args[0] == "-":
		text, err := io.ReadAll(x.streams.In)
		if err != nil {
			return exit.Usagef("reading standard input: %w", err)
		}
		subject = string(text)
	case len(args) == 2 && args[0] == "check":
		subject, x.kind = args[1], "check"
	case len(args) == 2 && explain.IsKind(args[0]):
	case len(args) > 1: // an error message without quotes
		subject = strings.Join(args, " ")
		if _, err := explain.ParseQuery(subject, x.kind); err != nil && len(args) == 2 {
			return exit.Usagef("unknown kind %q: want one of %s", args[0], strings.Join(explain.QueryKinds, ", "))
		}
	}
	if x.query, err = explain.ParseQuery(subject, x.kind); err != nil {
		return exit.Usage(err)
	}
	x.query.Namespace = x.namespace
	if err := cmp.Or(x.grace.check(), x.past.check()); err != nil {
		return err
	}
	if x.past.Asked() && !x.query.MayBePool() {
		return exit.Usagef("--prometheus and --since apply only to pools, and %q is not a pool", subject)
	}
	if x.query.Check != nil {
		x.docs, err = parseOutputs(view.ExplainCheckFormats(), &x.output, places{})
	} else {
		x.outputs, err = parseOutputs(view.ExplainFormats(), &x.output, places{})
	}
	return err
}

func (x *explainCommand) viewOptions(toStdout bool) view.Options {
	return x.output.display(x.env.viewOptions(&x.sources, x.hosts.Arguments()+x.grace.arguments(), ""), x.streams, toStdout)
}

func (x *explainCommand) run(ctx context.Context, from source.Reader, progress *terminal.Progress) error {
	j, err := evaluate(ctx, from, checks.All, x.grace, progress)
	progress.Clear()
	if err != nil {
		return err
	}
	e, err := explain.Explain(j.state, j.result, x.query)
	var unknown *explain.NotFoundError
	if errors.As(err, &unknown) {
		return notFound(unknown, j.report())
	}
	if err != nil {
		return exit.Failure(err)
	}
	ofPool := func(s explain.Explained) bool { return s.Subject.Kind == state.KindPool }
	switch isPool := slices.ContainsFunc(e.Subjects, ofPool); {
	case !isPool && x.past.Asked():
		say(x.streams, "warning: --prometheus and --since were ignored: they apply only to pools, and %q is not a pool", x.query.Text)
	case isPool:
		rep := j.report()
		if err := x.past.addTo(ctx, rep, x.env, x.grace, progress); err != nil {
			return err
		}
		e.AddRunway(rep.Pools)
		e.Complete, e.Gaps = rep.Complete, rep.Gaps
	}
	x.printed = true
	errs := []error{x.outputs.write(x.streams, "explanation", e, x.viewOptions)}
	if !e.Complete {
		errs = append(errs, exit.Unread(incomplete("explanation", e.Gaps)))
	}
	return errors.Join(errs...)
}

// orMeaning prints the meaning of an error message although the cluster could not be read.
func (x *explainCommand) orMeaning(err error) error {
	if err == nil || len(x.query.Messages) == 0 || x.printed || exit.Code(err) != exit.CodeUnread {
		return err
	}
	return errors.Join(x.outputs.write(x.streams, "explanation", explain.Meanings(x.query), x.viewOptions), err)
}

// notFound returns the error for an unknown name, with similar names. If not everything
// could be read, it is not a usage error.
func notFound(unknown *explain.NotFoundError, rep *audit.Report) error {
	if unknown.Elsewhere != "" {
		return exit.Usage(unknown)
	}
	if !rep.Complete {
		return exit.Unread(fmt.Errorf("%w was seen; %w", unknown, incomplete("reading", rep.Gaps)))
	}
	return exit.Usagef("%w%s", unknown, nearest(unknown))
}

// explainable lists the subjects, for the end of an error message.
const explainable = "; want an address, a CIDR, a node, a pod, a pool, a handle, a check's ID, or an error message in quotes"

// nearest suggests similar names, or lists the kinds of subjects.
func nearest(unknown *explain.NotFoundError) string {
	for _, name := range []string{unknown.Name, unknown.Query.Text} {
		if near := view.DidYouMean(name, unknown.Names); near != "" {
			return near
		}
	}
	return explainable
}

// completeSubject completes the subject of explain: a check ID, a kind or a name. Pods and
// blocks are only offered if the typed text looks like one.
func (x *explainCommand) completeSubject(c *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if len(args) == 1 {
		return flags.StartingWith(toComplete, "", x.sources.Names(c.Context(), args[0])), directive
	}
	if len(args) > 0 {
		return nil, directive
	}
	var out []cobra.Completion
	for _, c := range checks.All {
		if strings.HasPrefix(c.ID, toComplete) {
			out = append(out, cobra.CompletionWithDesc(c.ID, c.Title))
		}
	}
	out = append(out, flags.StartingWith(toComplete, "", explain.QueryKinds)...)
	kinds := []string{"node", "pool"}
	switch {
	case strings.Contains(toComplete, "/") && len(out) == 0:
		kinds = append(kinds, "pod", "block")
	case strings.ContainsAny(toComplete, ".:"):
		kinds = append(kinds, "block")
	}
	return append(out, flags.StartingWith(toComplete, "", x.sources.Names(c.Context(), kinds...))...), directive
}
