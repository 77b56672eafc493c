/* Memory planning: where in one piece of memory a device the temporaries of a schedule lie, so that they take turns.
 *
 * A temporary needs its memory from the item that writes it first to the last that reads it. */
#ifndef DOORBELL_GRAPH_PLAN_H
#define DOORBELL_GRAPH_PLAN_H
#include "schedule.h"

enum { PLAN_NEVER = -1 };
struct plan_options {
  size_t alignment; /* of every temporary, bytes; a power of two */
  /* The queue each item runs on. Items of one device and queue run in the order of the schedule, others may overlap: a
   * temporary that is used on one queue shares memory with such of the same queue only, one used on several with none.
   * NULL: one queue a device. */
  const uint8_t *queue;
};
struct plan_buffer { /* of schedule.temporaries[i] */
  size_t offset, bytes;
  unsigned arena;
  int64_t first, last; /* items; PLAN_NEVER when none uses it */
  int64_t free_since;  /* the last item that used the same memory for something else; PLAN_NEVER when none did */
};
struct plan_arena {
  unsigned device;
  size_t bytes;   /* to hold its temporaries */
  size_t without; /* what they take when none shares */
};
struct memory_plan {
  struct plan_buffer *buffers;
  size_t nbuffers;
  struct plan_arena *arenas; /* more than one a device when items overlap */
  unsigned narenas;
  size_t peak, without; /* of all arenas */
};
/* 0, or a negative errno and a message in err. */
int plan_memory(const struct schedule *s, const struct plan_options *options, struct memory_plan *out, char *err,
                size_t errcap);
void plan_free(struct memory_plan *p);
#endif
