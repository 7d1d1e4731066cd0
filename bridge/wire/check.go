package wire

import (
	"encoding/hex"
	"errors"
	"fmt"

	"postern/ids"
	"postern/item"
	"postern/refusal"
)

var errField = errors.New("member is out of bounds")

// checkUp refuses what no honest bridge would send, so that the authority can
// rely on the shape of ids, names and sizes from here on.
func checkUp(m Up) error {
	switch m := m.(type) {
	case Hello:
		return bounded("version", m.Version, 64)
	case View:
		return id[ids.Session](string(m.Session))
	case Start:
		return errors.Join(id[ids.Session](string(m.Session)), id[ids.Connection](string(m.Connection)),
			tool(m.Tool), bounded("request_id", m.RequestID, MaxRequestID), checkPaths(m.Paths))
	case Catalogue:
		if m.Part < 0 || m.Part > MaxCatalogue/MaxPart || len(m.Data) > MaxPart {
			return fmt.Errorf("part %d of %d bytes: %w", m.Part, len(m.Data), errField)
		}
		if len(m.Quarantined) > MaxQuarantined {
			return fmt.Errorf("%d quarantined tools: %w", len(m.Quarantined), errField)
		}
		for _, q := range m.Quarantined {
			if err := errors.Join(bounded("tool", q.Tool, MaxName), bounded("reason", q.Reason, MaxText)); err != nil {
				return err
			}
		}
		return errors.Join(id[ids.Connection](string(m.Connection)), id[ids.Jail](string(m.Instance)),
			bounded("error", m.Error, MaxText), bounded("server", m.Server, MaxName), bounded("era", m.Era, 16))
	case Admit:
		err := errors.Join(id[ids.Session](string(m.Session)), tool(m.Tool), bounded("request_id", m.RequestID, MaxRequestID), checkPaths(m.Paths))
		if m.Connection != "" {
			err = errors.Join(err, id[ids.Connection](string(m.Connection)))
		}
		if m.Instance != "" {
			err = errors.Join(err, id[ids.Jail](string(m.Instance)))
		}
		if m.Continues != "" {
			err = errors.Join(err, id[ids.Call](string(m.Continues)))
		}
		if len(m.Args) > MaxArgs {
			err = errors.Join(err, fmt.Errorf("arguments of %d bytes: %w", len(m.Args), errField))
		}
		if n, e := hex.DecodeString(m.Digest); e != nil || len(n) != 32 || m.Size < 0 {
			err = errors.Join(err, fmt.Errorf("digest: %w", errField))
		}
		return err
	case Alive:
		return id[ids.Call](string(m.Call))
	case Ended:
		switch m.Outcome {
		case Completed, Failed, Cancelled, Unknown:
		default:
			return fmt.Errorf("outcome %.16q: %w", m.Outcome, errField)
		}
		if m.Size < 0 || m.Micros < 0 {
			return fmt.Errorf("size or micros: %w", errField)
		}
		if m.Artifacts < 0 || m.Artifacts > MaxArtifacts+1 {
			return fmt.Errorf("%d artifacts: %w", m.Artifacts, errField)
		}
		return errors.Join(id[ids.Call](string(m.Call)), code(m.Code))
	case Piece:
		return checkPiece(m)
	case Skipped:
		if m.Lines < 0 || m.Long < 0 || m.Unmatched < 0 {
			return fmt.Errorf("a count: %w", errField)
		}
		return errors.Join(id[ids.Connection](string(m.Connection)), id[ids.Jail](string(m.Instance)))
	case Stderr:
		switch {
		case len(m.Data) > MaxPart:
			return fmt.Errorf("%d bytes of data: %w", len(m.Data), errField)
		case m.Last && (m.Connection != "" || m.Instance != "" || len(m.Data) > 0):
			return fmt.Errorf("the last piece: %w", errField)
		case m.Last:
			return nil
		}
		return errors.Join(id[ids.Connection](string(m.Connection)), id[ids.Jail](string(m.Instance)))
	case SessionEnded:
		return errors.Join(id[ids.Session](string(m.Session)), bounded("reason", m.Reason, MaxText))
	case Denied:
		if m.Code == "" {
			return fmt.Errorf("code: %w", errField)
		}
		return errors.Join(id[ids.Session](string(m.Session)), code(m.Code),
			bounded("tool", m.Tool, item.MaxKey), bounded("request_id", m.RequestID, MaxRequestID))
	}
	return nil
}

func id[T ids.ID](s string) error {
	_, err := ids.Parse[T](s)
	return err
}

func code(c refusal.Code) error {
	if c != "" && !refusal.Known(c) {
		return fmt.Errorf("code %.32q: %w", c, errField)
	}
	return nil
}

func tool(s string) error {
	if s == "" {
		return fmt.Errorf("tool is empty: %w", errField)
	}
	if kind, _ := item.Split(s); kind == item.Resource {
		return bounded("resource", s, item.MaxKey)
	}
	return bounded("tool", s, MaxName)
}

func bounded(what, s string, most int) error {
	if len(s) > most {
		return fmt.Errorf("%s has %d bytes, limit %d: %w", what, len(s), most, errField)
	}
	return nil
}

func checkPiece(m Piece) error {
	if m.N < 0 || m.N > MaxArtifacts || m.Part < 0 || m.Part > MaxArtifact/MaxPart || m.Size < 0 || len(m.Data) > MaxPart {
		return fmt.Errorf("part %d of artifact %d, %d of %d bytes: %w", m.Part, m.N, len(m.Data), m.Size, errField)
	}
	if m.Path != "" && (m.Part != 0 || !m.Last || m.Size != 0 || len(m.Data) > 0 || m.Why != "" || !FilePath(m.Path)) {
		return fmt.Errorf("a file that is named: %w", errField)
	}
	switch m.Why {
	case "":
		if m.Size > MaxArtifact || m.N == MaxArtifacts || m.Part > 0 && (m.Size != 0 || m.Type != "" || m.Name != "") {
			return fmt.Errorf("an artifact of %d bytes: %w", m.Size, errField)
		}
	case WhyLarge, WhyMany, WhyBusy, WhyInvalid, WhyURI:
		if m.Part != 0 || !m.Last || len(m.Data) > 0 || (m.N == MaxArtifacts) != (m.Why == WhyMany) {
			return fmt.Errorf("bytes that are not sent: %w", errField)
		}
	default:
		return fmt.Errorf("reason %.16q: %w", m.Why, errField)
	}
	return errors.Join(id[ids.Call](string(m.Call)), bounded("type", m.Type, MaxType), bounded("name", m.Name, item.MaxKey))
}
