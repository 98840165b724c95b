package main

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// The nodes of the story with host views. old-1 has an agent's view; old-2 has a listing
// of the ip command. Both are derived from the dump, so that their addresses and times
// match. Each node has a route to each of its own pods and a blackhole for each of its
// blocks. It has no routes to borrowed addresses, because it rejects routes of its own AS
// from the top-of-rack router.
const (
	viewAgent   = "old-1"
	viewListing = "old-2"
)

type dumpedNode struct {
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Status struct {
		Conditions []struct{ LastHeartbeatTime time.Time }
	}
}

type dumpedBlock struct {
	Spec struct {
		CIDR, Affinity string
		Allocations    []*int
		Attributes     []struct {
			HandleID  string `json:"handle_id"`
			Secondary map[string]string
		}
	}
}

type dumpedPod struct {
	Metadata struct{ Namespace, Name, UID string }
}

func readDump[T any](dir, kind string) ([]T, error) {
	raw, err := os.ReadFile(filepath.Join(dir, kind+".yaml"))
	if err != nil {
		return nil, err
	}
	var list struct{ Items []T }
	if err := yaml.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("reading %s: %w", kind, err)
	}
	return list.Items, nil
}

// podOn is a pod with an address of its own node's block.
type podOn struct {
	addr                     netip.Addr
	namespace, name, sandbox string
	uid                      string
}

func (p podOn) device() string {
	sum := sha1.Sum([]byte(p.namespace + "." + p.name))
	return "cali" + hex.EncodeToString(sum[:])[:11]
}

