package host

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// processStat is what is read of /proc/PID/stat.
type processStat struct {
	comm    string
	state   string
	threads uint64
	// kernel is true for a thread of the kernel itself.
	kernel bool
	// started is when it started, in clock ticks since the machine did.
	started uint64
}

var errStat = errors.New("it does not have the form of /proc/PID/stat")

// parseStat reads the text of /proc/PID/stat. The command's name is in parentheses
// and may itself hold spaces, parentheses and line ends; it ends with the last
// closing parenthesis.
func parseStat(text []byte) (processStat, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return processStat{}, errStat
	}
	// As proc(5) counts, these are the fields 3, 9, 20 and 22.
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

// printable makes a process's name fit for a line of text: anyone who starts a process
// chooses its name freely, control characters and broken UTF-8 included.
func printable(name []byte) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || 0x80 <= r && r < 0xa0 {
			return '?'
		}
		return r
	}, string(name))
}
