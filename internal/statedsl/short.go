package statedsl

// ShortOfBlocks has a pool of four blocks of eight addresses, all owned by nodes a and b.
// A third node has no block and cannot claim one. There are no pods.
const ShortOfBlocks = `
version v3.31.0
pool pods 10.0.0.0/27 size=29
node a
node b
node new
budget none
block 10.0.0.0/29 a
affinity 10.0.0.0/29 a
block 10.0.0.8/29 a
affinity 10.0.0.8/29 a
block 10.0.0.16/29 b
affinity 10.0.0.16/29 b
block 10.0.0.24/29 b
affinity 10.0.0.24/29 b
`
