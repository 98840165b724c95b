// Calico-audit finds and repairs problems in the IP address management of a Calico cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/calico-audit/calico-audit/cmd/internal/cli"
)

func main() {
	os.Exit(run())
}

func run() int {
	// With a handler, writing to a closed pipe ("| head") returns an error instead of
	// killing the program, so it can still set its exit code. Ignoring the signal would do
	// the same, but credential helpers would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	interrupts := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // ignored under nohup
		// Closing a terminal may send it twice. The handler keeps the second one from
		// killing the cleanup.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		interrupts = append(interrupts, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), interrupts...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once

	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return cli.Main(ctx, os.Args, streams)
}
