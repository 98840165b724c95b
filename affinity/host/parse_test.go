package host

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func joined(prefixes []netip.Prefix) string {
	var out []string
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return strings.Join(out, " ")
}

// A Calico pod: its own address and the link-local gateway.
const triePod = `Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 10.64.75.134
        /32 host LOCAL
     +-- 127.0.0.0/8 2 0 2
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
     |-- 169.254.1.1
        /32 link UNICAST
Local:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.64.75.134
        /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
`

// A namespace behind a bridge. Its address shares a leaf with a route, rules separate the
// tables, and another address is local only in a custom table.
const trieBridge = `Main:
  +-- 0.0.0.0/0 2 0 2
     +-- 172.17.0.0/16 2 0 2
        |-- 172.17.0.0
           /16 link UNICAST
           /24 link UNICAST
           /32 link UNICAST
Id 100:
  +-- 0.0.0.0/0 2 0 2
     |-- 10.9.9.9
        /32 host LOCAL
     |-- 0.0.0.0
        /0 host LOCAL
Local:
  +-- 172.17.0.0/16 2 0 2
     +-- 172.17.0.0/30 2 0 2
        |-- 172.17.0.0
           /32 link BROADCAST
        |-- 172.17.0.2
           /32 host LOCAL
        |-- 172.17.200.3
           /32 host LOCAL
     |-- 172.17.255.255
        /32 link BROADCAST
`

