package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// Reconfigure makes a running network follow the datastore after a change of it: each
// node's BIRD reads the configuration that confd renders now, as confd has it do
// whenever it writes one. It waits until routes have come to rest.
func (l *Lab) Reconfigure(ctx context.Context, p *Plan) error {
	l.Plan = p
	for _, node := range NodeNames {
		if err := p.BIRD[node].write(filepath.Join(l.dir, node)); err != nil {
			return err
		}
	}
	for _, b := range l.birds {
		if b.machine == "router" {
			continue
		}
		answer, err := b.ask(ctx, "configure")
		if err != nil {
			return err
		}
		if !strings.Contains(answer, "Reconfigured") && !strings.Contains(answer, "Reconfiguration in progress") {
			return fmt.Errorf("%s of %s does not take its configuration: %s", b.program, b.machine, answer)
		}
	}
	return l.WaitConverged(ctx)
}
