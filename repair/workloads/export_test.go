package workloads

import "time"

// Impatient makes a client wait for little, for tests in which no budget changes.
func (c *Client) Impatient() *Client {
	c.retry, c.term = 20*time.Millisecond, 5*time.Second
	return c
}
