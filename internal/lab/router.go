package lab

import (
	"fmt"
	"strings"
)

// Router configures the router between the nodes. It speaks BGP with each node.
type Router struct {
	// AS is the router's AS number; NodeAS is that of nodes without their own.
	AS, NodeAS uint32
	// AlwaysNodeAS makes the router expect NodeAS from every node, even one with its own
	// AS number.
	AlwaysNodeAS bool
	// Reflects makes nodes in the router's AS its route-reflector clients.
	Reflects bool
	// Aggregates makes the router announce only the two pools as a whole.
	Aggregates bool
	// HidesAS makes the router remove the nodes' AS number from the paths that it passes
	// on.
	HidesAS bool
}

// config returns the configuration of the router's BIRDs.
func (r *Router) config(t Topology) Config {
	config := Config{}
	for family, program := range []string{"bird", "bird6"} {
		address, pool := RouterIPv4, pools[family]
		if family == 1 {
			address = RouterIPv6
		}
		var b strings.Builder
		fmt.Fprintf(&b, "router id %s;\n", RouterIPv4)
		b.WriteString("protocol device { scan time 2; }\nprotocol direct { }\n")
		b.WriteString("protocol kernel { scan time 2; export all; }\n")
		export := "if source != RTS_BGP then reject;"
		if r.Aggregates {
			fmt.Fprintf(&b, "protocol static { route %s unreachable; }\n", pool)
			export = "if source != RTS_STATIC then reject;"
		}
		if r.HidesAS {
			export += fmt.Sprintf(" bgp_path.delete(%d);", r.NodeAS)
		}
		fmt.Fprintf(&b, "template bgp node {\n  local as %d;\n  source address %s;\n  multihop;\n", r.AS, address)
		fmt.Fprintf(&b, "  import all;\n  export filter { %s accept; };\n", export)
		b.WriteString("  connect delay time 1;\n  connect retry time 2;\n  error wait time 1, 2;\n")
		if r.Reflects {
			b.WriteString("  rr client;\n")
		}
		b.WriteString("}\n")
		for _, node := range NodeNames {
			as := r.NodeAS
			if own := t.AS[node]; own != 0 && !r.AlwaysNodeAS {
				as = own
			}
			fmt.Fprintf(&b, "protocol bgp %s from node { neighbor %s as %d; }\n", //nolint:misspell // BIRD's spelling
				node, t.Interfaces(node)[family].Addr.Addr(), as)
		}
		config[program+".cfg"] = b.String()
	}
	return config
}
