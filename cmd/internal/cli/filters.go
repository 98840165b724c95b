package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
)

// checkNames reports whether the pools and nodes of --pool and --node are there.
// A name that is not is a mistake in the command line if the report is complete,
// and a warning if not: what was not read may hold it.
func checkNames(r *audit.Report, pools, nodes []string) (warnings []string, err error) {
	havePools := make([]string, len(r.Pools))
	for i := range r.Pools {
		havePools[i] = r.Pools[i].Name
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
				return nil, usagef("no %s %q%s", x.what, name, suggestion(name, x.have, x.what+"s"))
			}
			warnings = append(warnings, fmt.Sprintf("no %s %q was seen; the report is incomplete", x.what, name))
		}
	}
	return warnings, nil
}

// maxSuggestions is how many names a suggestion lists.
const maxSuggestions = 5

// suggestion names what is nearest to a name that does not exist, of things that are
// called so, such as "nodes"; all of them if none is near.
func suggestion(name string, have []string, things string) string {
	if near := nearby(name, have); len(near) > 0 {
		return "; did you mean " + orJoined(near, maxSuggestions) + "?"
	}
	if len(have) == 0 {
		return ": there are no " + things
	}
	return "; " + things + ": " + view.CutNames(slices.Sorted(slices.Values(have)), maxSuggestions, "…")
}

// nearby returns the names that are near to one, sorted.
func nearby(name string, have []string) (near []string) {
	for _, h := range have {
		if strings.Contains(h, name) || strings.Contains(name, h) || distance(strings.ToLower(name), strings.ToLower(h)) <= 2 {
			near = append(near, h)
		}
	}
	return slices.Sorted(slices.Values(near))
}

// orJoined joins at most so many names, the last with "or".
func orJoined(names []string, most int) string {
	names = names[:min(len(names), most)]
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// distance counts the insertions, deletions and substitutions between two words.
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