// makeHostViews writes the host views of a dump of the story.
func makeHostViews(dump, dir string) error {
	nodes, err := readDump[dumpedNode](dump, "nodes")
	if err != nil {
		return err
	}
	ipam, err := readDump[dumpedBlock](dump, "ipamblocks")
	if err != nil {
		return err
	}
	pods, err := readDump[dumpedPod](dump, "pods")
	if err != nil {
		return err
	}
	uids := map[string]string{}
	for _, p := range pods {
		uids[p.Metadata.Namespace+"/"+p.Metadata.Name] = p.Metadata.UID
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, n := range nodes {
		name := n.Metadata.Name
		var blocks []netip.Prefix
		var own []podOn
		for _, b := range ipam {
			if b.Spec.Affinity != "host:"+name {
				continue
			}
			cidr, err := netip.ParsePrefix(b.Spec.CIDR)
			if err != nil {
				return err
			}
			blocks = append(blocks, cidr)
			addr := cidr.Addr()
			for _, a := range b.Spec.Allocations {
				if a != nil && b.Spec.Attributes[*a].Secondary["node"] == name {
					attr := b.Spec.Attributes[*a]
					p := podOn{addr: addr, namespace: attr.Secondary["namespace"], name: attr.Secondary["pod"]}
					_, p.sandbox, _ = strings.Cut(attr.HandleID, ".")
					p.uid = uids[p.namespace+"/"+p.name]
					own = append(own, p)
				}
				addr = addr.Next()
			}
		}
		slices.SortFunc(blocks, netip.Prefix.Compare)
		var taken time.Time
		for _, c := range n.Status.Conditions {
			if c.LastHeartbeatTime.After(taken) {
				taken = c.LastHeartbeatTime
			}
		}
		address, err := netip.ParsePrefix(n.Metadata.Annotations["projectcalico.org/IPv4Address"])
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
		var text []byte
		switch name {
		case viewAgent:
			text = agentView(name, taken, address, blocks, own)
		case viewListing:
			text = routeListing(address, blocks, own)
		default:
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

type object = map[string]any

// lines writes a JSON list with one entry per line.
func lines(out *bytes.Buffer, indent string, list []object) {
	out.WriteString("[")
	for i, o := range list {
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n" + indent)
		text, _ := json.Marshal(o) // maps of plain values always marshal
		out.Write(text)
	}
	out.WriteString("]")
}

// router is the gateway of the story's nodes, the top-of-rack router.
const router = "172.16.0.1"

func agentView(name string, taken time.Time, address netip.Prefix, blocks []netip.Prefix, own []podOn) []byte {
	routes := []object{
		{"dst": "0.0.0.0/0", "type": "unicast", "protocol": "static", "table": "main", "metric": 0, "gateway": router, "dev": "eth0"},
		{"dst": address.Masked(), "type": "unicast", "protocol": "kernel", "table": "main", "metric": 0, "dev": "eth0"},
	}
	var lookups []object
	spaces := []object{{"id": "4026531840", "host": true, "addresses": []netip.Prefix{address}, "hostInterfaces": []string{}, "pids": []int{}, "states": []string{}, "processes": 0}}
	for _, b := range blocks {
		routes = append(routes, object{"dst": b, "type": "blackhole", "protocol": "bird", "table": "main", "metric": 0})
		lookups = append(lookups, object{"dst": b, "result": "blackhole", "match": b, "table": "main"})
		for _, p := range own {
			if b.Contains(p.addr) {
				single := netip.PrefixFrom(p.addr, 32)
				routes = append(routes, object{"dst": single, "type": "unicast", "protocol": "boot", "table": "main", "metric": 0, "dev": p.device()})
				lookups = append(lookups, object{"dst": single, "result": "unicast", "match": single, "dev": p.device(), "table": "main"})
			}
		}
	}
	for i, p := range own {
		pid := 5000 + 20*i
		spaces = append(spaces, object{
			"id": strconv.Itoa(4026532200 + 60*i), "name": "cni-" + p.uid, "addresses": []netip.Prefix{netip.PrefixFrom(p.addr, 32)},
			"hostInterfaces": []string{p.device()}, "sandbox": p.sandbox, "podUID": p.uid,
			"pids": []int{pid, pid + 7}, "commands": []string{"pause", "server"}, "states": []string{"S", "S"}, "processes": 2,
		})
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "{\"apiVersion\": \"calico-audit/v1alpha1\", \"kind\": \"HostView\", \"node\": %q, \"takenAt\": %q,\n \"routes\": ", name, taken.UTC().Format(time.RFC3339))
	lines(&out, "  ", routes)
	out.WriteString(",\n \"lookups\": ")
	lines(&out, "  ", lookups)
	out.WriteString(",\n \"namespaces\": ")
	lines(&out, "  ", spaces)
	out.WriteString("}\n")
	return out.Bytes()
}

func routeListing(address netip.Prefix, blocks []netip.Prefix, own []podOn) []byte {
	none := []string{}
	routes := []object{
		{"dst": "default", "gateway": router, "dev": "eth0", "flags": none},
		{"dst": address.Masked(), "dev": "eth0", "protocol": "kernel", "scope": "link", "prefsrc": address.Addr(), "flags": none},
	}
	for _, b := range blocks {
		routes = append(routes, object{"type": "blackhole", "dst": b, "protocol": "bird", "flags": none})
		for _, p := range own {
			if b.Contains(p.addr) {
				routes = append(routes, object{"dst": p.addr, "dev": p.device(), "scope": "link", "flags": none})
			}
		}
	}
	routes = append(routes,
		object{"type": "local", "dst": "127.0.0.0/8", "dev": "lo", "table": "local", "protocol": "kernel", "scope": "host", "prefsrc": "127.0.0.1", "flags": none},
		object{"type": "local", "dst": address.Addr(), "dev": "eth0", "table": "local", "protocol": "kernel", "scope": "host", "prefsrc": address.Addr(), "flags": none},
		object{"dst": "fe80::/64", "dev": "eth0", "protocol": "kernel", "metric": 256, "flags": none, "pref": "medium"},
		object{"type": "multicast", "dst": "ff00::/8", "dev": "eth0", "table": "local", "protocol": "kernel", "metric": 256, "flags": none, "pref": "medium"},
	)
	var out bytes.Buffer
	lines(&out, " ", routes)
	out.WriteString("\n")
	return out.Bytes()
}
