package hosts

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/blocks"
)

// NamespaceText describes a namespace of a node and its processes.
func NamespaceText(node string, ns *blocks.HostNamespace) string {
	name := "namespace " + ns.ID
	if ns.Name != "" {
		name = fmt.Sprintf("namespace %s (%s)", ns.Name, ns.ID)
	}
	if ns.Host {
		name = "the host's own namespace"
	}
	out := name + phrase.OnNode(node)
	if !ns.Host {
		out += ", " + processText(ns)
	}
	return out
}

// processText describes the processes in a namespace.
func processText(ns *blocks.HostNamespace) string {
	total := max(ns.Processes, len(ns.Pids))
	if total == 0 {
		return "without any process"
	}
	var shown []string
	for i, pid := range ns.Pids {
		if i == 3 {
			break
		}
		text := strconv.Itoa(pid)
		if i < len(ns.Commands) && ns.Commands[i] != "" {
			text += " " + ns.Commands[i]
		}
		if i < len(ns.States) {
			text += stateText(ns.States[i])
		}
		shown = append(shown, text)
	}
	if len(shown) == 0 {
		return "with " + phrase.Plural(total, "process")
	}
	out := "with process " + strings.Join(shown, ", ")
	if len(shown) > 1 {
		out = "with processes " + strings.Join(shown, ", ")
	}
	if total > len(shown) {
		out += fmt.Sprintf(" and %d more", total-len(shown))
	}
	return out
}

// stateText explains the process states that matter.
func stateText(state string) string {
	switch state {
	case "D":
		return " (state D: uninterruptible sleep, it cannot be killed)"
	case "Z":
		return " (state Z: dead, and not yet collected by its parent)"
	case "T", "t":
		return " (state " + state + ": stopped)"
	}
	return ""
}

// RouteText describes a route in the words of the ip command.
func RouteText(r *blocks.HostRoute) string {
	return Answer{Result: r.Type, Match: r.Dst, Protocol: r.Protocol, Table: tableName(r.Table)}.route()
}

// RoutesText describes routes in the words of the ip command.
func RoutesText(routes []*blocks.HostRoute) blocks.Names {
	out := make(blocks.Names, len(routes))
	for i, r := range routes {
		out[i] = RouteText(r)
	}
	return out
}

// IsDropping reports whether routes of a type drop traffic.
func IsDropping(kind string) bool {
	return kind == blocks.RouteBlackhole || kind == blocks.RouteUnreachable || kind == blocks.RouteProhibit
}

// ProtocolText names the component that creates routes with a protocol.
func ProtocolText(protocol string) string {
	switch strings.ToLower(protocol) {
	case "bird", "12":
		return "BIRD, for an affinity of the node"
	case "80":
		return "Felix"
	case "boot", "static", "3", "4":
		return "an administrator or a tool"
	case "kernel", "2":
		return "the kernel"
	}
	return ""
}
