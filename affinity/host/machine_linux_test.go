package host

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// scanAsProgram makes the test binary print a host view, in a process of its own.
const scanAsProgram = "CALICO_AUDIT_TEST_SCAN"

// useAsProgram makes the test binary hold a network namespace; its value is "HOW PATH".
const useAsProgram = "CALICO_AUDIT_TEST_HOLD"

func TestMain(m *testing.M) {
	if how, path, use := strings.Cut(os.Getenv(useAsProgram), " "); use {
		useNamespace(how, path)
	}
	if os.Getenv(scanAsProgram) == "" {
		os.Exit(m.Run())
	}
	view, err := Scan(context.Background(), Options{})
	if err == nil {
		// The second view shows leftovers of the first scan.
		view, err = Scan(context.Background(), Options{})
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(view)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// useNamespace holds a namespace by an open file, a thread or a socket, reports it, and
// never returns.
func useNamespace(how, path string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	file, err := os.Open(path)
	fail(err)
	if how != "file" {
		onThread(func() {
			fail(unix.Setns(int(file.Fd()), unix.CLONE_NEWNET))
			if how == "socket" {
				_, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
				fail(err)
				return // the thread ends, and leaves the namespace
			}
			fail(file.Close())
			fmt.Println("held")
			time.Sleep(time.Hour) // without cgo, the runtime would report select {} as a deadlock
		})
		fail(file.Close())
	}
	fmt.Println("held")
	time.Sleep(time.Hour)
}

// machine creates real network namespaces, and removes them however the test ends.
type machine struct {
	testing.TB
	prefix string
}

var machines atomic.Int32

func newMachine(t testing.TB) *machine {
	t.Helper()
	testenv.Root(t)
	testenv.Program(t, "ip", "iproute2")
	return &machine{t, fmt.Sprintf("ca%d-%d", os.Getpid(), machines.Add(1))}
}

// namespace creates a named network namespace and returns its name.
func (m *machine) namespace(name string) string {
	m.Helper()
	name = m.prefix + name
	m.run("ip", "netns", "add", name)
	m.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil && !bytes.Contains(out, []byte("No such file")) {
			m.Errorf("taking %s down: %v: %s", name, err, out)
		}
	})
	m.run("ip", "-n", name, "link", "set", "lo", "up")
	return name
}

// ip runs one ip command per line in a namespace.
func (m *machine) ip(namespace, commands string) {
	m.Helper()
	for line := range strings.Lines(commands) {
		if args := strings.Fields(line); len(args) > 0 {
			m.run("ip", append([]string{"-n", namespace}, args...)...)
		}
	}
}

func (m *machine) run(name string, args ...string) []byte {
	m.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		m.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// start runs a program until the test ends.
func (m *machine) start(name string, args ...string) *exec.Cmd {
	m.Helper()
	c := exec.Command(name, args...)
	c.Stderr = os.Stderr
	// All of its children end with it.
	c.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		_ = unix.Kill(-c.Process.Pid, unix.SIGKILL)
		_ = c.Wait()
	})
	return c
}

// use starts a process that holds a namespace until the test ends.
func (m *machine) use(path, how string) {
	m.Helper()
	exe, err := os.Executable()
	if err != nil {
		m.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env, c.Stderr = append(os.Environ(), useAsProgram+"="+how+" "+path), os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		m.Fatal(err)
	}
	if err := c.Start(); err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		m.Fatalf("holding %s by a %s: %q, %v", path, how, line, err)
	}
}

// inside runs f in a named namespace.
func (m *machine) inside(namespace string, f func() error) {
	m.Helper()
	var err error
	onThread(func() {
		var file *os.File
		if file, err = os.Open(filepath.Join("/run/netns", namespace)); err != nil {
			return
		}
		defer file.Close()
		if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err == nil {
			err = f()
		}
	})
	if err != nil {
		m.Fatal(err)
	}
}

// scan scans with a namespace as the node's own.
func (m *machine) scan(namespace string, o Options) *blocks.HostView {
	m.Helper()
	var view *blocks.HostView
	m.inside(namespace, func() (err error) {
		view, err = Scan(context.Background(), o)
		return err
	})
	return view
}

// inode returns the inode of a namespace.
func (m *machine) inode(path string) string {
	m.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		m.Fatalf("%s: %v", path, err)
	}
	return strconv.FormatUint(st.Ino, 10)
}

// await waits for a condition.
func (m *machine) await(what string, ok func() bool) {
	m.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.Fatalf("waiting in vain: %s", what)
		}
	}
}

// find returns the namespace with an inode.
func (m *machine) find(view *blocks.HostView, inode string) blocks.HostNamespace {
	m.Helper()
	i := slices.IndexFunc(view.Namespaces, func(n blocks.HostNamespace) bool { return n.ID == inode })
	if i < 0 {
		m.Fatalf("namespace %s is not in the view", inode)
	}
	return view.Namespaces[i]
}

var comparePrefixes = cmpopts.EquateComparable(netip.Prefix{})

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}
