package alias

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	"github.com/projectcalico/calico/libcalico-go/lib/selector/parser"
)

// PlainLabels are label keys of every cluster, and the node field that node affinities
// select by.
var PlainLabels = []string{
	"kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	"kubernetes.io/hostname", "kubernetes.io/metadata.name", "node.kubernetes.io/instance-type",
	"topology.kubernetes.io/zone", "topology.kubernetes.io/region",
	"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/worker",
	"projectcalico.org/node-network-during-migration", "metadata.name",
}

// plainValues are label values that reveal nothing and that checks or selectors often use.
var plainValues = []string{
	"linux", "windows", "amd64", "arm64", "arm", "ppc64le", "riscv64", "s390x", "flannel", "calico",
}

// LabelKey returns the replacement of a label key.
func (n *Aliases) LabelKey(key string) string {
	if slices.Contains(PlainLabels, key) {
		return key
	}
	return n.Name(labels, key)
}

// LabelValue returns the replacement of a label value, and records the value for the key.
func (n *Aliases) LabelValue(key, value string) string {
	if n.collecting {
		if n.values[key] == nil {
			n.values[key] = map[string]bool{}
		}
		n.values[key][value] = true
	}
	return n.Value(value)
}

// Value returns the replacement of a value of any label; numbers become numbers.
func (n *Aliases) Value(value string) string {
	if slices.Contains(plainValues, value) {
		return value
	}
	if _, err := strconv.ParseInt(value, 10, 64); err == nil && strings.Trim(value, "0123456789") == "" {
		return n.Name(numbers, value)
	}
	return n.Name(values, value)
}

// LabelText anonymizes the JSON of an annotation with Calico's own labels of a node.
func (n *Aliases) LabelText(s string) string {
	var labels map[string]string
	if json.Unmarshal([]byte(s), &labels) != nil {
		return Bad
	}
	replaced := make(map[string]string, len(labels))
	for k, v := range labels {
		replaced[n.LabelKey(k)] = n.LabelValue(k, v)
	}
	out, _ := json.Marshal(replaced) // strings always marshal
	return string(out)
}

// Selector rewrites a selector so that it selects the same objects. An invalid selector
// becomes [Bad], which is invalid, too.
func (n *Aliases) Selector(s string) string {
	parsed, err := selector.Parse(s)
	if err != nil {
		return Bad
	}
	return n.expression(parsed.Root())
}

// expression rewrites a part of a selector. Comparisons with a part of a value become sets
// of the matching values.
func (n *Aliases) expression(node parser.Node) string {
	compare := func(label, op, value string) string {
		return n.LabelKey(label) + " " + op + " " + literal(n.Value(value))
	}
	switch x := node.(type) {
	case *parser.AllNode:
		return "all()"
	case *parser.GlobalNode:
		return "global()"
	case *parser.HasNode:
		return "has(" + n.LabelKey(x.LabelName.Value()) + ")"
	case *parser.NotNode:
		return "!(" + n.expression(x.Operand) + ")"
	case *parser.AndNode:
		return n.operands(x.Operands, " && ")
	case *parser.OrNode:
		return n.operands(x.Operands, " || ")
	case *parser.LabelEqValueNode:
		return compare(x.LabelName.Value(), "==", x.Value.Value())
	case *parser.LabelNeValueNode:
		return compare(x.LabelName.Value(), "!=", x.Value.Value())
	case *parser.LabelInSetNode:
		return n.set(x.LabelName.Value(), "in", x.Value.StringSlice())
	case *parser.LabelNotInSetNode:
		return n.set(x.LabelName.Value(), "not in", x.Value.StringSlice())
	case *parser.LabelContainsValueNode:
		return n.having(x.LabelName.Value(), x.Value.Value(), strings.Contains)
	case *parser.LabelStartsWithValueNode:
		return n.having(x.LabelName.Value(), x.Value.Value(), strings.HasPrefix)
	case *parser.LabelEndsWithValueNode:
		return n.having(x.LabelName.Value(), x.Value.Value(), strings.HasSuffix)
	}
	return Bad
}

func (n *Aliases) operands(nodes []parser.Node, operator string) string {
	parts := make([]string, len(nodes))
	for i, node := range nodes {
		parts[i] = "(" + n.expression(node) + ")"
	}
	return strings.Join(parts, operator)
}

func (n *Aliases) set(label, operator string, values []string) string {
	if len(values) == 0 && operator == "in" {
		return "!all()"
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = literal(n.Value(v))
	}
	slices.Sort(quoted)
	return n.LabelKey(label) + " " + operator + " {" + strings.Join(quoted, ", ") + "}"
}

// literal quotes a value for a selector. Selectors have no escapes.
func literal(s string) string {
	if strings.Contains(s, `"`) {
		return "'" + s + "'"
	}
	return `"` + s + `"`
}

// having selects the values of a label that match piece by has, such as strings.HasPrefix.
func (n *Aliases) having(label, piece string, has func(value, piece string) bool) string {
	if n.collecting {
		return n.LabelKey(label) // the values are only complete in the second round
	}
	var values []string
	for v := range n.values[label] {
		if has(v, piece) {
			values = append(values, v)
		}
	}
	return n.set(label, "in", values)
}
