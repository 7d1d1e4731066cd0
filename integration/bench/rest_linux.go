package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"postern/integration/rig"
	"postern/supervisor/api"
)

// restWait is how long a bridge whose sessions have ended gets to come to rest.
const restWait = 2 * time.Second

// atRest prints what a project's bridge holds when nobody is connected.
func atRest(r *rig.Rig, project, when string) error {
	c, err := dial(r, project)
	if err != nil {
		return err
	}
	err = c.call()
	c.close()
	if err != nil {
		return err
	}
	time.Sleep(restWait)
	var ps api.PsResult
	if err := r.Call(api.Ps, nil, &ps); err != nil {
		return err
	}
	for _, row := range ps.Rows {
		if row.Kind != "bridge" {
			continue
		}
		held, err := memory(row.PID)
		if err != nil {
			return err
		}
		fmt.Printf("\na bridge at rest %s, the only one here: PSS %d KiB, of it anonymous %d, its own pages %d\n",
			when, held["Pss"], held["Pss_Anon"], held["Private_Clean"]+held["Private_Dirty"])
		return nil
	}
	return errors.New("no bridge is alive after its session")
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
