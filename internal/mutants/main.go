// Mutants breaks one guard of the code at a time and runs the test that must fail. It
// proves that the tests still protect the guards. The list is mutants.txt; "make mutants"
// runs it.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"time"
)

//go:embed mutants.txt
var list string

func main() {
	only := flag.String("only", "", "run the mutants whose name, file or test matches this `regexp`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := runAll(ctx, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// runAll runs the mutants that match, and prints each result.
func runAll(ctx context.Context, only string) error {
	all, err := parse(list)
	if err != nil {
		return fmt.Errorf("reading the list: %w", err)
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("reading -only: %w", err)
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !wanted.MatchString(m.name + "\n" + m.file + "\n" + m.test) })
	r, bad, began := newRunner(".", all), 0, time.Now()
	for i := range all {
		m := &all[i]
		if ctx.Err() != nil {
			return ctx.Err()
		}
		got := r.run(ctx, m)
		fmt.Printf("%-16s %6s  %s\n%27s%s: %s\n", got.status, got.took.Round(100*time.Millisecond), m.name, "", m.pkg, m.test)
		if got.status != caught {
			bad++
			fmt.Println(got.output)
		}
	}
	switch {
	case len(all) == 0:
		return fmt.Errorf("no mutant matches %q", only)
	case bad > 0:
		return fmt.Errorf("%d of %d mutants were not caught", bad, len(all))
	}
	fmt.Printf("%d mutants, all caught, in %s\n", len(all), time.Since(began).Round(time.Second))
	return nil
}
