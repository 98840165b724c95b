package flags

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/calico-audit/calico-audit/audit/phrase"
)

// OneOf completes the value of a flag from a fixed list.
func OneOf(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// NoFiles disables the completion of file names for flags.
func NoFiles(c *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// StartingWith returns the completions before+word that start with toComplete.
func StartingWith(toComplete, before string, words []string) (out []cobra.Completion) {
	for _, w := range words {
		if strings.HasPrefix(before+w, toComplete) {
			out = append(out, before+w)
		}
	}
	return out
}

// Changed returns the flags of a set that were given. The set may be nil.
func Changed(fs *pflag.FlagSet) []*pflag.Flag {
	var out []*pflag.Flag
	if fs == nil {
		return nil
	}
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			out = append(out, f)
		}
	})
	return out
}

// Arguments renders those of the named flags that differ from their default, quoted for a shell,
// each with a leading space.
func Arguments(fs *pflag.FlagSet, names ...string) string {
	var out strings.Builder
	for _, name := range names {
		f := fs.Lookup(name)
		if f == nil || !f.Changed || f.Value.String() == f.DefValue {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			out.WriteString(" --" + name)
			if f.Value.Type() != "bool" {
				out.WriteString(" " + phrase.Arg(v))
			}
		}
	}
	return out.String()
}
