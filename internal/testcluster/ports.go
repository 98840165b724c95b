package testcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the ranges that Linux and macOS use for outgoing
// connections, so that a port stays free while the API server is down.
const (
	firstPort = 12000
	lastPort  = 29999
)

// errPortTaken says that a server could not listen because somebody else got
// its port between the choice and the start.
var errPortTaken = errors.New("port taken")

// freePort returns a port of the loopback interface on which no one listens now.
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
