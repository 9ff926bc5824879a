# `make demo` and `make test` do all the set-up they need. Both want Python 3.11+ and Java 17+.

VENV := .venv
BIN := $(VENV)/bin
# Inside the environment, so that deleting the environment forgets that it was set up.
READY := $(VENV)/.headrace-ready

# An interpreter to use instead of the first good one on the PATH.
PYTHON ?=
PYTEST_ARGS ?=
CHAOS_ARGS ?= --seeds 10000
# Random pipelines over records of mixed kinds; HEADRACE_MIXED_FIRST=... begins at another seed.
MIXED_CASES ?= 5000
# Flipped bytes in files of checkpoints; HEADRACE_FLIPS_FIRST=... begins at another seed.
FLIPS ?= 1000
BENCH_ARGS ?= --rounds 3
# After the throughput of the queries beside peers: an open load at this share of each one's capacity.
RATE ?= 0.5

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-servers test-versions lint types format docs bench papers chaos java

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with the pinned dependencies and the headrace command
	@:

# The build runs with the environment's own pinned setuptools: an isolated build would fetch
# whichever is newest.
$(READY): pyproject.toml constraints.txt
	@[ -x $(BIN)/pip ] || { python=$$(tools/find-python $(PYTHON)) && "$$python" -m venv $(VENV); }
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt setuptools
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--no-build-isolation --editable '.[dev]'
	@rm -f $(VENV)/spark-classes.jsa
	@touch $@

demo: java $(READY) ## run Zeitgeist: spikes and dips in a stream of search queries
	@$(BIN)/headrace demo zeitgeist

test: java lint ## lint, check the types and run every test
	@$(BIN)/python tools/run_tests.py $(PYTEST_ARGS)

# What this machine cannot have (go, npm, mvn) is skipped, by name and reason.
SERVERS ?= ministack,versitygw,azurite,hdfs
# HBase is left out of `make test`: 117 MB of jars, and a large part of a minute for each start.
STATE_SERVERS ?= redis,hbase

# A JVM that lives for seconds spends half of its time on compiling code for hours.
test test-servers test-versions chaos: export JAVA_TOOL_OPTIONS ?= -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
test-servers: java $(READY) ## real servers: S3 on files, Azure's emulator, HDFS, Redis, HBase, Kafka, YARN (SERVERS=..., STATE_SERVERS=...)
	HEADRACE_SERVERS=$(SERVERS) HEADRACE_STATE_SERVERS=$(STATE_SERVERS) HEADRACE_KAFKA=1 HEADRACE_YARN=1 $(BIN)/python -m pytest \
		tests/contract/test_stores.py tests/contract/test_object_stores.py \
		tests/contract/test_sources.py tests/contract/test_sinks.py \
		tests/contract/test_files_on_servers.py tests/contract/test_state_backends.py tests/servers \
		tests/spark/test_state_on_servers.py

test-versions: java $(READY) ## Spark 4.1, 4.2 and 4.3, and the wheel with all it needs, each in an environment of its own
	HEADRACE_INSTALL=1 $(BIN)/python -m pytest tests/install tests/checkpoints

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict on src/
	$(BIN)/mypy

format: $(READY) ## let ruff fix and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## build the documentation, a static site, into out/site
	@$(BIN)/python tools/reference.py docs/reference
	@$(BIN)/zensical build --strict

KEYED_COUNT := $(BIN)/headrace bench keyed-count --keys 1000

