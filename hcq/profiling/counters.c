/* Sets of performance counters: their passes, and the memory that receives the values. */
#include "../backend.h"
#include "../profile.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A set's memory holds a part for each pass: the mark that the pass has run, then its counters' values, 64 bits each. A
 * set of several passes counts `check` in each of them, as the pass's first counter. */
struct db_counter_set {
  struct hcq_object object;
  db_device *dev;
  unsigned n, npicks, passes;
  struct pick {
    struct hcq_counter_pick pick;
    unsigned pass;
    const uint64_t *values;
  } *picks;          /* the check of a pass comes before the pass's other counters */
  unsigned *pick_of; /* pick of each counter of the list */
  db_buffer *memory;
  size_t *pass_offset;
};

static int list_of(db_device *dev, const struct hcq_counter **list, unsigned *n, const struct hcq_counter **check) {
  int err = hcq_device_check(dev);
  if (err) return err;
  if (!dev->ops->counters) return db_fail(-ENOTSUP, "%s: not supported: performance counters", dev->name);
  return dev->ops->counters(dev, list, n, check);
}

int db_counters(db_device *dev, struct db_counter *out, unsigned cap) {
  if (!dev || (cap && !out)) return db_null(dev ? "list" : "device");
  unsigned n;
  const struct hcq_counter *check, *list;
  int err = list_of(dev, &list, &n, &check);
  if (err) return err;
  for (unsigned i = 0; i < n && i < cap; i++) out[i] = list[i].info;
  return (int)n;
}

/* ---- passes ---- */

/* Returns a free slot of the counter's block in a pass; -1 if all are used. */
static int free_slot(const db_counter_set *s, const struct hcq_counter *c, unsigned pass) {
  uint32_t used = 0;
  for (unsigned i = 0; i < s->npicks; i++)
    if (s->picks[i].pass == pass && s->picks[i].pick.counter->block == c->block)
      used |= 1u << (s->picks[i].pick.slot & 31);
  unsigned slot = (unsigned)__builtin_ctz(~used);
  return slot < s->dev->ops->counter_slots(s->dev, c) ? (int)slot : -1;
}

static unsigned add_pick(db_counter_set *s, const struct hcq_counter *c, unsigned pass) {
  int slot = free_slot(s, c, pass);
  s->picks[s->npicks] = (struct pick){{.counter = c, .slot = (unsigned)slot}, .pass = pass};
  return s->npicks++;
}

/* Puts each counter into the first pass that has a slot for it. With check, every pass counts it first. */
static void assign(db_counter_set *s, const struct hcq_counter *const *chosen, const struct hcq_counter *check) {
  s->npicks = s->passes = 0;
  for (unsigned i = 0; i < s->n; i++) {
    unsigned pass = 0;
    while (pass < s->passes && free_slot(s, chosen[i], pass) < 0) pass++;
    if (pass == s->passes) {
      s->passes++;
      if (check) add_pick(s, check, pass);
    }
    s->pick_of[i] = add_pick(s, chosen[i], pass);
  }
}

static int allocate(db_counter_set *s) {
  size_t bytes = 0;
  s->pass_offset = calloc(s->passes, sizeof *s->pass_offset);
  if (!s->pass_offset) return db_fail(-ENOMEM, "%s: out of host memory for counters", s->dev->name);
  for (unsigned pass = 0; pass < s->passes; pass++) {
    s->pass_offset[pass] = bytes;
    bytes += 8;
    for (unsigned i = 0; i < s->npicks; i++) {
      if (s->picks[i].pass != pass) continue;
      s->picks[i].pick.address = bytes;
      bytes += s->picks[i].pick.counter->info.instances * 8ull;
    }
  }
  s->memory = db_alloc(s->dev, bytes, DB_BUFFER_HOST);
  if (!s->memory) return -ENOMEM;
  memset(s->memory->host, 0, bytes);
  for (unsigned i = 0; i < s->npicks; i++) {
    s->picks[i].values = (const uint64_t *)(const void *)(s->memory->host + s->picks[i].pick.address);
    s->picks[i].pick.address += s->memory->address;
  }
  return 0;
}

