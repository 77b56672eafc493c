/* Times of commands for people: a line per command (DEBUG=2) and a trace file (PROFILE). Both layers report here what
 * they have timed. */
#ifndef DOORBELL_HCQ_PROFILE_H
#define DOORBELL_HCQ_PROFILE_H
#include "hcq.h"

/* ---- profile.c: the lines and the file ---- */

/* What the environment asks for, read once a process. */
struct hcq_profile_env {
  bool lines;       /* DEBUG from 2 on. Anything but a number asks for nothing here; the tensor layer refuses it */
  int rank;         /* of this process among several that a launcher started; -1 alone */
  const char *path; /* of the trace, which holds the rank where there is one; NULL: none */
};
const struct hcq_profile_env *hcq_profile_env(void);

/* A command that has run. */
struct hcq_event {
  db_device *device;
  const char *name;
  enum hcq_event_kind { HCQ_EVENT_KERNEL, HCQ_EVENT_COPY, HCQ_EVENT_EXCHANGE } kind;
  unsigned queue, args; /* queue: which of the device's queues of that kind */
  bool uncounted;       /* bytes and flops are not known */
  uint64_t bytes, begin_ns, end_ns;
  double flops;
};
/* The queue of an event waited for another event: indices. */
struct hcq_event_wait {
  size_t from, to;
};

/* Opens the trace file if there is to be one and it is not open. A negative errno and a message that names it, once. */
int hcq_profile_open(void);
/* Prints the lines and writes the trace, whichever is asked for. A negative errno and a message, once, when the file
 * cannot be written. */
int hcq_profile_events(const struct hcq_event *events, size_t n, const struct hcq_event_wait *waits, size_t nwaits);

/* Around a fork, with the devices' locks held. The file is the parent process's: a child writes nothing into it. */
void hcq_profile_before_fork(void);
void hcq_profile_after_fork(bool in_child);

/* ---- profile_queue.c: recorders that stamp their commands ---- */

/* A recorder like db_queue_new_at's whose commands are not timed here: its user times and reports them. */
db_queue *hcq_queue_unprofiled(db_device *dev, enum db_queue_kind kind, unsigned index);
#endif
