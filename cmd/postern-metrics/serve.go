package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"postern/supervisor/api"
	"postern/supervisor/client"
)

// Bounds, by name.
const (
	askWait    = 5 * time.Second  // for the authority's counts
	readyWait  = time.Second      // for its state
	headerWait = 5 * time.Second  // for a request
	writeWait  = 15 * time.Second // for its answer, with the authority's
	idleWait   = time.Minute      // between two requests of a connection
	leaveWait  = 2 * time.Second  // for open answers at the end
	maxHeader  = 8 << 10          // bytes
	maxConns   = 32               // at a time; more wait
	maxScrapes = 4                // at a time; more are refused
)

// server serves /metrics, /healthz and /readyz to GET and HEAD.
func server(socket string, log hclog.Logger) *http.Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{socket: socket, log: log})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: writeWait - time.Second, DisableCompression: true}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyWait)
		defer cancel()
		state := "unreachable"
		if st, err := ask[api.StatusResult](ctx, socket, api.Status); err == nil {
			state = st.State
		}
		if state != "serving" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, state)
	})
	return &http.Server{Handler: mux, ReadHeaderTimeout: headerWait, ReadTimeout: headerWait, WriteTimeout: writeWait, IdleTimeout: idleWait, MaxHeaderBytes: maxHeader,
		ErrorLog: log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})}
}

// ask puts one question on a connection of its own.
func ask[R any](ctx context.Context, socket string, action api.Action) (R, error) {
	var none R
	c, err := client.Dial(ctx, socket)
	if err != nil {
		return none, err
	}
	defer c.Close()
	raw, err := c.Call(ctx, action, struct{}{}, client.Options{}, nil)
	if err != nil {
		return none, err
	}
	return api.DecodeResult[R](raw)
}

// bounded accepts at most maxConns connections at a time.
type bounded struct {
	net.Listener
	room chan struct{}
}

func newBounded(ln net.Listener) *bounded { return &bounded{ln, make(chan struct{}, maxConns)} }

func (b *bounded) Accept() (net.Conn, error) {
	b.room <- struct{}{} // given back by each Close, and every connection has its times
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.room
		return nil, err
	}
	return &counted{Conn: c, leave: sync.OnceFunc(func() { <-b.room })}, nil
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
