package testcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports lie below the ranges that Linux and macOS use for outgoing connections, so that a
// port stays free while the API server is down.
const (
	firstPort = 12000
	lastPort  = 29999
)

// errPortTaken means that another process took a server's port after it was chosen.
var errPortTaken = errors.New("port taken")

// freePort returns a loopback port on which no process listens.
func freePort() (int, error) {
	var last error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			last = err
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("finding a free port: %w", last)
}
