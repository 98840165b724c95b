package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// pod creates a namespace like Calico's CNI plugin: a veth pair, with the node's end named
// caliNAME, an address of its own, and a route to it.
func (m *machine) pod(node, name, address4, address6 string) string {
	m.Helper()
	n := m.namespace(name)
	m.run("ip", "-n", node, "link", "add", "cali"+name, "type", "veth", "peer", "name", "eth0", "netns", n)
	m.ip(node, `
		link set cali`+name+` up
		route add `+address4+` dev cali`+name+` scope link
		-6 route add `+address6+` dev cali`+name+`
	`)
	m.ip(n, `
		link set eth0 up
		addr add `+address4+`/32 dev eth0
		-6 addr add `+address6+`/128 dev eth0 nodad
		route add 169.254.1.1 dev eth0
		route add default via 169.254.1.1 dev eth0
	`)
	return n
}

func (m *machine) sleepIn(namespace string) *exec.Cmd {
	m.Helper()
	c := m.start("ip", "netns", "exec", namespace, "sleep", "600")
	m.awaitSleep(c)
	return c
}

// awaitSleep waits until the started program has executed its final sleep.
func (m *machine) awaitSleep(c *exec.Cmd) {
	m.Helper()
	m.await("sleep", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", c.Process.Pid))
		return err == nil && string(bytes.TrimSpace(text)) == "sleep"
	})
}

