package main

// int80 enters the kernel as a 32-bit program does, with a 32-bit number.
func int80(nr uintptr) uintptr
