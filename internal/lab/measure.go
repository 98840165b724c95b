package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Verdict returns the kernel's routing decision for an address: "unicast", "blackhole",
// "unreachable", "prohibit", or "none" if no route matches.
func (n Namespace) Verdict(ctx context.Context, addr netip.Addr) (string, error) {
	text, err := output(ctx, "ip", "-n", n.name, "-j", "route", "get", addr.String())
	if failed := (*failure)(nil); errors.As(err, &failed) {
		// The kernel returns the error number that a sender would get.
		for told, verdict := range map[string]string{
			"Invalid argument": "blackhole", "No route to host": "unreachable",
			"Permission denied": "prohibit", "Network is unreachable": "none",
		} {
			if strings.Contains(failed.stderr, told) {
				return verdict, nil
			}
		}
	}
	if err != nil {
		return "", err
	}
	var routes []struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal([]byte(text), &routes); err != nil || len(routes) != 1 {
		return "", fmt.Errorf("the route to %s reads %q: %w", addr, text, err)
	}
	if routes[0].Type != "" {
		return routes[0].Type, nil
	}
	return "unicast", nil
}

// Split reports whether a machine has several next hops for an address and chooses by
// flow.
func (n Namespace) Split(ctx context.Context, addr netip.Addr) (bool, error) {
	family := "-4"
	if addr.Is6() {
		family = "-6"
	}
	text, err := output(ctx, "ip", family, "-n", n.name, "-j", "route", "show", "match", addr.String())
	if err != nil {
		return false, err
	}
	var routes []struct {
		Dst      string `json:"dst"`
		NextHops []any  `json:"nexthops"`
	}
	if err := json.Unmarshal([]byte(text), &routes); err != nil {
		return false, fmt.Errorf("reading the routes to %s: %w\n%s", addr, err, text)
	}
	longest, hops := -1, 0
	for _, r := range routes {
		bits := 0
		switch dst, err := netip.ParsePrefix(r.Dst); {
		case err == nil:
			bits = dst.Bits()
		case r.Dst != "default":
			bits = addr.BitLen()
		}
		if bits > longest {
			longest, hops = bits, len(r.NextHops)
		}
	}
	return hops > 1, nil
}

// Ping sends three packets and reports whether any was answered.
func (n Namespace) Ping(ctx context.Context, addr netip.Addr) (bool, error) {
	_, err := n.Run(ctx, "ping", "-n", "-q", "-c", "3", "-i", "0.2", "-W", "1", addr.String())
	failed := (*failure)(nil)
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &failed) && (failed.code == 1 || strings.Contains(failed.stderr, "connect: ")):
		// Exit code 1 means no answer. If the sender's own kernel rejects the packet,
		// connect fails immediately.
		return false, nil
	}
	return false, err
}
