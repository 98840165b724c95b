package host

import (
	"bytes"
	"strings"
)

// container says which container a process runs in, and of which pod.
type container struct {
	id, podUID string
}

// parseCgroup finds the container in the text of /proc/PID/cgroup, of version 1 (a
// line a controller) or 2 (one line). The container runtimes make cgroups of these
// names, with systemd or without:
//
//	kubepods-burstable-pod<UID, with _ for ->.slice/cri-containerd-<ID>.scope
//	kubepods-pod<UID>.slice/crio-<ID>.scope
//	system.slice/docker-<ID>.scope
//	kubepods/besteffort/pod<UID>/<ID>
//	docker/<ID>
//
// A reader with a cgroup namespace of its own sees paths relative to its own
// cgroup ("/../../kubepods-…"), and parts of the front may be missing. What is
// looked for is therefore single elements of the path, the innermost first.
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
		// Where containerd takes systemd's notation for a path, colons separate, too.
		elements := strings.FieldsFunc(string(path), func(r rune) bool { return r == '/' || r == ':' })
		for i := len(elements) - 1; i >= 0; i-- {
			if c.id == "" {
				c.id = containerID(elements[i])
			}
			if uid := podUID(elements[i]); uid != "" {
				c.podUID = uid
				break // what is further out is around the pod, not in it
			}
		}
		// Controllers may be mounted at different depths; what names the pod tells most.
		if best == (container{}) || best.podUID == "" && c.podUID != "" || best.id == "" && c.id != "" && c.podUID == best.podUID {
			best = c
		}
	}
	return best
}

// containerID returns the ID that an element of a cgroup's path names, or "".
func containerID(element string) string {
	s := strings.TrimSuffix(element, ".scope")
	if i := strings.LastIndexByte(s, '-'); i >= 0 {
		switch s[:i] {
		case "cri-containerd", "crio", "docker", "containerd", "libpod":
			s = s[i+1:]
		default:
			return "" // crio-conmon-<ID> is the container's monitor, not the container
		}
	}
	if len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "" {
		return ""
	}
	return s
}

// podUID returns the pod's UID that an element of a cgroup's path names, or "".
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
	// Pods from a file on the node have a hash of 32 digits for a UID.
	if len(uid) != 36 && len(uid) != 32 || strings.Trim(uid, "0123456789abcdefABCDEF-") != "" {
		return ""
	}
	return uid
}
