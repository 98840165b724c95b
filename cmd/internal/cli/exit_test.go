package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

func testStreams() (genericiooptions.IOStreams, *bytes.Buffer, *bytes.Buffer) {
	out, errOut := new(bytes.Buffer), new(bytes.Buffer)
	return genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut}, out, errOut
}

// TestPanic: a panic ends with 5, and prints the information for a report.
func TestPanic(t *testing.T) {
	streams, out, errOut := testStreams()
	code := execute(context.Background(), streams, func() error {
		c := &cobra.Command{Use: "x", RunE: run(func(*cobra.Command, []string) error { panic("index out of range") })}
		c.SetArgs(nil)
		return c.Execute()
	})
	if code != exit.CodeFailure {
		t.Errorf("ended with %d, want %d", code, exit.CodeFailure)
	}
	for _, want := range []string{"index out of range", "Please report it", issuesURL, "exit_test.go"} {
		if !strings.Contains(errOut.String(), want) {
			t.Errorf("standard error lacks %q:\n%s", want, errOut)
		}
	}
	if out.Len() > 0 {
		t.Errorf("standard output got %q", out)
	}
}

// TestFailure: an error without an exit code is an internal error, not a usage error.
func TestFailure(t *testing.T) {
	streams, _, errOut := testStreams()
	code := execute(context.Background(), streams, func() error {
		c := &cobra.Command{Use: "x", RunE: run(func(*cobra.Command, []string) error { return errors.New("unforeseen") }), SilenceErrors: true, SilenceUsage: true}
		c.SetArgs(nil)
		return c.Execute()
	})
	if code != exit.CodeFailure || !strings.Contains(errOut.String(), "error: unforeseen\n") || !strings.Contains(errOut.String(), "Please report it") {
		t.Errorf("ended with %d and %q", code, errOut)
	}
}

// TestInterrupted: an interrupted run has not read the datastore.
func TestInterrupted(t *testing.T) {
	streams, _, errOut := testStreams()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	code := execute(ctx, streams, func() error { return exit.Unread(fmt.Errorf("reading pods: %w", ctx.Err())) })
	if code != exit.CodeUnread || errOut.String() != "error: interrupted\n" {
		t.Errorf("ended with %d and %q", code, errOut)
	}
}

// TestBrokenPipe: a closed output is not an error, and hides no other error.
func TestBrokenPipe(t *testing.T) {
	broken := exit.Usagef("writing the report: %w", syscall.EPIPE)
	for _, c := range []struct {
		err     error
		code    int
		message string
	}{
		{broken, exit.CodeOK, ""},
		{errors.Join(broken, exit.Findings(errors.New("findings"))), exit.CodeFindings, "error: findings\n"},
	} {
		streams, _, errOut := testStreams()
		if code := execute(context.Background(), streams, func() error { return c.err }); code != c.code || errOut.String() != c.message {
			t.Errorf("%v ended with %d and %q, want %d and %q", c.err, code, errOut, c.code, c.message)
		}
	}
}

// TestNoCalico: a cluster with neither of Calico's API groups gives one line that names
// both.
func TestNoCalico(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1"}]}]}`)
	}))
	defer server.Close()
	saved := filepath.Join(t.TempDir(), "s.json")
	for _, args := range [][]string{
		{"report"}, {"explain", "10.0.0.1"}, {"repair", "--empty-blocks"}, {"snapshot", "-o", saved},
	} {
		streams, out, errOut := testStreams()
		code := Main(t.Context(), slices.Concat([]string{"calico-audit"}, args, []string{"--server", server.URL}), streams)
		const want = "no Calico found in the cluster: it serves neither API group crd.projectcalico.org/v1 nor projectcalico.org/v3"
		if text := errOut.String(); code != exit.CodeUnread || out.Len() > 0 || !strings.Contains(text, want) || strings.Count(text, "\n") != 1 {
			t.Errorf("%q ended with %d: %s%s", args, code, out, text)
		}
	}
	if _, err := os.Stat(saved); !os.IsNotExist(err) {
		t.Errorf("a snapshot was written: %v", err)
	}
}

func TestProgramName(t *testing.T) {
	for arg0, want := range map[string]string{
		"calico-audit":                        "calico-audit",
		"/usr/local/bin/kubectl-calico_audit": "kubectl calico-audit",
		"kubectl-calico_audit.exe":            "kubectl calico-audit",
		"/tmp/other":                          "calico-audit",
	} {
		if got := programName(arg0); got != want {
			t.Errorf("programName(%q) = %q, want %q", arg0, got, want)
		}
	}
}
