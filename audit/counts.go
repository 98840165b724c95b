package audit

import (
	"encoding/json"
	"time"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
)

// Time is a time in a report: RFC 3339 in UTC, or "" if unknown.
type Time struct{ time.Time }

// String formats the time in RFC 3339, in UTC; "" for the zero time.
func (t Time) String() string { return phrase.Time(t.Time) }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil || s == "" {
		return err
	}
	parsed, err := time.Parse(time.RFC3339Nano, s)
	t.Time = parsed
	return err
}

// FindingCounts counts findings by severity.
type FindingCounts struct {
	Critical int `json:"critical"`
	Error    int `json:"error"`
	Warning  int `json:"warning"`
	Info     int `json:"info"`
	// Muted counts the muted findings, which are in no other count.
	Muted int `json:"muted,omitempty"`
}

// Of returns a pointer to the count of a severity. For an invalid severity it returns a
// throwaway count.
func (c *FindingCounts) Of(severity state.Severity) *int {
	switch severity {
	case state.Critical:
		return &c.Critical
	case state.Error:
		return &c.Error
	case state.Warning:
		return &c.Warning
	case state.Info:
		return &c.Info
	}
	return new(int)
}