// TestNamespaces: pods with processes, a namespace held only by a name, one held only by a
// process, and one that is unrelated to Calico but has an address.
func TestNamespaces(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	held := m.pod(n, "held", "10.64.75.5", "2001:db8::c5")
	named := m.pod(n, "named", "10.64.75.6", "2001:db8::c6")
	sleep := m.sleepIn(held)
	second := m.sleepIn(held)

	// Without a link to the node: a bridge's network, not made by a CNI plugin.
	apart := m.namespace("apart")
	m.ip(apart, `
		link add eth0 type veth peer name eth1
		link set eth0 up
		link set eth1 up
		addr add 172.17.0.2/16 dev eth0
	`)
	testenv.Program(t, "unshare", "util-linux")
	anonymous := m.start("unshare", "-n", "sh", "-c", `
		ip link set lo up && ip link add eth0 type veth peer name eth1 && ip link set eth0 up && ip link set eth1 up &&
		ip addr add 10.64.75.7/32 dev eth0 && exec sleep 600`)
	m.awaitSleep(anonymous)

	view := m.scan(n, Options{})

	got := m.find(view, m.inode("/run/netns/"+held))
	pids := []int{sleep.Process.Pid, second.Process.Pid}
	slices.Sort(pids)
	want := blocks.HostNamespace{
		ID: got.ID, Name: held, Addresses: prefixes("10.64.75.5/32", "2001:db8::c5/128"), HostInterfaces: []string{"caliheld"},
		Pids: pids, Commands: []string{"sleep", "sleep"}, States: []string{"S", "S"}, Processes: 2,
	}
	if diff := gocmp.Diff(want, got, comparePrefixes); diff != "" {
		t.Errorf("a namespace with processes (-want +got):\n%s", diff)
	}

	got = m.find(view, m.inode("/run/netns/"+named))
	want = blocks.HostNamespace{
		ID: got.ID, Name: named, Addresses: prefixes("10.64.75.6/32", "2001:db8::c6/128"), HostInterfaces: []string{"calinamed"},
		Pids: []int{}, States: []string{},
	}
	if diff := gocmp.Diff(want, got, comparePrefixes); diff != "" {
		t.Errorf("a namespace with nothing but a name (-want +got):\n%s", diff)
	}

	got = m.find(view, m.inode("/run/netns/"+apart))
	if diff := gocmp.Diff(prefixes("172.17.0.2/16"), got.Addresses, comparePrefixes); diff != "" || got.HostInterfaces == nil || len(got.HostInterfaces) != 0 {
		t.Errorf("a namespace without a link to the node: %+v", got)
	}

	got = m.find(view, m.inode(fmt.Sprintf("/proc/%d/ns/net", anonymous.Process.Pid)))
	if diff := gocmp.Diff(prefixes("10.64.75.7/32"), got.Addresses, comparePrefixes); diff != "" || got.Name != "" || !slices.Equal(got.Pids, []int{anonymous.Process.Pid}) {
		t.Errorf("a namespace without a name: %+v", got)
	}

	own := view.Namespaces[0]
	if !own.Host || own.ID != m.inode("/run/netns/"+n) || !slices.Contains(own.Addresses, prefixes("192.168.7.10/24")[0]) {
		t.Errorf("the node's own namespace: %+v", own)
	}
	for _, other := range view.Namespaces[1:] {
		if other.Host {
			t.Errorf("a second namespace is called the node's own: %+v", other)
		}
		for _, a := range other.Addresses {
			if a.Addr().IsLoopback() || a.Addr().IsLinkLocalUnicast() || a.Addr().IsMulticast() {
				t.Errorf("%s has %s", other.ID, a)
			}
		}
	}
	again := m.scan(n, Options{})
	again.TakenAt = view.TakenAt
	ours := func(v *blocks.HostView) string {
		// Other processes of the machine may come and go.
		c := *v
		c.Gaps = nil
		c.Namespaces = slices.DeleteFunc(slices.Clone(c.Namespaces), func(h blocks.HostNamespace) bool {
			return !h.Host && !strings.HasPrefix(h.Name, m.prefix)
		})
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if diff := gocmp.Diff(ours(view), ours(again)); diff != "" {
		t.Errorf("two scans of the same state differ:\n%s", diff)
	}
}

// TestThreads: the process's first thread never enters a namespace, because it could not
// end.
func TestThreads(t *testing.T) {
	const many = 64 // more than the idle threads, so that the first thread has its turn
	var inside, all sync.WaitGroup
	inside.Add(many)
	var onFirst atomic.Int32
	for range many {
		all.Go(func() {
			onThread(func() {
				if unix.Gettid() == unix.Getpid() {
					onFirst.Add(1)
				}
				inside.Done()
				inside.Wait()
			})
		})
	}
	if all.Wait(); onFirst.Load() > 0 {
		t.Error("it ran on the first thread")
	}
}

// TestLeavesNothingBehind: after a scan, the program is not left in a namespace.
func TestLeavesNothingBehind(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	named := m.pod(n, "named", "10.64.75.8", "2001:db8::c8")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("ip", "netns", "exec", n, exe)
	c.Env = append(os.Environ(), scanAsProgram+"=1")
	got := m.find(decodeView(t, c), m.inode("/run/netns/"+named))
	if len(got.Addresses) == 0 || got.Processes != 0 {
		t.Fatalf("in the second scan the namespace is %+v", got)
	}
}

// TestHolders: a pod's namespace is found with any kind of holder except a socket. If only
// a socket holds it, its veth pair reveals it. The name is removed each time.
func TestHolders(t *testing.T) {
	m := newMachine(t)
	testenv.Program(t, "unshare", "util-linux")
	n := m.node()
	for i, how := range []string{"file", "thread", "mount", "another mount namespace", "socket"} {
		t.Run(how, func(t *testing.T) {
			address := fmt.Sprintf("10.64.75.%d", 20+i)
			name := m.pod(n, fmt.Sprintf("hold%d", i), address, fmt.Sprintf("2001:db8::e%d", i))
			path := "/run/netns/" + name
			inode := m.inode(path)
			switch how {
			case "mount":
				elsewhere := filepath.Join(t.TempDir(), "a place")
				if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				m.run("mount", "--bind", path, elsewhere)
				t.Cleanup(func() { m.run("umount", elsewhere) })
			case "another mount namespace":
				m.awaitSleep(m.start("unshare", "--mount", "--propagation", "private", "sleep", "600"))
			default:
				m.use(path, how)
			}
			if how == "another mount namespace" {
				m.run("umount", path) // deleting its file would unmount it there, too
			} else {
				m.run("ip", "netns", "del", name)
			}
			view := m.scan(n, Options{})
			i := slices.IndexFunc(view.Namespaces, func(h blocks.HostNamespace) bool { return h.ID == inode })
			gaps := strings.Join(view.Gaps, "\n")
			hidden := strings.Contains(gaps, "calihold"+name[len(name)-1:]+": the other end lies in a network namespace")
			switch {
			case how == "socket":
				if i >= 0 || !hidden || view.NamespacesComplete {
					t.Errorf("index %d, complete %t, gaps:\n%s", i, view.NamespacesComplete, gaps)
				}
			case i < 0:
				t.Errorf("it is not seen; gaps:\n%s", gaps)
			case !slices.Contains(view.Namespaces[i].Addresses, netip.MustParsePrefix(address+"/32")) || hidden:
				t.Errorf("it is %+v; gaps:\n%s", view.Namespaces[i], gaps)
			}
			m.run("ip", "-n", n, "link", "del", "calihold"+name[len(name)-1:])
		})
	}
}

// TestComplete: a fully visible machine reports completeness and its boot. A pod's
// namespace without an address may hide one.
func TestComplete(t *testing.T) {
	newMachine(t)
	testenv.Program(t, "unshare", "util-linux")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A separate machine: its own processes, mounts and network. Inherited namespace mounts
	// are unmounted, so that nothing of the test's machine remains.
	machine := func(script string) *blocks.HostView {
		t.Helper()
		c := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--net", "--mount", "--propagation", "private", "sh", "-ec", `
			for d in $(awk '$4 ~ /^net:/ {print $5}' /proc/self/mountinfo); do umount $d; done
			ip link set lo up
			ip link add cali1 type veth peer name eth0
			unshare --net sleep 600 &
			until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep .01; done
			ip link set eth0 netns $!
			ip link set cali1 up
			`+script+`
			`+exe+`; exit $?`)
		c.Env = append(os.Environ(), scanAsProgram+"=1", "KUBERNETES_SERVICE_HOST=")
		return decodeView(t, c)
	}
	const address = "nsenter -t $! -n ip addr add 10.0.0.5/32 dev eth0; nsenter -t $! -n ip link set eth0 up; "
	view := machine(address)
	if !view.NamespacesComplete || len(view.Namespaces) != 2 || view.BootID == "" {
		t.Errorf("complete %t, boot %q, %d namespaces, gaps %q", view.NamespacesComplete, view.BootID, len(view.Namespaces), view.Gaps)
	}
	for name, c := range map[string]struct{ script, gap string }{
		"no address":   {"", "is joined to the node by cali1 and has no address"},
		"within a pod": {address + "export KUBERNETES_SERVICE_HOST=10.0.0.1;", "not the node's (hostPID)"},
	} {
		if view := machine(c.script); view.NamespacesComplete || !strings.Contains(strings.Join(view.Gaps, "\n"), c.gap) {
			t.Errorf("%s: complete %t, gaps %q", name, view.NamespacesComplete, view.Gaps)
		}
	}
}

// TestUninterruptible: processes in state D, which hold a pod's address although nothing
// can end them, come first. So do processes with only a thread left.
func TestUninterruptible(t *testing.T) {
	m := newMachine(t)
	cc := testenv.Program(t, "gcc", "gcc libc6-dev")
	stuck := filepath.Join(t.TempDir(), "stuck")
	m.run(cc, "-O1", "-pthread", "-o", stuck, filepath.Join("testdata", "stuck.c"))
	n := m.node()
	for _, c := range []struct{ name, argument, address string }{
		{"vfork", "whole", "10.64.75.10"},
		{"thread", "thread", "10.64.75.11"},
	} {
		p := m.pod(n, c.name, c.address, "2001:db8::"+c.address[len(c.address)-1:])
		for range 20 {
			m.start("ip", "netns", "exec", p, "sleep", "600")
		}
		process := m.start("ip", "netns", "exec", p, stuck, c.argument)
		var got blocks.HostNamespace
		m.await("a process in state D in "+p, func() bool {
			got = m.find(m.scan(n, Options{}), m.inode("/run/netns/"+p))
			return got.Processes == 22 && got.States[0] == "D" && got.Commands[0] == "stuck"
		})
		if got.Pids[0] != process.Process.Pid {
			t.Errorf("%s: process %d is first, want %d: %+v", c.name, got.Pids[0], process.Process.Pid, got)
		}
		if len(got.Pids) != 16 || len(got.States) != 16 || len(got.Commands) != 16 {
			t.Errorf("%s: the list is not cut at 16: %+v", c.name, got)
		}
		if n := slices.Index(got.States[1:], "D"); n >= 0 {
			t.Errorf("%s: process %d is in state D", c.name, got.Pids[1+n])
		}
		if !slices.Contains(got.Addresses, prefixes(c.address + "/32")[0]) {
			t.Errorf("%s: its address is missing: %+v", c.name, got)
		}
	}
}

// TestSandbox: the container of a namespace's oldest process is found by its cgroup.
func TestSandbox(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	p := m.pod(n, "sandbox", "10.64.75.12", "2001:db8::cc")
	root := cgroupRoot(t)
	uid := "3f1c9a52_7d4e_4b0a_9f61_0c2b8d5e7a90"
	slice := filepath.Join(root, m.prefix+".slice", "kubepods-besteffort-pod"+uid+".slice")
	t.Cleanup(func() { _ = os.Remove(slice); _ = os.Remove(filepath.Dir(slice)) })
	ids := []string{strings.Repeat("5a", 32), strings.Repeat("c0", 32)}
	for _, id := range ids {
		dir := filepath.Join(slice, "cri-containerd-"+id+".scope")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // runs after the process has ended
			m.await("the end of "+dir, func() bool { return os.Remove(dir) == nil })
		})
		c := m.sleepIn(p)
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(c.Process.Pid)), 0o644); err != nil {
			t.Fatal(err)
		}
		pid := c.Process.Pid
		m.await("a later clock tick", func() bool { return ticks(t, "self") > ticks(t, strconv.Itoa(pid)) })
	}
	check := func(how string, view *blocks.HostView) {
		t.Helper()
		got := m.find(view, m.inode("/run/netns/"+p))
		if got.Sandbox != ids[0] || got.PodUID != strings.ReplaceAll(uid, "_", "-") {
			t.Errorf("%s: sandbox %q of pod %q", how, got.Sandbox, got.PodUID)
		}
	}
	check("from the node", m.scan(n, Options{}))

	// As an agent in a pod sees it: relative to its own cgroup.
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("ip", "netns", "exec", n, "unshare", "--cgroup", exe)
	c.Env = append(os.Environ(), scanAsProgram+"=1")
	check("from another cgroup namespace", decodeView(t, c))
}

// ticks returns the start time of a process; "self" starts a new one.
func ticks(t *testing.T, pid string) uint64 {
	t.Helper()
	var text []byte
	var err error
	if pid == "self" {
		text, err = exec.Command("cat", "/proc/self/stat").Output()
	} else {
		text, err = os.ReadFile("/proc/" + pid + "/stat")
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseStat(text)
	if err != nil {
		t.Fatal(err)
	}
	return s.started
}

// cgroupRoot returns a place for cgroups without controllers: version 2, or the named
// hierarchy of version 1.
func cgroupRoot(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/systemd"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			return dir
		}
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		t.Fatalf("this test needs a cgroup hierarchy, and none can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestWithoutRights: forbidden reads are gaps; all else is read.
func TestWithoutRights(t *testing.T) {
	m := newMachine(t)
	testenv.Program(t, "setpriv", "util-linux")
	n := m.node()
	foreign := m.pod(n, "foreign", "10.64.75.13", "2001:db8::cd")
	named := m.pod(n, "named", "10.64.75.14", "2001:db8::ce")
	process := m.start("ip", "netns", "exec", foreign, "setpriv", "--reuid", "65534", "--clear-groups", "sleep", "600")
	m.awaitSleep(process)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	scan := func(capabilities string) *blocks.HostView {
		c := exec.Command("ip", "netns", "exec", n, "setpriv", "--bounding-set", capabilities, "--inh-caps", capabilities, exe)
		c.Env = append(os.Environ(), scanAsProgram+"=1")
		return decodeView(t, c)
	}
	const enterGap, askGap = "CAP_SYS_ADMIN to enter them", "CAP_SYS_PTRACE"

	view := scan("-all")
	gaps := strings.Join(view.Gaps, "\n")
	if !strings.Contains(gaps, askGap) || !strings.Contains(gaps, enterGap) {
		t.Errorf("without any capability, the gaps are:\n%s", gaps)
	}
	for _, name := range []string{foreign, named} {
		if got := m.find(view, m.inode("/run/netns/"+name)); len(got.Addresses)+got.Processes > 0 {
			t.Errorf("without any capability, a namespace is %+v", got)
		}
	}
	if len(view.Routes) == 0 || len(view.Lookups) == 0 {
		t.Errorf("routes and lookups take no capability: %d and %d were read", len(view.Routes), len(view.Lookups))
	}

	view = scan("-all,+sys_ptrace")
	got := m.find(view, m.inode("/run/netns/"+foreign))
	if !slices.Equal(got.Pids, []int{process.Process.Pid}) || !slices.Contains(got.Addresses, prefixes("10.64.75.13/32")[0]) || !slices.Equal(got.HostInterfaces, []string{"califoreign"}) {
		t.Errorf("with CAP_SYS_PTRACE, the namespace of another user's process is %+v", got)
	}
	got = m.find(view, m.inode("/run/netns/"+named))
	if len(got.Addresses) != 0 || !slices.Equal(got.HostInterfaces, []string{"calinamed"}) {
		t.Errorf("with CAP_SYS_PTRACE, the namespace of no process is %+v", got)
	}
	if gaps := strings.Join(view.Gaps, "\n"); strings.Contains(gaps, foreign) || !strings.Contains(gaps, enterGap) {
		t.Errorf("with CAP_SYS_PTRACE, the gaps are:\n%s", gaps)
	}

	view = scan("-all,+sys_ptrace,+sys_admin")
	got = m.find(view, m.inode("/run/netns/"+named))
	if !slices.Contains(got.Addresses, prefixes("10.64.75.14/32")[0]) {
		t.Errorf("with CAP_SYS_ADMIN, the namespace of no process is %+v", got)
	}
}

// TestStaleName: a file in a directory of named namespaces without a mounted namespace.
func TestStaleName(t *testing.T) {
	m := newMachine(t)
	n := m.node()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cni-gone"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	view := m.scan(n, Options{NetnsDirs: []string{dir, filepath.Join(dir, "missing")}})
	gaps := strings.Join(view.Gaps, "\n")
	if !strings.Contains(gaps, filepath.Join(dir, "cni-gone")+": no network namespace is mounted there") || strings.Contains(gaps, "missing") {
		t.Errorf("the gaps are:\n%s", gaps)
	}
}

// TestPlace: a container that does not share the node's processes or network reports that.
func TestPlace(t *testing.T) {
	m := newMachine(t)
	testenv.Program(t, "unshare", "util-linux")
	n := m.node()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const noProcesses, noNetwork = "not the node's (hostPID)", "needs the host network (hostNetwork)"
	for _, c := range []struct {
		name    string
		args    []string
		want    []string
		wantNot []string
	}{
		{"both shared", []string{"sh", "-c", exe + "; exit $?"}, nil, []string{noProcesses, noNetwork}},
		{"processes not shared", []string{exe}, []string{noProcesses}, []string{noNetwork}},
		{"network not shared", []string{"sh", "-c", "ip netns exec " + n + " " + exe + "; exit $?"}, []string{noNetwork}, []string{noProcesses}},
	} {
		cmd := exec.Command("unshare", append([]string{"--pid", "--fork", "--mount-proc", "--kill-child"}, c.args...)...)
		cmd.Env = append(os.Environ(), scanAsProgram+"=1")
		gaps := strings.Join(decodeView(t, cmd).Gaps, "\n")
		for _, want := range c.want {
			if !strings.Contains(gaps, want) {
				t.Errorf("%s: the gaps do not say %q:\n%s", c.name, want, gaps)
			}
		}
		for _, not := range c.wantNot {
			if strings.Contains(gaps, not) {
				t.Errorf("%s: the gaps say %q", c.name, not)
			}
		}
	}
}

// TestProcRoot: a wrong directory is an error, not a machine without processes.
func TestProcRoot(t *testing.T) {
	m := newMachine(t)
	n := m.namespace("node")
	m.inside(n, func() error {
		if view, err := Scan(t.Context(), Options{ProcRoot: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "it is not a proc file system") {
			t.Errorf("view %v, error %v", view, err)
		}
		return nil
	})
}

func decodeView(t *testing.T, c *exec.Cmd) *blocks.HostView {
	t.Helper()
	var errOut bytes.Buffer
	c.Stderr = &errOut
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s", c.Args, err, &errOut)
	}
	var view blocks.HostView
	if err := json.Unmarshal(out, &view); err != nil {
		t.Fatal(err)
	}
	return &view
}
