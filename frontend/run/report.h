/* Reports of the commands that ran: DEBUG=2 and higher, PROFILE, db_watch. */
#ifndef DOORBELL_FRONTEND_RUN_REPORT_H
#define DOORBELL_FRONTEND_RUN_REPORT_H
#include "runtime.h"
#include "../../graph/schedule/plan.h"
#include "../../hcq/profile.h"

/* ---- report.c: reports of commands ---- */
struct report {
  struct report_item {
    db_device *device;
    const struct kernel *kernel; /* NULL for a copy */
    const char *exchange;        /* its name, if it is an exchange between processes, else NULL */
    const db_program *program;   /* of a kernel */
    uint64_t bytes;
    unsigned args, queue;      /* queue: index among the device's queues of that kind */
    db_signal *begin, *end;    /* NULL if the times are known */
    uint64_t begin_ns, end_ns; /* if known */
  } *items;
  size_t n, capacity;
  struct hcq_event_wait *waits;
  size_t nwaits, waits_capacity;
};
/* Whether commands must be timed: for PROFILE, PROF, DEBUG from 2, or db_watch. */
bool report_wanted(const struct env *env);
/* Adds a command, with two signals for its timestamps unless without_signals. Returns NULL if it cannot be timed. The
 * pointer is valid until the next call. */
struct report_item *report_add(struct report *r, db_device *dev, const struct kernel *k, unsigned args, uint64_t bytes,
                               bool without_signals);
/* Records that the item added last waited for item count - 1. Does nothing if count is 0 or memory runs out. */
void report_wait(struct report *r, size_t count);
/* Print what DEBUG asks for about a kernel or a schedule. */
void report_kernel(const struct env *env, const struct kernel *k);
void report_schedule(const struct env *env, const struct schedule *s, const struct memory_plan *plan);
/* Frees the report. If its commands have finished, first prints a line each (DEBUG=2), writes the trace and calls the
 * watcher. Returns 0, or a negative errno with a message if the trace cannot be written. */
int report_finish(struct report *r, bool finished);

/* Work that is reported when it has finished, without waiting for it: a captured program that is timed. */
struct report_source {
  /* Reports what has finished. With `all`, waits for the rest. Returns 0 or a negative errno with a message. */
  int (*report)(struct report_source *s, bool all);
  struct report_source *next, *prev;
};
void report_source_add(struct report_source *s);
void report_source_remove(struct report_source *s);
/* Calls every source's report; returns the first error. */
int reports_settle(bool all);
#endif
