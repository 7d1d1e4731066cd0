package launch

import (
	"fmt"
	"slices"
	"strings"

	"postern/ids"
	"postern/refusal"
	"postern/supervisor/api"
)

// serverDiff tells what differs between two revisions of a server, by default between
// the last two.
func (s *Supervisor) serverDiff(r request) (any, *api.Refusal) {
	p, refused := params[api.ServerDiffParams](r)
	if refused != nil {
		return nil, refused
	}
	f, _ := s.now()
	i, refused := f.findServer(p.Server)
	if refused != nil {
		return nil, refused
	}
	srv := f.Servers[i]
	at := func(id string, otherwise int) (Revision, *api.Refusal) {
		if id == "" {
			return srv.Revisions[max(0, otherwise)], nil
		}
		n := slices.IndexFunc(srv.Revisions, func(v Revision) bool { return v.ID == ids.Revision(id) })
		if n < 0 {
			return Revision{}, api.Refuse(refusal.NotFound, "Server %q has no revision %.64q; the last %d are remembered.", srv.Label, id, maxRevisions)
		}
		return srv.Revisions[n], nil
	}
	is, refused := at(p.To, len(srv.Revisions)-1)
	if refused != nil {
		return nil, refused
	}
	was, refused := at(p.From, slices.IndexFunc(srv.Revisions, func(v Revision) bool { return v.ID == is.ID })-1)
	if refused != nil {
		return nil, refused
	}
	out := api.ServerDiffResult{Server: string(srv.ID), Label: srv.Label, From: string(was.ID), To: string(is.ID)}
	var err error
	if out.Members, err = revisionDiff(was, is); err != nil {
		return nil, api.Refuse(refusal.Internal, "%v.", err)
	}
	s.diffForm(&out, was, is)
	s.diffPackage(&out, was, is)
	return out, nil
}

func (s *Supervisor) diffForm(out *api.ServerDiffResult, was, is Revision) {
	if was.ProfileDigest == is.ProfileDigest {
		return
	}
	a, errA := s.packages.read(was.ProfileDigest, formSuffix)
	b, errB := s.packages.read(is.ProfileDigest, formSuffix)
	m := member("profile content", []string{was.ProfileDigest}, []string{is.ProfileDigest})
	if errA == nil && errB == nil {
		m = formDiff(a, b)
	} else {
		out.Notes = append(out.Notes, "What the profile said before was not kept: its digests are shown.")
	}
	out.Members = append(out.Members, m)
}

func (s *Supervisor) diffPackage(out *api.ServerDiffResult, was, is Revision) {
	if was.Package == is.Package {
		return
	}
	out.Members = append(out.Members, member("package", nonempty(was.Package), nonempty(is.Package)))
	var lists [2][]byte
	for i, digest := range []string{was.Package, is.Package} {
		var err error
		if digest == "" {
			continue
		}
		if lists[i], err = s.packages.read(digest, listSuffix); err != nil {
			out.Notes = append(out.Notes, "The list of files of one of the two packages was not kept: which of them differ cannot be told.")
			return
		}
	}
	out.Files = packageDiff(lists[0], lists[1])
}

func nonempty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// serverGC takes unused copies out of the store, which posternd does by itself as well,
// and tells what is there and why.
func (s *Supervisor) serverGC(r request) (any, *api.Refusal) {
	if _, refused := params[struct{}](r); refused != nil {
		return nil, refused
	}
	sizes, err := s.packages.copies()
	if err != nil {
		return nil, api.Refuse(refusal.StoreUnavailable, "%v.", err)
	}
	gone, err := s.collectPackages(r.DryRun)
	out := api.ServerGCResult{Kept: []api.StoredCopy{}, Removed: []api.StoredCopy{}}
	f, _ := s.now()
	row := func(digest string) api.StoredCopy {
		return api.StoredCopy{Package: digest, Files: sizes[digest].files, Bytes: sizes[digest].bytes, Servers: f.users(digest), Running: s.packages.users(digest)}
	}
	for _, g := range gone {
		if g.copy {
			out.Removed = append(out.Removed, row(g.name))
			delete(sizes, g.name)
		} else {
			out.Lists++
		}
	}
	for digest := range sizes {
		out.Kept = append(out.Kept, row(digest))
	}
	slices.SortFunc(out.Kept, func(a, b api.StoredCopy) int { return strings.Compare(a.Package, b.Package) })
	if err != nil {
		return nil, api.Refuse(refusal.StoreUnavailable, "%v.", err)
	}
	if r.DryRun || len(gone) == 0 {
		return out, nil
	}
	// What is out of the store is removed although nothing may be written: that frees room.
	s.packages.wake()
	line := record(r, "packages", fmt.Sprintf("%d copies, %d lists", len(out.Removed), out.Lists), "none of them", f.Version)
	if err := s.audit.Write(line); err != nil {
		s.cfg.Log.Error("removed packages are not in the audit", keyError, err)
	}
	return out, nil
}
