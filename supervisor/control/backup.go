package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/store"
)

// backup sends root both files of the store, each as it stands at one moment, policy
// first: so no token in it has fewer uses than it had. One backup at a time; calls
// go on.
func (a *actions) backup(ctx context.Context, c *Call) (any, error) {
	if _, err := params[struct{}](c); err != nil {
		return nil, err
	}
	if !c.Who.Root {
		return nil, rootOnly()
	}
	if !a.backingUp.TryLock() {
		return nil, api.Refuse(refusal.Busy, "Another backup is being made.")
	}
	defer a.backingUp.Unlock()
	out := api.BackupResult{Version: a.Version}
	for _, name := range api.BackupStore {
		f, err := a.sendFile(ctx, c, name)
		switch {
		case errors.Is(err, store.ErrFull), errors.Is(err, store.ErrBusy):
			return nil, api.Refuse(refusal.StoreUnavailable, "%v.", err)
		case err != nil:
			return nil, err
		}
		out.Files = append(out.Files, f)
	}
	return out, nil
}

// sendFile sends a copy of one file piece by piece; a reader that stops ends it.
func (a *actions) sendFile(ctx context.Context, c *Call, name string) (out api.BackupFile, err error) {
	f, err := a.Store.Copy(ctx, name)
	if err != nil {
		return out, err
	}
	defer f.Close()
	out.Name = name
	sum, piece := sha256.New(), make([]byte, api.BackupPieceBytes)
	for {
		n, err := io.ReadFull(f, piece)
		if n > 0 {
			sum.Write(piece[:n])
			out.Size += int64(n)
			if err := c.Event(api.BackupPiece{File: name, Data: piece[:n]}); err != nil {
				return out, err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			out.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}
