package main

import "runtime"

// lockThread keeps the goroutine's thread to itself until both end.
func lockThread() { runtime.LockOSThread() }
