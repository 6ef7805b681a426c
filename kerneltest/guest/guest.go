// Package guest is what the runner of test kernels and their init agree on, and
// the archive that carries both into a machine.
package guest

import (
	"bytes"
	"fmt"
	"io"
)

// LastLine begins the line in which init says how its command ended. A machine
// that never writes it has died.
const LastLine = "kerneltest: exit status "

// Config is /config.json.
type Config struct {
	Args []string
	Env  []string
}

// File is a regular file of an archive.
type File struct {
	Name string // without a leading slash
	Mode uint32
	Data []byte
}

// WriteArchive writes files as the kernel unpacks them for its first root file
// system: a cpio archive of the format newc, with the folders that they need.
func WriteArchive(w io.Writer, folders []string, files []File) error {
	a := archive{w: w}
	for _, f := range folders {
		a.add(File{Name: f, Mode: 0o040755})
	}
	for _, f := range files {
		f.Mode |= 0o100000
		a.add(f)
	}
	a.add(File{Name: "TRAILER!!!"})
	return a.err
}

type archive struct {
	w     io.Writer
	inode int
	err   error
}

func (a *archive) add(f File) {
	if a.err != nil {
		return
	}
	a.inode++
	var b bytes.Buffer
	// magic, then: ino mode uid gid nlink mtime filesize devmajor devminor
	// rdevmajor rdevminor namesize check
	fmt.Fprintf(&b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.inode, f.Mode, 0, 0, 1, 0, len(f.Data), 0, 0, 0, 0, len(f.Name)+1, 0, f.Name)
	pad(&b)
	b.Write(f.Data)
	pad(&b)
	_, a.err = a.w.Write(b.Bytes())
}

func pad(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}
