package symbol

// offsetTable holds the layout of runtime.g on amd64 by Go release, for
// executables without DWARF. tools/goffsets prints an entry for the release
// that it is built with.
var offsetTable = map[string]Offsets{
	"go1.26": {
		StackLo: 0, StackHi: 8, M: 48, SchedSP: 56, SchedPC: 64, SchedBP: 96,
		SyscallSP: 104, SyscallPC: 112, SyscallBP: 120, Status: 144, Goid: 152, WaitReason: 176,
		ParentGoid: 280, GoPC: 288, StartPC: 304,
	},
}
