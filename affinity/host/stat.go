package host

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// processStat holds the fields read from /proc/PID/stat.
type processStat struct {
	comm    string
	state   string
	threads uint64
	// kernel is true for a kernel thread.
	kernel bool
	// started is the start time, in clock ticks since the machine's start.
	started uint64
}

var errStat = errors.New("it does not have the form of /proc/PID/stat")

// parseStat parses the text of /proc/PID/stat. The command's name is in parentheses and may
// contain spaces, parentheses and newlines; it ends at the last closing parenthesis.
func parseStat(text []byte) (processStat, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return processStat{}, errStat
	}
	// In proc(5) these are the fields 3, 9, 20 and 22.
	fields := bytes.Fields(text[end+1:])
	const state, flags, threads, started = 0, 6, 17, 19
	const kernelThread = 0x00200000 // PF_KTHREAD of linux/sched.h
	if len(fields) <= started || len(fields[state]) != 1 || !letter(fields[state][0]) {
		return processStat{}, errStat
	}
	s := processStat{comm: printable(text[open+1 : end]), state: string(fields[state])}
	var bad error
	number := func(field int) uint64 {
		n, err := strconv.ParseUint(string(fields[field]), 10, 64)
		if err != nil {
			bad = errStat
		}
		return n
	}
	s.kernel = number(flags)&kernelThread != 0
	s.threads, s.started = number(threads), number(started)
	return s, bad
}

func letter(c byte) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' }

// printable makes a process's name safe for a line of text. Any user can start a process
// with control characters and broken UTF-8 in its name.
func printable(name []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || 0x80 <= r && r < 0xa0 {
			return '?'
		}
		return r
	}, string(name))
}
