# nicemu: `make run` shows it, `make test` checks it. Both first install what
# they need from Debian's packages, once, and say so.

BIN     := bin/nicemu
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo devel)
GO      ?= go
SHORT   ?=

# Programs that runs and tests use, and the package each comes from.
PROGRAMS := ip:iproute2 tc:iproute2 iperf3:iperf3 ping:iputils-ping tshark:tshark capinfos:wireshark-common

.PHONY: build run test bench lint clean deps

build:
	@$(GO) version >/dev/null 2>&1 || { echo "make: Go 1.26 or later is needed: https://go.dev/dl"; exit 1; }
	$(GO) build -trimpath -ldflags "-X main.version=$(VERSION)" -o $(BIN) ./cmd/nicemu

# A short tour: what this machine can do, then the first experiment.
run: deps build
	$(BIN) run bql-latency

# Everything; `make test SHORT=-short` leaves out what takes long or needs root.
test: deps
	$(GO) vet ./...
	$(GO) test $(SHORT) -timeout 20m ./...

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./devices/... ./replay/...

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "make: gofmt would change these"; exit 1; }
	$(GO) vet ./...

clean:
	rm -rf bin

# Installs the packages of the programs that are missing.
deps:
	@missing=""; for p in $(PROGRAMS); do \
	  command -v $${p%%:*} >/dev/null 2>&1 || PATH=$$PATH:/usr/sbin:/sbin command -v $${p%%:*} >/dev/null 2>&1 || missing="$$missing $${p##*:}"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" -ne 0 ]; then echo "make: missing:$$missing; install with: sudo apt-get install$$missing"; exit 0; fi; \
	  echo "make: installing$$missing"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi
