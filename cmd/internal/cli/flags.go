package cli

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// env is the environment of a command: its streams, and the program's name as the user
// typed it.
type env struct {
	streams genericiooptions.IOStreams
	program string
}

//go:embed help
var helpTexts embed.FS

// command completes a command: its help and examples come from the file of its name in
// help, and its errors get exit codes.
func (e env) command(c *cobra.Command) *cobra.Command {
	text, _ := helpTexts.ReadFile("help/" + c.Name() + ".txt") // a command without a file only has its Short text
	long, examples, _ := strings.Cut(string(text), "\nExamples:\n")
	c.Long = strings.TrimSuffix(long, "\n")
	c.Example = strings.TrimSuffix(strings.ReplaceAll(examples, "PROGRAM", e.program), "\n")
	c.RunE = run(c.RunE)
	if count := c.Args; count != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := count(c, args)
			if err != nil && strings.HasPrefix(err.Error(), "accepts ") { // cobra's words for a wrong number
				return exit.Usagef("want \"%s\": %s", strings.TrimSuffix(c.UseLine(), " [flags]"), phrase.NumberIs(len(args), "argument")+" given")
			}
			return err
		}
	}
	return c
}

// graceFlag is --grace.
type graceFlag struct{ grace time.Duration }

func (g *graceFlag) addFlag(c *cobra.Command, help string) {
	c.Flags().DurationVar(&g.grace, "grace", state.DefaultGrace, help)
	flags.NoFiles(c, "grace")
}

func (g graceFlag) check() error {
	if g.grace < 0 {
		return exit.Usagef("--grace %s is negative", g.grace)
	}
	return nil
}

// arguments returns the flag with a leading space, or "" for the default.
func (g graceFlag) arguments() string {
	if g.grace == state.DefaultGrace {
		return ""
	}
	return " --grace " + g.grace.String()
}

// options returns the options of a State. A grace of zero becomes the shortest duration,
// because zero means the default.
func (g graceFlag) options() state.Options { return state.Options{Grace: max(g.grace, 1)} }

// failNever is the value of --fail-on that accepts all findings.
const failNever = "never"

// failFlag is --fail-on.
type failFlag struct {
	failOn   string
	severity state.Severity // 0 for none
}

// addFlag adds the flag; when describes the findings in the help.
func (f *failFlag) addFlag(c *cobra.Command, when string) {
	names := state.SeverityNames()
	c.Flags().StringVar(&f.failOn, "fail-on", failNever, "exit with 1 if "+when+": "+strings.Join(names, "|")+"|"+failNever)
	flags.OneOf(c, "fail-on", append([]string{failNever}, names...)...)
}

func (f *failFlag) parse() (err error) {
	if f.failOn == failNever {
		return nil
	}
	if f.severity, err = state.ParseSeverity(f.failOn); err != nil {
		return exit.Usagef("reading --fail-on: %w", err)
	}
	return nil
}

// checkFlag is --check.
type checkFlag struct {
	patterns []string
	checks   []*audit.Check // all checks without patterns
}

func (f *checkFlag) addFlag(c *cobra.Command, verb string) {
	c.Flags().StringSliceVar(&f.patterns, "check", nil, verb+" only the check or group of checks with this `ID`, such as ip/borrowed or pool; repeatable or comma-separated")
	_ = c.RegisterFlagCompletionFunc("check", completeChecks)
}

func (f *checkFlag) parse() (err error) {
	if f.checks, err = checks.All.Select(f.patterns); err != nil {
		return exit.Usage(err)
	}
	return nil
}

// keep removes the findings of other checks from an existing report.
func (f *checkFlag) keep(r *audit.Report) {
	if len(f.patterns) > 0 {
		r.Keep(f.checks)
	}
}

// noArgs rejects arguments. If the command has subcommands, the argument is reported as an unknown
// subcommand.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 || c.HasSubCommands() {
		return cobra.NoArgs(c, args)
	}
	return fmt.Errorf("unknown argument %q: %q takes only flags", args[0], c.CommandPath())
}

// filesByFlag rejects arguments of a command that reads files with -f.
func filesByFlag(c *cobra.Command, args []string) error {
	if err := noArgs(c, args); err == nil {
		return nil
	} else if _, notThere := os.Stat(args[0]); notThere != nil {
		return err
	}
	return fmt.Errorf("unknown argument %q: read files with -f, as in \"%s -f %s\"", args[0], c.CommandPath(), phrase.Arg(args[0]))
}

// logFlag is --log-format, for commands that run until they are stopped.
type logFlag struct{ format string }

func (l *logFlag) addFlag(c *cobra.Command) {
	c.Flags().StringVar(&l.format, "log-format", "text", "format of the logs on standard error: `text|json`")
	flags.OneOf(c, "log-format", "text", "json")
}

// logger returns a logger with a minimum level, or a usage error.
func (l *logFlag) logger(w io.Writer, level slog.Level) (*slog.Logger, error) {
	o := &slog.HandlerOptions{Level: level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, exit.Usagef("unknown value %q of --log-format: want text or json", l.format)
}

// logLibraryErrors also logs errors of client-go, such as a token that cannot be renewed.
// Its other messages, such as traces of slow lists, are dropped.
func (l *logFlag) logLibraryErrors(w io.Writer) error {
	log, err := l.logger(w, slog.LevelError)
	if err == nil {
		klog.SetSlogLogger(log)
	}
	return err
}

// run wraps the function of a command: an error without an exit code is an internal error.
// Errors of cobra itself never pass through here, and are usage errors.
func run(f func(c *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		err := f(c, args)
		if err == nil {
			return nil
		}
		var all []error
		for _, e := range exit.All(err) {
			var x *exit.Error
			if !errors.As(e, &x) {
				e = exit.Failure(e)
			}
			all = append(all, e)
		}
		return errors.Join(all...)
	}
}

// checkSeen returns a usage error if a report lacks a name given by --pool or --node. It only warns
// if gaps of the report may hide the name.
func (e env) checkSeen(rep *audit.Report, pools, nodes []string) error {
	if err := view.CheckNames(rep, pools, nodes, func(text string) { say(e.streams, "warning: %s", text) }); err != nil {
		return exit.Usage(err)
	}
	return nil
}

// flagError returns a usage error for an error of the flags' parser.
func flagError(c *cobra.Command, err error) error {
	var missing *pflag.ValueRequiredError
	if errors.As(err, &missing) {
		value, help := pflag.UnquoteUsage(missing.GetFlag())
		err = fmt.Errorf("--%s needs a value, %s: %s", missing.GetFlag().Name, value, help)
	}
	return &exit.Error{Code: exit.CodeUsage, Err: err, Hint: "See \"" + c.CommandPath() + " --help\" for usage."}
}

// say writes a line to standard error. A write error has nowhere to go.
func say(streams genericiooptions.IOStreams, format string, args ...any) {
	_, _ = fmt.Fprintf(streams.ErrOut, format+"\n", args...)
}
