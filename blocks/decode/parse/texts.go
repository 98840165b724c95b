package parse

import (
	"fmt"
	"strings"
)

// Clip shortens a string for a message.
func Clip[T string | []byte](s T) string {
	const most = 60
	if len(s) > most {
		return string(s[:most]) + "…"
	}
	return string(s)
}

// ClipMessage puts a message from elsewhere on one line and shortens it.
func ClipMessage(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// NotA returns the reason of a fault such as `"x" is not a CIDR`.
func NotA[T string | []byte](what string, s T) string {
	article := "a"
	if strings.ContainsRune("aAeio", rune(what[0])) {
		article = "an"
	}
	if len(s) == 0 {
		return "is empty, not " + article + " " + what
	}
	return fmt.Sprintf("%q is not %s %s", Clip(s), article, what)
}
