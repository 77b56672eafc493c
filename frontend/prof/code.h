/* The code of a traced program: what a thread trace needs of its instructions, and their text. */
#ifndef DOORBELL_FRONTEND_PROF_CODE_H
#define DOORBELL_FRONTEND_PROF_CODE_H
#include "../../hcq/sqtt/sqtt.h"

struct prof_code {
  struct sqtt_code code; /* of a section; offsets are from its first byte */
  uint64_t address;      /* of that byte in the file */
  uint32_t end;          /* where the kernel ends: offset from the first byte; the section's size if it is unknown */
  char **text;           /* by dword, as LLVM prints it; NULL where no instruction starts */
};

/* Disassembles code that starts at an address, for the instruction set of a trace's layout. The first instruction is
 * the entry. Returns 0 or a negative errno with db_error() set. Free c with prof_code_free in any case. */
int prof_code_raw(struct prof_code *c, const void *code, size_t size, uint64_t address, enum sqtt_layout layout);
/* Disassembles the section of a code object that contains a kernel. kernel NULL: the only kernel. */
int prof_code_elf(struct prof_code *c, const void *elf, size_t size, const char *kernel, enum sqtt_layout layout);
void prof_code_free(struct prof_code *c);

/* The sums over all executions of one instruction in thread traces. Times are in clocks. */
struct prof_line {
  uint64_t count, stall;
  uint64_t timed, duration; /* number of those whose duration is known; its sum */
};
/* Returns a line per dword of the code, all zero; the caller frees them. NULL if memory runs out. */
struct prof_line *prof_lines_new(const struct prof_code *c);
/* Adds the instructions of a trace that was decoded with this code. */
void prof_lines_add(struct prof_line *lines, const struct sqtt_trace *t);
#endif
