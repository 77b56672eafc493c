# Doorbell. `make run` and `make test` do everything, from a machine that has gcc, make and git only.
#
# make             build/doorbell, the libraries, manual pages and examples
# make run         install what is missing, build, and `doorbell bench` on the CPU and emulated devices
# make test        install what is missing, build, and run the short suites; T=graph/test_uop: only that one
# make test-long   the heavy suites as well
# make test-strict the suites that use emulated devices, in the mode that reports data races
# make test-page   the page of `doorbell prof --html` in Chromium; PICTURES=FOLDER keeps screenshots
# make test-onnx   the tests of operators in PyPI's onnx; PYTHON=python3, EVERY=8 (one in eight), DEV as usual
# make bench       the benchmarks of bench/, except those that take minutes
# make lint        format, folders and lengths, gcc and clang with -Werror, clang-tidy
# make fuzz        each parser of untrusted bytes under libFuzzer, FUZZ_SECONDS=60
# make hw          the programs that tests/hw/*.sh need on a machine with a GPU
# make deps        only install what is missing; NV=1: NVIDIA's assembler too; MPI=1: Open MPI
# make install     PREFIX=/usr/local DESTDIR= BINDIR= LIBDIR= INCLUDEDIR= MANDIR= DATADIR=; make uninstall
# make clean
#
# Variables: CC=clang  WERROR=1  V=1 (show commands)  B=FOLDER (of what is built)
#            SAN=1 (address and undefined-behaviour sanitizers)  SAN=thread  SIMD_LEVELS=v3 (build one level only)
#
# Another architecture: CC='aarch64-linux-gnu-gcc --sysroot=FOLDER' B=build/arm64, where FOLDER has that architecture's
# packages of `make deps`. `make suites` builds the suites. QEMU runs one of them, or the command:
# qemu-aarch64 -cpu max -L FOLDER build/arm64/tests/compiler/test_host. Suites that start programs, and the manual page,
# need QEMU's binfmt handler and QEMU_LD_PREFIX=FOLDER.

VERSION := $(shell sed -n 's/^\#define DB_VERSION "\(.*\)"/\1/p' hcq/hcq.h)
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

# A cross build takes headers and libraries from the sysroot that CC names, where LLVM is at the same place as on this
# machine. HOSTCC compiles the programs that run during the build.
SYSROOT := $(patsubst --sysroot=%,%,$(filter --sysroot=%,$(CC)))
HOSTCC  ?= $(if $(SYSROOT),gcc,$(CC))
LLVM_CONFIG := $(firstword $(shell command -v llvm-config-$(LLVM) 2>/dev/null))
OCL_CLANG   ?= clang-$(LLVM)
OCL_FLAGS   := -x cl -cl-std=CL2.0 -target amdgcn-amd-amdhsa -nogpulib -O2
# NVIDIA's compiler, where there is one: the CUDA C kernels of the tests are built with it, and their suites say when
# they were not.
NVCC        ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))

comma := ,
hash := \#
SANITIZERS := $(if $(filter thread,$(SAN)),-fsanitize=thread,-fsanitize=address$(comma)undefined \
              -fno-sanitize-recover=undefined)
# clang's check of indirect calls reads a word before the callee. Compiled kernels do not have it.
NO_FUNCTION_CHECK := $(if $(findstring clang,$(CC)),-fno-sanitize=function)
# gcc says that ThreadSanitizer does not see fences. Here they order atomics only, which are no races in themselves.
SAN_CFLAGS := $(if $(SAN),$(SANITIZERS) -fno-omit-frame-pointer $(NO_FUNCTION_CHECK) \
              $(if $(findstring gcc,$(CC)),$(if $(filter thread,$(SAN)),-Wno-tsan)))
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
           -Wno-unused-parameter -Wno-missing-field-initializers
