package agents

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// Setting is an environment variable of calico-node with a known value.
type Setting struct {
	Variable, Value string
	// Nodes are the nodes whose calico-node has the value, by name. All is true if they are all nodes
	// with calico-node.
	Nodes blocks.Names
	All   bool
}

// On returns the nodes of the setting, as the end of a sentence; "" for all nodes.
func (s Setting) On() string {
	if s.All {
		return ""
	}
	return " on " + s.Nodes.String()
}

// Settings returns the values of a variable, by their first node. A value from another object, such
// as a ConfigMap, is not known and left out.
func Settings(st *state.State, variable string) (out []Setting) {
	agents := Of(st)
	for _, h := range st.NodeStates { // by name
		w := agents[h.Name]
		if w == nil || w.Extras().Env[variable] == "" {
			continue
		}
		value := w.Extra.Env[variable]
		i := slices.IndexFunc(out, func(s Setting) bool { return s.Value == value })
		if i < 0 {
			i, out = len(out), append(out, Setting{Variable: variable, Value: value})
		}
		out[i].Nodes = append(out[i].Nodes, h.Name)
	}
	for i := range out {
		out[i].All = len(out[i].Nodes) == len(agents)
	}
	return out
}

// Switch returns the value of a boolean variable; nil if it is not set. known is false if the nodes'
// values differ or come from other objects.
func Switch(st *state.State, variable string) (on *bool, known bool) {
	set := slices.ContainsFunc(st.Workloads, func(w *blocks.Workload) bool { _, has := w.Extras().Env[variable]; return has })
	all := Settings(st, variable)
	if !set {
		return nil, true
	} else if len(all) != 1 || !all[0].All {
		return nil, false
	}
	return boolean(all[0].Value)
}

// boolean parses a boolean as Felix does (felix/config, BoolParam).
func boolean(s string) (on *bool, ok bool) {
	yes := slices.Contains([]string{"true", "1", "yes", "y", "t"}, strings.ToLower(s))
	return &yes, yes || slices.Contains([]string{"false", "0", "no", "n", "f"}, strings.ToLower(s))
}

// Override is a setting of FelixConfiguration default that environment variables of calico-node
// override.
type Override struct {
	Setting
	// Field and Unused are the FelixConfiguration's field and its value.
	Field, Unused string
}

// Text describes the two values, as an item of a list.
func (o *Override) Text() string {
	return fmt.Sprintf("%s=%s%s instead of %s: %s", o.Variable, o.Value, o.On(), o.Field, o.Unused)
}

// Overrides returns the settings of FelixConfiguration default that have no effect: Felix prefers its
// environment (felix/config, Source; projectcalico/calico#10692).
func Overrides(st *state.State) (out []Override) {
	numbers := map[string]int{"vxlanPort": st.Felix.VXLANPort, "vxlanVNI": st.Felix.VXLANVNI}
	flags := map[string]*bool{"vxlanEnabled": st.Felix.VXLANEnabled, "ipipEnabled": st.Felix.IPIPEnabled}
	for _, x := range [][2]string{{blocks.FelixVXLANPort, "vxlanPort"}, {blocks.FelixVXLANVNI, "vxlanVNI"}, {blocks.FelixVXLAN, "vxlanEnabled"}, {blocks.FelixIPIP, "ipipEnabled"}} {
		variable, field := x[0], x[1]
		for _, s := range Settings(st, variable) {
			if set := flags[field]; set != nil {
				if on, ok := boolean(s.Value); ok && *on != *set {
					out = append(out, Override{s, field, strconv.FormatBool(*set)})
				}
			} else if n := numbers[field]; n != 0 && s.Value != strconv.Itoa(n) {
				out = append(out, Override{s, field, strconv.Itoa(n)})
			}
		}
	}
	return out
}

// Method describes how a calico-node pod that is not Ready looks for its node's IPv4 address, in
// parentheses; "" if that is not known. can-reach= with an IPv6 address finds none
// (canonical/microk8s#3804).
func Method(w *blocks.Workload) string {
	if w == nil || w.Ready || w.Extras().Env[blocks.DetectIPv4] == "" {
		return ""
	}
	method, end := w.Extra.Env[blocks.DetectIPv4], ")"
	if a, ok := blocks.ParseAddr(strings.TrimPrefix(method, "can-reach=")); ok && blocks.FamilyOf(a) == blocks.IPv6 {
		end = " finds no IPv4 address)"
	}
	return " (" + blocks.DetectIPv4 + "=" + method + end
}

// Upgrading returns the calico-node pods whose init container upgrade-ipam has not ended.
func Upgrading(st *state.State) (pods blocks.Names) {
	for _, w := range st.Workloads {
		if w.Extras().Upgrades && !w.Finished() {
			pods = append(pods, w.FullName())
		}
	}
	slices.Sort(pods)
	return pods
}
