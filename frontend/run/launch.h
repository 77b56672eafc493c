/* Compiled schedules and their execution. */
#ifndef DOORBELL_FRONTEND_RUN_LAUNCH_H
#define DOORBELL_FRONTEND_RUN_LAUNCH_H
#include "runtime.h"

/* ---- executable.c: compiled schedules ---- */

enum { MAX_KERNEL_ARGS = 192 };

struct executable {
  struct executable *next, *newer, *older; /* next: in its hash bucket; newer, older: in order of last use */
  uint32_t *key;                           /* the structure of the graph; graph/bind.h */
  size_t nkey, ncommands;
  uint64_t hash, slots; /* slots: bit mask of the device slots that it uses */
  uint32_t refs;
  unsigned ninputs, nbuffers, noutputs, narenas;
  struct exec_buffer {
    enum { BUFFER_UNUSED, BUFFER_INPUT, BUFFER_OUTPUT, BUFFER_TEMPORARY, BUFFER_PINNED /* for an exchange */ } kind;
    uint8_t slot;
    unsigned arena; /* of a temporary */
    size_t bytes, offset;
    int64_t first, free_since; /* command indices; graph/schedule/plan.h */
  } *buffers;
  struct exec_command {          /* args: index of its first argument: buffers, then variables */
    const struct kernel *kernel; /* NULL for a copy, whose arguments are destination and source */
    uint32_t
        exchange; /* of a copy to or from the pinned memory of an exchange: 1 + the number of the exchange; else 0 */
    /* the copy goes to pinned memory and begins the exchange; otherwise it ends it */
    bool sends;
    db_program *program;
    uint32_t args, nbuffers, nvars, noutputs;
    uint8_t slot;
    bool barrier;
  } *commands;
  struct exchange *exchanges;
  uint32_t nexchanges;
  uint32_t *args;
  uint64_t *offsets; /* in bytes, parallel to args: the offset in a buffer at which a kernel's argument starts */
  uint32_t *outputs; /* the buffer of each root; an input if the root is in memory already */
  struct exec_arena {
    uint8_t slot;
    size_t bytes;
  } *arenas;
};
/* Finds an executable by its key, or makes it. The caller gets a reference. Returns NULL after db_fail. */
struct executable *executable_get(const struct env *env, const struct binding *b);
void executable_release(struct executable *e);
/* Removes the executables that use one of the slots from the cache. */
void executables_drop(uint64_t slots);

/* ---- launch.c ---- */
/* Submits e with the bound buffers and variables. Stores the memory of each root in outputs, with a reference. Returns
 * 0 or a negative errno. */
int executable_run(const struct executable *e, const struct binding *b, const struct env *env,
                   struct storage **outputs);
/* Copies between any two devices, ordered after all earlier and before all later submissions. Returns 0 or a negative
 * errno. */
int storage_copy(struct storage *dst, struct storage *src, uint64_t src_offset, size_t bytes);
/* Copies from the host. The caller may change src when it returns. The function does not wait for earlier work of the
 * device, unless bytes exceeds STAGE_BYTES. Returns 0 or a negative errno. */
int storage_write(struct storage *dst, const void *src, size_t bytes);

/* ---- staging.c: copies between devices ---- */

enum copy_way { COPY_BY_DESTINATION, COPY_BY_SOURCE /* by the copy queue of that device */, COPY_STAGED };
enum copy_way copy_way(unsigned dst, unsigned src);

/* Size of a piece. At 25 GB/s it takes 80 us, which is long compared with the time that a queue needs to wait for
 * another. The first piece, during which nothing overlaps, is a small part of a large copy. One packet of every engine
 * can copy it. */
enum { STAGE_PIECE = 2 << 20, STAGE_BYTES = 2 * STAGE_PIECE };
/* An allocator for the STAGE_BYTES; starts zeroed. */
struct stage {
  /* bytes allocated in the current half */
  uint64_t used;
  bool half, begun;
};
/* Allocates at most STAGE_PIECE bytes and returns their offset. *anew: it is the first piece in a half, which may be
 * written only after all reads of earlier pieces. */
uint64_t stage_take(struct stage *s, size_t bytes, bool *anew);
/* The staging memory of a source slot, shared by all copies in flight from it. */
struct slot_stage {
  db_buffer *buffer;
  struct stage stage;
  uint64_t read[2]
               [SLOTS]; /* [half][slot]: the value that this copy queue reaches after its reads of the half; 0: none */
};
struct slot_stage *slot_stage(unsigned slot); /* NULL after db_fail */
#endif
