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

// A test process may be killed, time out or panic, and then cleans nothing up. So a
// shell waits for its end, which closes the pipe that the shell reads from, and then
// ends what runs in the process's namespaces and deletes them.
//
// It is deaf to what is typed at the terminal: the test decides about that.
const janitorScript = `trap '' INT QUIT TERM HUP
cat >/dev/null
for f in "$1"/"$2"-*; do
	[ -e "$f" ] || continue
	ns=${f##*/}
	for pid in $(ip netns pids "$ns"); do kill -9 "$pid"; done
	ip netns del "$ns"
done`

// ownPrefix begins the names of this process's namespaces.
var ownPrefix = prefix + strconv.Itoa(os.Getpid())

// hireJanitor starts the shell, once in a process. It returns the pipe, to which nothing
// is ever written, and which is kept so that it stays open until the process ends.
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

// Sweep deletes namespaces that were left behind all the same, by processes that
// run no more.
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
		// Its janitor may be at work.
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
