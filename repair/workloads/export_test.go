package workloads

import "time"

// Impatient makes a client wait for little, for tests in which no budget changes.
func (c *Client) Impatient() *Client {
	c.budget, c.retry = 100*time.Millisecond, 20*time.Millisecond
	return c
}
