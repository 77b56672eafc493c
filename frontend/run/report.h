/* Reports of what ran: DEBUG=2 and more, PROFILE, db_watch. */
#ifndef DOORBELL_FRONTEND_RUN_REPORT_H
#define DOORBELL_FRONTEND_RUN_REPORT_H
#include "runtime.h"
#include "../../graph/schedule/plan.h"
#include "../../hcq/profile.h"

/* ---- report.c: what ran ---- */
struct report {
  struct report_item {
    db_device *device;
    const struct kernel *kernel; /* NULL for a copy */
    const char *exchange;        /* what it is called, if it is one between processes */
    uint64_t bytes;
    unsigned args, queue;      /* queue: which of the device's for such commands */
    db_signal *begin, *end;    /* NULL where the times are known */
    uint64_t begin_ns, end_ns; /* where they are */
  } *items;
  size_t n, capacity;
  struct hcq_event_wait *waits;
  size_t nwaits, waits_capacity;
};
/* Whether anybody wants to know when commands ran: PROFILE, DEBUG from 2 on, db_watch. */
bool report_wanted(const struct env *env);
/* A line to come, with two signals for its timestamps unless they come from elsewhere. NULL: it cannot be timed. */
struct report_item *report_add(struct report *r, db_device *dev, const struct kernel *k, unsigned args, uint64_t bytes,
                               bool without_signals);
/* The item added last waited for the one that was the count-th. count 0, or no memory: nothing is said. */
void report_wait(struct report *r, size_t count);
/* Prints what DEBUG asks for about a kernel or a schedule. */
void report_kernel(const struct env *env, const struct kernel *k);
void report_schedule(const struct env *env, const struct schedule *s, const struct memory_plan *plan);
/* Frees the report; when its commands have finished, prints a line each (DEBUG=2), writes the trace and calls the
 * watcher. A negative errno and a message when the trace cannot be written. */
int report_finish(struct report *r, bool finished);

/* Work that nobody waits for and that is reported once it has finished: a captured program that is timed. */
struct report_source {
  /* Reports what has finished by now; all: waits for the rest. 0, or a negative errno and a message. */
  int (*report)(struct report_source *s, bool all);
  struct report_source *next, *prev;
};
void report_source_add(struct report_source *s);
void report_source_remove(struct report_source *s);
/* Calls every source's report; returns the first error. */
int reports_settle(bool all);
#endif
