package source_test

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/cmd/internal/source"
)

// TestCommandsForOthersAskNoAgentsByFiles: commands for other machines, as on a live page,
// do not use agents that require files of this machine.
func TestCommandsForOthersAskNoAgentsByFiles(t *testing.T) {
	const tls = " --agents-ca-file ca.crt --agents-token-file token"
	for _, c := range []struct {
		args                []string
		arguments, portable string
	}{
		{[]string{"--agents", "--agents-ca-file", "ca.crt", "--agents-token-file", "token", "--agents-namespace", "audit"}, tls + " --agents-namespace audit --agents", ""},
		{[]string{"--agents", "--agents-namespace", "audit"}, " --agents-namespace audit --agents", " --agents-namespace audit --agents"},
		{nil, "", ""},
	} {
		var f source.AgentFlags
		command := &cobra.Command{}
		f.AddTo(command)
		if err := command.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		if got := f.Arguments(); got != c.arguments {
			t.Errorf("%q: here %q, want %q", c.args, got, c.arguments)
		}
		if got := f.Portable(); got != c.portable {
			t.Errorf("%q: elsewhere %q, want %q", c.args, got, c.portable)
		}
	}
}
