package cli

import (
	"embed"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
)

// env is what every command is given: where it reads and writes, and how people start
// the program.
type env struct {
	streams genericiooptions.IOStreams
	program string
}

//go:embed help
var helpTexts embed.FS

// command finishes a command: its help is the text of its name in help, with the
// examples after the line "Examples:", and its errors decide how the program ends.
func (e env) command(c *cobra.Command) *cobra.Command {
	text, _ := helpTexts.ReadFile("help/" + c.Name() + ".txt") // a command may need no more than its Short
	long, examples, _ := strings.Cut(string(text), "\nExamples:\n")
	c.Long = strings.TrimSuffix(long, "\n")
	c.Example = strings.TrimSuffix(strings.ReplaceAll(examples, "PROGRAM", e.program), "\n")
	c.RunE = run(c.RunE)
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

// arguments returns the flag, after a blank, unless it says what holds anyway.
func (g graceFlag) arguments() string {
	if g.grace == state.DefaultGrace {
		return ""
	}
	return " --grace " + g.grace.String()
}

// options are those of a State: no grace at all is written as the least there is, for
// zero would mean the default.
func (g graceFlag) options() state.Options { return state.Options{Grace: max(g.grace, 1)} }

// failNever is the value of --fail-on that lets no finding fail the run.
const failNever = "never"

// failFlag is --fail-on.
type failFlag struct {
	failOn   string
	severity state.Severity // 0 for none
}

// addFlag adds the flag; when says of what finding it is.
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
	checks   []*audit.Check // all of them where no pattern is given
}

func (f *checkFlag) addFlag(c *cobra.Command, verb string) {
	c.Flags().StringSliceVar(&f.patterns, "check", nil, verb+" only the check, or group of checks, of this `ID`, such as ip/borrowed or pool; repeatable, or joined by commas")
	_ = c.RegisterFlagCompletionFunc("check", completeChecks)
}

func (f *checkFlag) parse() (err error) {
	if f.checks, err = checks.All.Select(f.patterns); err != nil {
		return exit.Usage(err)
	}
	return nil
}

// keep leaves out of a report that was made before what other checks found.
func (f *checkFlag) keep(r *audit.Report) {
	if len(f.patterns) > 0 {
		r.Keep(f.checks)
	}
}

// filesByFlag refuses arguments of a command that reads files by a flag.
func filesByFlag(c *cobra.Command, args []string) error {
	if err := cobra.NoArgs(c, args); err == nil {
		return nil
	} else if _, notThere := os.Stat(args[0]); notThere != nil {
		return err
	}
	return fmt.Errorf("unknown argument %q: files are read with -f, as in \"%s -f %s\"", args[0], c.CommandPath(), phrase.Arg(args[0]))
}

// logFlag is --log-format, of commands that run for long and tell what they do.
type logFlag struct{ format string }

func (l *logFlag) addFlag(c *cobra.Command) {
	c.Flags().StringVar(&l.format, "log-format", "text", "how logs are written to standard error: `text|json`")
	flags.OneOf(c, "log-format", "text", "json")
}

// logger returns a logger that writes to w what is of a level at least, or an error of usage.
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

// logLibraryErrors has what client-go calls an error, such as a token that cannot be
// renewed, logged, too. What else it tells, such as traces of slow lists, would only stand
// between the lines of the log.
func (l *logFlag) logLibraryErrors(w io.Writer) error {
	log, err := l.logger(w, slog.LevelError)
	if err == nil {
		klog.SetSlogLogger(log)
	}
	return err
}
