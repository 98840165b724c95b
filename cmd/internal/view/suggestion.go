package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
)

// CheckNames checks that the pools and nodes of --pool and --node exist. An unknown name is
// a usage error if the report is complete. Otherwise it is a warning, because unread
// objects may have it.
func CheckNames(r *audit.Report, pools, nodes []string, warn func(string)) error {
	havePools := make([]string, len(r.Pools))
	for i := range r.Pools {
		havePools[i] = r.Pools[i].Name
	}
	for i := range r.WhereaboutsPools {
		havePools = append(havePools, r.WhereaboutsPools[i].Name)
	}
	haveNodes := make([]string, len(r.Nodes))
	for i := range r.Nodes {
		haveNodes[i] = r.Nodes[i].Name
	}
	for _, x := range []struct {
		what         string
		wanted, have []string
	}{{"pool", pools, havePools}, {"node", nodes, haveNodes}} {
		for _, name := range x.wanted {
			if slices.Contains(x.have, name) {
				continue
			}
			if r.Complete {
				return fmt.Errorf("no %s %q%s", x.what, name, Suggestion(name, x.have, x.what+"s"))
			}
			warn(fmt.Sprintf("no %s %q was found, but the report is incomplete", x.what, name))
		}
	}
	return nil
}

// maxSuggestions limits the names in a suggestion.
const maxSuggestions = 5

// Suggestion lists the names that are similar to an unknown name, else all names. things is
// their noun, such as "nodes".
func Suggestion(name string, have []string, things string) string {
	if near := DidYouMean(name, have); near != "" {
		return near
	}
	if len(have) == 0 {
		return ": there are no " + things
	}
	return "; " + things + ": " + CutNames(slices.Sorted(slices.Values(have)), maxSuggestions, "…")
}

// DidYouMean suggests names that are similar to an unknown one; "" if there are none.
func DidYouMean(name string, have []string) string {
	if near := nearby(name, have); len(near) > 0 {
		return "; did you mean " + orJoined(near, maxSuggestions) + "?"
	}
	return ""
}

// nearby returns the names that are similar to name, sorted.
func nearby(name string, have []string) (near []string) {
	for _, h := range have {
		if strings.Contains(h, name) || strings.Contains(name, h) || distance(strings.ToLower(name), strings.ToLower(h)) <= 2 {
			near = append(near, h)
		}
	}
	return slices.Sorted(slices.Values(near))
}

// orJoined joins up to most names, the last with "or".
func orJoined(names []string, most int) string {
	names = names[:min(len(names), most)]
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// distance returns the Levenshtein distance of two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
