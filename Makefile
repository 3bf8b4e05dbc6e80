# The usual jobs. `make help` lists them.

CARGO ?= cargo
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
SHUNT := $(TARGET)/release/shunt
# What `make demo` and others build first; nothing where a binary is named: make demo SHUNT=target/debug/shunt
BUILD := $(if $(filter command,$(firstword $(origin SHUNT))),,build)
# Options of the demonstration, for example: make demo ARGS="--quick"
ARGS ?=
# Random inputs for each body of a fuzz target.
FUZZ_CASES ?= 4096

PREFIX ?= /usr/local
# Of the libraries that are installed.
PROFILE ?= release
NATIVE := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

.PHONY: help release deny sbom build install-native demo check lint test unit integration loom fuzz fuzz-long sanitize bench soak long demo-trust coverage ray dpdk outside cards

help:
	@echo 'make build   the shunt binary, optimised'
	@echo 'make install-native  header and libraries of the native interface for C, into PREFIX'
	@echo 'make release the same, but for the paths in it: every folder gives the same file'
	@echo 'make sbom    what is linked, as CycloneDX: target/shunt.cdx.json'
	@echo 'make deny    licences, sources and known vulnerabilities of what is linked (cargo-deny; skipped without it)'
	@echo 'make demo    unmodified nginx, curl, redis, python, sockperf and iperf3 on Shunt beside the kernel'
	@echo 'make check   format, lints, unit tests: about a minute'
	@echo 'make test    everything: check, integration tests, loom models, fuzz bodies'
	@echo 'make demo-trust  an engine is killed and replaced by another build while clients go on: what they saw'
	@echo 'make soak    files carried for MINUTES (30) beside one fault after the other: docs/reliability.md; then make cards, and its faults, queues, NUMA nodes, stamps and tests'
	@echo 'make long    what takes minutes: slow packet scripts, 20,000 bad paths, ten kills of a 10 GiB transfer,'
	@echo '             bad days in random order under load (SHUNT_SEED, SHUNT_ROUNDS), an engine that ends at every store,'
	@echo '             programs that fetch 16 MB many times at once (4 MB in make test)'
	@echo 'make fuzz-long  the bodies of the fuzz targets for MINUTES (30) on damaged seeds; how many inputs, how many faults'
	@echo 'make sanitize  unit tests under AddressSanitizer, ThreadSanitizer and Miri, with the nightly compiler (skipped without it)'
	@echo 'make coverage  line coverage of wire, tcp and stack'
	@echo 'make ray     a sweep of the simulator on a local Ray cluster (skipped without Ray)'
	@echo 'make dpdk    lints and tests of the driver for DPDK (skipped without libdpdk)'
	@echo 'make cards   Shunt on emulated network cards, in each way (docs/cards.md)'
	@echo 'make outside test suites of CPython, Go, redis, libuv, curl … on the kernel and on Shunt, test by test (docs/outside.md)'
	@echo 'make bench   the demonstration with more runs'

build:
	$(CARGO) build --release --package cli

# The same sources give the same bytes, whatever folder they lie in: scripts/reproducible tries it.
release:
	@eval "$$(scripts/reproducible-settings)" && $(CARGO) build --locked --release --package cli
	sha256sum $(SHUNT)

sbom:
	@mkdir -p $(TARGET)
	scripts/sbom > $(TARGET)/shunt.cdx.json
	@echo "$(TARGET)/shunt.cdx.json"

# Without the network the known vulnerabilities cannot be fetched: make deny ARGS="licenses bans sources".
deny:
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check $(ARGS); \
	else echo 'skipped: deny: cargo-deny is not installed (cargo install cargo-deny)'; fi

# The native interface for C (docs/native.md): header, shared and static library.
install-native:
	$(CARGO) build --profile $(PROFILE) --package capi
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/lib
	install -m 644 crates/capi/include/shunt.h $(DESTDIR)$(PREFIX)/include/
	install -m 644 $(NATIVE)/libshunt_native.a $(DESTDIR)$(PREFIX)/lib/
	install -m 755 $(NATIVE)/libshunt_native.so $(DESTDIR)$(PREFIX)/lib/libshunt_native.so.0
	ln -sf libshunt_native.so.0 $(DESTDIR)$(PREFIX)/lib/libshunt_native.so

demo: $(BUILD)
	@environment=$$(scripts/install-packages) && eval "$$environment" && $(SHUNT) bench apps $(ARGS)

