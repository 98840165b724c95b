package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// A finding identifies a finding of a report.
type finding struct {
	Check   string
	Subject subject
}

// subject is the subject of a finding in the report's JSON.
type subject struct{ Kind, Name, Node, CIDR, IP string }

// String returns the check and the subject's identifying field.
func (f finding) String() string {
	s := f.Subject
	switch s.Kind {
	case "IP":
		return f.Check + " " + s.IP
	case "IPAMBlock":
		return f.Check + " " + s.CIDR
	case "BlockAffinity":
		return f.Check + " " + s.Node + " " + s.CIDR
	case "Node":
		return f.Check + " " + s.Node
	}
	return f.Check + " " + s.Name
}

// report holds the compared fields of a report.
type report struct {
	Complete bool
	Findings []finding
	Skipped  []struct{ Check, Reason string } `json:"skippedChecks"`
}

// expected holds the findings that a report must have, as strings.
type expected map[string]bool

func (e expected) add(check, subject string) { e[check+" "+subject] = true }

// counts returns the number of expected findings by check, as text.
func (e expected) counts() string {
	byCheck := map[string]int{}
	for text := range e {
		check, _, _ := strings.Cut(text, " ")
		byCheck[check]++
	}
	var out []string
	for _, check := range slices.Sorted(maps.Keys(byCheck)) {
		out = append(out, fmt.Sprintf("%s %d", check, byCheck[check]))
	}
	return strings.Join(out, ", ")
}

// verify returns an error unless a JSON report is complete and has exactly these
// findings.
func (e expected) verify(text []byte) error {
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("reading the report: %w", err)
	}
	if !r.Complete || len(r.Skipped) > 0 {
		return fmt.Errorf("the report is not whole: complete is %t, skipped are %v", r.Complete, r.Skipped)
	}
	got := map[string]bool{}
	var wrong []string
	for _, f := range r.Findings {
		if got[f.String()] {
			wrong = append(wrong, "twice: "+f.String())
		}
		got[f.String()] = true
		if !e[f.String()] {
			wrong = append(wrong, "not planted: "+f.String())
		}
	}
	for text := range e {
		if !got[text] {
			wrong = append(wrong, "not found: "+text)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	const most = 60
	return fmt.Errorf("%d of %d findings are wrong:\n\t%s", len(wrong), len(e), strings.Join(wrong[:min(most, len(wrong))], "\n\t"))
}

func (e expected) verifyFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return e.verify(text)
}
