// Package build returns the version of the program.
package build

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// version is set by the linker in releases (-ldflags "-X …/build.version=v1.2.3").
// Otherwise the version that Go recorded at build time is used.
var version string

// Version describes the build of the program.
type Version struct {
	// Version of calico-audit; "(devel)" for a build outside a release.
	Version string `json:"version"`
	// Commit is the revision of the source; empty if unknown. Date is its time.
	Commit string `json:"commit,omitempty"`
	Date   string `json:"date,omitempty"`
	// Modified is true if the source had uncommitted changes.
	Modified bool `json:"modified,omitempty"`
	// Go is the compiler's version. Platform is the target, such as "linux/amd64".
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Calico and Kubernetes are the versions of the linked Calico module and Kubernetes
	// client.
	Calico     string `json:"calico,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Read returns the version that is recorded in the binary.
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
