package blocks

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// maxObjectName is the maximum length of a Kubernetes name. Calico shortens names of this
// length or more.
const maxObjectName = 253

// affinityHashLength is the number of hash digits at the end of a shortened affinity name.
const affinityHashLength = 11

var cidrToName = strings.NewReplacer(".", "-", ":", "-", "/", "-")

// BlockName returns the name of the IPAMBlock for a CIDR, such as "10-64-75-0-26". Calico
// looks the block up by this name only (libcalico-go names/cidr.go, CIDRToName).
func BlockName(cidr netip.Prefix) string { return cidrToName.Replace(cidr.Masked().String()) }

// AffinityName returns the name of a host's BlockAffinity for a CIDR, such as
// "node-1-10-64-75-0-26". Calico looks the affinity up by this name only. If the name is
// too long, the host is cut and a hash appended (libcalico-go
// backend/k8s/resources/ipam_affinity.go, parseKey). The affinity's type is not part of the
// name.
func AffinityName(host string, cidr netip.Prefix) string {
	block := BlockName(cidr)
	name := host + "-" + block
	if len(name) < maxObjectName {
		return name
	}
	sum := sha256.Sum256([]byte(host + "+" + block))
	// The 2 is for the hyphens.
	limit := maxObjectName - 1 - len(block) - affinityHashLength - 2
	return host[:limit] + "-" + block + "-" + hex.EncodeToString(sum[:])[:affinityHashLength]
}

// PrefixOfName parses the CIDR from a [BlockName], or from the end of an [AffinityName]. It
// returns the zero Prefix if there is none.
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
