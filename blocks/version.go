package blocks

import "k8s.io/apimachinery/pkg/util/version"

// CalicoAtLeast reports whether a Calico version such as "v3.32.1" is major.minor or newer.
// It returns false for unknown versions such as "master".
func CalicoAtLeast(v string, major, minor uint) bool {
	parsed, err := version.ParseGeneric(v)
	return err == nil && parsed.AtLeast(version.MajorMinor(major, minor))
}
