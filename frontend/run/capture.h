/* What launching and realizing report to a capture in progress. */
#ifndef DOORBELL_FRONTEND_RUN_CAPTURE_H
#define DOORBELL_FRONTEND_RUN_CAPTURE_H
#include "launch.h"
#include "value.h"

/* ---- capture.c: what a captured function submits ---- */

struct captured_place { /* of a buffer */
  struct storage *storage;
  uint64_t offset;
};
/* A capture in progress on this thread (jit/capture.c). launch.c, realize.c and others call the functions below, which
 * do nothing where nothing is captured. */
struct capture {
  const struct capture_ops {
    void (*run)(struct capture *c, const struct executable *e, const struct binding *b,
                const struct captured_place *place);
    void (*copy)(struct capture *c, struct captured_place dst, struct captured_place src, uint64_t bytes);
    void (*refuse)(struct capture *c, int err, const char *why);
    int (*unshare)(struct capture *c, struct value *v);
    db_tensor *(*random_count)(struct capture *c, db_device *dev, uint32_t *stream);
  } *ops;
  uint64_t before; /* how many values had been made when it began */
};
extern _Thread_local struct capture *capturing; /* NULL: none */

/* The assigns that a function given to db_jit makes, captured or not, with a reference on each. */
struct assigns {
  struct value **values;
  size_t n, capacity;
  bool failed; /* out of memory */
};
extern _Thread_local struct assigns *assigns_made; /* of the innermost such function on this thread; NULL: none */
void capture_assign(struct value *v);              /* lock held */
void assigns_free(struct assigns *a);

/* e was submitted. place: of each of its buffers. */
void capture_run(const struct executable *e, const struct binding *b, const struct captured_place *place);
void capture_copy(struct captured_place dst, struct captured_place src, uint64_t bytes);
/* The host reads a value. */
void capture_host_read(void);
/* What is copied lies at a place that depends on variables. */
void capture_place_varies(void);
/* A value that is about to be used gets memory of its own where others are in its memory: replays could not tell which
 * of them it is. 0, or a negative errno and a message. */
int capture_unshare(struct value *v);
/* An assign is done in a copy, since the value before it keeps its memory. */
void capture_assign_moves(const struct value *from);
/* Inside a captured function: how many random calls were made before on dev, one u32 in memory there, and in *stream
 * what distinguishes its numbers from others'. NULL elsewhere. */
db_tensor *capture_random_count(db_device *dev, uint32_t *stream);
#endif
