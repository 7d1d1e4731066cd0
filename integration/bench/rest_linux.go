package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// restWait is how long a bridge whose sessions have ended gets to come to rest.
const restWait = 2 * time.Second

// neighbours is how many projects more than the first have a bridge where several are at
// rest: the pages of the program's file are shared by all of them.
const neighbours = 3

// atRest prints what a project's bridge holds when nobody is connected.
func atRest(r *rig.Rig, project, when string) error {
	return rest(r, "a bridge at rest "+when+", the only one here", project)
}

// togetherAtRest prints the same where other projects have bridges too.
func togetherAtRest(r *rig.Rig, project string) error {
	projects := []string{project}
	for i := range neighbours {
		label := fmt.Sprintf("q%d", i)
		id, err := addProject(r, label)
		if err != nil {
			return err
		}
		projects = append(projects, id)
	}
	return rest(r, fmt.Sprintf("each of %d bridges at rest", len(projects)), projects...)
}

func rest(r *rig.Rig, what string, projects ...string) error {
	for _, project := range projects {
		c, err := dial(r, project)
		if err != nil {
			return err
		}
		err = c.call()
		c.close()
		if err != nil {
			return err
		}
	}
	time.Sleep(restWait)
	var ps api.PsResult
	if err := r.Call(api.Ps, nil, &ps); err != nil {
		return err
	}
	var sum, anonymous, n int
	for _, row := range ps.Rows {
		if row.Kind != "bridge" {
			continue
		}
		held, err := memory(row.PID)
		if err != nil {
			return err
		}
		sum, anonymous, n = sum+held["Pss"], anonymous+held["Pss_Anon"], n+1
	}
	if n != len(projects) {
		return fmt.Errorf("%d bridges are alive after their sessions, not %d", n, len(projects))
	}
	fmt.Printf("\n%s: PSS %d KiB, of it anonymous %d\n", what, sum/n, anonymous/n)
	return nil
}

// memory is what the kernel counts for process pid, in KiB, by name.
func memory(pid int) (map[string]int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return nil, err
	}
	held := map[string]int{}
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) == 3 && string(f[2]) == "kB" {
			if n, err := strconv.Atoi(string(f[1])); err == nil {
				held[string(bytes.TrimSuffix(f[0], []byte(":")))] = n
			}
		}
	}
	return held, nil
}
