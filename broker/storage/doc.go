// Package storage keeps a broker's entries and what it knows about its topics on
// disk.
//
// A [Log] stores the entries of one ledger in a directory of its own, in segment
// files that github.com/hashicorp/raft-wal/segment writes and recovers. One
// record of such a file is one block, and one block is one group commit:
// [Log.Append] returns when the block has been handed to the operating system by
// write(2), so that it survives the process, and with [SyncAlways] when it has
// reached the disk.
//
// [Metadata] holds topics, cursors, partitioned topics and schemas; [Meta] keeps
// it in one file per broker, [MemoryMeta] in memory.
//
// # Block
//
// All integers are little-endian. A header of 48 bytes:
//
//	 0  4  magic "CBLK"
//	 4  1  version, 1
//	 5  3  zero
//	 8  4  bytes after the header
//	12  4  CRC-32C of everything but these four bytes
//	16  8  number of the first entry
//	24  8  index in the topic of the first message
//	32  8  time of the first entry, ms since 1970
//	40  4  number of entries
//	44  4  zero
//
// and for each entry uvarint bytes, uvarint messages, varint ms since the entry
// before (the header's time for the first), then the bytes.
//
// # Segment file
//
// The name is the number of the first entry plus 1 in 20 decimal digits, "-", the
// index of the first message in 16 hexadecimal digits, ".wal". After raft-wal's
// file header of 32 bytes come, for each block, its entry frame and its commit
// frame. Blocks in a segment and segments in a directory follow each other
// without a gap. Files are never preallocated and never written again; the
// oldest are deleted whole.
package storage
