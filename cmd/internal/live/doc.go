// Package live holds the tests of commands on real servers. Those that need only files are in
// package cli.
package live
