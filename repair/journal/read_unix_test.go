//go:build unix

package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReadNotRegular checks that anything but a regular file is rejected before it is
// opened, because a pipe without a writer would block and a device may have no end.
func TestReadNotRegular(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no pipe can be made here: %v", err)
	}
	for _, path := range []string{dir, pipe, os.DevNull} {
		read := make(chan error, 1)
		go func() {
			_, err := Read(path)
			read <- err
		}()
		select {
		case err := <-read:
			if !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, want that it is not a regular file", path, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s is waited for", path)
		}
	}
}
