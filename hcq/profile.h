/* Times of commands for people: a line per command (DEBUG=2) and a trace file (PROFILE). The queue layer and the tensor
 * layer both report the commands that they have timed here. */
#ifndef DOORBELL_HCQ_PROFILE_H
#define DOORBELL_HCQ_PROFILE_H
#include "hcq.h"

/* ---- profile.c: the lines and the file ---- */

/* What the environment asks for; read once per process. */
struct hcq_profile_env {
  bool lines; /* DEBUG is at least 2. A DEBUG that is not a number counts as 0 here; the tensor layer rejects it */
  int rank;   /* rank of this process if a launcher started several; otherwise -1 */
  const char *path; /* of the trace file, with the rank in it if there is one; NULL for no file */
};
const struct hcq_profile_env *hcq_profile_env(void);

/* A command that has finished. */
struct hcq_event {
  db_device *device;
  const char *name;
  enum hcq_event_kind { HCQ_EVENT_KERNEL, HCQ_EVENT_COPY, HCQ_EVENT_EXCHANGE } kind;
  unsigned queue, args; /* queue: which of the device's queues of that kind */
  bool uncounted;       /* bytes and flops are unknown */
  uint64_t bytes, begin_ns, end_ns;
  double flops;
};
/* The queue of event `to` waited for event `from`; both are indices. */
struct hcq_event_wait {
  size_t from, to;
};

/* Opens the trace file if PROFILE asks for one and it is not open. On failure returns a negative errno, with a message
 * that names the file. */
int hcq_profile_open(void);
/* Prints the lines and writes the trace file, as the environment asks. If the file cannot be written, one call fails
 * with a negative errno and a message; later calls write nothing. */
int hcq_profile_events(const struct hcq_event *events, size_t n, const struct hcq_event_wait *waits, size_t nwaits);

/* Called around fork, with the devices' locks held. The file belongs to the parent process: a child does not write to
 * it. */
void hcq_profile_before_fork(void);
void hcq_profile_after_fork(bool in_child);

/* ---- profile_queue.c: recorders that stamp their commands ---- */

/* Creates a recorder like db_queue_new_at, but does not time its commands: the caller times and reports them. */
db_queue *hcq_queue_unprofiled(db_device *dev, enum db_queue_kind kind, unsigned index);
#endif
