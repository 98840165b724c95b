package audit

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
)

const muteKeys = "check, node, pool, until"

// ParseMuteRule parses a rule such as "check=ip/borrowed,node=n1,until=2026-03-31". A check
// is an ID or a group, as "pool" or "pool/*". until is a time in RFC 3339, or a date, which
// means the end of that day in UTC. Errors quote the rule.
func (cs Checks) ParseMuteRule(text string) (MuteRule, error) {
	r := MuteRule{Text: text}
	given := map[string]bool{}
	wrong := func(format string, args ...any) (MuteRule, error) {
		return MuteRule{}, fmt.Errorf("ignore entry %q: %w", text, fmt.Errorf(format, args...))
	}
	for _, part := range strings.Split(text, ",") {
		key, value, found := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case !found:
			return wrong("%q is not KEY=VALUE with one of the keys %s", strings.TrimSpace(part), muteKeys)
		case given[key]:
			return wrong("%s is given twice", key)
		case value == "":
			return wrong("%s is empty", key)
		}
		given[key] = true
		switch key {
		case "check":
			checks, err := cs.Select([]string{value})
			if err != nil {
				return wrong("%w", err)
			}
			for _, c := range checks {
				r.Checks = append(r.Checks, c.ID)
			}
		case "node":
			r.Node = value
		case "pool":
			r.Pool = value
		case "until":
			until, err := parseUntil(value)
			if err != nil {
				return wrong("%w", err)
			}
			r.Until = until
		default:
			return wrong("unknown key %q: want one of %s", key, muteKeys)
		}
	}
	if !given["check"] && !given["node"] && !given["pool"] {
		return wrong("it names no check, node or pool, and would mute everything")
	}
	return r, nil
}

func parseUntil(s string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("until=%s is neither a time such as 2026-01-31T08:00:00Z nor a date such as 2026-01-31", s)
	}
	return t.UTC(), nil
}

// ReadMuteRules reads one rule a line. It skips empty lines, and comments that start with
// "#" at the beginning of a line or after a space. Errors contain the given file name and
// the line number.
func (cs Checks) ReadMuteRules(in io.Reader, name string) ([]MuteRule, error) {
	var rules []MuteRule
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimPrefix(lines.Text(), "\ufeff")
		if i := commentAt(text); i >= 0 {
			text = text[:i]
		}
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		r, err := cs.ParseMuteRule(text)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, n, err)
		}
		rules = append(rules, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return rules, nil
}

// commentAt returns the index of a line's comment; -1 if it has none.
func commentAt(line string) int {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return i
		}
	}
	return -1
}
