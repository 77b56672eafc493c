# Test suites, fuzzers and programs for machines with a GPU.

# The suites that take longest start first, so that no processor waits for the last one.
LONGEST    := $(addprefix frontend/test_,llm attention_time attention_gradients attention cases examples beam kernels) \
              $(addprefix frontend/test_,contractions nets command) $(addprefix graph/test_,splits scatters) \
              $(addprefix compiler/test_,c_text contract host phases amx)
TESTS      := $(LONGEST) $(filter-out $(LONGEST),$(patsubst tests/%.c,%,$(wildcard tests/*/test_*.c)))
LONG_TESTS := $(patsubst tests/%.c,%,$(wildcard tests/*/long_*.c))
HW         := $(patsubst tests/%.c,%,$(wildcard tests/hw/*.c))
FUZZERS    := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
# Which archives a suite of tests/<folder>/ may use.
needs_hcq := hcq emu
needs_emu := emu hcq
needs_graph := graph
needs_compiler := compiler graph
needs_frontend := frontend compiler graph hcq emu
needs_hw := frontend compiler graph hcq emu
needs_fuzz := frontend compiler graph hcq emu
libs_for = $(foreach f,$(needs_$(1)),$(B)/lib$(f)_part.a)

# ---- kernels that tests run ----
# The test kernels again at other levels and in both wave sizes, for the long suites: NAME.gfx1100.O0.w64.co ...
MATRIX_CO := $(foreach o,O0 O1 O3,$(foreach w,w32 w64, \
               $(patsubst %.cl,$(B)/kernels/%.gfx1100.$(o).$(w).co,$(wildcard tests/kernels/*.cl))))
define MATRIX_RULE
$(B)/kernels/%.gfx1100.$(1).$(2).co: %.cl
	$$(call say,CL,$$< ($(1) $(2)))
	@mkdir -p $$(@D)
	$(Q)$(OCL_CLANG) $(filter-out -O2,$(OCL_FLAGS)) -$(1) $(if $(filter w64,$(2)),-mwavefrontsize64) -mcpu=gfx1100 \
	  -I$$(<D) -MMD -MP -MF $$@.d -MT $$@ $$< -o $$@
endef
$(foreach o,O0 O1 O3,$(foreach w,w32 w64,$(eval $(call MATRIX_RULE,$(o),$(w)))))
# CUDA C kernels compiled by nvcc: NAME.sm_90.O3.cubin for the short suites, all levels for the
# long ones.
CUDA_O3   := -O3
CUDA_O0   := -Xcicc -O0 -Xptxas -O0
CUDA_fast := -O3 -use_fast_math
CUDA_G    := -G
CUBINS     = $(if $(NVCC),$(foreach v,$(1), \
               $(patsubst %.cu,$(B)/kernels/%.sm_90.$(v).cubin,$(wildcard tests/kernels/cuda/*.cu))))
define CUDA_RULE
$(B)/kernels/%.$(2).$(1).cubin: %.cu
	$$(call say,NVCC,$$< ($(1)))
	@mkdir -p $$(@D)
	$(Q)$(NVCC) -arch=$(2) -cubin -std=c++17 -Xptxas -w $(CUDA_$(1)) -MMD -MP -MF $$@.d -MT $$@ $$< -o $$@
endef
$(foreach v,O3 O0 fast G,$(eval $(call CUDA_RULE,$(v),sm_90)))
# tests/hw/nv.sh makes those that it needs for the GPU of the machine.
$(foreach a,sm_80 sm_86 sm_89 sm_100 sm_103 sm_120,$(eval $(call CUDA_RULE,O3,$(a))))

# ---- suites ----
define TEST_RULE
$(B)/tests/$(1): $(B)/obj/tests/$(1).o $(call libs_for,$(firstword $(subst /, ,$(1))))
	$$(call say,LD,tests/$(1))
	@mkdir -p $$(@D)
	$(Q)$(CC) -o $$@ $$< -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group \
	  $$(call rpath,/../..) $$(ALL_LDFLAGS) -lcmocka $$(LIBS)
endef
$(foreach t,$(TESTS) $(LONG_TESTS) $(HW),$(eval $(call TEST_RULE,$(t))))
$(B)/obj/tests/%.o: EXTRA_CFLAGS = -DKERNELS_DIR='"$(abspath $(B))/kernels"' \
  -DDATA_DIR='"$(CURDIR)/tests/data"' -DDOORBELL='"$(abspath $(B))/doorbell"' \
  -DTEST_CC='"$(CC)"' -Wno-missing-prototypes

# Suites that replace functions. GNU's linker leaves the calls in the function's own file as they are, LLVM's does not.
# The flags are private: objects that are made on the way to a suite do not have them.
wrapped = -fuse-ld=bfd $(addprefix -Wl$(comma)--wrap=,$(1))
# Omits cache maintenance.
$(B)/tests/hcq/test_flushes: private LDFLAGS += $(call wrapped,pm4_hdp_flush sdma_hdp_flush amd_flush_peers \
  pm4_acquire_mem pm4_release_mem sdma_cache_flush)
# Fails to grow memory.
$(B)/tests/frontend/test_tensor: private LDFLAGS += $(call wrapped,realloc)
# Omits recorded commands.
$(B)/tests/frontend/test_waits: private LDFLAGS += $(call wrapped,db_queue_wait_slot db_queue_exec_slots \
  db_queue_copy_slots db_queue_bind)
# Measures every launch.
$(B)/tests/frontend/test_trace_sums: private LDFLAGS += $(call wrapped,db_queue_exec)

# T names the only suite to build and run.
chosen = $(if $(T),$(filter %$(T),$(1)),$(1))
suites: $(addprefix $(B)/tests/,$(call chosen,$(TESTS))) $(KERNELS_CO) $(call CUBINS,O3) \
  $(B)/doorbell $(B)/libdoorbell.so $(B)/libdoorbell-emu.so $(MPI_LIB) $(addprefix $(B)/examples/,$(EXAMPLES)) $(MAN)
# Suites of several GPUs, run again on machines whose GPUs cannot access each other's memory.
STAGED_TESTS = $(addprefix frontend/test_,collective shard staging jit_file device_loss)
# Sanitizers make emulated devices about ten times slower: a kernel, and a suite, may then take longer.
run_limited = $(if $(SAN),DB_TIMEOUT=600) .ci/run_suites.sh $(B)/tests $(if $(SAN),1800,600)
run-suites: suites
	@$(run_limited) $(call chosen,$(TESTS))
	@$(if $(T),,EMU_P2P=0 $(run_limited) $(STAGED_TESTS))
long-suites: $(MATRIX_CO) $(call CUBINS,O0 fast G) $(addprefix $(B)/tests/,$(LONG_TESTS))
run-suites-long: suites long-suites
	@.ci/run_suites.sh $(B)/tests 7200 $(TESTS) $(LONG_TESTS)

test: deps
	$(Q)$(MAKE) --no-print-directory $(jobs) suites
	$(Q)$(MAKE) --no-print-directory run-suites
# Every suite that uses emulated devices, on strict ones (emu/race.h).
# test_replay_path counts system calls, and strict mode makes more of them; kernels of test_exit, test_halt and
# test_lost race on purpose.
STRICT_TESTS = $(filter-out %/test_replay_path %/test_exit %/test_halt %/test_lost, \
                 $(filter hcq/% emu/% frontend/%,$(TESTS)))
$(B)/tests/keep_handlers.so: tests/keep_handlers.c
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 -shared -fPIC -o $@ $<
run-suites-strict: suites $(B)/tests/keep_handlers.so
	@EMU_STRICT=$(or $(STRICT),1) LD_PRELOAD=$(abspath $(B))/tests/keep_handlers.so \
	  .ci/run_suites.sh $(B)/tests 600 $(call chosen,$(STRICT_TESTS))
test-strict: deps
	$(Q)$(MAKE) --no-print-directory $(jobs) suites
	$(Q)$(MAKE) --no-print-directory run-suites-strict
test-long: deps
	$(Q)$(MAKE) --no-print-directory $(jobs) suites long-suites
	$(Q)$(MAKE) --no-print-directory run-suites-long

# The page of `doorbell prof --html` in a browser, also as part of frontend/test_prof_page where there is one.
PICTURES ?=
BROWSERS := chromium-headless-shell chromium chromium-browser google-chrome
test-page: deps
	@.ci/deps.sh $(if $(shell for c in $(BROWSERS); do command -v $$c; done),,chromium) python3
	$(Q)$(MAKE) --no-print-directory $(jobs) $(B)/doorbell
	@python3 tests/page/test_page.py $(B)/doorbell $(PICTURES)

# The tests that the `onnx` package of PYTHON carries, on the device DEV; EVERY=8 runs one in eight of them.
PYTHON ?= python3
EVERY  ?= 1
.PHONY: test-onnx
test-onnx: deps
	$(Q)$(MAKE) --no-print-directory $(jobs) $(B)/libdoorbell.so
	@$(PYTHON) tests/onnx/test_nodes.py $(B)/libdoorbell.so --every $(EVERY) || [ $$? = 77 ]

# ---- fuzzing ----
# libFuzzer needs clang. Everything is built with coverage in a separate folder. Each fuzzer runs for FUZZ_SECONDS.
FUZZ_SECONDS ?= 60
fuzz:
	@.ci/deps.sh $(DEPS) libclang-rt-$(LLVM)-dev
	$(Q)$(MAKE) --no-print-directory $(jobs) CC='$(strip $(CCACHE) clang-$(LLVM))' B=$(B)/fuzz \
	  SAN=1 CFLAGS='-O1 -g -fsanitize=fuzzer-no-link' run-fuzz
$(addprefix $(B)/,$(FUZZERS)): $(B)/%: $(B)/obj/tests/fuzz/%.o $(call libs_for,fuzz)
	$(Q)$(CC) -fsanitize=fuzzer -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(ALL_LDFLAGS) $(LIBS)
.PHONY: run-fuzz
run-fuzz: $(addprefix $(B)/,$(FUZZERS))
	@.ci/run_fuzzers.sh $(B) $(FUZZ_SECONDS) $(FUZZERS)

# For machines with a GPU: the programs that tests/hw/*.sh run, and their kernels.
.PHONY: hw
hw: all suites $(KERNELS_CO) $(MATRIX_CO) $(addprefix $(B)/bench/,launch kernels models) \
  $(addprefix $(B)/tests/,$(HW)) $(call CUBINS,O3 O0 fast G) $(if $(NVCC),$(B)/tests/hw/cuda_peer)
$(B)/tests/hw/cuda_peer: tests/hw/cuda_peer.cu
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) -arch=native -O2 -o $@ $< 2>/dev/null || $(NVCC) -arch=sm_90 -O2 -o $@ $<
