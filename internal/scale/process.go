package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is the resource usage of a process.
type usage struct {
	Wall, CPU time.Duration
	RSS       int64 // peak, in bytes
}

// measureVariable makes a copy of this program run its arguments and print their resource
// usage.
//
// The kernel includes the peak memory of the starting process in the peak of the started
// program. This program has held a cluster of 5,000 nodes in memory and would distort the
// figure. A fresh copy uses about 30 MB.
const measureVariable = "CALICO_AUDIT_SCALE_MEASURE"

// asMeasurer measures a program and exits if this is a copy started with measureVariable.
// Otherwise it returns immediately.
func asMeasurer() {
	if os.Getenv(measureVariable) == "" {
		return
	}
	_ = os.Unsetenv(measureVariable)
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	dieWithParent(cmd)
	start := time.Now()
	err := cmd.Run()
	wall := time.Since(start)
	if err == nil {
		rusage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		u := usage{Wall: wall, CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), RSS: rusage.Maxrss << 10} // in KiB on Linux
		err = json.NewEncoder(os.NewFile(3, "result")).Encode(u)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// measure runs a program, whose stdout goes to a file. It returns an error unless the
// program exits with code 0.
func measure(ctx context.Context, stdout string, env []string, program string, args ...string) (usage, error) {
	var u usage
	self, err := os.Executable()
	if err != nil {
		return u, err
	}
	out, err := os.Create(stdout)
	if err != nil {
		return u, err
	}
	defer func() { _ = out.Close() }()
	result, write, err := os.Pipe()
	if err != nil {
		return u, err
	}
	defer func() { _ = result.Close() }()
	cmd := exec.CommandContext(ctx, self, append([]string{program}, args...)...)
	cmd.Env = append(append(os.Environ(), env...), measureVariable+"=1")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = out, &said, []*os.File{write}
	dieWithParent(cmd)
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return u, err
	}
	answer, readErr := io.ReadAll(result)
	if err := cmd.Wait(); err != nil {
		return u, fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, said.String())
	}
	return u, errors.Join(readErr, json.Unmarshal(answer, &u))
}

// ownCPU returns the processor time of this process. On a busy machine it varies less
// than wall time.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory returns a running process's memory in bytes and its processor time, from Linux's
// /proc.
func memory(pid int) (resident, peak int64, cpu time.Duration, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			resident = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const utime, stime, tick = 14 - 3, 15 - 3, 10 * time.Millisecond // proc(5), USER_HZ
	for _, at := range []int{utime, stime} {
		ticks, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return 0, 0, 0, err
		}
		cpu += time.Duration(ticks) * tick
	}
	return resident, peak, cpu, nil
}
