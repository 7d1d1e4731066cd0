package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
	"postern/supervisor/client"
)

func (a *app) artifactCommand() *cobra.Command {
	return a.group("artifact", "images, audio and files that calls have brought back", a.artifactListCommand(), a.artifactGetCommand())
}

func (a *app) artifactListCommand() *cobra.Command {
	var p api.ArtifactListParams
	cmd := &cobra.Command{Use: "list", Short: "artifacts of your projects, the newest first", Args: exactly(),
		Long: "Lists what you may see: all of a project that you own or view, of your own tasks where you are a member. Root sees none.\n" +
			"The last column says why an artifact was not kept.",
		Example: "  postern artifact list --project shop"}
	cmd.Flags().StringVar(&p.Project, "project", "", "only this `project`'s")
	cmd.Flags().StringVar(&p.Task, "task", "", "only this `task`'s, by its id")
	cmd.Flags().StringVar(&p.Call, "call", "", "only this `call`'s, by its id")
	cmd.Flags().Int64Var(&p.Before, "before", 0, "go on where a former page ended")
	cmd.Flags().IntVar(&p.Limit, "limit", 0, fmt.Sprintf("rows of a page, at most %d, which is the default too", activityMax))
	cmd.RegisterFlagCompletionFunc("project", a.completeProjects)
	cmd.RegisterFlagCompletionFunc("task", a.completeTasks)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if p.Limit < 0 || p.Limit > activityMax || p.Before < 0 {
			return usagef("--limit is at most %d, and neither it nor --before is negative", activityMax)
		}
		r, err := ask[api.ArtifactListResult](cmd.Context(), a, api.ArtifactList, p, client.Options{})
		if err != nil {
			return err
		}
		err = a.show(r, func(t *table) {
			t.row("TIME", "ARTIFACT", "TYPE", "SIZE", "NAME", "CALL", "TASK", "PROJECT", "NOT KEPT")
			for _, x := range r.Rows {
				t.row(when(x.Time), x.Artifact, x.Type, size(x.Size), x.Name, x.Call, x.Task, cmp.Or(x.ProjectLabel, x.Project), x.Missing)
			}
		})
		if err == nil && r.More {
			fmt.Fprintf(a.err, "There is more: --before %d\n", r.Next)
		}
		return err
	}
	return cmd
}

func (a *app) artifactGetCommand() *cobra.Command {
	var out string
	var force bool
	cmd := &cobra.Command{Use: "get ARTIFACT", Short: "the bytes of one artifact", Args: exactly("ARTIFACT"),
		Long: "Writes the bytes to standard output, or into a file that is not there yet. What comes was checked against its digest\n" +
			"when the command ends with 0. A terminal gets them only with --out -, for they may be anything.",
		Example: "  postern artifact get art_01997d5e-0000-7000-8000-000000000000 --out chart.png"}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write into this `file`, whose mode is 0600; - is standard output, a terminal too")
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it is there")
	cmd.ValidArgsFunction = a.completeArtifacts
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.json && (out == "" || out == "-") {
			return usagef("--json needs --out FILE: the bytes are not JSON")
		}
		if out == "" && terminal(a.out) {
			return usagef("standard output is a terminal, and the bytes may be anything; name a file with --out, or --out -")
		}
		if out == "" || out == "-" {
			_, err := a.fetch(cmd.Context(), args[0], a.out)
			return err
		}
		return a.fetchInto(cmd.Context(), args[0], out, force)
	}
	return cmd
}

func (a *app) completeArtifacts(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	r, _ := complete[api.ArtifactListResult](cmd, a, api.ArtifactList, api.ArtifactListParams{Limit: 100})
	return names(r.Rows, func(x api.ArtifactRow) string {
		if x.Missing != "" {
			return ""
		}
		return x.Artifact
	})
}

// fetchInto writes an artifact beside the file and then gives it the name, so that a file
// of that name is whole. No link is followed: the new name replaces what stood there.
func (a *app) fetchInto(ctx context.Context, artifact, path string, force bool) (err error) {
	if _, err := os.Lstat(path); err == nil && !force {
		return fileErrorf(refusal.AlreadyExists, "%q is there already; name a file that is not, or say --force", path)
	}
	f, err := os.OpenFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part"), os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	x, err := a.fetch(ctx, artifact, f)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if force {
		err = os.Rename(f.Name(), path)
	} else {
		err = os.Link(f.Name(), path) // fails where the name is taken meanwhile
	}
	if err != nil {
		return err
	}
	return a.done(x, "%s: %s, %s, sha256 %s", path, x.Type, size(x.Size), x.Digest)
}

// fetch asks for one piece after the other. Each is authorized by itself.
func (a *app) fetch(ctx context.Context, artifact string, to io.Writer) (api.ArtifactRow, error) {
	sum := sha256.New()
	for at := int64(0); ; {
		p, err := ask[api.ArtifactPiece](ctx, a, api.ArtifactGet, api.ArtifactGetParams{Artifact: artifact, Offset: at}, client.Options{})
		if err != nil {
			return p.ArtifactRow, err
		}
		sum.Write(p.Data)
		if _, err := to.Write(p.Data); err != nil {
			return p.ArtifactRow, fmt.Errorf("write the output: %w", err)
		}
		at += int64(len(p.Data))
		switch {
		case at == p.Size && hex.EncodeToString(sum.Sum(nil)) == p.Digest:
			return p.ArtifactRow, nil
		case at >= p.Size || len(p.Data) == 0:
			return p.ArtifactRow, fmt.Errorf("%s came damaged: %d bytes with another digest than %s", p.Artifact, at, p.Digest)
		}
	}
}
