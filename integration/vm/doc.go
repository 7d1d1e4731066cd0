// Package vm holds what `make check-vm` runs in a virtual machine and nowhere else:
// tests that need systemd as process 1 and every control group controller on the
// unified hierarchy. They have the build tag vm.
//
// They run as root on a machine that is thrown away, with the programs built outside.
// Nothing hostile comes in. Beside the tests lie the two scripts of the guest: guest
// runs the suites one after the other, and go hands out what was built, to tests that
// build.
//
// Invariants:
//   - vm-1: the unit that is shipped starts, serves, restarts, and leaves nothing when it stops.
//
// It is not where jails are tested: those tests stand beside the code and run in both
// places.
package vm
