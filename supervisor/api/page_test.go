package api

import (
	"fmt"
	"strings"
	"testing"
)

func TestPagesHoldEveryRowOnceAndFitAnAnswer(t *testing.T) {
	const rows = 10_000
	id := func(r ProjectResult) string { return r.Project }
	all := func() (out []ProjectResult) {
		for i := range rows {
			// Backwards, for a map gives its rows in no order.
			out = append(out, ProjectResult{Project: fmt.Sprintf("prj_%05d", rows-1-i), Label: "p", Workspace: "/srv/" + strings.Repeat("\x01", i%64)})
		}
		return out
	}
	seen, after, pages := 0, "", 0
	for {
		page, next, err := Paged(all(), after, id)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := Encode(Response{ID: 1, Result: mustEncode(t, ProjectListResult{Projects: page, Next: next})})
		if err != nil || len(raw) > MaxLine {
			t.Fatalf("page %d: %d bytes, %v", pages, len(raw), err)
		}
		for _, r := range page {
			if want := fmt.Sprintf("prj_%05d", seen); r.Project != want {
				t.Fatalf("%s where %s is next", r.Project, want)
			}
			seen++
		}
		pages++
		if next == "" {
			break
		}
		after = next
	}
	if seen != rows || pages < 3 {
		t.Errorf("%d rows on %d pages", seen, pages)
	}
	// A row that has gone meanwhile does not stop the one who turns the page.
	page, _, err := Paged(all(), "prj_00009x", id)
	if err != nil || page[0].Project != "prj_00010" {
		t.Errorf("%v, %v", page[0], err)
	}
	if page, next, err := Paged(all()[:0], "", id); err != nil || len(page) != 0 || next != "" {
		t.Errorf("of nothing: %v, %q, %v", page, next, err)
	}
}

// Rows that cannot be told apart are not torn apart: the second would never be shown.
func TestRowsOfOneKeyStayOnOnePage(t *testing.T) {
	var rows []ProjectResult
	for i := range 6000 {
		rows = append(rows, ProjectResult{Project: fmt.Sprintf("prj_%04d", i/3), Workspace: strings.Repeat("x", 100)})
	}
	seen, after := 0, ""
	for {
		page, next, err := Paged(rows, after, func(r ProjectResult) string { return r.Project })
		if err != nil {
			t.Fatal(err)
		}
		if seen += len(page); len(page)%3 != 0 {
			t.Fatalf("a page of %d rows", len(page))
		}
		if next == "" {
			break
		}
		after = next
	}
	if seen != len(rows) || after == "" {
		t.Errorf("%d of %d rows, last after %q", seen, len(rows), after)
	}
}

func mustEncode(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw[:len(raw)-1]
}
