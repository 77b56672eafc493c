/* Reports from launching and realizing to a capture in progress. */
#ifndef DOORBELL_FRONTEND_RUN_CAPTURE_H
#define DOORBELL_FRONTEND_RUN_CAPTURE_H
#include "launch.h"
#include "value.h"

/* ---- capture.c: reports of what a captured function submits ---- */

struct captured_place { /* the place of a buffer */
  struct storage *storage;
  uint64_t offset;
};
/* A capture in progress on this thread (jit/capture.c). launch.c, realize.c and others call the functions below, which
 * do nothing outside of a capture. */
struct capture {
  const struct capture_ops {
    void (*run)(struct capture *c, const struct executable *e, const struct binding *b,
                const struct captured_place *place);
    void (*copy)(struct capture *c, struct captured_place dst, struct captured_place src, uint64_t bytes);
    void (*refuse)(struct capture *c, int err, const char *why);
    int (*unshare)(struct capture *c, struct value *v);
    db_tensor *(*random_count)(struct capture *c, db_device *dev, uint32_t *stream);
    uint32_t *(*random_calls)(struct capture *c);
  } *ops;
  uint64_t before; /* rt.serials when the capture began */
};
extern _Thread_local struct capture *capturing; /* or NULL */
/* The capture of the function passed to db_jit that runs on this thread, captured or not; or NULL. Its random numbers
 * are counted there. */
extern _Thread_local struct capture *counting;

/* The assigns made by a function passed to db_jit, captured or not, with a reference on each. */
struct assigns {
  struct value **values;
  size_t n, capacity;
  bool failed; /* out of memory */
};
extern _Thread_local struct assigns *assigns_made; /* of the innermost such function on this thread, or NULL */
void capture_assign(struct value *v);              /* records an assign; called with rt.lock held */
void assigns_free(struct assigns *a);

/* e was submitted. place has an element per buffer of e. */
void capture_run(const struct executable *e, const struct binding *b, const struct captured_place *place);
void capture_copy(struct captured_place dst, struct captured_place src, uint64_t bytes);
/* The host is about to read a value. Refuses the capture. */
void capture_host_read(void);
/* A copy reads from an offset that depends on variables. Refuses the capture. */
void capture_place_varies(void);
/* Gives a value that is about to be used memory of its own if other values share its memory, because a replay could not
 * tell them apart. Returns 0 or a negative errno with a message. */
int capture_unshare(struct value *v);
/* An assign writes to a copy because the old value keeps its memory. Refuses the capture if that value was made before
 * it. */
void capture_assign_moves(const struct value *from);
/* Inside a function passed to db_jit: returns a tensor in memory, one u32, with the number of earlier random calls on
 * dev, and stores in *stream what separates its random numbers from others. Elsewhere returns NULL. */
db_tensor *capture_random_count(db_device *dev, uint32_t *stream);
/* Inside a function passed to db_jit: the number of random calls of this call so far, by slot (SLOT_NUMBERS of them).
 * Elsewhere NULL. */
uint32_t *capture_random_calls(void);
#endif
