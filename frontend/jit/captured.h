/* What a captured function is made of: its program (program.h) and what a call has to know of it.
 *
 * Memory of a captured program is of three kinds. What the function made is the program's own. Inputs are where the
 * tensors given to a call are. The rest belongs to tensors that the function found elsewhere, parameters say: the
 * program follows those through assigns made outside, and what it assigns itself their tensors see. */
#ifndef DOORBELL_FRONTEND_CAPTURE_H
#define DOORBELL_FRONTEND_CAPTURE_H
#include "program.h"
#include "../run/capture.h"
#include "../tensor/call.h"

enum memory_kind { OWNED, INPUT, OUTER };

struct captured_memory {
  enum memory_kind kind;
  struct storage *storage; /* OWNED: a reference. INPUT: a copy that takes its place in this call, or NULL. To find it
                              by, while capturing */
  struct storage *former;  /* OWNED: what storage was before, for whoever keeps the last call's output; a reference */
  struct value *value;     /* OUTER: a reference */
  unsigned input;          /* INPUT: which */
  bool written, output;
};

struct captured_output {
  uint32_t memory; /* UINT32_MAX: none, it has no elements */
  int64_t offset;  /* elements from where the memory begins */
  enum dtype dtype;
  uint8_t slot;
  unsigned rank;
  int64_t dim[MAX_RANK];
  bool sized;          /* over variables */
  struct output_node { /* what stood for it in the last calls, of which two take turns with memory: rt.graphs, and what
                          it is */
    uint64_t graph;
    int64_t id, first;
    struct uop *node;
  } nodes[2];
  struct captured_output *part; /* on a group of devices, which is held: one for each, instead of a memory */
  int axis;
};

struct captured_input {
  enum dtype dtype;
  uint8_t slot;
  unsigned rank;
  int64_t dim[MAX_RANK];
  int64_t *bound; /* on a group, which is held: as in struct sharded, if it is split along axis; NULL elsewhere */
  int axis;
};

struct db_jit {
  struct capture capture; /* while capturing */
  db_jit_fn *fn;
  void *ctx;
  unsigned nin, nout;
  uint64_t calls;
  struct captured_input *in;
  struct captured_output *out;
  struct captured_memory *memories;
  size_t memories_capacity, accesses_capacity, commands_capacity, vars_capacity, var_of_capacity;
  char **var_names;
  struct program program;
  uint32_t *written; /* numbers of the memories that the program writes */
  unsigned nwritten;
  bool writes_input;
  uint32_t stream;                /* of random numbers */
  db_tensor *count[NUMBERS];      /* random calls so far, by device slot or group; NULL: none is made there */
  uint32_t random_calls[NUMBERS]; /* of one call of the function */
  int failed;                     /* why they could not be, or 0 */
  bool built;                     /* the program's streams are recorded: of a loaded one by its first call */
  struct jit_loaded *loaded;      /* file.c: what one that was loaded holds beside; NULL where captured here */
  /* ---- of one call ---- */
  struct value **given;
  struct value **inputs; /* the same on single devices: parts, one behind the other */
  int64_t *firsts;       /* the element of its memory that each begins at */
  unsigned ninputs, inputs_capacity;
  bool copies; /* inputs are copied for it */
  /* ---- while capturing ---- */
  struct captured_stage { /* by slot: what copies to devices that do not reach it pass through; one of memories */
    struct storage *storage;
    struct stage stage;
  } stages[SLOTS];
  int error;
  char error_text[512];
};

/* ---- call.c ---- */
db_jit *jit_new(unsigned nin, unsigned nout); /* NULL after db_fail */
/* Whether what a call is given lies in memory, in order and aligned, and where: parts of what is on groups one behind
 * the other. */
bool jit_inputs_computed(db_jit *j);
int jit_run_function(db_jit *j, db_tensor *const *in, db_tensor **out);
/* Ends the scope that the function ran in; its outputs go to the caller's. */
void jit_leave_scope(db_jit *j, db_tensor *const *out);
/* Drops what was captured, lock held; returns how many tensors the caller has to release without it. */
unsigned jit_forget(db_jit *j, db_tensor *dropped[NUMBERS]);
/* What they were is dropped; lock held. */
void jit_input_clear(struct captured_input *c);
void jit_output_clear(struct captured_output *o);
/* Which input, and which part of it, a place in inputs is. */
unsigned jit_input_of(const db_jit *j, unsigned place, unsigned *part);
/* Random numbers captured from now on are others than those of this stream. */
void jit_stream_taken(uint32_t stream);

/* ---- capture.c ---- */
int jit_capture(db_jit *j, db_tensor *const *in, db_tensor **out);
/* The elements of a realized value, which begin there, in memory that nothing else is in; NULL after db_fail. */
struct storage *jit_copy_memory(const struct value *v, int64_t first);
/* Gives it such memory. */
int jit_take_own_memory(struct value *v, int64_t first);
/* Where an OUTER memory is now. -EINVAL when what stood for it was overwritten. */
int jit_find_outer(struct captured_memory *m, struct storage **out);

/* ---- replay.c: lock held ---- */
int jit_replay(db_jit *j, db_tensor *const *in, db_tensor **out);

/* ---- file.c, print.c ---- */
void jit_loaded_free(struct jit_loaded *l);
void jit_print(const db_jit *j, FILE *f);
#endif
