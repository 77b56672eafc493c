/* Compiled schedules, and what submits them. */
#ifndef DOORBELL_FRONTEND_RUN_LAUNCH_H
#define DOORBELL_FRONTEND_RUN_LAUNCH_H
#include "runtime.h"

/* ---- executable.c: compiled schedules ---- */

enum { MAX_KERNEL_ARGS = 192 };

struct executable {
  struct executable *next, *newer, *older; /* in its hash bucket; by last use */
  uint32_t *key;                           /* graph/bind.h */
  size_t nkey, ncommands;
  uint64_t hash, slots; /* bit mask of the device slots it uses */
  uint32_t refs;
  unsigned ninputs, nbuffers, noutputs, narenas;
  struct exec_buffer {
    enum { BUFFER_UNUSED, BUFFER_INPUT, BUFFER_OUTPUT, BUFFER_TEMPORARY, BUFFER_PINNED /* of an exchange */ } kind;
    uint8_t slot;
    unsigned arena; /* of a temporary */
    size_t bytes, offset;
    int64_t first, free_since; /* graph/schedule/plan.h */
  } *buffers;
  struct exec_command {          /* args: buffers, then variables, as indices */
    const struct kernel *kernel; /* NULL for a copy: destination, source */
    uint32_t exchange; /* of a copy to pinned memory that begins one, or from it that ends it: 1 + its number */
    bool sends;
    db_program *program;
    uint32_t args, nbuffers, nvars, noutputs;
    uint8_t slot;
    bool barrier;
  } *commands;
  struct exchange *exchanges;
  uint32_t nexchanges;
  uint32_t *args;
  uint64_t *offsets; /* in bytes, beside the args that are buffers: where what a kernel is given of one begins */
  uint32_t *outputs; /* the buffer of each root; an input where the root is memory already */
  struct exec_arena {
    uint8_t slot;
    size_t bytes;
  } *arenas;
};
/* Found by its key or made, with a reference for the caller; NULL after db_fail. */
struct executable *executable_get(const struct env *env, const struct binding *b);
void executable_release(struct executable *e);
/* Forgets those that use one of the slots. */
void executables_drop(uint64_t slots);

/* ---- launch.c ---- */
/* Submits e for the buffers and variables bound. outputs: the memory of each root, a reference each. */
int executable_run(const struct executable *e, const struct binding *b, const struct env *env,
                   struct storage **outputs);
/* Copies between any two devices, ordered after what was submitted and before what comes. */
int storage_copy(struct storage *dst, struct storage *src, uint64_t src_offset, size_t bytes);
/* From the host, which may do with src what it likes afterwards and waits for no earlier work of the device, unless
 * there is more of it than STAGE_BYTES. */
int storage_write(struct storage *dst, const void *src, size_t bytes);

/* ---- staging.c: copies between devices ---- */

enum copy_way { COPY_BY_DESTINATION, COPY_BY_SOURCE /* by that one's copy queue */, COPY_STAGED };
enum copy_way copy_way(unsigned dst, unsigned src);

/* Of a piece: at 25 GB/s it takes 80 us, against which what a queue spends on waiting for another is little; the first
 * piece, in which nothing overlaps, is little of a large copy; and one packet of every engine copies it. */
enum { STAGE_PIECE = 2 << 20, STAGE_BYTES = 2 * STAGE_PIECE };
struct stage { /* what of STAGE_BYTES was given away last; zeroed to begin with */
  uint64_t used;
  bool half, begun;
};
/* Room for at most STAGE_PIECE bytes. anew: the half it lies in has to be free of earlier pieces. */
uint64_t stage_take(struct stage *s, size_t bytes, bool *anew);
/* What copies that run at once have on their source's slot. */
struct slot_stage {
  db_buffer *buffer;
  struct stage stage;
  uint64_t read[2]
               [SLOTS]; /* what the copy queue of each slot reaches when it has read a half; 0: nothing to wait for */
};
struct slot_stage *slot_stage(unsigned slot); /* NULL after db_fail */
#endif
