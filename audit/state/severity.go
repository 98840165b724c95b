package state

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Severity is how bad a finding is.
type Severity int

// The severities, highest first.
const (
	// Critical: traffic is broken now, two owners hold the same IP, or a node cannot give its pods
	// addresses of its own blocks.
	Critical Severity = 4
	// Error: the state is wrong, or the next pod or node fails.
	Error Severity = 3
	// Warning: this will become a problem, or already costs something.
	Warning Severity = 2
	// Info: worth knowing; nothing needs to be done.
	Info Severity = 1
)

var severityNames = map[Severity]string{Critical: "critical", Error: "error", Warning: "warning", Info: "info"}

// Severities lists all severities, highest first.
var Severities = []Severity{Critical, Error, Warning, Info}

// SeverityNames returns the names of all severities, highest first.
func SeverityNames() (out []string) {
	for _, s := range Severities {
		out = append(out, s.String())
	}
	return out
}

// String returns the severity's name, such as "critical".
func (s Severity) String() string { return severityNames[s] }

// MarshalJSON writes the severity's name.
func (s Severity) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalJSON parses the severity's name.
func (s *Severity) UnmarshalJSON(b []byte) error {
	var name string
	if err := json.Unmarshal(b, &name); err != nil {
		return fmt.Errorf("reading a severity: %w", err)
	}
	var err error
	*s, err = ParseSeverity(name)
	return err
}

// ParseSeverity parses a severity's name.
func ParseSeverity(name string) (Severity, error) {
	for _, s := range Severities {
		if s.String() == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("unknown severity %q: want one of %s", name, strings.Join(SeverityNames(), ", "))
}
