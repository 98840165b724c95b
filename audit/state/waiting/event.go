package waiting

import (
	"regexp"
	"strings"

	"github.com/calico-audit/calico-audit/audit/errortext"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
)

// sandboxName matches the name of a sandbox in the errors of container runtimes.
var sandboxName = regexp.MustCompile(`sandbox (container )?"[0-9a-f]{16,}"`)

// Seen returns a waiting pod with the kubelet's last event about it, without a verdict.
func Seen(st *state.State, w *blocks.Workload) *Pod {
	p := &Pod{Workload: w, Since: w.Created.Later(w.Started)}
	for i := range st.SandboxEvents {
		if v := &st.SandboxEvents[i]; v.Pod == w.Name && v.Namespace == w.Namespace && !w.Created.After(v.Seen) && (p.Event == nil || v.Seen.After(p.Event.Seen)) {
			p.Event = v
		}
	}
	return p
}

// Quote returns the kubelet's event on one line; empty if there is none. It leaves out the name of
// the sandbox, which changes with every try.
func (p *Pod) Quote() string {
	if p.Event == nil {
		return ""
	}
	return clip(sandboxName.ReplaceAllString(strings.Join(strings.Fields(p.Event.Message), " "), "sandbox …"), 500)
}

// known returns the message in the kubelet's error that names a cause; nil if there is none.
func (p *Pod) known() *errortext.Message {
	if p.Event == nil {
		return nil
	}
	if found, _ := errortext.Find(p.Event.Message); len(found) > 0 && !found[0].Wraps {
		return found[0].Message
	}
	return nil
}

// PluginError returns the error of the CNI plugin in the kubelet's event, without the errors that
// wrap it; empty if there is no event.
func (p *Pod) PluginError() string {
	text := p.Quote()
	for _, before := range []string{"sandbox …: ", "AddNetworkList: ", "failed (add): ", `" network: `, " is forbidden: "} {
		if i := strings.LastIndex(text, before); i >= 0 {
			text = text[i+len(before):]
		}
	}
	return clip(text, 150)
}

func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}

// OfOthers names the pods that have waited longer than the grace for an address of another
// IPAM, and quotes the kubelet's event.
func OfOthers(st *state.State) string {
	var out blocks.Names
	for _, w := range st.Workloads {
		if !w.Waiting() {
			continue
		}
		if p := Seen(st, w); st.PastGrace(p.Since) {
			text := w.FullName()
			if e := p.PluginError(); e != "" {
				text += " (" + e + ")"
			}
			out = append(out, text)
		}
	}
	return out.String()
}
