/* Random numbers in functions given to db_jit. Their calls are counted on the device, so that replays continue the
 * sequence. Calls that are not captured count there, too: a function gives the same numbers however it is run. */
#include "random.h"
#include "captured.h"
#include <errno.h>
#include <stddef.h>

/* Makes the count of the calls on a slot. */
static db_tensor *new_count(db_jit *j, unsigned slot, db_device *dev) {
  if (j->nrandom == JIT_RANDOM_DEVICES) return db_fail_null(-ENOTSUP, "more than %u devices", JIT_RANDOM_DEVICES);
  uint32_t first = j->nrandom < j->random_start.n ? j->random_start.count[j->nrandom] : 0;
  db_tensor *t = db_from_at(DB_HERE, &first, DB_U32, dev, DB_LIST(1));
  if (db_poison(t)) return db_fail_null(-ENOMEM, "%s", db_poison(t));
  j->random_slots[j->nrandom++] = (uint8_t)slot;
  return db_retain(t);
}

static db_jit *jit_of(struct capture *c) { return (db_jit *)((char *)c - offsetof(db_jit, capture)); }

uint32_t *jit_on_random_calls(struct capture *c) { return jit_of(c)->random_calls; }

db_tensor *jit_on_random(struct capture *c, db_device *dev, uint32_t *stream) {
  db_jit *j = jit_of(c);
  struct capture *was = capturing;
  capturing = NULL; /* the following is done once, not in every replay */
  pthread_mutex_lock(&rt.lock);
  int slot = slot_of(dev);
  pthread_mutex_unlock(&rt.lock);
  if (slot >= 0 && !j->random_count[slot]) j->random_count[slot] = new_count(j, (unsigned)slot, dev);
  pthread_mutex_lock(&rt.lock);
  if (slot >= 0) slot_release((unsigned)slot);
  pthread_mutex_unlock(&rt.lock);
  capturing = was;
  *stream = j->stream;
  if (slot < 0 || !j->random_count[slot]) {
    jit_refuse(j, -ENOMEM, "jit: the state of the random numbers could not be made: %s", db_error());
    return NULL;
  }
  return db_add(j->random_count[slot], (int64_t)j->random_calls[slot]++);
}

int jit_advance_random(db_jit *j) {
  int err = 0;
  for (unsigned i = 0; i < j->nrandom && !err; i++) {
    unsigned slot = j->random_slots[i];
    if (!j->random_calls[slot]) continue;
    db_assign(j->random_count[slot], db_add(j->random_count[slot], (int64_t)j->random_calls[slot]));
    err = db_realize(j->random_count[slot]);
    j->random_calls[slot] = 0;
  }
  return err;
}

int jit_random_read(const db_jit *j, struct jit_random *out) {
  *out = (struct jit_random){.stream = j->stream, .n = j->nrandom};
  int err = 0;
  for (unsigned i = 0; i < j->nrandom && !err; i++)
    err = db_read(j->random_count[j->random_slots[i]], &out->count[i], sizeof out->count[i]);
  for (unsigned i = out->n; i < j->random_start.n; i++) out->count[out->n++] = j->random_start.count[i];
  return err;
}

int jit_random_restore(db_jit *j, const struct jit_random *from) {
  if (j->calls || j->nrandom || !j->fn)
    return db_fail(-EINVAL, "jit: the random numbers of a function can be restored only before its first call");
  j->stream = from->stream;
  j->random_start = *from;
  jit_stream_taken(j->stream);
  return 0;
}