CFLAGS   ?= -O2 -g
ALL_CFLAGS = -std=gnu11 -fPIC -fno-math-errno -ffp-contract=off -fvisibility=hidden -pthread \
             $(WARN) $(if $(WERROR),-Werror) \
             $(SAN_CFLAGS) $(addprefix -DSIMD_LEVEL_,$(SIMD_LEVELS)) \
             -I. -I$(B)/gen -isystem $(SYSROOT)$(if $(LLVM_CONFIG),$(shell $(LLVM_CONFIG) --includedir),/usr/include) \
             -I$(SYSROOT)/usr/include/libdrm $(CFLAGS)
# LLVM's linker takes a sixth of the time of the usual one, which for all suites is a minute and a half.
LLD        := $(if $(LLVM_CONFIG),$(wildcard $(shell $(LLVM_CONFIG) --bindir)/ld.lld))
LLD        := $(LLD:%/ld.lld=-fuse-ld=lld -B%)
ALL_LDFLAGS = -pthread $(LLD) $(if $(SAN),$(SANITIZERS)) $(LDFLAGS)
LIBS_LLVM   = $(if $(LLVM_CONFIG),-L$(SYSROOT)$(shell $(LLVM_CONFIG) --libdir) -lLLVM-$(LLVM),-lLLVM-$(LLVM))
LIBS_MSGPACK := $(shell for l in msgpack-c msgpackc; do \
                ldconfig -p 2>/dev/null | grep -q "lib$$l\.so " && echo "-l$$l" && break; done)
# Open MPI, where there is one: libdoorbell-mpi.so is built with it. A process loads it if mpirun started it as one of
# several.
MPI_LIBS   := $(if $(SYSROOT),,$(shell pkg-config --libs ompi-c 2>/dev/null))
MPI_LIB     = $(if $(MPI_LIBS),$(B)/libdoorbell-mpi.so)
LIBS        = $(LIBS_LLVM) -ldrm_amdgpu -ldrm $(or $(LIBS_MSGPACK),-lmsgpackc) -ljansson -lzip -lpcre2-8 \
               -lprotobuf-c -lz -lm -ldl

# ---- sources: one archive per folder; dependencies run one way ----
FOLDERS := hcq emu graph compiler frontend
rules   := $(wildcard graph/rules/*.rules compiler/rules/*.rules)
# All C files of a folder and its subfolders, except these, which belong to programs and to separate libraries.
APART   := emu/lib/%.c frontend/cli/%.c frontend/examples/%.c graph/rulegen/%.c frontend/mpi/mpi.c
src      = $(filter-out $(APART) %.simd.c,$(wildcard $(addprefix $(1)/,*.c */*.c */*/*.c)))
simd     = $(wildcard $(addprefix $(1)/,*.simd.c */*.simd.c */*/*.simd.c))
# *.simd.c is compiled once per host feature level, with SIMD_NAME(x) giving each its own symbols; chosen at run time
# (emu/simd_level.h). SIMD_LEVELS=v3 compiles one level, for faster builds during development. The sanitizers need only
# one.
ifneq ($(filter x86_64%,$(shell $(CC) -dumpmachine)),)
SIMD_LEVELS := $(if $(SAN),v2,v2 v3 v4)
simd_flags   = -march=x86-64-$(1) $(if $(filter v4,$(1)),-mprefer-vector-width=512)
else
SIMD_LEVELS := base
simd_flags   =
endif

obj_of = $(patsubst %.c,$(B)/obj/%.o,$(call src,$(1))) \
         $(foreach l,$(SIMD_LEVELS),$(patsubst %.simd.c,$(B)/obj/%.$(l).o,$(call simd,$(1)))) \
         $(patsubst %.rules,$(B)/obj/gen/%.o,$(filter $(1)/%,$(rules))) \
         $(patsubst %.proto,$(B)/obj/gen/%.pb-c.o,$(wildcard $(1)/*/*.proto))
