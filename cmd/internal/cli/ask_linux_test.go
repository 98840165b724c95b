package cli

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// TestAsk: on a terminal nothing is written until the user types "yes" in full. Without a
// terminal, the program does not ask.
func TestAsk(t *testing.T) {
	for _, c := range []struct {
		typed string
		want  bool
	}{{"yes\n", true}, {" yes \n", true}, {"y\n", false}, {"\n", false}, {"no\n", false}, {"YES\n", false}, {"\x04", false}} {
		typed, want := c.typed, c.want
		tty, keyboard, drain := openKeyboard(t, 80)
		if _, err := io.WriteString(keyboard, typed); err != nil {
			t.Fatal(err)
		}
		e := env{streams: genericiooptions.IOStreams{In: tty, Out: io.Discard, ErrOut: tty}}
		if !canAsk(e.streams) {
			t.Fatal("a terminal is not taken for one")
		}
		err := e.ask(t.Context(), "2 steps to be applied.")
		shown := drain()
		if !strings.Contains(shown, "2 steps to be applied.") || !strings.Contains(shown, `Type "yes" to continue: `) {
			t.Errorf("it asks %q", shown)
		}
		if (err == nil) != want || err != nil && exit.Code(err) != exit.CodeUnfinished {
			t.Errorf("typed %q: %v", typed, err)
		}
	}
	if streams, _, _ := testStreams(); canAsk(streams) {
		t.Error("what is no terminal can answer")
	}
}

// TestAskIsInterrupted: Ctrl-C at the question writes nothing.
func TestAskIsInterrupted(t *testing.T) {
	tty, _, drain := openKeyboard(t, 80)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := env{streams: genericiooptions.IOStreams{In: tty, Out: io.Discard, ErrOut: tty}}
	if err := e.ask(ctx, "x"); err == nil || exit.Code(err) != exit.CodeUnfinished {
		t.Errorf("interrupted, it ends with %v", err)
	}
	drain()
}

// TestApplyShowsThePlan: on a terminal the plan is shown before the question and before any
// reading.
func TestApplyShowsThePlan(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	plan := filepath.Join(t.TempDir(), "plan.json")
	streams, _, errOut := testStreams()
	story := filepath.Join("..", "..", "..", "examples", "snapshots", "story-drained")
	if code := Main(t.Context(), []string{"calico-audit", "repair", "--empty-blocks", "-f", story, "--out", plan}, streams); code != exit.CodeOK {
		t.Fatal(errOut)
	}
	tty, _, drain := openKeyboard(t, 80)
	code := Main(t.Context(), []string{"calico-audit", "repair", "apply", plan}, genericiooptions.IOStreams{In: tty, Out: io.Discard, ErrOut: tty})
	shown := drain()
	if code != exit.CodeUsage || !strings.Contains(shown, "release-block 10.64.75.64/26") || !strings.Contains(shown, "no cluster to read") {
		t.Errorf("it ends with %d and shows\n%s", code, shown)
	}
}
