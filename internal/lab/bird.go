package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Config holds the configuration files of a machine's BIRDs by name: bird.cfg and
// bird6.cfg, and the files that they include.
type Config map[string]string

// tunnelStatement matches a statement that Debian's BIRD does not support. With an empty name, it
// selects no tunnel device, as an unpatched BIRD does anyway.
var tunnelStatement = regexp.MustCompile(`(?m)^\s*krt_tunnel = "(.*)";.*\n`)

// newConfig adapts files that Calico's confd rendered to Debian's BIRD.
func newConfig(files map[string]string) (Config, error) {
	config := Config{}
	for name, text := range files {
		for _, statement := range tunnelStatement.FindAllStringSubmatch(text, -1) {
			if statement[1] != "" {
				return nil, fmt.Errorf("%s sends routes into %s, which only Calico's BIRD can", name, statement[1])
			}
		}
		config[name] = tunnelStatement.ReplaceAllString(text, "")
	}
	return config, nil
}

// bird is a running BIRD for one address family.
type bird struct {
	machine, program string
	dir              string
	log              string
	process          *exec.Cmd
	// ended is closed when the process has ended.
	ended chan struct{}
}

// startBIRDs starts one BIRD for each family that the machine has a configuration for.
// They stop when the test ends.
func (l *Lab) startBIRDs(tb testing.TB, machine string, ns Namespace, config Config) error {
	dir := filepath.Join(l.dir, machine)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := config.write(dir); err != nil {
		return err
	}
	for _, program := range []string{"bird", "bird6"} {
		if config[program+".cfg"] == "" {
			continue
		}
		b := &bird{machine: machine, program: program, dir: dir, log: filepath.Join(dir, program+".log")}
		if err := b.start(ns); err != nil {
			return fmt.Errorf("starting %s of %s: %w", program, machine, err)
		}
		tb.Cleanup(func() { b.stop(tb) })
		l.birds = append(l.birds, b)
	}
	return nil
}

func (c Config) write(dir string) error {
	for name, text := range c {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// start runs BIRD in the foreground with its log on stderr. If the test process ends
// without stopping it, the janitor does.
func (b *bird) start(ns Namespace) error {
	log, err := os.Create(b.log)
	if err != nil {
		return err
	}
	defer log.Close()
	b.process = exec.Command("ip", ns.command([]string{
		b.program, "-d", "-c", filepath.Join(b.dir, b.program+".cfg"), "-s", b.socket(), "-P", filepath.Join(b.dir, b.program+".pid"),
	})...)
	b.process.Stdout, b.process.Stderr = log, log
	if err := b.process.Start(); err != nil {
		return err
	}
	b.ended = make(chan struct{})
	go func() {
		_ = b.process.Wait()
		close(b.ended)
	}()
	return nil
}

// stop kills BIRD and waits for its end.
func (b *bird) stop(tb testing.TB) {
	_ = b.process.Process.Kill()
	<-b.ended
	if tb.Failed() {
		config, _ := os.ReadFile(filepath.Join(b.dir, b.program+".cfg"))
		log, _ := os.ReadFile(b.log)
		tb.Logf("%s of %s was configured thus:\n%s\nand said:\n%s", b.program, b.machine, config, log[max(0, len(log)-4000):])
	}
}

func (b *bird) socket() string { return filepath.Join(b.dir, b.program+".ctl") }

// ask sends a command to BIRD and returns its answer.
func (b *bird) ask(ctx context.Context, command string) (string, error) {
	select {
	case <-b.ended:
		log, _ := os.ReadFile(b.log)
		return "", fmt.Errorf("%s of %s ended (%s):\n%s", b.program, b.machine, b.process.ProcessState, log)
	default:
	}
	client := "birdc"
	if b.program == "bird6" {
		client = "birdc6"
	}
	return output(ctx, client, append([]string{"-s", b.socket()}, strings.Fields(command)...)...)
}

// sessions returns an error until every BGP session of the daemon has its expected state:
// established, or not established if its name begins with down.
func (b *bird) sessions(ctx context.Context, down string) error {
	table, err := b.ask(ctx, "show protocols")
	if err != nil {
		return err
	}
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != "BGP" {
			continue
		}
		want := down == "" || !strings.HasPrefix(f[0], down)
		if up := strings.Contains(line, "Established"); up != want {
			return fmt.Errorf("%s of %s: session up is %t, not %t: %s", b.program, b.machine, up, want, strings.TrimSpace(line))
		}
	}
	return nil
}