bench: java $(READY) ## keyed counts beside Spark's own streaming, into out/ (BENCH_ARGS=...)
	@mkdir -p out
	$(KEYED_COUNT) --records 1000000 --warmup 6 --peers spark-native,spark-tws \
		--rate $(RATE) --json out/keyed-count-large.json $(BENCH_ARGS)
	$(KEYED_COUNT) --records 1000000 --warmup 6 --hook record \
		--peers spark-tws-row,pyflink,bytewax \
		--rate $(RATE) --json out/keyed-count-records.json $(BENCH_ARGS)
	$(KEYED_COUNT) --records 2000 --epochs 20 --warmup 15 --floor --peers spark-native,spark-tws \
		--json out/keyed-count-small.json $(BENCH_ARGS)
	$(KEYED_COUNT) --records 1000 --epochs 20 --warmup 15 --state-keys 2000000 --peers '' \
		--json out/keyed-count-state.json $(BENCH_ARGS)
	$(BIN)/headrace bench overhead --records 200000 --rounds 5 --json out/overhead.json
	$(BIN)/headrace bench recovery --rounds 3 --json out/recovery.json
	$(BIN)/headrace bench recovery --replay --rounds 3 --json out/replay.json
	$(BIN)/headrace bench interval --json out/interval.json
	$(BIN)/headrace bench growth --json out/growth.json
	$(BIN)/headrace bench scale --json out/scale.json
	$(BIN)/headrace bench stores --rounds 3 --json out/stores.json
	$(BIN)/headrace bench backends --json out/backends.json
	$(BIN)/headrace bench rescale --rounds 3 --json out/rescale.json
	$(BIN)/headrace bench deploy --rounds 3 --json out/deploy.json
	$(BIN)/headrace bench balance --json out/balance.json
	$(BIN)/headrace bench scaler --json out/scaler.json
	$(BIN)/headrace bench memory --json out/memory.json
	$(BIN)/headrace bench eviction --json out/eviction.json
	$(BIN)/headrace bench windowed-count --warmup 6 \
		--peers spark-native,spark-tws,spark-tws-row,pyflink,bytewax \
		--rate $(RATE) --json out/windowed-count-large.json $(BENCH_ARGS)
	$(BIN)/headrace bench windowed-count --records 2000 --epochs 20 --warmup 15 \
		--peers spark-native --json out/windowed-count-small.json $(BENCH_ARGS)
	$(BIN)/headrace bench windowed-count --warmup 6 --hot 0.9 \
		--json out/windowed-count-hot.json $(BENCH_ARGS)
	$(BIN)/headrace bench top-k --warmup 6 --peers spark-native --rate $(RATE) \
		--json out/top-k-large.json $(BENCH_ARGS)
	$(BIN)/headrace bench top-k --records 2000 --epochs 20 --warmup 15 --peers spark-native \
		--json out/top-k-small.json $(BENCH_ARGS)
	$(KEYED_COUNT) --records 1000000 --warmup 30 --peers spark-native,pyflink,bytewax \
		--json out/keyed-count-foreign.json $(BENCH_ARGS)
	for query in q3 q8 q11; do $(BIN)/headrace bench nexmark --query $$query \
		--peers spark-native,spark-tws,spark-tws-row,pyflink,bytewax --rate $(RATE) \
		--json out/nexmark-$$query.json $(BENCH_ARGS) || exit 1; done
	$(BIN)/headrace bench kafka --json out/kafka.json --rounds 5
	$(BIN)/headrace bench latency --rate 0.1,0.3,0.5,0.7,0.9 --json out/latency.json $(BENCH_ARGS)
	$(BIN)/headrace bench latency --query windowed-count --rate 0.1,0.3,0.5,0.7,0.9 \
		--json out/latency-windowed.json $(BENCH_ARGS)
	$(BIN)/headrace linear-road --roads 10 --minutes 60 --from-minute 50 --json out/linear-road.json
	$(BIN)/headrace bench report out --keep bench/results --output bench/REPORT.md

papers: java $(READY) ## the papers' experiments, into out/papers and bench/PAPERS.md
	$(BIN)/headrace bench paper --all --dir out/papers --page bench/PAPERS.md

chaos: java $(READY) ## seeded schedules of faults (CHAOS_ARGS=...), mixed records, flipped bytes, real kills on a cluster
	$(BIN)/headrace chaos $(CHAOS_ARGS)
	HEADRACE_MIXED_CASES=$(MIXED_CASES) $(BIN)/python -m pytest -q tests/property/mixed
	HEADRACE_FLIPS=$(FLIPS) $(BIN)/python -m pytest -q tests/property/flips
	HEADRACE_CLUSTER=1 HEADRACE_KAFKA_RECORDS=1000000 HEADRACE_KILLS=20 $(BIN)/python -m pytest -s tests/servers/test_kafka_lives.py
	HEADRACE_CLUSTER=1 HEADRACE_RECORDS=100000 HEADRACE_KILLS=20 HEADRACE_RESCALES=20 HEADRACE_DEPLOYS=5 $(BIN)/python -m pytest -s tests/cluster
	HEADRACE_TABLE_KILLS=20 $(BIN)/python -m pytest -s tests/servers/test_table_kills.py

java:
	@tools/check-java
