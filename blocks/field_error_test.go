package blocks_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/calico-audit/calico-audit/blocks"
)

// level is a number with a textual encoding.
type level int

func (*level) UnmarshalText([]byte) error { return nil }

// TestFieldError: errors name the JSON type that a field requires, not its Go type.
func TestFieldError(t *testing.T) {
	var into struct {
		Text   string
		Number *int
		Flag   bool
		List   []string
		Object map[string]int
		Level  level
		Levels []*level
		Addr   netip.Addr
		Prefix *blocks.Prefix
	}
	for doc, want := range map[string]string{
		`[]`:                "it is a list, not an object",
		`{"Text":5}`:        "Text is a number, not a string",
		`{"Number":"a"}`:    "Number is a string, not a number",
		`{"Number":1.5}`:    "Number cannot be 1.5",
		`{"Flag":"a"}`:      "Flag is a string, not true or false",
		`{"List":{}}`:       "List is an object, not a list",
		`{"Object":true}`:   "Object is true or false, not an object",
		`{"Level":5}`:       "Level is a number, not a string",
		`{"Levels":[5]}`:    "Levels is a number, not a string",
		`{"Addr":5}`:        "Addr is a number, not a string",
		`{"Addr":[]}`:       "Addr is a list, not a string",
		`{"Prefix":true}`:   "Prefix is true or false, not a string",
		`{"Text":"a", oops`: "invalid character 'o' looking for beginning of object key string",
	} {
		if got := blocks.FieldError(json.Unmarshal([]byte(doc), &into)); got == nil || got.Error() != want {
			t.Errorf("%s: %v, want %s", doc, got, want)
		}
	}
	if err := blocks.FieldError(nil); err != nil {
		t.Error(err)
	}
	wrapped := fmt.Errorf("reading a severity: %w", json.Unmarshal([]byte("5"), new(string)))
	if got, want := blocks.FieldError(wrapped).Error(), "reading a severity: it is a number, not a string"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
