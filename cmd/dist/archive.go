package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// file is a file of an archive.
type file struct {
	path    string // path in the archive; a path that ends in a slash is a folder
	from    string // path of the file to read; if empty, content is used
	content []byte
	mode    int64 // default 0644
}

// read returns the content of the file.
func (f file) read() ([]byte, error) {
	if f.from == "" {
		return f.content, nil
	}
	return os.ReadFile(f.from)
}

// archive packs files in the given order. All files belong to root, and have the time of the commit, so that every
// build results in the same bytes. Folders come before their contents.
func archive(to io.Writer, files []file, modified time.Time) error {
	w := tar.NewWriter(to)
	made := map[string]bool{".": true}
	var folder func(dir string) error
	folder = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		if err := folder(path.Dir(dir)); err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: modified, Format: tar.FormatPAX})
	}
	for _, f := range files {
		mode := f.mode
		if mode == 0 {
			mode = 0o644
		}
		if strings.HasSuffix(f.path, "/") {
			if err := w.WriteHeader(&tar.Header{
				Typeflag: tar.TypeDir, Name: f.path, Mode: mode, ModTime: modified,
				Format: tar.FormatPAX,
			}); err != nil {
				return err
			}
			continue
		}
		content, err := f.read()
		if err != nil {
			return err
		}
		if err := folder(path.Dir(f.path)); err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: f.path, Size: int64(len(content)), Mode: mode, ModTime: modified,
			Format: tar.FormatPAX,
		}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return w.Close()
}

// packed returns the bytes of a tar.gz with the files.
func packed(files []file, modified time.Time) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := archive(w, files, modified); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeArchive writes a tar.gz into the release.
func (r *release) writeArchive(name string, files []file) error {
	content, err := packed(files, r.time)
	if err != nil {
		return err
	}
	return r.write(name, content)
}

func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}
