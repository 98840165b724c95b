package host

import (
	"bytes"
	"strings"
)

// container identifies a process's container and pod.
type container struct {
	id, podUID string
}

// parseCgroup finds the container in the text of /proc/PID/cgroup, of version 1 (one line
// per controller) or 2 (one line). Container runtimes name cgroups as follows, with or
// without systemd:
//
//	kubepods-burstable-pod<UID, with _ for ->.slice/cri-containerd-<ID>.scope
//	kubepods-pod<UID>.slice/crio-<ID>.scope
//	system.slice/docker-<ID>.scope
//	kubepods/besteffort/pod<UID>/<ID>
//	docker/<ID>
//
// A reader in its own cgroup namespace sees paths relative to its own cgroup
// ("/../../kubepods-…"), and the first elements may be missing. parseCgroup therefore looks
// at single elements, the innermost first.
func parseCgroup(text []byte) container {
	var best container
	for line := range bytes.Lines(text) {
		_, rest, ok := bytes.Cut(bytes.TrimRight(line, "\n"), []byte(":"))
		if !ok {
			continue
		}
		_, path, ok := bytes.Cut(rest, []byte(":"))
		if !ok {
			continue
		}
		var c container
		// If containerd treats systemd's notation as a path, colons are separators, too.
		elements := strings.FieldsFunc(string(path), func(r rune) bool { return r == '/' || r == ':' })
		for i := len(elements) - 1; i >= 0; i-- {
			if c.id == "" {
				c.id = containerID(elements[i])
			}
			if uid := podUID(elements[i]); uid != "" {
				c.podUID = uid
				break // outer elements surround the pod
			}
		}
		// Controllers may be mounted at different depths; prefer a line that names the pod.
		if best == (container{}) || best.podUID == "" && c.podUID != "" || best.id == "" && c.id != "" && c.podUID == best.podUID {
			best = c
		}
	}
	return best
}

// containerID returns the container ID in an element of a cgroup's path; "" if there is
// none.
func containerID(element string) string {
	s := strings.TrimSuffix(element, ".scope")
	if i := strings.LastIndexByte(s, '-'); i >= 0 {
		switch s[:i] {
		case "cri-containerd", "crio", "docker", "containerd", "libpod":
			s = s[i+1:]
		default:
			return "" // such as crio-conmon-<ID>, the container's monitor
		}
	}
	if len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "" {
		return ""
	}
	return s
}

// podUID returns the pod's UID in an element of a cgroup's path; "" if there is none.
func podUID(element string) string {
	s, slice := strings.CutSuffix(element, ".slice")
	i := strings.LastIndex(s, "pod")
	if i < 0 || i > 0 && (!slice || s[i-1] != '-') {
		return ""
	}
	uid := s[i+len("pod"):]
	if slice {
		uid = strings.ReplaceAll(uid, "_", "-") // a dash would nest slices
	}
	// The UID of a static pod is a hash of 32 digits.
	if len(uid) != 36 && len(uid) != 32 || strings.Trim(uid, "0123456789abcdefABCDEF-") != "" {
		return ""
	}
	return uid
}
