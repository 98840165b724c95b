package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// Reconfigure makes a running network follow a change of the datastore. Each node's BIRD
// reloads the configuration that confd renders now, as it does whenever confd writes one.
// Reconfigure waits until routes are stable.
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
