package store

import (
	"testing"
	"time"

	"postern/ids"
)

// Whoever follows the records is shown a call once more when its artifact has come.
func TestE4_AFollowerSeesTheCallAgainWithItsArtifact(t *testing.T) {
	s := open(t, stateDir(t))
	b := s.Batch()
	c := call(1)
	b.Admit(c)
	b.End(c.Seq, Outcome{State: Completed, At: moment.UnixNano()})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	seen := page(t, s, Query{Changes: true})
	if len(seen.Calls) != 1 {
		t.Fatalf("%+v", seen)
	}
	if again := page(t, s, Query{Changes: true, After: seen.Next, From: seen.OpenFrom}); len(again.Calls) != 0 {
		t.Fatalf("nothing has changed: %+v", again.Calls)
	}
	b.Artifact(Artifact{ID: id[ids.Artifact](1), Project: c.Project, Call: c.ID, Seq: c.Seq, Size: 1, Type: "image/png"})
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	again := page(t, s, Query{Changes: true, After: seen.Next, From: seen.OpenFrom})
	if len(again.Calls) != 1 || again.Calls[0].ID != c.ID || again.Calls[0].State != Completed {
		t.Fatalf("%+v", again.Calls)
	}
	if of, err := s.ArtifactsOf(again.Calls); err != nil || len(of[c.Seq]) != 1 {
		t.Errorf("%v, %v", of, err)
	}
}

// What one call brought back is found however much others brought back since.
func TestE4_ArtifactsOfOneCallAreFoundBehindAllOthers(t *testing.T) {
	s := open(t, stateDir(t))
	b := s.Batch()
	old, mine, theirs := id[ids.Call](1), id[ids.Project](1), id[ids.Project](2)
	for n := range maxArtifactsScan + 100 {
		at := moment.Add(time.Duration(n) * time.Millisecond)
		a := Artifact{ID: ids.New[ids.Artifact](at, [10]byte{}), Project: theirs, Call: ids.New[ids.Call](at, [10]byte{}), Seq: int64(n + 1)}
		if n == 0 {
			a.Project, a.Call = mine, old
		}
		b.Artifact(a)
	}
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	for says, q := range map[string]ArtifactQuery{
		"of its call":               {Projects: []ids.Project{mine, theirs}, Call: old},
		"of its project":            {Projects: []ids.Project{mine}},
		"of its call and project":   {Projects: []ids.Project{mine}, Call: old},
		"of a call, for a stranger": {Projects: []ids.Project{theirs}, Call: old},
	} {
		rows, _, more, err := s.Artifacts(q)
		if want := len(q.Projects) > 1 || q.Projects[0] == mine; err != nil || more || want != (len(rows) == 1 && rows[0].Call == old) || !want && len(rows) != 0 {
			t.Errorf("%s: %d rows, more %v, %v", says, len(rows), more, err)
		}
	}
	if rows, next, more, err := s.Artifacts(ArtifactQuery{Projects: []ids.Project{mine, theirs}, Limit: 7}); err != nil || len(rows) != 7 || !more || next != rows[6].N {
		t.Errorf("the newest of all: %d rows, %v %v", len(rows), more, err)
	}
}
