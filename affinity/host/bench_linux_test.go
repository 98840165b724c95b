package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/calico-audit/calico-audit/blocks"
)

// The measured machine: a node of a large cluster.
const (
	benchRoutes     = 10_000
	benchNamespaces = 300
	benchScans      = 5
)

// BenchmarkScan measures, on a machine with 10,000 routes and 300 pods:
//
//   - the CPU time of a scan, in seconds and relative to the floor: the time of "ip" to list the
//     same routes, plus reading the link to each process's network namespace;
//   - the peak resident memory of "calico-audit agent" after several scans, and its private part,
//     without mapped pages of the program file; also relative to "calico-audit version", the same
//     program doing nothing.
func BenchmarkScan(b *testing.B) {
	m := newMachine(b)
	n := m.largeNode()
	for b.Loop() {
		var scan, floor time.Duration
		m.inside(n, func() error {
			for range benchScans {
				before := cpu()
				v, err := Scan(context.Background(), Options{})
				if err != nil {
					return err
				}
				scan += cpu() - before
				if len(v.Routes) < benchRoutes || len(v.Namespaces) < benchNamespaces || len(v.Lookups) < 10 {
					return fmt.Errorf("the view has %d routes, %d namespaces, %d lookups", len(v.Routes), len(v.Namespaces), len(v.Lookups))
				}
			}
			return nil
		})
		for range benchScans {
			floor += m.floor(n)
		}
		b.ReportMetric(scan.Seconds()/benchScans, "CPU-s/scan")
		if scan > benchScans*time.Second/2 {
			b.Errorf("a scan takes %s of processor time: agents are asked every few minutes, and share their node", scan/benchScans)
		}
		b.ReportMetric(scan.Seconds()/floor.Seconds(), "x-floor")

		peak, own, idle := m.agentMemory(n)
		b.ReportMetric(float64(peak), "B/agent-peak")
		b.ReportMetric(float64(own), "B/agent-own")
		b.ReportMetric(float64(peak)/float64(idle), "x-version-peak")
	}
}

// largeNode creates the machine.
func (m *machine) largeNode() string {
	m.Helper()
	n := m.namespace("node")
	m.ip(n, `
		link add uplink type veth peer name far
		link set uplink up
		link set far up
		addr add 192.168.0.10/16 dev uplink
		-6 addr add fd07::10/64 dev uplink nodad
	`)
	pods := make([]string, benchNamespaces)
	var all, node, inside strings.Builder
	for i := range pods {
		pods[i] = fmt.Sprintf("%sp%d", m.prefix, i)
		fmt.Fprintf(&all, "netns add %s\n", pods[i])
		fmt.Fprintf(&node, "link add cali%011x type veth peer name eth0 netns %s\nlink set cali%011x up\n", i, pods[i], i)
		a := fmt.Sprintf("10.64.%d.%d", i/64, i%64)
		fmt.Fprintf(&node, "route add %s dev cali%011x scope link proto 80\n", a, i)
		fmt.Fprintf(&inside, "%s addr add %s/32 dev eth0\n", pods[i], a)
	}
	m.Cleanup(func() {
		var deletions strings.Builder
		for _, p := range pods {
			fmt.Fprintf(&deletions, "netns del %s\n", p)
		}
		_ = m.batch("", deletions.String())
	})
	for i := range 5 {
		fmt.Fprintf(&node, "route add blackhole 10.64.%d.0/26 proto bird\nroute add blackhole 2001:db8:%x::/122 proto bird\n", i, i)
	}
	for i := range benchRoutes - benchNamespaces {
		fmt.Fprintf(&node, "route add 10.%d.%d.%d/26 via 192.168.1.%d dev uplink proto bird\n", 65+i/1024, i/4%256, i%4*64, 1+i%250)
	}
	for _, c := range []struct{ namespace, commands string }{{"", all.String()}, {n, node.String()}} {
		if err := m.batch(c.namespace, c.commands); err != nil {
			m.Fatal(err)
		}
	}
	for _, p := range pods {
		_, commands, _ := strings.Cut(inside.String(), p+" ")
		commands, _, _ = strings.Cut(commands, "\n")
		if err := m.batch(p, "link set lo up\nlink set eth0 up\n"+commands+"\n"); err != nil {
			m.Fatal(err)
		}
		m.start("ip", "netns", "exec", p, "sleep", "3600")
	}
	return n
}

// batch runs many ip commands at once.
func (m *machine) batch(namespace, commands string) error {
	args := []string{"-batch", "-"}
	if namespace != "" {
		args = append([]string{"-n", namespace}, args...)
	}
	c := exec.Command("ip", args...)
	c.Stdin = strings.NewReader(commands)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", c.Args, err, out)
	}
	return nil
}

// floor returns the CPU time of the minimum work for the facts of a scan.
func (m *machine) floor(namespace string) time.Duration {
	m.Helper()
	var spent time.Duration
	for _, family := range []string{"-4", "-6"} {
		c := exec.Command("ip", "-n", namespace, family, "-j", "route", "show", "table", "all")
		out, err := c.Output()
		if err != nil || !json.Valid(out) {
			m.Fatalf("%v: %v", c.Args, err)
		}
		spent += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	before := cpu()
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil || len(links) < benchNamespaces {
		m.Fatalf("%d processes, %v", len(links), err)
	}
	for _, l := range links {
		_, _ = os.Readlink(l)
	}
	return spent + cpu() - before
}

// cpu returns the CPU time of this process so far.
func cpu() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// agentMemory runs the real program. It returns the peak of the agent's resident memory,
// its private part at the end, and the peak of the program doing nothing.
func (m *machine) agentMemory(namespace string) (peak, own, idle uint64) {
	m.Helper()
	program := filepath.Join(m.TempDir(), "calico-audit")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program+".new", "../../cmd/calico-audit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		m.Fatalf("%v: %s", err, out)
	}
	m.run("cp", program+".new", program)

	version := exec.Command(program, "version")
	if err := version.Run(); err != nil {
		m.Fatal(err)
	}
	idle = uint64(version.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) * 1024

	const address = "127.0.0.1:19098"
	c := m.start("ip", "netns", "exec", namespace, program, "agent", "--listen", address, "--max-age", "0s")
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (conn net.Conn, err error) {
		m.inside(namespace, func() error {
			conn, err = net.Dial("tcp", address)
			return nil
		})
		return conn, err
	}}}
	defer client.CloseIdleConnections()
	get := func(path string) error {
		r, err := client.Get("http://" + address + path)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return errors.New(r.Status)
		}
		if path != "/hostview" {
			_, err = io.Copy(io.Discard, r.Body)
			return err
		}
		var v blocks.HostView
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			return err
		}
		if len(v.Routes) < benchRoutes || len(v.Namespaces) < benchNamespaces {
			return fmt.Errorf("the view has %d routes and %d namespaces", len(v.Routes), len(v.Namespaces))
		}
		return nil
	}
	m.await("the agent", func() bool { return get("/healthz") == nil })
	for range 20 {
		for _, path := range []string{"/hostview", "/metrics"} {
			if err := get(path); err != nil {
				m.Fatalf("%s: %v", path, err)
			}
		}
	}
	return m.status(c.Process.Pid, "VmHWM"), m.status(c.Process.Pid, "RssAnon"), idle
}

// status returns a size from /proc/PID/status, in bytes.
func (m *machine) status(pid int, field string) uint64 {
	m.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		m.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), field+":"); ok {
			kB, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				m.Fatal(err)
			}
			return kB * 1024
		}
	}
	m.Fatalf("no %s of process %d", field, pid)
	return 0
}
