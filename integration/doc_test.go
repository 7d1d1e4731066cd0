// Package integration holds the tests that need more than one package: the
// layout of the tree, what each program links, and the programs working together.
//
// It runs as root in CI. It may import anything and nobody imports it.
package integration
