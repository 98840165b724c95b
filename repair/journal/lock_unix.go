//go:build unix

package journal

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock takes an exclusive lock on a journal, which the kernel drops when the
// process ends, however it ends. A file system without locks has none to hold.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", file.Name(), ErrRunning)
	}
	return nil
}
