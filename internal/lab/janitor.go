package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// A test process may be killed, time out or panic without cleaning up. So a shell reads
// from a pipe, which closes when the process ends. Then the shell kills the processes in
// the lab's namespaces and deletes the namespaces.
//
// The shell ignores signals from the terminal. The test decides when to end.
const janitorScript = `trap '' INT QUIT TERM HUP
cat >/dev/null
for f in "$1"/"$2"-*; do
	[ -e "$f" ] || continue
	ns=${f##*/}
	for pid in $(ip netns pids "$ns"); do kill -9 "$pid"; done
	ip netns del "$ns"
done`

// ownPrefix is the common prefix of this process's namespace names.
var ownPrefix = prefix + strconv.Itoa(os.Getpid())

// hireJanitor starts the shell once per process. It returns the write end of the pipe,
// which must stay referenced so that it stays open until the process ends.
var hireJanitor = sync.OnceValues(func() (io.Closer, error) {
	cmd := exec.Command("sh", "-c", janitorScript, "janitor", netnsDir, ownPrefix)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting what cleans up after the lab: %w", err)
	}
	return pipe, nil
})

// Sweep deletes namespaces that earlier test processes left behind although each had a janitor.
func Sweep(ctx context.Context) error {
	paths, err := filepath.Glob(filepath.Join(netnsDir, prefix+"*"))
	if err != nil {
		return err
	}
	var failed []error
	for _, path := range paths {
		name := filepath.Base(path)
		digits, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "-")
		pid, err := strconv.Atoi(digits)
		if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		// The process's janitor may be deleting it at the same time.
		if err := run(ctx, nil, "ip", "netns", "del", name); err != nil && exists(path) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
