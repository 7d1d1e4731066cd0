// Package suites runs what others published against the bridge: the conformance suite,
// clients in both eras, and servers of every shape. Each is run twice, against a tool
// server by itself and against the same server behind postern connect, and whatever
// differs is either in a table here with its reason or a failure.
//
// It needs root and npm, and fails in CI without them. Its inputs are pinned packages
// and fixtures of the repository; nothing hostile comes in. Nobody imports it.
package suites
