package source

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/calico-audit/calico-audit/blocks/cluster/agents"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/cmd/internal/flags"
)

// AgentFlags are the flags for requests to the nodes' agents.
type AgentFlags struct {
	// Ask enables the requests.
	Ask bool

	selector, namespace, scheme string
	tls                         agents.TLS
	timeout                     time.Duration

	fs *pflag.FlagSet // nil until AddTo
}

// AddTo adds the flags to a command.
func (f *AgentFlags) AddTo(c *cobra.Command) {
	if f.fs == nil {
		f.fs = pflag.NewFlagSet("hosts", pflag.ContinueOnError)
	}
	f.fs.BoolVar(&f.Ask, "agents", false, "ask the agents on the nodes for host views; with --agents-ca-file agents prove their identity, without it they are asked through the API server (needs get pods/proxy), and their views can refuse repair steps but not allow them")
	f.fs.StringVar(&f.selector, "agents-selector", agents.DefaultSelector, "`LABELS` that select the agents' pods")
	f.fs.StringVar(&f.namespace, "agents-namespace", "", "`NAMESPACE` of the agents' pods (default: any)")
	f.fs.StringVar(&f.scheme, "agents-scheme", "", "scheme of requests to agents through the API server: `http|https` (default: the pod's annotation "+agents.SchemeAnnotation+", else http)")
	f.fs.StringVar(&f.tls.CAFile, "agents-ca-file", "", "`FILE` with the CA certificates of the agents; agents are then asked directly at their pods' addresses, and prove their identity with their certificates")
	f.fs.StringVar(&f.tls.ServerName, "agents-server-name", agents.ServerName, "server `NAME` in the agents' certificates")
	f.fs.StringVar(&f.tls.TokenFile, "agents-token-file", "", "`FILE` with a service account token (audience "+agents.ServerName+") for agents that authorize callers; sent only to agents with a valid certificate")
	f.fs.DurationVar(&f.timeout, "agents-timeout", agents.DefaultTimeout, "time limit for one agent's answer")
	flags.InGroup(f.fs, flags.Source)
	c.Flags().AddFlagSet(f.fs)
	flags.NoFiles(c, "agents-selector", "agents-namespace", "agents-timeout", "agents-server-name")
	flags.OneOf(c, "agents-scheme", "http", "https")
}

// Options validates the flags. All its errors are usage errors.
func (f *AgentFlags) Options() (agents.Options, error) {
	o := agents.Options{Selector: f.selector, Namespace: f.namespace, Scheme: f.scheme, Timeout: f.timeout}
	if !f.Ask {
		for _, other := range f.Changed() {
			if strings.HasPrefix(other.Name, "agents-") {
				return o, exit.Usagef("--%s requires --agents", other.Name)
			}
		}
		return o, nil
	}
	switch {
	case f.timeout <= 0:
		return o, exit.Usagef("--agents-timeout %s is not positive", f.timeout)
	case f.selector == "":
		return o, exit.Usagef("--agents-selector is empty: it would select every pod")
	case f.scheme != "" && f.scheme != "http" && f.scheme != "https":
		return o, exit.Usagef("unknown value %q of --agents-scheme: want http or https", f.scheme)
	case f.tls.CAFile == "" && f.tls.TokenFile != "":
		return o, exit.Usagef("--agents-token-file requires --agents-ca-file: the token is sent only to agents with a valid certificate")
	case f.tls.CAFile == "" && f.fs.Changed("agents-server-name"):
		return o, exit.Usagef("--agents-server-name requires --agents-ca-file")
	case f.tls.CAFile != "" && f.scheme != "":
		return o, exit.Usagef("--agents-scheme cannot be used with --agents-ca-file, which always uses TLS")
	case f.tls.CAFile != "":
		if err := f.tls.Check(); err != nil {
			return o, exit.Usage(err)
		}
		o.TLS = &f.tls
	}
	return o, nil
}

// Changed returns the given flags of agents and host views.
func (f *AgentFlags) Changed() []*pflag.Flag { return flags.Changed(f.fs) }

// Portable returns the arguments with which a command on another machine asks the same
// agents; "" if they need files of this machine, because such agents refuse other callers.
func (f *AgentFlags) Portable() string {
	if f.tls.CAFile != "" {
		return ""
	}
	return f.Arguments()
}

// Arguments returns the arguments with which another command on this machine asks the same
// agents.
func (f *AgentFlags) Arguments() string {
	if f.fs == nil {
		return ""
	}
	out := flags.Arguments(f.fs, "agents-ca-file", "agents-server-name", "agents-token-file", "agents-selector", "agents-namespace", "agents-scheme", "agents-timeout")
	if f.Ask {
		out += " --agents"
	}
	return out
}
