# Doorbell. `make run` and `make test` do everything, from a machine that has gcc, make and git only.
#
#   make            build/doorbell, build/libdoorbell.so, build/libdoorbell.a, build/libdoorbell-emu.so, build/examples/*
#   make deps       install what is missing with the system's package manager (NV=1: NVIDIA's assembler too; MPI=1: Open MPI)
#   make run        deps, build, and `doorbell bench` on the CPU and emulated devices
#   make test       deps, build, and all short suites (test-long: the heavy ones too)
#   make test-strict  the suites that use emulated devices, which look for data races
#   make bench lint fuzz hw install uninstall clean
#
# Variables: CC=clang  SAN=1 (address and undefined-behaviour sanitizers) or SAN=thread  V=1 (show commands)  B=dir (build folder)
#            WERROR=1  PREFIX=/usr/local  DESTDIR=  BINDIR LIBDIR INCLUDEDIR MANDIR DATADIR  T=graph/uop (only that suite, for make test)

ifeq ($(origin CC),default)
CC := gcc
endif
B      ?= build$(if $(SAN),/$(if $(filter thread,$(SAN)),tsan,san))
PREFIX ?= /usr/local
LLVM   ?= 19

# For targets that choose the compiler themselves.
CCACHE := $(if $(shell command -v ccache 2>/dev/null),ccache)
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')

LLVM_CONFIG := $(firstword $(shell command -v llvm-config-$(LLVM) 2>/dev/null))
OCL_CLANG   ?= clang-$(LLVM)
OCL_FLAGS   := -x cl -cl-std=CL2.0 -target amdgcn-amd-amdhsa -nogpulib -O2
# NVIDIA's compiler, where there is one: the CUDA C kernels of the tests are built with it, and their suites say when they were not.
NVCC        ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))

comma := ,
hash := \#
SANITIZERS := $(if $(filter thread,$(SAN)),-fsanitize=thread,-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined)
# clang's check of indirect calls reads a word in front of the callee, which compiled kernels do not have.
NO_FUNCTION_CHECK := $(if $(findstring clang,$(CC)),-fno-sanitize=function)
# gcc says that ThreadSanitizer does not see fences. Here they order atomics only, which are no races in themselves.
SAN_CFLAGS := $(if $(SAN),$(SANITIZERS) -fno-omit-frame-pointer $(NO_FUNCTION_CHECK) $(if $(findstring gcc,$(CC)),$(if $(filter thread,$(SAN)),-Wno-tsan)))
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-unused-parameter -Wno-missing-field-initializers
CFLAGS   ?= -O2 -g
ALL_CFLAGS = -std=gnu11 -fPIC -fno-math-errno -ffp-contract=off -fvisibility=hidden -pthread $(WARN) $(if $(WERROR),-Werror) \
             $(SAN_CFLAGS) $(addprefix -DSIMD_LEVEL_,$(SIMD_LEVELS)) \
             -I. -I$(B)/gen -isystem $(if $(LLVM_CONFIG),$(shell $(LLVM_CONFIG) --includedir),/usr/include) -I/usr/include/libdrm $(CFLAGS)
ALL_LDFLAGS = -pthread $(if $(SAN),$(SANITIZERS)) $(LDFLAGS)
LIBS_LLVM   = $(if $(LLVM_CONFIG),-L$(shell $(LLVM_CONFIG) --libdir) -lLLVM-$(LLVM),-lLLVM-$(LLVM))
LIBS_MSGPACK := $(shell for l in msgpack-c msgpackc; do ldconfig -p 2>/dev/null | grep -q "lib$$l\.so " && echo "-l$$l" && break; done)
# Open MPI, where there is one: libdoorbell-mpi.so is built with it, and loaded by what mpirun starts as one of several processes.
MPI_LIBS   := $(shell pkg-config --libs ompi-c 2>/dev/null)
MPI_LIB     = $(if $(MPI_LIBS),$(B)/libdoorbell-mpi.so)
LIBS        = $(LIBS_LLVM) -ldrm_amdgpu -ldrm $(or $(LIBS_MSGPACK),-lmsgpackc) -ljansson -lzip -lz -lm -ldl

