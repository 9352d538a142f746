package location

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/tko-orchestrator/tko"
)

type unpacker func(ctx context.Context, data []byte, within string, options Options) ([]file, error)

// archive returns the unpacker for the data, or nil if they are not an archive.
func archive(data []byte) unpacker {
	switch {
	case bytes.HasPrefix(data, []byte("PK\x03\x04")), bytes.HasPrefix(data, []byte("PK\x05\x06")):
		return unzip
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		return gunzip
	case len(data) > 262 && string(data[257:262]) == "ustar":
		return untar
	}
	return nil
}

// gunzip unpacks a tar.gz, or a single compressed file.
func gunzip(ctx context.Context, data []byte, within string, options Options) ([]file, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "it is damaged: %w", err)
	}
	defer func() { _ = r.Close() }()
	head := make([]byte, 512)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, tko.Errorf(tko.ErrInvalid, "it is damaged: %w", err)
	}
	all := io.MultiReader(bytes.NewReader(head[:n]), r)
	if n > 262 && string(head[257:262]) == "ustar" {
		return untarFrom(ctx, all, within, options)
	}
	if within != "" {
		return nil, tko.Errorf(tko.ErrInvalid, "it is not an archive (tar, tar.gz, zip), so it contains no paths")
	}
	content, err := readBounded(all, options.MaxBytes)
	if err != nil {
		return nil, err
	}
	return []file{{data: content}}, nil
}

func untar(ctx context.Context, data []byte, within string, options Options) ([]file, error) {
	return untarFrom(ctx, bytes.NewReader(data), within, options)
}

func untarFrom(ctx context.Context, r io.Reader, within string, options Options) ([]file, error) {
	s := selection{within: within, options: options}
	bounded := &io.LimitedReader{R: r, N: options.MaxBytes*expansion + 1}
	t := tar.NewReader(bounded)
	for {
		header, err := t.Next()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case bounded.N <= 0:
			return nil, tooLarge(options.MaxBytes * expansion)
		case errors.Is(err, io.EOF):
			return s.result()
		case err != nil:
			return nil, tko.Errorf(tko.ErrInvalid, "it is damaged: %w", err)
		}
		// Packages contain no links and devices.
		name, ok := entryName(header.Name)
		if !ok {
			return nil, tko.Errorf(tko.ErrInvalid, "its entry %.80q leads out of it", header.Name)
		}
		if header.Typeflag != tar.TypeReg || !s.takes(name) {
			continue
		}
		if err := s.add(name, t); err != nil {
			return nil, err
		}
	}
}

func unzip(ctx context.Context, data []byte, within string, options Options) ([]file, error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "it is damaged: %w", err)
	}
	s := selection{within: within, options: options}
	for _, entry := range z.File {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		name, ok := entryName(entry.Name)
		if !ok {
			return nil, tko.Errorf(tko.ErrInvalid, "its entry %.80q leads out of it", entry.Name)
		}
		if !entry.Mode().IsRegular() || !s.takes(name) {
			continue
		}
		if err := addZipped(&s, name, entry); err != nil {
			return nil, err
		}
	}
	return s.result()
}

func addZipped(s *selection, name string, entry *zip.File) error {
	r, err := entry.Open()
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "%s: it is damaged: %w", name, err)
	}
	defer func() { _ = r.Close() }()
	if err := s.add(name, r); err != nil {
		if errors.Is(err, zip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF) {
			return tko.Errorf(tko.ErrInvalid, "it is damaged: %w", err)
		}
		return fmt.Errorf("%w", err)
	}
	return nil
}

// entryName returns the clean, relative name of an archive's entry; false if it
// leads out of the archive.
func entryName(name string) (clean string, ok bool) {
	name = strings.ReplaceAll(name, `\`, "/")
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", false
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), !strings.HasPrefix(name, "/")
}
