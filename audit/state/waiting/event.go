package waiting

import (
	"regexp"
	"strings"
)

// sandboxName matches the name of a sandbox in the errors of container runtimes.
var sandboxName = regexp.MustCompile(`sandbox (container )?"[0-9a-f]{16,}"`)

// Quote returns the kubelet's event on one line; empty if there is none. It leaves out the name of
// the sandbox, which changes with every try.
func (p *Pod) Quote() string {
	if p.Event == nil {
		return ""
	}
	return clip(sandboxName.ReplaceAllString(strings.Join(strings.Fields(p.Event.Message), " "), "sandbox …"), 500)
}

// PluginError returns the error of the CNI plugin in the kubelet's event, without those around it;
// empty if there is no event.
func (p *Pod) PluginError() string {
	text := p.Quote()
	for _, before := range []string{"sandbox …: ", "AddNetworkList: ", "failed (add): "} {
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