/* ---- sets ---- */

static void set_destroy(struct hcq_object *object) {
  db_counter_set *s = (db_counter_set *)object;
  db_device *dev = s->dev;
  hcq_clocks_drop(dev);
  if (s->memory) db_buffer_release(s->memory);
  free(s->picks);
  free(s->pick_of);
  free(s->pass_offset);
  free(s);
  hcq_release(&dev->object);
}

/* Finds the named counters. Returns 0, or fails with a message that names the one that cannot be counted. */
static int choose(db_device *dev, const struct hcq_counter *list, unsigned nlist, const char *const *names, unsigned n,
                  const struct hcq_counter **chosen) {
  for (unsigned i = 0; i < n; i++) {
    if (!names[i]) return db_null("name");
    for (unsigned k = 0; k < nlist && !chosen[i]; k++)
      if (!strcmp(list[k].info.name, names[i])) chosen[i] = &list[k];
    int err = !chosen[i] && dev->ops->counter_missing ? dev->ops->counter_missing(dev, names[i]) : 0;
    if (err) return err;
    if (!chosen[i]) return db_fail(-ENOENT, "%s: the device has no counter %s", dev->name, names[i]);
    for (unsigned k = 0; k < i; k++)
      if (chosen[k] == chosen[i]) return db_fail(-EINVAL, "%s: counter %s is listed twice", dev->name, names[i]);
  }
  return 0;
}

db_counter_set *db_counter_set_new(db_device *dev, const char *const *names, unsigned n) {
  if (!dev || !names) return db_null_of(dev ? "list of names" : "device");
  unsigned nlist;
  const struct hcq_counter *check, *list;
  if (list_of(dev, &list, &nlist, &check)) return NULL;
  if (!n || n > nlist) return db_fail_null(-EINVAL, "%s: a set of %u counters, the device has %u", dev->name, n, nlist);
  db_counter_set *s = calloc(1, sizeof *s);
  if (!s) return db_fail_null(-ENOMEM, "%s: out of host memory for counters", dev->name);
  hcq_object_init(&s->object, set_destroy);
  s->dev = dev, s->n = n;
  hcq_retain(&dev->object);
  hcq_clocks_hold(dev);
  const struct hcq_counter **chosen = calloc(n, sizeof(*chosen));
  s->picks = calloc(2 * n, sizeof *s->picks); /* a pass has at least one counter beside the check */
  s->pick_of = calloc(n, sizeof *s->pick_of);
  int err = chosen && s->picks && s->pick_of ? choose(dev, list, nlist, names, n, chosen)
                                             : db_fail(-ENOMEM, "%s: out of host memory for counters", dev->name);
  if (!err) {
    assign(s, chosen, NULL);
    if (s->passes > 1) assign(s, chosen, check);
    err = allocate(s);
  }
  free(chosen);
  if (!err) return s;
  hcq_release(&s->object);
  return NULL;
}

void db_counter_set_release(db_counter_set *s) {
  if (s) hcq_release(&s->object);
}

unsigned db_counter_set_passes(const db_counter_set *s) { return s ? s->passes : 0; }

/* ---- recording ---- */

/* Records the beginning or the end of a pass. */
static int record(db_queue *q, const db_counter_set *s, unsigned pass, bool begins) {
  struct hcq_counter_pick *picks = malloc(s->npicks * sizeof *picks);
  if (!picks) return db_fail(-ENOMEM, "%s: out of host memory for a recording", q->dev->name);
  unsigned n = 0;
  for (unsigned i = 0; i < s->npicks; i++)
    if (s->picks[i].pass == pass) picks[n++] = s->picks[i].pick;
  int err = begins ? q->dev->ops->counters_begin(q, picks, n)
                   : q->dev->ops->counters_end(q, picks, n, s->memory->address + s->pass_offset[pass]);
  free(picks);
  return err;
}

