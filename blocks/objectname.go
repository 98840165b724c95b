package blocks

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// maxObjectName is the length of a name from which on Calico shortens it: that of
// the longest name that Kubernetes takes.
const maxObjectName = 253

// affinityHashLength is how much of a hash a shortened affinity name ends with.
const affinityHashLength = 11

var cidrToName = strings.NewReplacer(".", "-", ":", "-", "/", "-")

// BlockName returns the name that Calico gives the IPAMBlock object of a CIDR, and
// the only one under which it looks for it: "10-64-75-0-26" (libcalico-go
// names/cidr.go, CIDRToName).
func BlockName(cidr netip.Prefix) string { return cidrToName.Replace(cidr.Masked().String()) }

// AffinityName returns the name that Calico gives the BlockAffinity object of a
// host to a CIDR, and the only one under which it looks for it:
// "node-1-10-64-75-0-26". Where that were too long, the host is cut short, and a
// hash tells such names apart (libcalico-go backend/k8s/resources/ipam_affinity.go,
// parseKey). The type of the affinity is no part of the name.
func AffinityName(host string, cidr netip.Prefix) string {
	block := BlockName(cidr)
	name := host + "-" + block
	if len(name) < maxObjectName {
		return name
	}
	sum := sha256.Sum256([]byte(host + "+" + block))
	// One for each of the two hyphens.
	limit := maxObjectName - 1 - len(block) - affinityHashLength - 2
	return host[:limit] + "-" + block + "-" + hex.EncodeToString(sum[:])[:affinityHashLength]
}

// PrefixOfName reads the CIDR out of a name of [BlockName], or the end of one of
// [AffinityName]. The zero Prefix means that there is none.
func PrefixOfName(name string) netip.Prefix {
	cut := strings.LastIndexByte(name, '-')
	if cut < 0 {
		return netip.Prefix{}
	}
	addr, bits := name[:cut], name[cut:]
	sep := ":"
	if strings.Count(addr, "-") == 3 && !strings.Contains(addr, "--") {
		sep = "."
	}
	p, _ := ParseCIDR(strings.ReplaceAll(addr, "-", sep) + "/" + bits[1:])
	return p
}
