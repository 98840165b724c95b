package cli

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/checks"
	"github.com/calico-audit/calico-audit/cmd/internal/document"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
)

// muteFlags are the flags that mute findings.
type muteFlags struct {
	ignore, ignoreFiles, baselines []string
}

// addFlags adds the flags to a command.
func (m *muteFlags) addFlags(c *cobra.Command) {
	c.Flags().StringArrayVar(&m.baselines, "baseline", nil, "mute findings that an earlier `REPORT` (-o json, yaml or html) has at the same or a higher severity; repeatable")
	m.addRuleFlags(c)
}

// addRuleFlags adds the flags with rules.
func (m *muteFlags) addRuleFlags(c *cobra.Command) {
	fs := c.Flags()
	fs.StringArrayVar(&m.ignore, "ignore", nil, "mute findings that match a `RULE` such as check=ip/borrowed,node=n1,until=2026-03-31 (keys: check, node, pool, until); repeatable")
	fs.StringArrayVar(&m.ignoreFiles, "ignore-file", nil, "read rules for --ignore from this `FILE`, one per line, with # comments; repeatable")
	_ = c.RegisterFlagCompletionFunc("ignore", completeIgnore)
}

// read reads the rules, and the reports of the baselines. It returns nil Mutes if there are
// none. All its errors are usage errors.
func (m *muteFlags) read(stdin io.Reader) (*audit.Mutes, []*audit.Report, error) {
	if len(m.ignore)+len(m.ignoreFiles)+len(m.baselines) == 0 {
		return nil, nil, nil
	}
	out := &audit.Mutes{}
	for _, text := range m.ignore {
		r, err := checks.All.ParseMuteRule(text)
		if err != nil {
			return nil, nil, exit.Usagef("reading --ignore: %w", err)
		}
		out.Rules = append(out.Rules, r)
	}
	for _, path := range m.ignoreFiles {
		rules, err := readRules(path)
		if err != nil {
			return nil, nil, err
		}
		out.Rules = append(out.Rules, rules...)
	}
	var reports []*audit.Report
	for _, path := range m.baselines {
		r, err := document.ReadReport(path, stdin)
		if err != nil {
			return nil, nil, exit.Usage(err)
		}
		reports = append(reports, r)
		out.Baselines = append(out.Baselines, audit.NewBaseline(path, r))
	}
	return out, reports, nil
}

func readRules(path string) ([]audit.MuteRule, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, exit.Usagef("reading --ignore-file: %w", err)
	}
	defer file.Close()
	rules, err := checks.All.ReadMuteRules(file, path)
	if err != nil {
		return nil, exit.Usagef("reading --ignore-file: %w", err)
	}
	return rules, nil
}
