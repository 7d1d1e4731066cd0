package stream

import (
	"errors"
	"sync"
)

// Free is how many bytes an Input or an Output may hold without asking its Budget.
const Free = 64 << 10

// ErrCrowded is returned where the others that share a Budget hold all of it.
var ErrCrowded = errors.New("others hold all the memory there is for long lines")

// Budget is the memory that the long lines of many inputs, or of many outputs, share.
// Without it, a few that each stay within their own bound would end the process, and
// with it everybody else. A nil Budget is never used up.
type Budget struct {
	mu   sync.Mutex
	left int
}

// NewBudget has room for so many bytes.
func NewBudget(bytes int) *Budget { return &Budget{left: bytes} }

// move changes what one holder has from one size to another, of which Free is its own.
// Less is always granted.
func (b *Budget) move(from, to int) bool {
	if b == nil {
		return true
	}
	more := max(0, to-Free) - max(0, from-Free)
	if more == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if more > b.left {
		return false
	}
	b.left -= more
	return true
}
