/* A captured function: its program (program.h) and what calls need to know about it.
 *
 * A captured program uses three kinds of memory. OWNED: the function made it, and it belongs to the program. INPUT: it
 * is the memory of the tensors passed to a call. OUTER: it belongs to tensors that the function uses but does not
 * receive (external tensors), such as parameters. The program follows those when they are assigned outside of it, and
 * its own assignments are visible in them. */
#ifndef DOORBELL_FRONTEND_CAPTURE_H
#define DOORBELL_FRONTEND_CAPTURE_H
#include "program.h"
#include "random.h"
#include "../run/capture.h"
#include "../tensor/call.h"

enum memory_kind { OWNED, INPUT, OUTER };

struct captured_memory {
  enum memory_kind kind;
  struct storage *storage; /* OWNED: a reference. INPUT: the copy that replaces it in this call, or NULL. While
                              capturing: identifies the memory */
  /* OWNED: the storage of the call before, whose output may still be in use; a reference */
  struct storage *previous_storage;
  struct value *value; /* OUTER: a reference */
  unsigned input;      /* INPUT: its index in inputs */
  bool written, output;
};

struct captured_output {
  uint32_t memory; /* UINT32_MAX for an output without elements */
  int64_t offset;  /* in elements, from the start of the memory */
  enum dtype dtype;
  uint8_t slot;
  unsigned rank;
  int64_t dim[MAX_RANK];
  bool sized;          /* its sizes depend on variables */
  struct output_node { /* the nodes of the last two calls, valid while rt.graphs == graph */
    uint64_t graph;
    int64_t id, first;
    struct uop *node;
  } nodes[2];
  struct captured_output *part; /* on a group, with a reference on it: one element per device, instead of a memory */
  int axis;
};

struct captured_input {
  enum dtype dtype;
  uint8_t slot;
  unsigned rank;
  int64_t dim[MAX_RANK];
  int64_t *bound; /* on a group, with a reference on it: bounds of the parts as in struct sharded if split along axis;
                     else NULL */
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
  uint32_t *written; /* indices of the memories that the program writes and others may see */
  unsigned nwritten;
  bool writes_input;
  uint32_t stream; /* separates the random numbers of captures */
  /* Number of random calls so far, by device slot or group; NULL if there are none */
  db_tensor *random_count[SLOT_NUMBERS];
  uint32_t random_calls[SLOT_NUMBERS];      /* in one call of the function */
  uint8_t random_slots[JIT_RANDOM_DEVICES]; /* in the order of their first use */
  unsigned nrandom;
  struct jit_random random_start; /* the counts to begin with */
  int failed;                     /* errno of a failed build, or 0 */
  bool built;                     /* the program is recorded: by the first replay */
  struct jit_loaded *loaded;      /* file.c: additional state of a loaded program; NULL if captured in this process */
  /* ---- of one call ---- */
  struct value **input_values;
  struct value **inputs; /* the same on single devices, with parts in order */
  int64_t *firsts;       /* the element of its memory at which each input starts */
  unsigned ninputs, inputs_capacity;
  bool copies; /* some inputs are copied for this call */
  /* ---- while capturing ---- */
  struct captured_stage { /* by slot: the memory for copies to devices that do not reach it; one of memories */
    struct storage *storage;
    struct stage stage;
  } stages[SLOTS];
  int error;
  char error_text[512];
};

/* ---- call.c ---- */
db_jit *jit_new(unsigned nin, unsigned nout); /* NULL after db_fail */
/* Whether all inputs are in memory, contiguous and aligned. Stores their places, with the parts of inputs on groups in
 * order. */
bool jit_inputs_computed(db_jit *j);
int jit_run_function(db_jit *j, db_tensor *const *in, db_tensor **out);
/* Ends the scope in which the function ran; moves its outputs to the caller's scope. */
void jit_leave_scope(db_jit *j, db_tensor *const *out);
/* Drops the recording. Called with rt.lock held. */
void jit_forget(db_jit *j);
/* Release what they refer to; called with rt.lock held. */
void jit_input_clear(struct captured_input *c);
void jit_output_clear(struct captured_output *o);
/* The input, and the part of it, of an index in inputs. */
unsigned jit_input_of(const db_jit *j, unsigned place, unsigned *part);
/* Reserves a stream: later captures use other random numbers. */
void jit_stream_taken(uint32_t stream);

/* ---- random.c ---- */
/* Functions of capture_ops. */
db_tensor *jit_on_random(struct capture *c, db_device *dev, uint32_t *stream);
uint32_t *jit_on_random_calls(struct capture *c);
/* Adds the calls of the function that has run, so that the next call continues the sequence. */
int jit_advance_random(db_jit *j);

/* ---- capture.c ---- */
extern const struct capture_ops jit_capture_ops;
/* Makes the capture fail with this message, if it is the first one. */
void jit_refuse(db_jit *j, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int jit_capture(db_jit *j, db_tensor *const *in, db_tensor **out);
/* Copies the elements of a realized value, which start at element `first`, to memory that nothing else uses. Returns
 * NULL after db_fail. */
struct storage *jit_copy_memory(const struct value *v, int64_t first);
/* Moves a value to memory of its own. */
int jit_take_own_memory(struct value *v, int64_t first);
/* Finds the current storage of an OUTER memory. Returns -EINVAL if its value was overwritten. */
int jit_find_outer(struct captured_memory *m, struct storage **out);

/* ---- replay.c: lock held ---- */
int jit_replay(db_jit *j, db_tensor *const *in, db_tensor **out);

/* ---- file.c, print.c ---- */
void jit_loaded_free(struct jit_loaded *l);
void jit_print(const db_jit *j, FILE *f);
#endif