OBJS    := $(foreach f,$(FOLDERS),$(call obj_of,$(f)))
MAN     := $(B)/share/man/doorbell.1
EMU_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard emu/lib/*.c))
CLI_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard frontend/cli/*.c frontend/cli/*/*.c)) \
           $(B)/obj/gen/bench_kernels.o $(B)/obj/gen/page_files.o

KERNELS_CO := $(patsubst %.cl,$(B)/kernels/%.gfx1100.co, \
                $(wildcard bench/kernels/*.cl bench/emu/*.cl tests/kernels/*.cl))
BENCH_PTX  := $(patsubst %.cu,$(B)/kernels/%.ptx,$(wildcard bench/kernels/*.cu))
BENCH_CO   := $(filter $(B)/kernels/bench/kernels/%,$(KERNELS_CO)) $(BENCH_PTX) $(wildcard bench/kernels/*.cubin)

EXAMPLES   := $(patsubst frontend/examples/%.c,%,$(wildcard frontend/examples/*.c))
.PHONY: all help deps run test test-page test-strict test-long bench lint fuzz install \
        uninstall clean kernels suites long-suites run-suites \
        run-suites-strict run-suites-long FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: $(B)/doorbell $(B)/libdoorbell.so $(B)/libdoorbell.a $(B)/libdoorbell-emu.so $(MPI_LIB) \
     $(addprefix $(B)/examples/,$(EXAMPLES)) $(MAN)

# ---- flags stamp: objects are rebuilt when flags change ----
$(B)/flags: FORCE
	@mkdir -p $(@D); flags='$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)'; echo "$$flags" | cmp -s - $@ || echo "$$flags" >$@

$(B)/obj/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c $< -o $@
# ThreadSanitizer leaves *.simd.c out: they touch a wave's own registers and the guest's memory, and EMU_STRICT finds
# the races there.
define SIMD_RULE
$(B)/obj/%.$(1).o: %.simd.c $(B)/flags
	$$(call say,CC,$$< ($(1)))
	@mkdir -p $$(@D)
	$(Q)$(CC) $$(filter-out $(if $(filter thread,$(SAN)),$(SAN_CFLAGS)),$$(ALL_CFLAGS)) \
	  $(if $(SAN),-O1,-O3) $(call simd_flags,$(1)) \
	  '-DSIMD_NAME(x)=x$$(hash)$$(hash)_$(1)' -MMD -MP -c $$< -o $$@
endef
$(foreach l,$(SIMD_LEVELS),$(eval $(call SIMD_RULE,$(l))))

# ---- rule files become C ----
$(B)/rulegen: graph/rulegen/rulegen.c $(wildcard graph/rulegen/*) graph/ops.def graph/dtype.h
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(HOSTCC) -std=gnu11 -O1 -g -I. $(WARN) $(filter %.c,$(wildcard graph/rulegen/*.c)) -o $@
$(B)/gen/%.c: %.rules $(B)/rulegen
	$(call say,RULES,$<)
	@mkdir -p $(@D)
	$(Q)$(B)/rulegen $< $@
$(B)/obj/gen/%.o: $(B)/gen/%.c $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

# Where a file finds libdoorbell-mpi.so, from its own folder.
rpath = '-Wl,-rpath,$$ORIGIN$(1)'

# ---- the protobuf of ONNX files ----
ONNX_SCHEMA := $(B)/gen/frontend/onnx/schema.pb-c
$(ONNX_SCHEMA).c: frontend/onnx/schema.proto
	$(call say,PROTO,$<)
	@mkdir -p $(@D)
	$(Q)protoc-c --proto_path=$(<D) --c_out=$(@D) $<
$(ONNX_SCHEMA).h: $(ONNX_SCHEMA).c
# Objects that include the generated header.
$(patsubst %.c,$(B)/obj/%.o,$(wildcard frontend/onnx/*.c) tests/fuzz/fuzz_onnx.c) \
  $(patsubst %.c,tidy/%.c,$(wildcard frontend/onnx/*.c)): $(ONNX_SCHEMA).h

# ---- libraries and the command ----
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
$(B)/obj/frontend/source/compile.o: frontend/source/opencl.h
$(B)/doorbell: $(CLI_OBJ) $(B)/libdoorbell.a
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $(CLI_OBJ) $(B)/libdoorbell.a \
	  $(call rpath,:$$ORIGIN/../lib:$$ORIGIN/../lib64:$$ORIGIN/../lib/$(MULTIARCH)) \
	  $(ALL_LDFLAGS) $(LIBS) -lmicrohttpd

$(B)/examples/%: $(B)/obj/frontend/examples/%.o $(B)/libdoorbell.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $< $(B)/libdoorbell.a $(call rpath,/..) $(ALL_LDFLAGS) $(LIBS)

# ---- kernels of the command and of tests, compiled by stock clang ----
$(B)/kernels/%.gfx1100.co: %.cl
	$(call say,CL,$<)
	@mkdir -p $(@D)
	$(Q)$(OCL_CLANG) $(OCL_FLAGS) -mcpu=gfx1100 -I$(<D) -MMD -MP -MF $@.d -MT $@ $< -o $@
kernels: $(KERNELS_CO) $(BENCH_PTX)
# clang compiles CUDA C to PTX without a CUDA toolkit. ptxas compiles the PTX for the GPU when it is loaded.
$(B)/kernels/%.ptx: %.cu
	$(call say,PTX,$<)
	@mkdir -p $(@D)
	$(Q)$(OCL_CLANG) -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 --cuda-path=/nonexistent \
	  -nocudainc -nocudalib -Xclang -target-feature -Xclang +ptx70 \
	  -fdeclspec -O3 -S -MMD -MP -MF $@.d -MT $@ $< -o $@
# The command contains the benchmark's code objects and the files of the report's page, each in a table of
# { name, begin, end } that ends with a null name.
EMBEDDED := bench_kernels page_files
$(B)/gen/bench_kernels.S: $(BENCH_CO)
$(B)/gen/page_files.S: $(wildcard frontend/prof/page/*)
$(EMBEDDED:%=$(B)/gen/%.S): $(B)/gen/%.S: Makefile .ci/embed.sh
	@mkdir -p $(@D)
	@.ci/embed.sh $* $(filter-out Makefile .ci/embed.sh,$^) >$@
$(EMBEDDED:%=$(B)/obj/gen/%.o): $(B)/obj/gen/%.o: $(B)/gen/%.S $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) -c $< -o $@

# ---- dependencies: Debian 12+, Ubuntu 24.04+ ----
DEPS := llvm-$(LLVM)-dev clang-$(LLVM) lld-$(LLVM) libdrm-dev libcmocka-dev \
        msgpack libzstd-dev zlib1g-dev libjansson-dev libzip-dev libpcre2-dev \
        libprotobuf-c-dev protobuf-c-compiler libmicrohttpd-dev pkg-config
# NV=1: also NVIDIA's assembler from Debian's non-free section, which compiling for DEV=NV and EMU+NV needs.
DEPS += $(if $(NV),nvidia-cuda-toolkit)
# MPI=1: also Open MPI, for programs of several processes.
DEPS += $(if $(MPI),openmpi-bin libopenmpi-dev)
# gcc includes its sanitizers; clang's are in a separate package.
DEPS += $(if $(SAN),$(if $(findstring clang,$(CC)),libclang-rt-$(LLVM)-dev))
deps:
	@.ci/deps.sh $(DEPS)

# ---- what to run ----
# The package names and llvm-config are looked up when make starts, so what needs them runs in a make of its own after
# deps. These targets use every core unless -j says otherwise.
jobs = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
run: deps
	$(Q)$(MAKE) --no-print-directory $(jobs) all
	$(Q)$(B)/doorbell bench
clean:
	rm -rf $(B)
help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

include tests/tests.mk bench/bench.mk .ci/lint.mk .ci/install.mk
-include $(shell find $(B)/obj $(B)/kernels -name '*.d' 2>/dev/null)
