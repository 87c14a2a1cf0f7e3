package timestamps

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxNumber is the largest number of a position: 2^53-1, the largest integer
// that every JSON reader keeps exactly (rule D2).
const MaxNumber = 1<<53 - 1

// ErrPosition is wrapped by every error about a malformed position.
var ErrPosition = errors.New("malformed position")

// Epoch names one unbroken history of numbers. Epochs are random, because a
// counter kept in a file that is lost can come back (rule D2). The zero epoch
// is no epoch.
type Epoch [8]byte

// String returns the epoch as 16 lower-case hex digits.
func (e Epoch) String() string { return hex.EncodeToString(e[:]) }

// IsZero reports whether e is no epoch.
func (e Epoch) IsZero() bool { return e == Epoch{} }

// ParseEpoch reads 16 hex digits. Errors wrap [ErrPosition].
func ParseEpoch(s string) (Epoch, error) {
	var e Epoch
	if len(s) != hex.EncodedLen(len(e)) || strings.ToLower(s) != s {
		return e, fmt.Errorf("epoch %.40q: %w: want 16 lower-case hex digits", s, ErrPosition)
	}
	if _, err := hex.Decode(e[:], []byte(s)); err != nil {
		return Epoch{}, fmt.Errorf("epoch %.40q: %w: want 16 lower-case hex digits", s, ErrPosition)
	}
	if e.IsZero() {
		return e, fmt.Errorf("epoch %q: %w: all zero is no epoch", s, ErrPosition)
	}
	return e, nil
}

// Position names one entry of the journal. Positions of one epoch are ordered
// by number; positions of different epochs are not comparable.
type Position struct {
	Epoch Epoch
	Seq   uint64 // 1 to MaxNumber; 0 in a "since" means before the first
}

// String returns EPOCH/SEQ, the form that [ParsePosition] reads.
func (p Position) String() string { return p.Epoch.String() + "/" + strconv.FormatUint(p.Seq, 10) }

// ParsePosition reads EPOCH/SEQ. Errors wrap [ErrPosition].
func ParsePosition(s string) (Position, error) {
	epoch, seq, ok := strings.Cut(s, "/")
	if !ok {
		return Position{}, fmt.Errorf("position %.60q: %w: want EPOCH/SEQ", s, ErrPosition)
	}
	e, err := ParseEpoch(epoch)
	if err != nil {
		return Position{}, fmt.Errorf("position %.60q: %w", s, err)
	}
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil || n > MaxNumber || (len(seq) > 1 && seq[0] == '0') {
		return Position{}, fmt.Errorf("position %.60q: %w: want a number from 0 to 2^53-1 after the slash", s, ErrPosition)
	}
	return Position{Epoch: e, Seq: n}, nil
}
