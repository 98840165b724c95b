package workloads

import "time"

// Impatient shortens a client's waits, for tests in which no budget changes.
func (c *Client) Impatient() *Client {
	c.retry, c.term = 20*time.Millisecond, 5*time.Second
	return c
}
