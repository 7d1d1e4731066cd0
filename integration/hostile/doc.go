// Package hostile attacks a running Postern the way runtimes, tool servers, local
// users and crashes would: private instances, real programs, real jails, and a
// tool server that counts what reached it. Every attack must fail, and its
// permitted twin must work.
package hostile
