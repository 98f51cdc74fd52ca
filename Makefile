# The two commands of the README, and a few for those who work on Piper. Everything real is in CMake and tools/.
BUILD ?= build
JOBS  ?= $(shell nproc)
TEXT  ?=

.PHONY: all setup build demo test fast soak tsan bench format tidy clean
all: build

# Installs what is missing from Debian's packages (and says what); does nothing when nothing is missing.
setup:
	@sh tools/setup.sh

build: setup
	@mkdir -p $(BUILD) && cmake --preset release -B $(BUILD)/release >$(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }
	@rm -f $(BUILD)/configure.log
	@cmake --build $(BUILD)/release -j$(JOBS)

# Compiles examples/gpt_1f1b.piper, trains it as 4 processes on real text, shows the timeline, samples a line.
demo: export PIPER_DEMO_BEGUN := $(shell date +%s)
demo: build
	@sh tools/demo.sh $(BUILD)/release $(BUILD)/demo $(TEXT)

# All tests, then the fast ones again under the address and undefined-behaviour sanitizers.
test: build
	@ctest --test-dir $(BUILD)/release -LE soak --output-on-failure -j$(JOBS)
	@cmake --preset asan -B $(BUILD)/asan >$(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }
	@rm -f $(BUILD)/configure.log
	@cmake --build $(BUILD)/asan -j$(JOBS)
	@ctest --test-dir $(BUILD)/asan -L fast --output-on-failure -j$(JOBS)

# The fast tests of the release build alone: the inner loop.
fast: build
	@ctest --test-dir $(BUILD)/release -L fast --output-on-failure -j$(JOBS)

# The full matrices of which `make test` takes a fixed sample. Long.
soak: build
	@cmake -B $(BUILD)/release -DPIPER_SOAK=ON >/dev/null
	@PIPER_SOAK=1 ctest --test-dir $(BUILD)/release --output-on-failure -j$(JOBS); status=$$?; \
	  cmake -B $(BUILD)/release -DPIPER_SOAK=OFF >/dev/null; exit $$status

# What runs on several threads of a process, under the thread sanitizer.
TSAN_TESTS = runtime_executor_test runtime_rendezvous_test runtime_collectives_test pipeline_streams_test \
  pipeline_fused_test pipeline_offload_test pipeline_post_validation_test pipeline_rendezvous_test
tsan: setup
	@mkdir -p $(BUILD) && cmake --preset tsan -B $(BUILD)/tsan >$(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; exit 1; }
	@rm -f $(BUILD)/configure.log
	@cmake --build $(BUILD)/tsan -j$(JOBS) --target $(TSAN_TESTS)
	@ctest --test-dir $(BUILD)/tsan --output-on-failure -R "^($$(echo $(TSAN_TESTS) | tr ' ' '|'))$$"

# Measured ratios against what this machine has to compare with; see bench/README.md.
bench: build
	@sh bench/run.sh $(BUILD)/release

# clang-tidy's short list (.clang-tidy) over the sources that differ from BASE; ALL=1: over all of them.
BASE ?= main
ALL  ?=
tidy:
	@sh tools/tidy.sh $(BUILD)/release "$(BASE)" $(if $(ALL),all)

# clang-format over all sources; a test checks that it would change nothing.
format:
	@sh tools/format.sh

clean:
	@rm -rf $(BUILD)
