// Package affinity says who owns a block and who routes it. It is pure: it
// judges values of package blocks and reads nothing.
//
// Calico writes a block's owner twice. The block itself names its owner, and
// that is what address assignment goes by. A BlockAffinity names it again, and
// that is what BIRD makes routes from: every node drops ("blackholes") what it
// cannot deliver within the blocks that it has an affinity to. A borrowed
// address therefore works only where its owner learns a longer route to it;
// [PredictBorrowed] says where it does.
package affinity
