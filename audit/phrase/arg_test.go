package phrase_test

import (
	"testing"

	"github.com/calico-audit/calico-audit/audit/phrase"
)

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{
		"dump/a.yaml": "dump/a.yaml", "": "''", "my dump": "'my dump'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "a;b": "'a;b'",
	} {
		if got := phrase.Arg(word); got != want {
			t.Errorf("phrase.Arg(%q) = %s, want %s", word, got, want)
		}
	}
}
