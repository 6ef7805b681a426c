// Package wire reads and writes Apache Pulsar's binary protocol: frames, the
// commands a broker and its clients exchange, and message metadata. It knows
// nothing of topics or connections; both the reference broker and the load
// are built on it.
//
// # Frames
//
// All integers of the framing are big-endian.
//
//	simple    [u32 total][u32 n][n bytes BaseCommand]
//	payload   [u32 total][u32 n][n bytes BaseCommand]
//	          [u16 0x0e01][u32 CRC32C][u32 m][m bytes MessageMetadata][payload]
//
// total counts everything after itself. The checksum covers everything after
// itself. The part from 0x0e01 on is called headers-and-payload: a broker
// stores it as it came and sends it on behind another command, without
// opening it. Before 0x0e01 a broker may put [u16 0x0e02][u32 k][k bytes
// BrokerEntryMetadata].
//
// # Reading
//
// A [FrameReader] cuts a stream into frames; [Parse] decodes a frame's command
// into a [Command] that is reused from frame to frame; [SplitPayload] and
// [ParseMetadata] open headers-and-payload. Byte slices in what these return
// alias the input and are valid until the reader's next call; strings are
// copies. SEND, SEND_RECEIPT, MESSAGE, ACK and FLOW are decoded without
// allocating once the Command has grown to its working size.
//
// # Writing
//
// Every command type has AppendFrame, which appends one whole frame to a
// slice; SEND and MESSAGE carry a payload and have [AppendSend],
// [AppendSendRaw] and [AppendMessage].
//
// The commands are proto2: required fields are always written, zero or not,
// because clients close a connection over a missing one; a missing required
// field in what arrives is an error; unknown fields are skipped.
package wire
