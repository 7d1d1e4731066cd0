package launch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/order"
)

func TestE1_SecretFieldsAreNamesAndPaths(t *testing.T) {
	long := strings.Repeat("x", maxSecretField)
	for _, row := range []struct{ in, want []string }{
		{nil, nil},
		{[]string{}, nil},
		{[]string{"pin", "/auth/key", "pin", "a/b", long}, []string{"/auth/key", "a/b", "pin", long}},
		{slices.Repeat([]string{"pin"}, maxSecretFields), []string{"pin"}},
	} {
		if got, refused := secretFields(row.in); refused != nil || !slices.Equal(got, row.want) || (got == nil) != (row.want == nil) {
			t.Errorf("%.80q: %.80q, %v", row.in, got, refused)
		}
	}
	for _, bad := range [][]string{{""}, {"pin", ""}, {"/"}, {"/a/"}, {"/a//b"}, {long + "x"}, {"\xff"}, slices.Repeat([]string{"pin"}, maxSecretFields+1)} {
		if got, refused := secretFields(bad); refused == nil || refused.Code != refusal.RegistrationWrong {
			t.Errorf("%.80q: %.80q, %v", bad, got, refused)
		}
	}
}

// Recording is off in a new project; a change of it is one of the facts and stands in
// their record.
func TestE1_RecordingIsAFactOfRoots(t *testing.T) {
	f := newFacts(time.Now())
	f.Projects = []Project{{Project: order.Project{ID: newID[ids.Project](time.Now()), Label: "demo"}}}
	on, off := true, false
	g, p, refused := f.setProject(api.ProjectSetParams{Project: "demo", RecordArguments: &on})
	if refused != nil || !p.RecordArguments || g.Version == f.Version || f.Projects[0].RecordArguments {
		t.Fatalf("%+v, %v", p, refused)
	}
	if _, before, after := changed(f, g); !strings.Contains(before, "record_arguments false") || !strings.Contains(after, "record_arguments true") {
		t.Errorf("the record says %q, %q", before, after)
	}
	if !g.root(nil, order.Range{}, nil).Projects[0].RecordArguments {
		t.Error("the authority is not told")
	}
	if same, _, refused := g.setProject(api.ProjectSetParams{Project: "demo", RecordArguments: &on}); refused != nil || same.Version != g.Version {
		t.Errorf("no change is version %d, %v", same.Version, refused)
	}
	if h, p, refused := g.setProject(api.ProjectSetParams{Project: "demo", RecordArguments: &off}); refused != nil || p.RecordArguments || h.Version == g.Version {
		t.Errorf("%+v, %v", p, refused)
	}
}
