package symbol

// offsetTable holds the layout of runtime.g on amd64 by Go release, for
// executables without DWARF. tools/goffsets prints its entries from the DWARF
// of executables; the comments name the release that each was read from.
var offsetTable = map[string]Offsets{
	"go1.24": {StackLo: 0x0, StackHi: 0x8, SchedSP: 0x38, SchedPC: 0x40, SchedBP: 0x68, SyscallSP: 0x70, SyscallPC: 0x78, SyscallBP: 0x80, Seq: 0xc7, Status: 0x98, Goid: 0xa0, WaitReason: 0xb8, ParentGoid: 0x118, GoPC: 0x120, StartPC: 0x130, M: 0x30}, // go1.24.11
	"go1.25": {StackLo: 0x0, StackHi: 0x8, SchedSP: 0x38, SchedPC: 0x40, SchedBP: 0x60, SyscallSP: 0x68, SyscallPC: 0x70, SyscallBP: 0x78, Seq: 0xbf, Status: 0x90, Goid: 0x98, WaitReason: 0xb0, ParentGoid: 0x110, GoPC: 0x118, StartPC: 0x128, M: 0x30}, // go1.25.5
	"go1.26": {StackLo: 0x0, StackHi: 0x8, SchedSP: 0x38, SchedPC: 0x40, SchedBP: 0x60, SyscallSP: 0x68, SyscallPC: 0x70, SyscallBP: 0x78, Seq: 0xbf, Status: 0x90, Goid: 0x98, WaitReason: 0xb0, ParentGoid: 0x118, GoPC: 0x120, StartPC: 0x130, M: 0x30}, // go1.26.8
}
