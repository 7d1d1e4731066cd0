package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"postern/refusal"
	"postern/supervisor/api"
)

// Waits between two frames of top.
const (
	topEvery = 2 * time.Second
	topLeast = 250 * time.Millisecond // each frame is a question to posternd about every jail
	topMost  = time.Hour
)

// topRow is a row of ps with what two of them tell together.
type topRow struct {
	api.PsRow
	CPUPercent     float64 `json:"cpu_percent"`      // of one processor
	CallsPerSecond float64 `json:"calls_per_second"` // over the interval
}

// topFrame is what one look shows.
type topFrame struct {
	Time     int64    `json:"time"`        // milliseconds since the epoch
	Interval int64    `json:"interval_ms"` // over which the rates are; 0 in a first frame, where they are since each start
	Sort     string   `json:"sort"`        // the column that decides the order
	Rows     []topRow `json:"rows"`
}

// topOrders are the columns that top sorts by: the most first, names from the front.
// Their keys choose them while it runs.
var topOrders = []struct {
	name    string
	key     byte
	compare func(x, y topRow) int
}{
	{"cpu", 'c', func(x, y topRow) int { return cmp.Compare(y.CPUPercent, x.CPUPercent) }},
	{"memory", 'm', func(x, y topRow) int { return cmp.Compare(y.Memory, x.Memory) }},
	{"calls", 's', func(x, y topRow) int { return cmp.Compare(y.CallsPerSecond, x.CallsPerSecond) }},
	{"queue", 'u', func(x, y topRow) int { return cmp.Compare(y.InFlight, x.InFlight) }},
	{"restarts", 'r', func(x, y topRow) int { return cmp.Compare(y.Restarts, x.Restarts) }},
	{"project", 'p', func(x, y topRow) int { return cmp.Compare(x.project(), y.project()) }},
}

func topNames() (out []string) {
	for _, o := range topOrders {
		out = append(out, o.name)
	}
	return out
}

func (r topRow) project() string { return cmp.Or(r.ProjectLabel, r.Project) }

// top is a running look at what lives.
type top struct {
	a       *app
	project string
	sort    string
	reverse bool
	every   time.Duration
	before  map[string]api.PsRow // by jail
	at      time.Time            // of before
}

