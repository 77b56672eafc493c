# Format, warnings of both compilers, clang-tidy.

.PHONY: lint-deps
lint-deps:
	@.ci/deps.sh $(DEPS) clang-format-$(LLVM) clang-tidy-$(LLVM)
C_FILES = $(shell git ls-files '*.c' '*.h')
.PHONY: lint-format
# Code and comments are 120 columns wide. Functions have at most 80 lines. Folders include each other as .ci/layout
# says.
lint-format: lint-deps
	$(Q).ci/check_layout.sh
	$(Q).ci/check_functions.sh
	$(Q).ci/check_width.sh
	$(Q)printf '%s\n' $(C_FILES) | xargs -n 40 -P $(shell nproc) clang-format-$(LLVM) --dry-run -Werror
TIDY_FILES = $(filter-out tests/% %.simd.c graph/rulegen/% $(if $(MPI_LIBS),,frontend/mpi/mpi.c), \
               $(filter %.c,$(C_FILES)))
.PHONY: lint-tidy
# Prints every file's findings in one piece; one finding fails it.
lint-tidy:
	$(Q)$(MAKE) --no-print-directory $(jobs) -k -O $(addprefix tidy/,$(TIDY_FILES))
# The checks of a file are skipped if they passed for the same text, after its includes, and the same settings.
tidy_flags = $(filter-out -fsanitize%,$(ALL_CFLAGS)) $(EXTRA_CFLAGS)
tidy/%.c: FORCE
	@mkdir -p $(B)/$(@D)
	@{ echo '$(LLVM) $(tidy_flags)'; cat .clang-tidy; $(CC) $(tidy_flags) -E -C $*.c; } | sha256sum >$(B)/$@.new
	$(Q)cmp -s $(B)/$@.new $(B)/$@.passed || { echo '  TIDY  $*.c'; \
	  clang-tidy-$(LLVM) --quiet $*.c -- $(tidy_flags) 2>/dev/null && mv $(B)/$@.new $(B)/$@.passed; }
# All objects and what people install. Suites need not be linked, nor the kernels of tests compiled.
.PHONY: lint-build
lint-build: all $(patsubst %,$(B)/obj/tests/%.o,$(TESTS) $(LONG_TESTS) $(HW))
lint: lint-format
	$(Q)$(MAKE) --no-print-directory $(jobs) CC='$(strip $(CCACHE) gcc)' B=$(B)/lint-gcc WERROR=1 lint-build
	$(Q)$(MAKE) --no-print-directory $(jobs) CC='$(strip $(CCACHE) clang-$(LLVM))' B=$(B)/lint-clang WERROR=1 lint-build
	$(Q)$(MAKE) --no-print-directory lint-tidy
