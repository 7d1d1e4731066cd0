#include "textflag.h"

// func int80(nr uintptr) uintptr
// The 32-bit way into the kernel, with 32-bit numbers.
TEXT ·int80(SB), NOSPLIT, $0-16
	MOVQ nr+0(FP), AX
	XORL BX, BX          // arguments that do nothing, whatever the number
	XORL CX, CX
	XORL DX, DX
	XORL SI, SI
	XORL DI, DI
	INT  $0x80
	MOVQ AX, ret+8(FP)
	RET

// func thread() syscall.Errno
// A thread that waits for ever and touches no memory.
TEXT ·thread(SB), NOSPLIT, $0-8
	MOVQ $56, AX         // clone
	MOVQ $0x50f00, DI    // VM FS FILES SIGHAND THREAD SYSVSEM
	MOVQ $0, SI          // the same stack, which it never uses
	MOVQ $0, DX
	MOVQ $0, R10
	MOVQ $0, R8
	SYSCALL
	CMPQ AX, $0
	JNE  parent
child:
	MOVQ $202, AX        // futex: wait for what nobody wakes
	LEAQ ·never(SB), DI
	MOVQ $128, SI        // FUTEX_WAIT, private
	MOVQ $0, DX
	MOVQ $0, R10
	SYSCALL
	JMP  child
parent:
	JGT  good
	NEGQ AX
	MOVQ AX, ret+0(FP)
	RET
good:
	MOVQ $0, ret+0(FP)
	RET

// func fault()
TEXT ·fault(SB), NOSPLIT, $0-0
	MOVQ $0, AX
	MOVQ (AX), AX
	RET
