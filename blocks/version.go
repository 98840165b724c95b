package blocks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// CalicoAtLeast reports whether a Calico version such as "v3.32.1" is major.minor or newer.
// It returns false for unknown versions such as "master".
func CalicoAtLeast(v string, major, minor uint) bool {
	parsed, err := version.ParseGeneric(v)
	return err == nil && parsed.AtLeast(version.MajorMinor(major, minor))
}

// CalicoFrom reports whether a version is at least another, such as "3.28.3"; false if it cannot be
// parsed.
func CalicoFrom(v, least string) bool {
	parsed, err := version.ParseGeneric(v)
	return err == nil && parsed.AtLeast(version.MustParseGeneric(least))
}

// NewestKnown is the newest Calico release whose IPAM objects this version understands. v3.33 and
// newer let released addresses cool down: an ordinal without an owner but with a release time must
// not be freed early, and a released ordinal must pass through that state. The changes of later
// releases are unknown. So in newer clusters, blocks, affinities and handles are only changed with
// the operator's consent.
const NewestKnown = "v3.32"

const newestMajor, newestMinor = 3, 32

// NewerThanKnown explains why the cluster's Calico may be newer than [NewestKnown], or
// returns "".
func (c *Cluster) NewerThanKnown() string {
	v := c.CalicoVersion
	switch {
	case v == "" && !c.Live:
		return "" // files without ClusterInformation; the version is read when the plan is applied
	case v == "":
		return "ClusterInformation does not name the Calico release, and releases newer than " + NewestKnown + " may mean something else by their objects"
	case !CalicoAtLeast(v, 0, 0):
		return fmt.Sprintf("this cluster runs Calico %q, which is not a release and may be newer than %s, the newest supported", v, NewestKnown)
	case CalicoAtLeast(v, newestMajor, newestMinor+1):
		return fmt.Sprintf("this cluster runs Calico %s, and the newest supported release is %s: use a newer calico-audit, or allow it (--allow-newer-calico)", v, NewestKnown)
	}
	return ""
}