bench: $(BUILD)
	@environment=$$(scripts/install-packages) && eval "$$environment" && $(SHUNT) bench apps --runs 15 $(ARGS)

check: lint unit

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets --features packetbench/benches,sim/benches --quiet -- --deny warnings

# Binaries and libraries: the tests beside the code.
unit:
	$(CARGO) test --workspace --lib --bins --quiet

test: check integration loom fuzz

# The tests in tests/ folders: real programs on hosts of their own.
integration:
	CARGO=$(CARGO) scripts/integration $(ARGS)

# Kills and upgrades of an engine while redis-benchmark and transfers go on.
demo-trust: $(BUILD)
	scripts/demo-trust --shunt $(SHUNT) $(ARGS)

# MINUTES of faults; ARGS="--seed 7" for the same ones again.
MINUTES ?= 30
soak: $(BUILD)
	scripts/soak --shunt $(SHUNT) --minutes $(MINUTES) $(ARGS)
	scripts/cards --shunt $(SHUNT)
	for part in --faults --queues --numa --stamps "--cards igb --ways zero-copy --tests"; do scripts/cards --shunt $(SHUNT) $$part || exit 1; done

# Tests that wait for long timers, and many more bad paths than `make test` tries.
LONG_SEEDS ?= 20000
long:
	$(CARGO) test --package scripts --test scripts --quiet -- --ignored
	SHUNT_SEEDS=$(LONG_SEEDS) $(CARGO) test --package testkit --test network --quiet -- --nocapture
	SHUNT_KILLS_GIB=10 $(CARGO) test --package cli --test transfer --quiet -- ten_kills
	CARGO=$(CARGO) scripts/soak-bad-days
	$(CARGO) test --package engine --lib --quiet -- --ignored --nocapture --test-threads=1 crashes
	SHUNT_EACH_BYTES=16000000 $(CARGO) test --package testkit --test programs --quiet -- \
		apache_with haproxy_before lighttpd nginx_with_several squid_before varnish_before

# Shunt on emulated network cards: make cards ARGS="--quick" (docs/cards.md).
cards: $(BUILD)
	scripts/cards --shunt $(SHUNT) $(ARGS)

# Test suites that others wrote, on the kernel and on Shunt: make outside ARGS="--quick" (docs/outside.md).
outside: $(BUILD)
	scripts/outside --shunt $(SHUNT) $(ARGS)

# Line coverage of the pure crates, by their own tests and by the deterministic network.
coverage:
	scripts/coverage

# Every interleaving of the lock-free code. A target folder of its own, because the flag would
# otherwise rebuild everything each time.
loom:
	RUSTFLAGS='--cfg loom' CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=none $(CARGO) test --package hostif --lib --release --quiet \
		--target-dir $(TARGET)/loom loom_

# The bodies of the fuzz targets on many random inputs and on damaged seeds, on the stable compiler.
fuzz:
	PROPTEST_CASES=$(FUZZ_CASES) $(CARGO) test --workspace --lib --quiet -- hostile fuzzing
	PROPTEST_CASES=$(FUZZ_CASES) $(CARGO) test --workspace --test fuzz_seeds --quiet

# The same for MINUTES on every processor with optimisation, most of the time for the fast bodies; prints what was executed.
fuzz-long:
	CARGO_INCREMENTAL=0 $(CARGO) build --release --manifest-path fuzz/unguided/Cargo.toml --target-dir $(TARGET)/unguided --quiet
	nice $(TARGET)/unguided/release/unguided $(MINUTES) $$(nproc) $$(date +%s)

# Unit tests under AddressSanitizer and Miri: make sanitize ARGS="hostif nic".
sanitize:
	scripts/sanitize $(ARGS)

# The Python package on a local Ray cluster; `pip install ray` first, otherwise the tests are skipped and say so.
ray: $(BUILD)
	SHUNT=$(abspath $(SHUNT)) python3 -m unittest discover -s python/tests

# The cargo feature dpdk. It replaces target/debug/shunt by one with DPDK.
dpdk:
	@if pkg-config --atleast-version=22.11 libdpdk; then \
		$(CARGO) clippy --package nic --package cli --features dpdk --all-targets --quiet -- --deny warnings && \
		$(CARGO) test --package nic --features dpdk --lib --quiet && \
		$(CARGO) test --package cli --features dpdk --test dpdk --quiet; \
	else \
		echo 'skipped: dpdk: no libdpdk 22.11 or newer by pkg-config: apt-get install libdpdk-dev pkg-config'; \
	fi