func (a *app) topCommand() *cobra.Command {
	t := &top{a: a}
	var once bool
	cmd := &cobra.Command{Use: "top", Short: "bridges and tool servers that run now, live", Args: exactly(),
		Long: "Shows what ps shows, again and again, sorted, with processor time and calls as rates. At a terminal keys choose the order:\n" +
			"c cpu, m memory, s calls a second, u queue, r restarts, p project; i turns it round, space looks at once, q ends.\n" +
			"Elsewhere frames follow each other; with --json they are documents, one a line. --once shows one frame, with rates over\n" +
			"one interval.",
		Example: "  postern top --sort memory\n  postern top --project shop --once\n  postern top --json --interval 10s"}
	cmd.Flags().StringVar(&t.project, "project", "", "only this `project`'s")
	cmd.Flags().StringVar(&t.sort, "sort", topOrders[0].name, "the `column` that decides the order: "+list(topNames()))
	cmd.Flags().BoolVar(&t.reverse, "reverse", false, "the other way round")
	cmd.Flags().DurationVar(&t.every, "interval", topEvery, fmt.Sprintf("`time` between two frames, %v to %v", topLeast, topMost))
	cmd.Flags().BoolVar(&once, "once", false, "one frame, and end")
	cmd.RegisterFlagCompletionFunc("project", a.completeProjects)
	cmd.RegisterFlagCompletionFunc("sort", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return topNames(), cobra.ShellCompDirectiveNoFileComp
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := oneOf("--sort", t.sort, topNames()); err != nil {
			return err
		}
		if t.every < topLeast || t.every > topMost {
			return usagef("--interval is between %v and %v, not %v", topLeast, topMost, t.every)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		var err error
		switch term := a.display(); {
		case once:
			err = t.once(ctx)
		case term != nil && !a.json:
			err = t.live(ctx, term)
		default:
			err = t.frames(ctx)
		}
		var r *api.Refusal
		switch {
		case !once && errors.Is(err, context.Canceled): // an interrupt is its ordinary end
			return nil
		case !once && a.json && errors.As(err, &r) && t.before != nil:
			return &shown{status: refusal.Of(r.Code).Exit, text: r.Error()} // one document a line was promised
		}
		return err
	}
	return cmd
}

// look asks what lives, and makes a frame of it and the one before.
func (t *top) look(ctx context.Context) (topFrame, error) {
	r, err := t.a.allJails(ctx, t.project)
	if err != nil {
		return topFrame{}, err
	}
	return t.frame(r.Rows, time.Now()), nil
}

// frame gives rows their rates. One that was not there before has those since its start.
func (t *top) frame(rows []api.PsRow, now time.Time) topFrame {
	f := topFrame{Time: now.UnixMilli(), Sort: t.sort, Rows: make([]topRow, 0, len(rows))}
	if t.before != nil {
		f.Interval = now.Sub(t.at).Milliseconds()
	}
	next := make(map[string]api.PsRow, len(rows))
	for _, p := range rows {
		row := topRow{PsRow: p}
		span, cpu, calls := now.Sub(time.UnixMilli(p.Started)), p.CPUUsec, p.Calls
		if was, ok := t.before[p.Jail]; ok {
			span, cpu, calls = now.Sub(t.at), cpu-was.CPUUsec, calls-min(was.Calls, calls)
		}
		if p.Jail != "" && span > 0 { // a server that is down has no rates
			row.CPUPercent = 100 * float64(max(cpu, 0)) / float64(span.Microseconds()+1)
			row.CallsPerSecond = float64(calls) / span.Seconds()
		}
		if p.Jail != "" {
			next[p.Jail] = p
		}
		f.Rows = append(f.Rows, row)
	}
	t.before, t.at = next, now
	t.order(f.Rows)
	return f
}

// order sorts rows; what is equal keeps the order of ps.
func (t *top) order(rows []topRow) {
	for _, o := range topOrders {
		if o.name == t.sort {
			slices.SortStableFunc(rows, func(x, y topRow) int {
				if t.reverse {
					x, y = y, x
				}
				return o.compare(x, y)
			})
		}
	}
}

// wait is until the next frame, or the end.
func (t *top) wait(ctx context.Context) error {
	timer := time.NewTimer(t.every)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// once looks twice, so that its rates are of now, and shows one frame.
func (t *top) once(ctx context.Context) error {
	f, err := t.look(ctx)
	if err == nil && len(f.Rows) > 0 {
		if err = t.wait(ctx); err == nil {
			f, err = t.look(ctx)
		}
	}
	if err != nil {
		return err
	}
	t.a.whoIsEmpty(ctx, len(f.Rows))
	return t.show(f)
}

// frames shows one after the other, for a file or a program.
func (t *top) frames(ctx context.Context) error {
	for first := true; ; first = false {
		f, err := t.look(ctx)
		if err != nil {
			return err
		}
		if !first && !t.a.json {
			fmt.Fprintln(t.a.out)
		}
		if err := t.show(f); err != nil {
			return err
		}
		if err := t.wait(ctx); err != nil {
			return err
		}
	}
}

func (t *top) show(f topFrame) error {
	return t.a.show(f, func(tab *table) {
		tab.line("%s", f.summary())
		tab.row(topHead...)
		for _, r := range f.Rows {
			tab.row(r.cells()...)
		}
	})
}

var topHead = []any{"PROJECT", "SERVER", "UID", "PID", "STATE", "MEMORY", "LIMIT", "CPU%", "PIDS", "PRESSURE", "CALLS/S", "QUEUE", "RESTARTS", "LAST ERROR"}

func (r topRow) cells() []any {
	limit, pressure := "", ""
	if r.MemoryMax > 0 {
		limit = size(r.MemoryMax)
	}
	if p := r.Pressure; p != nil {
		pressure = fmt.Sprintf("m%.0f c%.0f i%.0f", p.Memory, p.CPU, p.IO)
	}
	return []any{r.project(), cmp.Or(r.Label, r.Kind), r.UID, r.PID, r.State, size(r.Memory), limit, fmt.Sprintf("%.1f", r.CPUPercent), r.Pids, pressure,
		fmt.Sprintf("%.1f", r.CallsPerSecond), r.InFlight, r.Restarts, sentence(r.LastError)}
}

// summary is the line above the columns.
func (f topFrame) summary() string {
	var bridges, servers, queue int
	var memory int64
	var cpu, calls float64
	for _, r := range f.Rows {
		switch {
		case r.Kind == "bridge":
			bridges++
		case r.Jail != "":
			servers++
		}
		memory, cpu, calls, queue = memory+r.Memory, cpu+r.CPUPercent, calls+r.CallsPerSecond, queue+r.InFlight
	}
	return fmt.Sprintf("%s  bridges %d  servers %d  memory %s  cpu %.1f%%  calls/s %.1f  queue %d  by %s",
		time.UnixMilli(f.Time).Format(time.TimeOnly), bridges, servers, size(memory), cpu, calls, queue, f.Sort)
}