int hcq_counters_begin(db_queue *q, db_counter_set *s, unsigned pass) {
  if (q->ring->kind != DB_QUEUE_COMPUTE)
    return db_fail(-EINVAL, "%s: counters recorded into a copy queue", q->dev->name);
  if (s->dev != q->dev) return db_fail(-EINVAL, "%s: a set of counters of %s", q->dev->name, s->dev->name);
  if (pass >= s->passes)
    return db_fail(-EINVAL, "%s: pass %u of a set of counters that has %u", q->dev->name, pass, s->passes);
  if (q->counting) return db_fail(-EINVAL, "%s: the queue already counts; record the end first", q->dev->name);
  int err = hcq_queue_hold(q, &s->object);
  if (!err) err = record(q, s, pass, true);
  if (!err) q->counting = s, q->counted_pass = pass;
  return err;
}

int hcq_counters_end(db_queue *q) {
  if (!q->counting) return db_fail(-EINVAL, "%s: the queue does not count; record the begin first", q->dev->name);
  int err = record(q, q->counting, q->counted_pass, false);
  q->counting = NULL;
  return err;
}

/* ---- values ---- */

static uint64_t sum_of(const struct pick *p) {
  uint64_t sum = 0;
  for (unsigned i = 0; i < p->pick.counter->info.instances; i++) sum += p->values[i];
  return sum;
}

static bool has_run(const db_counter_set *s, unsigned pass) {
  return *(const volatile uint64_t *)(const void *)(s->memory->host + s->pass_offset[pass]);
}

/* Checks that every pass has run and did the same work. The first pick of each pass is the check. */
static int check_passes(const db_counter_set *s) {
  const struct pick *first = NULL;
  for (unsigned pass = 0, i = 0; pass < s->passes; pass++) {
    if (!has_run(s, pass))
      return db_fail(-ENODATA, "%s: pass %u of %u of a set of counters has not run, or its events could not be counted",
                     s->dev->name, pass, s->passes);
    while (s->picks[i].pass != pass) i++;
    if (!first) first = &s->picks[i];
    uint64_t a = sum_of(first), b = sum_of(&s->picks[i]);
    if (s->passes > 1 && a != b)
      return db_fail(-ESTALE,
                     "%s: the passes of a set of counters did different work: %s is %llu in pass 0, %llu in "
                     "pass %u",
                     s->dev->name, first->pick.counter->info.name, (unsigned long long)a, (unsigned long long)b, pass);
  }
  return 0;
}

int db_counter_set_read(const db_counter_set *s, unsigned i, uint64_t *values, unsigned cap, uint64_t *sum) {
  if (!s) return db_null("set of counters");
  if (i >= s->n) return db_fail(-EINVAL, "%s: counter %u of a set of %u", s->dev->name, i, s->n);
  int err = check_passes(s);
  if (err) return err;
  const struct pick *p = &s->picks[s->pick_of[i]];
  for (unsigned k = 0; values && k < cap && k < p->pick.counter->info.instances; k++) values[k] = p->values[k];
  if (sum) *sum = sum_of(p);
  return 0;
}

bool hcq_counters_read_pass(const db_counter_set *s, unsigned i, unsigned pass, uint64_t *sum) {
  const struct pick *p = &s->picks[s->pick_of[i]];
  if (p->pass != pass || !has_run(s, pass)) return false;
  *sum = sum_of(p);
  return true;
}

uint64_t hcq_counters_check(const db_counter_set *s, unsigned pass) {
  for (unsigned i = 0; s->passes > 1 && i < s->npicks; i++)
    if (s->picks[i].pass == pass) return sum_of(&s->picks[i]);
  return 0;
}

const struct db_counter *hcq_counters_info(const db_counter_set *s, unsigned i) {
  return i < s->n ? &s->picks[s->pick_of[i]].pick.counter->info : NULL;
}
