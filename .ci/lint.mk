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
tidy/%.c: FORCE
	$(call say,TIDY,$*.c)
	$(Q)clang-tidy-$(LLVM) --quiet $*.c -- $(filter-out -fsanitize%,$(ALL_CFLAGS)) $(EXTRA_CFLAGS) 2>/dev/null
lint: lint-format
	$(Q)$(MAKE) --no-print-directory $(jobs) CC='$(strip $(CCACHE) gcc)' B=$(B)/lint-gcc WERROR=1 all suites
	$(Q)$(MAKE) --no-print-directory $(jobs) CC='$(strip $(CCACHE) clang-$(LLVM))' B=$(B)/lint-clang WERROR=1 all suites
	$(Q)$(MAKE) --no-print-directory lint-tidy
