package workloads

import "time"

// Impatient shortens a client's waits, for tests that change no budget.
func (c *Client) Impatient() *Client {
	c.retry, c.term = 20*time.Millisecond, 5*time.Second
	return c
}
