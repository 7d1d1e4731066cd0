// Package e2e holds the end-to-end tests: real programs, real jails, real clients
// and a real store, as one host would run them.
//
// It needs root and fails in CI without it. Everything hostile here is the tests' own.
// Nobody imports it; what one package can prove alone is tested beside that package.
package e2e
