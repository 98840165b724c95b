package blocks

import (
	"fmt"
	"slices"
	"strings"
)

// Names are the names of objects. Evidence lists them; a sentence has the first few.
type Names []string

// String joins up to three names with "and", or with semicolons if one contains a comma; of more,
// it returns two and counts the others.
func (n Names) String() string {
	const most = 3
	switch {
	case len(n) == 0:
		return "none"
	case len(n) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(n[:most-1], ", "), len(n)-most+1)
	case len(n) == 1:
		return n[0]
	case slices.ContainsFunc(n, func(s string) bool { return strings.Contains(s, ",") }):
		return strings.Join(n, "; ")
	}
	return strings.Join(n[:len(n)-1], ", ") + " and " + n[len(n)-1]
}
