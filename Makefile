# Postern. `make help` lists the targets.
.DEFAULT_GOAL := help
SHELL         := /bin/bash
.SHELLFLAGS   := -euo pipefail -c
GO            ?= go
GOFLAGS       := -trimpath
PREFIX        ?= /usr
DESTDIR       ?=
FUZZTIME      ?= 20s
POSTERND_FLAGS ?=

# posternd compiles seccomp filters with libseccomp and so needs cgo; the rest is
# static, because two of them run where no loader is.
STATIC := postern postern-authority postern-bridge postern-jail postern-metrics

.PHONY: help build check check-fast check-long vet fuzz bench bench-deps bench-records accept demo up install deb rpm deps clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the six programs, into bin/
	@mkdir -p bin
	CGO_ENABLED=1 $(GO) build $(GOFLAGS) $(POSTERND_FLAGS) -o bin/posternd ./cmd/posternd
	CGO_ENABLED=0 $(GO) build $(GOFLAGS) -o bin/ $(addprefix ./cmd/,$(STATIC))

vet: ## gofmt and go vet
	@bad=$$(git ls-files -co --exclude-standard -- '*.go' | xargs gofmt -l); if [ -n "$$bad" ]; then echo "gofmt these files:" $$bad >&2; exit 1; fi
	CGO_ENABLED=1 $(GO) vet ./...
	CGO_ENABLED=1 $(GO) vet -tags laps ./jail ./jail/stage
	$(GO) vet -tags man ./cmd/postern

check: build vet ## every test, as root; what CI runs. A missing privilege or kernel layer fails
	@[ "$$(id -u)" = 0 ] || { echo "make check needs root: it builds real jails. Without root: make check-fast" >&2; exit 1; }
	scripts/user
	$(GO) mod verify
	CI=true CGO_ENABLED=1 $(GO) test -count=1 -p 1 -timeout=20m ./...

check-fast: ## the tests that need no root, in under a minute
	$(GO) test -short -timeout=2m ./...

check-long: ## what make check does a few times, hundreds of times: kills and power losses (root)
	CI=true POSTERN_POWER_ROUNDS=1000 $(GO) test -count=1 -timeout=60m -run 'PowerLoss' ./supervisor/store
	CI=true POSTERN_CRASH_ROUNDS=500 $(GO) test -count=1 -timeout=120m -v -run 'Crash_X13' ./integration/hostile
	CI=true POSTERN_MOVE_ROUNDS=200 $(GO) test -count=1 -timeout=60m -v -run 'KillsInTheMiddleOfAMove' ./integration/e2e
	CI=true POSTERN_KILL_ROUNDS=200 CGO_ENABLED=1 $(GO) test -count=1 -timeout=20m -run 'Launch7' ./supervisor/launch

check-vm: ## what needs systemd and cgroup v2, in a virtual machine (Debian, root)
	$(GO) vet -tags vm ./integration/vm
	scripts/vm-check

check-vm-short: ## the part of check-vm that CI runs, in some minutes
	$(GO) vet -tags vm ./integration/vm
	scripts/vm-check short

fuzz: ## each fuzz target for FUZZTIME (20s), of the tree or of the directories in FUZZ
	FUZZTIME=$(FUZZTIME) scripts/fuzz $(FUZZ)

bench: build ## the bars, side by side in one run (root)
	$(GO) run ./integration/bench

bench-deps: ## the other launchers that make bench compares with (Debian, root)
	@scripts/deps bench

bench-records: ## pages of ten million records: 4 GB under TMPDIR and some minutes
	POSTERN_RECORDS=10000000 $(GO) test -count=1 -timeout=60m -v -run 'APageOfALongHistory' ./supervisor/store

accept: ## every agreed scenario on the installed programs, with what came of it (root)
	$(GO) run ./integration/accept

demo: deps build ## a private Postern, a real server, a real client, every step checked (root)
	$(GO) run ./integration/demo

up: deps build ## the demo's set-up, left running to try by hand (root)
	$(GO) run ./integration/demo -up

install: build ## install under PREFIX (/usr), the unit too, and make the user postern (root)
	@if [ -z "$(DESTDIR)" ]; then scripts/user; fi
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/postern
	install -m 0755 bin/postern $(DESTDIR)$(PREFIX)/bin/
	install -m 0755 bin/posternd bin/postern-authority bin/postern-bridge bin/postern-jail bin/postern-metrics $(DESTDIR)$(PREFIX)/libexec/postern/
	install -d $(addprefix $(DESTDIR)$(PREFIX)/lib/,systemd/system sysusers.d tmpfiles.d)
	sed 's#/usr/libexec/#$(PREFIX)/libexec/#' packaging/systemd/postern.service | install -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/postern.service
	sed 's#/usr/libexec/#$(PREFIX)/libexec/#' packaging/systemd/postern-metrics.service | install -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/postern-metrics.service
	install -m 0644 packaging/sysusers.d/postern.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/
	install -m 0644 packaging/tmpfiles.d/postern.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/
	install -d $(DESTDIR)$(PREFIX)/share/postern
	install -m 0644 packaging/schema/postern.schema.json packaging/schema/profile.schema.json packaging/schema/access.schema.json $(DESTDIR)$(PREFIX)/share/postern/
	install -D -m 0644 packaging/examples/call.py $(DESTDIR)$(PREFIX)/share/postern/examples/call.py
	install -D -m 0644 packaging/examples/files/files.py $(DESTDIR)$(PREFIX)/share/postern/examples/files/files.py

deb: ## the Debian package, into out/packages
	scripts/package out/packages deb

rpm: ## the RPM package, into out/packages
	scripts/package out/packages rpm

deps: ## what the build and the tests need and this machine lacks (Debian, root)
	@scripts/deps

clean: ## remove bin/
	rm -rf bin
