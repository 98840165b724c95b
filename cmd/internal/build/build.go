// Package build says what the program was built from.
package build

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (-ldflags "-X …/build.version=v1.2.3") for released
// binaries; else the version that Go recorded at build time is used.
var version string

// Version says what was built, and from what.
type Version struct {
	// Version of calico-audit; "(devel)" for a build outside a release.
	Version string `json:"version"`
	// Commit is the revision that was built; empty when unknown. Date is its time.
	Commit string `json:"commit,omitempty"`
	Date   string `json:"date,omitempty"`
	// Modified is true if the source had changes that were not committed.
	Modified bool `json:"modified,omitempty"`
	// Go is the compiler's version, Platform the system built for.
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Calico is the version of the Calico module that was built in, and Kubernetes
	// that of the Kubernetes client.
	Calico     string `json:"calico,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Read reads the version from what Go recorded in the binary.
func Read() Version {
	v := Version{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		v.Version = cmp.Or(v.Version, "(devel)")
		return v
	}
	v.Version = cmp.Or(v.Version, info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	for _, d := range info.Deps {
		switch d.Path {
		case "github.com/projectcalico/calico":
			v.Calico = d.Version
		case "k8s.io/client-go":
			v.Kubernetes = d.Version
		}
	}
	return v
}
