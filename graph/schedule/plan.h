/* Memory planning: assigns to each temporary of a schedule an offset in an arena of its device, so that temporaries
 * with disjoint lifetimes share memory.
 *
 * A temporary lives from the first item that writes it to the last item that reads it. */
#ifndef DOORBELL_GRAPH_PLAN_H
#define DOORBELL_GRAPH_PLAN_H
#include "schedule.h"

enum { PLAN_NEVER = -1 };
struct plan_options {
  size_t alignment; /* of every temporary, in bytes; a power of two */
  /* queue[i] is the queue that item i runs on. Items of the same device and queue run in the order of the schedule;
   * other items may overlap. A temporary used on one queue shares memory only with temporaries of the same queue; a
   * temporary used on several queues shares with none. NULL: one queue per device. */
  const uint8_t *queue;
};
struct plan_buffer { /* entry i describes schedule.temporaries[i] */
  size_t offset, bytes;
  unsigned arena;
  int64_t first, last; /* first and last item that uses it; PLAN_NEVER if none does */
  int64_t free_since;  /* the last item that used the same memory for another temporary; PLAN_NEVER if none did */
};
struct plan_arena {
  unsigned device;
  size_t bytes;    /* size of the arena */
  size_t unshared; /* size if its temporaries shared no memory */
};
struct memory_plan {
  struct plan_buffer *buffers;
  size_t nbuffers;
  struct plan_arena *arenas; /* more than one per device if items overlap */
  unsigned narenas;
  size_t peak, unshared; /* sums over all arenas */
};
/* Plans the memory of s. Returns 0, or a negative errno with a message in err. Free *out with plan_free. */
int plan_memory(const struct schedule *s, const struct plan_options *options, struct memory_plan *out, char *err,
                size_t errcap);
void plan_free(struct memory_plan *p);
#endif
