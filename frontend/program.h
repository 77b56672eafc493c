/* Programs: commands over memory, frozen as one command stream a queue, run again and again. */
#ifndef DOORBELL_FRONTEND_PROGRAM_H
#define DOORBELL_FRONTEND_PROGRAM_H
#include "internal.h"

struct program_memory {
  db_buffer *buffer; /* borrowed; of the next run */
  uint64_t offset;   /* where the memory begins in buffer */
  uint8_t slot;
  bool varies; /* buffer and offset may be others in the next run */
};
/* What a command reads or writes, an argument each: bytes at offset of a memory. */
struct program_access {
  uint32_t memory;
  bool written;
  uint64_t offset, bytes;
};
struct program_command {
  const struct kernel *kernel; /* NULL: a copy, to the first access's memory from the second's */
  db_program *program;
  uint32_t first, naccesses; /* in program.accesses */
  uint32_t vars, nvars;      /* in program.var_of: the kernel's variables, by number */
  uint8_t slot;              /* whose queue: a copy's is the destination's */
  bool barrier;              /* the rest is program_build's */
  bool signals;
  uint32_t queue, position, first_wait, nwaits;
};

struct program {
  struct program_memory *memories;
  struct program_access *accesses;
  struct program_command *commands;
  uint32_t *var_of;
  int64_t *vars; /* values of the next run */
  unsigned nmemories, nvars;
  size_t naccesses, ncommands, nvar_of;
  /* ---- made by program_build ---- */
  struct program_queue *queues;
  unsigned nqueues;
  struct program_wait {
    uint32_t queue, position;
  } *waits;
  size_t nwaits;
  uint64_t period; /* signals advance by so much a run */
  uint64_t runs;
};

/* Derives what has to wait for what from the bytes that commands touch, and records every queue's stream, twice, so that
 * one can be changed while the other runs. 0, or a negative errno and a message. */
int program_build(struct program *p);
/* Starts it behind what was submitted before, one doorbell a queue. */
int program_run(struct program *p);
void program_print(const struct program *p, FILE *f);
/* Frees what is in p. What runs holds what it needs. */
void program_free(struct program *p);
#endif