# ---- sources: one archive a folder; dependencies run one way -------------------------------------------------------------------
FOLDERS := hcq emu graph compiler frontend
rules   := $(wildcard graph/rules/*.rules compiler/rules/*.rules)
# All C files of a folder and of those inside it but these, which belong to programs and to libraries of their own.
APART   := emu/lib/%.c frontend/cli/%.c frontend/examples/%.c graph/rulegen/%.c frontend/mpi/mpi.c
src      = $(filter-out $(APART) %.simd.c,$(wildcard $(addprefix $(1)/,*.c */*.c */*/*.c)))
simd     = $(wildcard $(addprefix $(1)/,*.simd.c */*.simd.c */*/*.simd.c))
# *.simd.c is compiled once per host feature level, with SIMD_NAME(x) giving each its own symbols; chosen at run time
# (emu/simd_level.h). SIMD_LEVELS=v3 compiles one level, for faster builds during development; one is enough for the sanitizers.
ifneq ($(filter x86_64%,$(shell $(CC) -dumpmachine)),)
SIMD_LEVELS := $(if $(SAN),v2,v2 v3 v4)
simd_flags   = -march=x86-64-$(1) $(if $(filter v4,$(1)),-mprefer-vector-width=512)
else
SIMD_LEVELS := base
simd_flags   =
endif

obj_of = $(patsubst %.c,$(B)/obj/%.o,$(call src,$(1))) \
         $(foreach l,$(SIMD_LEVELS),$(patsubst %.simd.c,$(B)/obj/%.$(l).o,$(call simd,$(1)))) \
         $(patsubst %.rules,$(B)/obj/gen/%.o,$(filter $(1)/%,$(rules)))
OBJS    := $(foreach f,$(FOLDERS),$(call obj_of,$(f)))
MAN     := $(B)/share/man/doorbell.1
EMU_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard emu/lib/*.c))
CLI_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard frontend/cli/*.c)) $(B)/obj/gen/bench_kernels.o

KERNELS_CO := $(patsubst %.cl,$(B)/kernels/%.gfx1100.co,$(wildcard bench/kernels/*.cl bench/emu/*.cl tests/kernels/*.cl))
BENCH_PTX  := $(patsubst %.cu,$(B)/kernels/%.ptx,$(wildcard bench/kernels/*.cu))
BENCH_CO   := $(filter $(B)/kernels/bench/kernels/%,$(KERNELS_CO)) $(BENCH_PTX) $(wildcard bench/kernels/*.cubin)

TESTS      := $(patsubst tests/%.c,%,$(wildcard tests/*/test_*.c))
LONG_TESTS := $(patsubst tests/%.c,%,$(wildcard tests/*/long_*.c))
HW         := $(patsubst tests/%.c,%,$(wildcard tests/hw/*.c))
FUZZERS    := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
EXAMPLES   := $(patsubst frontend/examples/%.c,%,$(wildcard frontend/examples/*.c))
BENCHES    := $(patsubst bench/%.c,%,$(wildcard bench/*.c))
# Which archives a suite of tests/<folder>/ may use.
needs_hcq := hcq emu
needs_emu := emu hcq
needs_graph := graph
needs_compiler := compiler graph
needs_frontend := frontend compiler graph hcq emu
needs_hw := frontend compiler graph hcq emu
needs_fuzz := frontend compiler graph hcq emu
libs_for = $(foreach f,$(needs_$(1)),$(B)/lib$(f)_part.a)

.PHONY: all deps run test test-strict test-long bench lint fuzz install uninstall clean kernels suites long-suites run-suites run-suites-strict run-suites-long FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: $(B)/doorbell $(B)/libdoorbell.so $(B)/libdoorbell.a $(B)/libdoorbell-emu.so $(MPI_LIB) $(addprefix $(B)/examples/,$(EXAMPLES)) $(MAN)

# ---- flags stamp: other flags, other objects -------------------------------------------------------------------------------------
$(B)/flags: FORCE
	@mkdir -p $(@D); echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)' >$@

$(B)/obj/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c $< -o $@
# ThreadSanitizer leaves *.simd.c out: they touch a wave's own registers and the guest's memory, whose races EMU_STRICT finds.
define SIMD_RULE
$(B)/obj/%.$(1).o: %.simd.c $(B)/flags
	$$(call say,CC,$$< ($(1)))
	@mkdir -p $$(@D)
	$(Q)$(CC) $$(filter-out $(if $(filter thread,$(SAN)),$(SAN_CFLAGS)),$$(ALL_CFLAGS)) $(if $(SAN),-O1,-O3) $(call simd_flags,$(1)) '-DSIMD_NAME(x)=x$$(hash)$$(hash)_$(1)' -MMD -MP -c $$< -o $$@
endef
$(foreach l,$(SIMD_LEVELS),$(eval $(call SIMD_RULE,$(l))))

# ---- rule files become C ----------------------------------------------------------------------------------------------------------
$(B)/rulegen: graph/rulegen/rulegen.c $(wildcard graph/rulegen/*) graph/ops.def graph/dtype.h
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O1 -g -I. $(WARN) $(filter %.c,$(wildcard graph/rulegen/*.c)) -o $@
$(B)/gen/%.c: %.rules $(B)/rulegen
	$(call say,RULES,$<)
	@mkdir -p $(@D)
	$(Q)$(B)/rulegen $< $@
$(B)/obj/gen/%.o: $(B)/gen/%.c $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

# Where a file finds libdoorbell-mpi.so, from its own folder.
rpath = '-Wl,-rpath,$$ORIGIN$(1)'

# ---- libraries and the command ------------------------------------------------------------------------------------------------------
define FOLDER_LIB
$(B)/lib$(1)_part.a: $(call obj_of,$(1))
	@rm -f $$@
	$(Q)ar rcs $$@ $$^
endef
$(foreach f,$(FOLDERS),$(eval $(call FOLDER_LIB,$(f))))

$(B)/libdoorbell.a: $(OBJS)
	$(call say,AR,$@)
	@rm -f $@
	$(Q)ar rcs $@ $^
$(B)/libdoorbell.so: $(OBJS)
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,libdoorbell.so.0 -o $@ $^ $(call rpath,) $(ALL_LDFLAGS) $(LIBS)
# MPI, for processes that mpirun starts (frontend/mpi/calls.h).
$(B)/obj/frontend/mpi/mpi.o tidy/frontend/mpi/mpi.c: EXTRA_CFLAGS = $(shell pkg-config --cflags ompi-c)
$(B)/libdoorbell-mpi.so: $(B)/obj/frontend/mpi/mpi.o $(B)/obj/graph/dtype.o
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,libdoorbell-mpi.so.0 -o $@ $^ $(ALL_LDFLAGS) $(MPI_LIBS)
	@ln -sf $(@F) $@.0
# The emulator alone, for other programs: run_asm, and the interposer behind `doorbell emu`. No LLVM.
$(B)/libdoorbell-emu.so: $(EMU_OBJ) $(call obj_of,emu)
	$(call say,LD,$@)
	$(Q)$(CC) -shared -Wl,-soname,libdoorbell-emu.so.0 -o $@ $^ $(ALL_LDFLAGS) -lm -ldl
MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
$(B)/obj/frontend/cli/emu.o tidy/frontend/cli/emu.c: EXTRA_CFLAGS = -DMULTIARCH='"$(MULTIARCH)"'
$(B)/obj/frontend/cli/compile.o: frontend/cli/opencl.h
$(B)/doorbell: $(CLI_OBJ) $(B)/libdoorbell.a
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $(CLI_OBJ) $(B)/libdoorbell.a $(call rpath,:$$ORIGIN/../lib:$$ORIGIN/../lib64:$$ORIGIN/../lib/$(MULTIARCH)) $(ALL_LDFLAGS) $(LIBS)

$(B)/examples/%: $(B)/obj/frontend/examples/%.o $(B)/libdoorbell.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $< $(B)/libdoorbell.a $(call rpath,/..) $(ALL_LDFLAGS) $(LIBS)

# ---- OpenCL C kernels, compiled by stock clang -------------------------------------------------------------------------------------
$(B)/kernels/%.gfx1100.co: %.cl
	$(call say,CL,$<)
	@mkdir -p $(@D)
	$(Q)$(OCL_CLANG) $(OCL_FLAGS) -mcpu=gfx1100 -I$(<D) -MMD -MP -MF $@.d -MT $@ $< -o $@
kernels: $(KERNELS_CO) $(BENCH_PTX)
# CUDA C by clang, without a CUDA toolkit: text that ptxas turns into any GPU's code when it is loaded.
$(B)/kernels/%.ptx: %.cu
	$(call say,PTX,$<)
	@mkdir -p $(@D)
	$(Q)$(OCL_CLANG) -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 --cuda-path=/nonexistent -nocudainc -nocudalib -Xclang -target-feature -Xclang +ptx70 \
	  -fdeclspec -O3 -S -MMD -MP -MF $@.d -MT $@ $< -o $@
# The test kernels again at other levels and in both wave sizes, for the long suites: NAME.gfx1100.O0.w64.co ...
MATRIX_CO := $(foreach o,O0 O1 O3,$(foreach w,w32 w64,$(patsubst %.cl,$(B)/kernels/%.gfx1100.$(o).$(w).co,$(wildcard tests/kernels/*.cl))))
define MATRIX_RULE
$(B)/kernels/%.gfx1100.$(1).$(2).co: %.cl
	$$(call say,CL,$$< ($(1) $(2)))
	@mkdir -p $$(@D)
	$(Q)$(OCL_CLANG) $(filter-out -O2,$(OCL_FLAGS)) -$(1) $(if $(filter w64,$(2)),-mwavefrontsize64) -mcpu=gfx1100 -I$$(<D) -MMD -MP -MF $$@.d -MT $$@ $$< -o $$@
endef
$(foreach o,O0 O1 O3,$(foreach w,w32 w64,$(eval $(call MATRIX_RULE,$(o),$(w)))))
# CUDA C kernels as NVIDIA's compiler makes them: NAME.sm_90.O3.cubin for the short suites, all levels for the long ones.
CUDA_O3   := -O3
CUDA_O0   := -Xcicc -O0 -Xptxas -O0
CUDA_fast := -O3 -use_fast_math
CUDA_G    := -G
CUBINS     = $(if $(NVCC),$(foreach v,$(1),$(patsubst %.cu,$(B)/kernels/%.sm_90.$(v).cubin,$(wildcard tests/kernels/cuda/*.cu))))
define CUDA_RULE
$(B)/kernels/%.sm_90.$(1).cubin: %.cu
	$$(call say,NVCC,$$< ($(1)))
	@mkdir -p $$(@D)
	$(Q)$(NVCC) -arch=sm_90 -cubin -std=c++17 -Xptxas -w $(CUDA_$(1)) -MMD -MP -MF $$@.d -MT $$@ $$< -o $$@
endef
$(foreach v,O3 O0 fast G,$(eval $(call CUDA_RULE,$(v))))
# The benchmark's code objects travel inside the command: a table of { name, begin, end } closed by a null name.
$(B)/gen/bench_kernels.S: $(BENCH_CO) Makefile
	@mkdir -p $(@D)
	@{ echo '.section .rodata'; for f in $(BENCH_CO); do n=$$(basename $$f .gfx1100.co); \
	   printf '.balign 256\nco_%s: .incbin "%s"\nco_%s_end:\nname_%s: .asciz "%s"\n' $$n $$f $$n $$n $$n; done; \
	   echo '.section .data.rel.ro,"aw"'; echo '.balign 8'; echo '.globl bench_kernels'; echo '.hidden bench_kernels'; echo 'bench_kernels:'; \
	   for f in $(BENCH_CO); do n=$$(basename $$f .gfx1100.co); printf '.quad name_%s, co_%s, co_%s_end\n' $$n $$n $$n; done; \
	   echo '.quad 0, 0, 0'; echo '.section .note.GNU-stack,"",%progbits'; } >$@
$(B)/obj/gen/bench_kernels.o: $(B)/gen/bench_kernels.S
	@mkdir -p $(@D)
	$(Q)$(CC) -c $< -o $@

# ---- tests ----------------------------------------------------------------------------------------------------------------------------
define TEST_RULE
$(B)/tests/$(1): $(B)/obj/tests/$(1).o $(call libs_for,$(firstword $(subst /, ,$(1))))
	$$(call say,LD,tests/$(1))
	@mkdir -p $$(@D)
	$(Q)$(CC) -o $$@ $$< -Wl,--start-group $$(filter %.a,$$^) -Wl,--end-group $$(call rpath,/../..) $$(ALL_LDFLAGS) -lcmocka $$(LIBS)
endef
$(foreach t,$(TESTS) $(LONG_TESTS) $(HW),$(eval $(call TEST_RULE,$(t))))
$(B)/obj/tests/%.o: EXTRA_CFLAGS = -DKERNELS_DIR='"$(abspath $(B))/kernels"' -DDATA_DIR='"$(CURDIR)/tests/data"' -DDOORBELL='"$(abspath $(B))/doorbell"' -DTEST_CC='"$(CC)"' -Wno-missing-prototypes

# Leaves cache maintenance out.
$(B)/tests/hcq/test_flushes: LDFLAGS += $(addprefix -Wl$(comma)--wrap=,pm4_hdp_flush sdma_hdp_flush amd_flush_peers pm4_acquire_mem pm4_release_mem sdma_cache_flush)
# Fails to grow memory.
$(B)/tests/frontend/test_tensor: LDFLAGS += -Wl,--wrap=realloc
# Leaves recorded commands out.
$(B)/tests/frontend/test_waits: LDFLAGS += $(addprefix -Wl$(comma)--wrap=,db_queue_wait_slot db_queue_exec_slots db_queue_copy_slots db_queue_bind)

suites: $(addprefix $(B)/tests/,$(TESTS)) $(KERNELS_CO) $(call CUBINS,O3) $(B)/doorbell $(B)/libdoorbell.so $(B)/libdoorbell-emu.so $(MPI_LIB) $(addprefix $(B)/examples/,$(EXAMPLES)) $(MAN)
run_list = @fail=0; n=0; for t in $(1); do n=$$((n+1)); \
	  if $(3) timeout $(2) $(B)/tests/$$t >$(B)/tests/$$t.log 2>&1; then grep -aE '^\[  PASSED  \]' $(B)/tests/$$t.log | sed "s|^|$$t: |"; \
	  else echo "$$t: FAILED (exit $$?)"; tail -40 $(B)/tests/$$t.log; fail=$$((fail+1)); fi; done; \
	echo; echo "$$((n-fail)) passed, $$fail failed"; [ $$fail = 0 ]
# Suites of several GPUs, once more on machines whose GPUs do not reach each other's memory.
STAGED_TESTS = $(addprefix frontend/test_,collective shard staging jit_file device_loss)
run-suites: suites
	$(call run_list,$(if $(T),$(filter %$(T),$(TESTS)),$(TESTS)),$(if $(SAN),900,300))
	$(if $(T),,$(call run_list,$(STAGED_TESTS),$(if $(SAN),900,300),EMU_P2P=0))
long-suites: $(MATRIX_CO) $(call CUBINS,O0 fast G) $(addprefix $(B)/tests/,$(LONG_TESTS))
run-suites-long: suites long-suites
	$(call run_list,$(TESTS) $(LONG_TESTS),7200)

# The package names and llvm-config are looked up when make starts, so what needs them runs in a make of its own after deps.
# They use every core unless told otherwise with -j.
jobs = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
test: deps
	$(Q)$(MAKE) --no-print-directory $(jobs) suites
	$(Q)$(MAKE) --no-print-directory run-suites
# Every suite that uses emulated devices, on strict ones (emu/race.h).
# test_replay_path counts system calls, which being watched makes; kernels of test_exit, test_halt and test_lost race on purpose.
STRICT_TESTS = $(filter-out %/test_replay_path %/test_exit %/test_halt %/test_lost,$(filter hcq/% emu/% frontend/%,$(TESTS)))
$(B)/tests/keep_handlers.so: tests/keep_handlers.c
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 -shared -fPIC -o $@ $<
run-suites-strict: suites $(B)/tests/keep_handlers.so
	$(call run_list,$(if $(T),$(filter %$(T),$(STRICT_TESTS)),$(STRICT_TESTS)),600,EMU_STRICT=$(or $(STRICT),1) LD_PRELOAD=$(abspath $(B))/tests/keep_handlers.so)
test-strict: deps
	$(Q)$(MAKE) --no-print-directory $(jobs) suites
	$(Q)$(MAKE) --no-print-directory run-suites-strict
test-long: deps
	$(Q)$(MAKE) --no-print-directory $(jobs) suites long-suites
	$(Q)$(MAKE) --no-print-directory run-suites-long
run: deps
	$(Q)$(MAKE) --no-print-directory $(jobs) all
	$(Q)$(B)/doorbell bench

# ---- benchmarks and fuzzing --------------------------------------------------------------------------------------------------------
$(B)/obj/bench/%.o tidy/bench/%.c: EXTRA_CFLAGS = -DSM_90_CUBIN='"$(CURDIR)/bench/emu/sm_90.cubin"' -DTORCH_PEER='"$(CURDIR)/bench/speed/torch_peer.py"'
$(B)/bench/kernels $(B)/bench/models: $(patsubst %.c,$(B)/obj/%.o,$(wildcard bench/speed/*.c))
$(B)/bench/%: $(B)/obj/bench/%.o $(B)/libdoorbell.a
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $(filter %.o,$^) $(B)/libdoorbell.a $(ALL_LDFLAGS) $(LIBS)
bench: all $(KERNELS_CO) $(addprefix $(B)/bench/,$(BENCHES))
	$(Q)for b in $(filter-out kernels models,$(BENCHES)); do echo "== $$b"; $(B)/bench/$$b || exit 1; done
	$(Q)$(B)/doorbell bench

# libFuzzer needs clang; everything is built with coverage in a folder of its own. FUZZ_SECONDS each.
FUZZ_SECONDS ?= 60
fuzz:
	$(Q)$(MAKE) --no-print-directory $(jobs) CC='$(strip $(CCACHE) clang-$(LLVM))' B=$(B)/fuzz SAN=1 CFLAGS='-O1 -g -fsanitize=fuzzer-no-link' run-fuzz
$(addprefix $(B)/,$(FUZZERS)): $(B)/%: $(B)/obj/tests/fuzz/%.o $(call libs_for,fuzz)
	$(Q)$(CC) -fsanitize=fuzzer -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(ALL_LDFLAGS) $(LIBS)
.PHONY: run-fuzz
run-fuzz: $(addprefix $(B)/,$(FUZZERS))
	$(Q)for f in $(FUZZERS); do echo "== $$f"; mkdir -p $(B)/corpus/$$f; $(B)/$$f -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=$(B)/$$f- \
	  $(B)/corpus/$$f $$(ls -d tests/fuzz/seeds/$$f 2>/dev/null) >$(B)/$$f.log 2>&1 || { tail -40 $(B)/$$f.log; exit 1; }; tail -3 $(B)/$$f.log; done

# For a machine with a GPU: programs that tests/hw/*.sh run, and the kernels they use.
.PHONY: hw
hw: all suites $(KERNELS_CO) $(MATRIX_CO) $(addprefix $(B)/bench/,launch kernels models) $(addprefix $(B)/tests/,$(HW)) $(call CUBINS,O3 O0 fast G) $(if $(NVCC),$(B)/tests/hw/cuda_peer)
$(B)/tests/hw/cuda_peer: tests/hw/cuda_peer.cu
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) -arch=native -O2 -o $@ $< 2>/dev/null || $(NVCC) -arch=sm_90 -O2 -o $@ $<

# ---- lint ---------------------------------------------------------------------------------------------------------------------------
C_FILES = $(shell git ls-files '*.c' '*.h')
.PHONY: lint-format
# Code and comments are 120 columns wide.
lint-format:
	$(Q)awk 'length > 120 { print FILENAME ":" FNR ": wider than 120 columns"; bad = 1 } END { exit bad }' $$(git ls-files 'graph/*.rules' 'graph/*.def' 'compiler/*.rules' 'compiler/*.def')
	$(Q)awk 'length > 120 { print FILENAME ":" FNR ": wider than 120 columns"; bad = 1 } END { if (NR > 120) print "README.md has " NR " lines, more than 120"; exit bad || NR > 120 }' README.md
	$(Q)printf '%s\n' $(C_FILES) | xargs -n 40 -P $(shell nproc) clang-format-$(LLVM) --dry-run -Werror
TIDY_FILES = $(filter-out tests/% %.simd.c graph/rulegen/% $(if $(MPI_LIBS),,frontend/mpi/mpi.c),$(filter %.c,$(C_FILES)))
.PHONY: lint-tidy
# Prints every file's findings in one piece; one finding fails it.
lint-tidy:
	$(Q)$(MAKE) --no-print-directory $(jobs) -k -O $(addprefix tidy/,$(TIDY_FILES))
tidy/%.c: FORCE
	$(call say,TIDY,$*.c)
	$(Q)clang-tidy-$(LLVM) --quiet $*.c -- $(filter-out -fsanitize%,$(ALL_CFLAGS)) $(EXTRA_CFLAGS) 2>/dev/null
lint: lint-format
	$(Q)$(MAKE) --no-print-directory $(jobs) CC='$(strip $(CCACHE) gcc)' B=$(B)/lint-gcc WERROR=1 all suites
	$(Q)$(MAKE) --no-print-directory $(jobs) CC='$(strip $(CCACHE) clang-$(LLVM))' B=$(B)/lint-clang WERROR=1 all suites
	$(Q)$(MAKE) --no-print-directory lint-tidy

# ---- dependencies: Debian 12+, Ubuntu 24.04+ ---------------------------------------------------------------------------------------
DEPS := llvm-$(LLVM)-dev clang-$(LLVM) libclang-rt-$(LLVM)-dev clang-format-$(LLVM) clang-tidy-$(LLVM) lld-$(LLVM) libdrm-dev libcmocka-dev msgpack libzstd-dev zlib1g-dev libjansson-dev libzip-dev pkg-config
# NV=1: also NVIDIA's assembler, of Debian's non-free section, which compiling for DEV=NV and EMU+NV needs.
DEPS += $(if $(NV),nvidia-cuda-toolkit)
# MPI=1: also Open MPI, for programs of several processes.
DEPS += $(if $(MPI),openmpi-bin libopenmpi-dev)
deps:
	@command -v dpkg-query >/dev/null || { echo "make deps knows Debian and Ubuntu only; install: $(DEPS)" >&2; exit 0; }; \
	missing=; for p in $(DEPS); do \
	  if [ $$p = msgpack ]; then dpkg-query -W -f='$${Status}\n' libmsgpack-c-dev libmsgpack-dev 2>/dev/null | grep -q '^install ok installed' && continue; \
	  elif dpkg-query -W -f='$${Status}\n' $$p 2>/dev/null | grep -q '^install ok installed'; then continue; fi; missing="$$missing $$p"; done; \
	[ -z "$$missing" ] && exit 0; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	$$sudo apt-get update -qq || true; \
	case "$$missing" in *msgpack*) c=$$(apt-cache show libmsgpack-c-dev >/dev/null 2>&1 && echo libmsgpack-c-dev || echo libmsgpack-dev); missing=$$(echo "$$missing" | sed "s/\bmsgpack\b/$$c/");; esac; \
	case "$$missing" in *nvidia*) apt-cache policy nvidia-cuda-toolkit | grep -q 'Candidate: [0-9]' || { \
	  echo "nvidia-cuda-toolkit: not in the package lists; enable the contrib and non-free components in the apt sources first" >&2; exit 1; };; esac; \
	echo "installing:$$missing"; DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $$missing >/dev/null

# ---- manual pages and completions, which the command prints ------------------------------------------------------------------------------
COMPLETIONS := bash-completion/completions/doorbell zsh/site-functions/_doorbell fish/vendor_completions.d/doorbell.fish
$(MAN): $(B)/doorbell
	$(call say,MAN,$@)
	$(Q)rm -rf $(B)/share && mkdir -p $(B)/share/man $(addprefix $(B)/share/completions/,$(dir $(COMPLETIONS)))
	$(Q)for c in $(COMPLETIONS); do $< help --completion=$${c%%[-/]*} >$(B)/share/completions/$$c || exit 1; done
	$(Q)for c in $$($< help --commands); do $< help --man $$c >$(B)/share/man/doorbell-$$c.1 || exit 1; done
	$(Q)$< help --man >$@

# ---- install ---------------------------------------------------------------------------------------------------------------------------
VERSION    := 0.1.0
BINDIR     ?= $(PREFIX)/bin
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR     ?= $(PREFIX)/share/man
DATADIR    ?= $(PREFIX)/share
LIBRARIES   = libdoorbell libdoorbell-emu $(if $(MPI_LIB),libdoorbell-mpi)
HEADERS    := $(addprefix frontend/,doorbell.h tensor.h parallel.h jit.h nn.h) hcq/hcq.h emu/doorbell-emu.h frontend/cli/opencl.h
# Programs find the library without ld.so's help, wherever it is installed; what the archive needs stands in Libs.private.
define PKG_CONFIG
libdir=$(LIBDIR)
includedir=$(INCLUDEDIR)

Name: doorbell
Description: userspace GPU driver stack and tensor compiler
Version: $(VERSION)
Libs: -L$${libdir} -Wl,-rpath,$${libdir} -ldoorbell
Libs.private: $(LIBS) -pthread
Cflags: -I$${includedir}
endef
export PKG_CONFIG
install: all
	$(Q)$(MAKE) --no-print-directory install-files
# Without building: what is there now.
.PHONY: install-files
install-files:
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(LIBDIR)/pkgconfig $(INCLUDEDIR)/doorbell $(MANDIR)/man1)
	install -m 755 $(B)/doorbell $(DESTDIR)$(BINDIR)/doorbell
	for l in $(LIBRARIES); do install -m 755 $(B)/$$l.so $(DESTDIR)$(LIBDIR)/$$l.so.$(VERSION) && \
	  ln -sf $$l.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$$l.so.0 && ln -sf $$l.so.0 $(DESTDIR)$(LIBDIR)/$$l.so || exit 1; done
	install -m 644 $(B)/libdoorbell.a $(DESTDIR)$(LIBDIR)/libdoorbell.a
	install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)/doorbell/
	install -m 644 $(B)/share/man/* $(DESTDIR)$(MANDIR)/man1/
	cd $(B)/share/completions && find . -type f -exec install -D -m 644 {} $(abspath $(DESTDIR)$(DATADIR))/{} \;
	echo "$$PKG_CONFIG" >$(DESTDIR)$(LIBDIR)/pkgconfig/doorbell.pc
	$(if $(DESTDIR),,[ "$$(id -u)" != 0 ] || ldconfig)
uninstall:
	rm -f $(DESTDIR)$(BINDIR)/doorbell $(foreach l,libdoorbell libdoorbell-emu libdoorbell-mpi,$(DESTDIR)$(LIBDIR)/$(l).so*) \
	  $(addprefix $(DESTDIR)$(INCLUDEDIR)/doorbell/,$(notdir $(HEADERS))) \
	  $(addprefix $(DESTDIR),$(LIBDIR)/libdoorbell.a $(LIBDIR)/pkgconfig/doorbell.pc $(MANDIR)/man1/doorbell.1 $(MANDIR)/man1/doorbell-*.1) \
	  $(addprefix $(DESTDIR)$(DATADIR)/,$(COMPLETIONS))
	rmdir $(DESTDIR)$(INCLUDEDIR)/doorbell 2>/dev/null || true
clean:
	rm -rf $(B)

-include $(shell find $(B)/obj $(B)/kernels -name '*.d' 2>/dev/null)
