package store

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func median(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-µs")
}

// BenchmarkFloor is what the disk asks: an overwrite of 320 bytes and a sync.
func BenchmarkFloor(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "floor"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	f.Write(make([]byte, walBytes))
	f.Sync()
	record := make([]byte, 320)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		f.WriteAt(record, int64(i%1000)*pageBytes)
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	median(b, took)
}

func benchmark(b *testing.B, s *Store, each int) {
	batch := s.Batch()
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		for range each {
			c := call(1)
			batch.Admit(c)
			batch.End(c.Seq, Outcome{State: Completed, At: 1, Size: 2})
		}
		if err := batch.Commit(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin)/time.Duration(each))
	}
	b.ReportAllocs()
	median(b, took)
}

// BenchmarkCommit admits calls and records the outcomes of as many, with one sync.
func BenchmarkCommit(b *testing.B) {
	for name, n := range map[string]int{"1": 1, "16": 16} {
		b.Run(name, func(b *testing.B) {
			s := open(b, stateDir(b))
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			benchmark(b, s, n)
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkCommitMemory is the same without a disk.
func BenchmarkCommitMemory(b *testing.B) {
	s, err := UnsafeOpenMemory()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	benchmark(b, s, 1)
}