func TestFibTrie(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a pod", triePod, "10.64.75.134/32"},
		{"addresses of connected networks", trieBridge, "172.17.0.2/24 172.17.200.3/16"},
		{"a namespace without addresses", "Main:\n  +-- 0.0.0.0/0 3 0 5\n", ""},
		{"nothing", "", ""},
		{"cut in the middle", triePod[:strings.Index(triePod, "/32 host")+3], ""},
		{"a leaf without an address", "Main:\n     |-- nonsense\n        /32 host LOCAL\n", ""},
		{"a local line under a branch", "Main:\n     |-- 10.0.0.1\n     +-- 10.0.0.0/8 2 0 2\n        /32 host LOCAL\n", ""},
	} {
		if got := joined(parseFibTrie([]byte(c.text))); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestIfInet6(t *testing.T) {
	text := `fe80000000000000e81fedfffe1fe66a 03 40 20 80     eth0
20010db80000000000000000000000c3 03 80 00 82     eth0
fd000000000000000000000000000005 1f 40 00 80 cali0123456
00000000000000000000000000000001 01 80 10 80       lo
20010db80000000000000000000000zz 03 80 00 82     eth0
20010db80000000000000000000000c4 03 ff 00 82     eth0
20010db8 03
`
	if got, want := joined(parseIfInet6([]byte(text))), "2001:db8::c3/128 fd00::5/64"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStat(t *testing.T) {
	rest := " 1 4711 4711 0 -1 4194560 1234 0 0 0 10 5 0 0 20 0 3 0 987654 1000 200 18446744073709551615 1 1\n"
	for _, c := range []struct {
		name, text string
		want       processStat
	}{
		{"plain", "4711 (nginx) S" + rest, processStat{"nginx", "S", 3, false, 987654}},
		{"parentheses and spaces", "4711 (a) R (b) ) D" + rest, processStat{"a) R (b) ", "D", 3, false, 987654}},
		{"no name", "4711 () Z" + rest, processStat{"", "Z", 3, false, 987654}},
		{"a line end and an escape sequence", "4711 (x\n\x1b[2J) R" + rest, processStat{"x??[2J", "R", 3, false, 987654}},
		{"no UTF-8", "4711 (x\xff) R" + rest, processStat{"x?", "R", 3, false, 987654}},
		{"a thread of the kernel", "12 (kworker/u8:0+netns) D 2 0 0 0 -1 69238880 0 0 0 0 0 162 0 0 20 0 1 0 31 0 0", processStat{"kworker/u8:0+netns", "D", 1, true, 31}},
	} {
		got, err := parseStat([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(processStat{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	for _, bad := range []string{"", "4711", "4711 (nginx", "4711 )nginx( S", "4711 (nginx) S 1 2 3", "4711 (nginx)" + rest} {
		if got, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

func TestCgroup(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	other := strings.Repeat("fedcba9876543210", 4)
	uid := "3f1c9a52-7d4e-4b0a-9f61-0c2b8d5e7a90"
	slice := strings.ReplaceAll(uid, "-", "_")
	pod := container{id, uid}
	for _, c := range []struct {
		name, text string
		want       container
	}{
		{"containerd with systemd, version 2", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slice + ".slice/cri-containerd-" + id + ".scope", pod},
		{"a guaranteed pod", "0::/kubepods.slice/kubepods-pod" + slice + ".slice/cri-containerd-" + id + ".scope", pod},
		{"CRI-O with a cgroup within", "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + slice + ".slice/crio-" + id + ".scope/container", pod},
		{"CRI-O's monitor", "0::/kubepods.slice/kubepods-besteffort-pod" + slice + ".slice/crio-conmon-" + id + ".scope", container{"", uid}},
		{"without systemd", "0::/kubepods/besteffort/pod" + uid + "/" + id, pod},
		{"version 1", "12:pids:/kubepods/burstable/pod" + uid + "/" + id + "\n1:name=systemd:/kubepods/burstable/pod" + uid + "/" + id + "\n", pod},
		{"version 1, a controller outside", "2:cpu:/\n11:memory:/kubepods/pod" + uid + "/" + id + "\n0::/system.slice/containerd.service\n", pod},
		{"both versions, the container in one", "1:name=systemd:/docker/" + id + "\n0::/\n", container{id: id}},
		{"containerd in systemd's notation", "0::/kubepods-besteffort-pod" + slice + ".slice:cri-containerd:" + id, pod},
		{"seen from another cgroup namespace", "0::/../../kubepods-besteffort-pod" + slice + ".slice/cri-containerd-" + id + ".scope", pod},
		{"seen from another cgroup namespace, without systemd", "0::/../../pod" + uid + "/" + id, pod},
		{"a node in a container", "0::/docker/" + other + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + slice + ".slice/cri-containerd-" + id + ".scope", pod},
		{"a pod's cgroup within such a node", "0::/docker/" + other + "/kubepods/pod" + uid, container{"", uid}},
		{"a pod from a file on the node", "0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" + id, container{id, "0123456789abcdef0123456789abcdef"}},
		{"Docker", "0::/system.slice/docker-" + id + ".scope", container{id: id}},
		{"Podman", "0::/machine.slice/libpod-" + id + ".scope/container", container{id: id}},
		{"a service of the node", "0::/system.slice/kubelet.service", container{}},
		{"a user's session", "0::/user.slice/user-1000.slice/session-2.scope", container{}},
		{"a service with a telling name", "0::/system.slice/podman.service\n0::/podinfo", container{}},
		{"nothing", "", container{}},
		{"no cgroup line", "kubepods/pod" + uid + "/" + id, container{}},
	} {
		if got := parseCgroup([]byte(c.text)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func FuzzFibTrie(f *testing.F) {
	f.Add([]byte(triePod))
	f.Add([]byte(trieBridge))
	f.Fuzz(func(t *testing.T, text []byte) { wellFormed(t, parseFibTrie(text)) })
}

func FuzzIfInet6(f *testing.F) {
	f.Add([]byte("20010db80000000000000000000000c3 03 80 00 82     eth0\n"))
	f.Fuzz(func(t *testing.T, text []byte) { wellFormed(t, parseIfInet6(text)) })
}

func wellFormed(t *testing.T, all []netip.Prefix) {
	for i, p := range all {
		a := p.Addr()
		if !p.IsValid() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified() {
			t.Errorf("%s is no address that counts", p)
		}
		if i > 0 && compareAddresses(all[i-1], p) >= 0 {
			t.Errorf("%s and %s are out of order", all[i-1], p)
		}
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("4711 (a) R (b) ) D 1 4711 4711 0 -1 4194560 1234 0 0 0 10 5 0 0 20 0 3 0 987654 1000\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseStat(text); err == nil && (len(s.state) != 1 || strings.ContainsAny(s.comm, "\n\x1b\x00")) {
			t.Errorf("%q was read as %+v", text, s)
		}
	})
}

func FuzzCgroup(f *testing.F) {
	f.Add("0::/../../kubepods-besteffort-pod3f1c9a52_7d4e_4b0a_9f61_0c2b8d5e7a90.slice/cri-containerd-" + strings.Repeat("a", 64) + ".scope\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := parseCgroup([]byte(text))
		if c.id != "" && (len(c.id) != 64 || !strings.Contains(text, c.id)) {
			t.Errorf("container %q of %q", c.id, text)
		}
		if n := len(c.podUID); n != 0 && n != 32 && n != 36 {
			t.Errorf("pod %q of %q", c.podUID, text)
		}
	})
}
