// Calico-audit finds out what is wrong with the IP address management of a
// Calico cluster.
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
	// With a handler of its own, a closed pipe ("| head") is an error of the write
	// that met it, and not the end of the process before it has an exit code.
	// Unlike ignoring the signal, that is not passed on to credential helpers.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	interrupts := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		// Closing a terminal may send it twice: what was begun is taken back nevertheless.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		interrupts = append(interrupts, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), interrupts...)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once

	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return cli.Main(ctx, os.Args, streams)
}
