package host

import (
	"encoding/binary"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// families are the address families that are read.
var families = []struct {
	number int
	name   string
}{{unix.AF_INET, "IPv4"}, {unix.AF_INET6, "IPv6"}}

// Attributes and actions of routing rules (linux/fib_rules.h).
const (
	fraTable  = 15
	fraL3mdev = 19

	actionToTable   = 1
	actionBlackhole = 6
)

// ruleSet is what the routing rules of one address family say.
type ruleSet struct {
	// tables are those that a rule may send packets to, other than local, in the
	// order of the rules.
	tables []uint32
	// l3mdev is true if a rule sends packets of VRF devices to the tables of those.
	l3mdev bool
	// blackhole is true if a rule itself drops packets.
	blackhole bool
}

// rules lists the routing rules. Which packets a rule concerns (their mark, their
// source) is not looked at: a table counts if any packet may get there.
func (k *kernel) rules(family int) (ruleSet, error) {
	var set ruleSet
	err := k.routes.list(newRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP, nl.NewIfInfomsg(family)), set.add)
	return set, err
}

// add adds a rule as the kernel sent it: a fib_rule_hdr, which is laid out as an
// rtmsg with the action where that has the type, then attributes.
func (s *ruleSet) add(m []byte) {
	if len(m) < unix.SizeofRtMsg {
		return
	}
	table, action := uint32(m[4]), m[7]
	l3mdev := false
	attributes(m[unix.SizeofRtMsg:], func(kind uint16, value []byte) {
		switch {
		case kind == fraTable && len(value) >= 4:
			table = binary.NativeEndian.Uint32(value)
		case kind == fraL3mdev && len(value) > 0:
			l3mdev = value[0] != 0
		}
	})
	switch {
	case action == actionBlackhole:
		s.blackhole = true
	case action == actionToTable && l3mdev:
		s.l3mdev = true
	case action == actionToTable && table != 0 && table != tableLocal && !slices.Contains(s.tables, table):
		s.tables = append(s.tables, table)
	}
}

// vrfTables returns the routing tables of the VRF devices among the links.
func vrfTables(links []netlink.Link) []uint32 {
	var out []uint32
	for _, l := range links {
		if vrf, ok := l.(*netlink.Vrf); ok && vrf.Table != 0 {
			out = append(out, vrf.Table)
		}
	}
	return out
}

// attributes calls f for each attribute in b, and stops at one that is cut short.
func attributes(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return
		}
		const nested = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
		f(binary.NativeEndian.Uint16(b[2:])&^nested, b[unix.SizeofRtAttr:size])
		aligned := (size + unix.RTA_ALIGNTO - 1) &^ (unix.RTA_ALIGNTO - 1)
		if aligned >= len(b) {
			return
		}
		b = b[aligned:]
	}
}
