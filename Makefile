# nicemu: `make run` shows it, `make test` checks it. Both first install what
# they need from Debian's packages, once, and say so.

BIN     := bin/nicemu
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo devel)
SHORT   ?=

# Debian 12's Go is too old to build this, and new enough to fetch one that is
# not: `make deps` puts it here.
TOOLCHAIN := golang.org/toolchain@v0.0.1-go1.26.0.linux-$(shell dpkg --print-architecture 2>/dev/null || echo amd64)
export PATH := $(CURDIR)/bin/toolchain/bin:$(PATH):/usr/sbin:/sbin

# Programs that runs and tests use, and the package each comes from.
PROGRAMS := ip:iproute2 tc:iproute2 iperf3:iperf3 ping:iputils-ping tshark:tshark capinfos:wireshark-common
# The lab kernel is built with these; gencat stands for the C library to link with.
PROGRAMS += bc:bc bison:bison flex:flex gcc:gcc gencat:libc6-dev ld:binutils make:make patch:patch xz:xz-utils

.PHONY: build run test bench lint clean deps

build: deps
	go build -trimpath -ldflags "-X main.version=$(VERSION)" -o $(BIN) ./cmd/nicemu

# A short tour: an experiment in this machine's kernel in real time, then two in
# the lab kernel in virtual time. The first time, that is built: minutes.
run: build
	$(BIN) run bql-latency
	$(BIN) lab build
	$(BIN) run fq-codel-latency --kernel lab
	$(BIN) run igb-qav --kernel lab

# Everything; `make test SHORT=-short` leaves out what takes long or needs root.
test: build
	@[ -n "$(SHORT)" ] || $(BIN) lab build
	go vet ./...
	go test $(SHORT) -timeout 20m ./...

bench:
	go test -run '^$$' -bench . -benchmem ./devices/... ./replay/...

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "make: gofmt would change these"; exit 1; }
	go vet ./...

clean:
	rm -rf bin

# Installs the packages of the programs that are missing, and Go if there is
# none that can be used (from 1.21 on it fetches the version that it needs).
deps:
	@missing=""; for p in $(PROGRAMS); do command -v $${p%%:*} >/dev/null 2>&1 || missing="$$missing $${p##*:}"; done; \
	minor=$$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p'); \
	[ -n "$$minor" ] || missing="$$missing golang-go"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" -ne 0 ]; then echo "make: missing; as root: apt-get install$$missing"; \
	elif [ -n "$$missing" ]; then \
	  echo "make: installing$$missing"; export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi; \
	minor=$$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p'); \
	if [ "$${minor:-0}" -lt 21 ]; then \
	  echo "make: fetching $(TOOLCHAIN)"; tmp=$$(mktemp -d); \
	  dir=$$(cd $$tmp && printf 'module fetch\n' > go.mod && go mod download -json $(TOOLCHAIN) | sed -n 's/.*"Dir": "\(.*\)",/\1/p'); rm -r $$tmp; \
	  [ -n "$$dir" ] || { echo "make: could not fetch Go; install 1.26 or later"; exit 1; }; \
	  chmod -R u+w "$$dir" && chmod +x "$$dir"/bin/* "$$dir"/pkg/tool/*/*; mkdir -p bin && ln -sfn "$$dir" bin/toolchain; fi
