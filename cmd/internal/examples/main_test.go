package examples_test

import (
	"context"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/cli"
)

// TestMain lets a copy of the test program, named calico-audit, run as the program itself.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"calico-audit": func() {
		os.Exit(cli.Main(context.Background(), os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}))
	}})
}
