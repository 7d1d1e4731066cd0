package api

import (
	"slices"
	"strings"
)

// pageBytes bounds the rows of one page, encoded; an answer is one line of at most
// MaxLine, and a row alone is far below the difference.
const pageBytes = 768 << 10

// Paged sorts rows by their keys and returns those after one, as many as one answer
// holds, and the key after which the next page begins, "" behind the last row. It is
// never nil. Rows of one key stay together.
func Paged[T any](rows []T, after string, key func(T) string) (page []T, next string, err error) {
	slices.SortStableFunc(rows, func(x, y T) int { return strings.Compare(key(x), key(y)) })
	from, _ := slices.BinarySearchFunc(rows, after, func(r T, after string) int {
		if key(r) <= after {
			return -1
		}
		return 1
	})
	page, size := []T{}, 0
	for i, r := range rows[from:] {
		raw, err := Encode(r)
		if err != nil {
			return nil, "", err
		}
		if size += len(raw); size > pageBytes && i > 0 && key(r) != key(page[i-1]) {
			return page, key(page[i-1]), nil
		}
		page = append(page, r)
	}
	return page, "", nil
}
