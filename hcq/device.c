/* The registry of open devices, device names, opening and closing, and fork. */
#define _GNU_SOURCE
#include "backend.h"
#include "profile.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *db_version(void) { return DB_VERSION; }

#define TIMEOUT_S     120
#define EMULATED_GPUS 2 /* each reserves as much address space as it has memory; valgrind provides 128 GiB */
#define KNOWN_NAMES   "CPU, AMD, AMD:1, EMU+AMD:gfx1100, NV, NV:1, EMU+NV:sm_90"
#define PLAY          "PLAY:" /* followed by the file name of a trace */

struct hcq_registry hcq_registry = {.opening = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
                                    .lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

static const struct hcq_backend *const backends[] = {&hcq_cpu_backend, &hcq_amd_backend, &hcq_nv_backend};

/* ---- names ---- */

struct device_name {
  const struct hcq_backend *ops;
  char machine[144]; /* canonical, without the index */
  char gpus[128];    /* GPUs of an emulated machine */
  unsigned index;
  bool emulated;
  const char *trace; /* file name of the trace to play, or NULL */
};

static int parse_index(const char *name, const char *digits, unsigned *index) {
  char *end;
  unsigned long v = strtoul(digits, &end, 10);
  if (*digits < '0' || *digits > '9' || *end || v > 63)
    return db_fail(-EINVAL, "device '%s': '%s' is not a device index (0 to 63)", name, digits);
  *index = (unsigned)v;
  return 0;
}

static const struct hcq_backend *find_vendor(const char *vendor) {
  for (unsigned i = 0; i < sizeof backends / sizeof *backends; i++)
    if (!strcmp(vendor, backends[i]->vendor)) return backends[i];
  return NULL;
}

static int parse_name(const char *name, struct device_name *out) {
  *out = (struct device_name){0};
  char text[144];
  if (strlen(name) >= sizeof text)
    return db_fail(-EINVAL, "device '%.64s...': the name is too long; known: " KNOWN_NAMES, name);
  if (!strncmp(name, PLAY, strlen(PLAY))) { /* the file contains the rest */
    out->trace = name + strlen(PLAY);
    strcpy(out->machine, name);
    return 0;
  }
  strcpy(text, name);
  char *part = text;
  if (!strncmp(part, "EMU+", 4)) {
    out->emulated = true;
    part += 4;
  }
  char *rest = strchr(part, ':');
  if (rest) *rest++ = 0;
  out->ops = find_vendor(part);
  if (!out->ops || (out->emulated && !out->ops->isa))
    return db_fail(-ENODEV, "unknown device '%s'; known: " KNOWN_NAMES, name);
  if (!out->emulated) {
    snprintf(out->machine, sizeof out->machine, "%s", out->ops->vendor);
    return rest ? parse_index(name, rest, &out->index) : 0;
  }
  if (!rest || !*rest)
    return db_fail(-EINVAL, "device '%s': an emulated device needs its ISA, as in EMU+%s:%s", name, out->ops->vendor,
                   out->ops->isa);
  char *digits = strchr(rest, ':');
  if (digits) *digits++ = 0;
  if (strlen(rest) >= sizeof out->gpus / (strchr(rest, ',') ? 1 : EMULATED_GPUS))
    return db_fail(-EINVAL, "device '%s': the list of GPUs is too long", name);
  strcpy(out->gpus, rest);
  /* A single ISA stands for EMULATED_GPUS such GPUs, so index :1 exists without a list. */
  for (int i = 1; !strchr(rest, ',') && i < EMULATED_GPUS; i++) strcat(strcat(out->gpus, ","), rest);
  snprintf(out->machine, sizeof out->machine, "EMU+%s:%s", out->ops->vendor, rest);
  return digits ? parse_index(name, digits, &out->index) : 0;
}

/* ---- machines; called with hcq_registry.opening held ---- */

static void machine_release(struct hcq_machine *m) {
  if (--m->refs) return;
  if (m->ops->machine_close && !m->ops->machine_close(m)) return;
  for (struct hcq_machine **p = &hcq_registry.machines; *p; p = &(*p)->next)
    if (*p == m) {
      *p = m->next;
      break;
    }
  m->os->release(m->os);
  free(m);
}

/* Sets the machine's table of system calls and its backend. */
static int machine_os(struct hcq_machine *m, const struct device_name *n) {
  char why[512] = "";
  struct os_trace_header header = {.index = n->index};
  int err = 0;
  m->ops = n->ops;
  m->os = os_real();
  if (n->trace)
    err = os_play(n->trace, &header, &m->os, why, sizeof why);
  else if (n->emulated)
    err = os_emulated(n->ops->vendor, n->gpus, &m->os, why, sizeof why);
  if (err) return db_fail(err, "%s: %s", n->machine, why[0] ? why : strerror(-err));
  if (!n->trace) return 0;
  m->ops = find_vendor(header.vendor);
  m->played_index = header.index;
  if (m->ops && !m->ops->is_host) return 0;
  m->os->release(m->os);
  return db_fail(-ENOTSUP, "%s: not supported: a trace of vendor '%s'", n->machine, header.vendor);
}

/* With HCQ_RECORD, wraps the table of the first machine whose device is opened in a recorder. */
static int machine_record(struct hcq_machine *m, const struct device_name *n) {
  static const char *recorded; /* guarded by hcq_registry.opening */
  const char *file = getenv("HCQ_RECORD");
  if (!file || !*file || m->ops->is_host || n->trace) return 0;
  if (recorded)
    return db_fail(-ENOTSUP, "%s: not supported: HCQ_RECORD with two machines; the other one is %s", n->machine,
                   recorded);
  char why[512];
  struct os_trace_header header = {.index = n->index};
  snprintf(header.vendor, sizeof header.vendor, "%s", m->ops->vendor);
  int err = os_record(m->os, file, &header, &m->os, why, sizeof why);
  if (err) return db_fail(err, "%s: HCQ_RECORD: %s", n->machine, why);
  recorded = strdup(m->name);
  return 0;
}

static struct hcq_machine *machine_get(const struct device_name *n, bool record) {
  for (struct hcq_machine *m = hcq_registry.machines; m; m = m->next)
    if (!strcmp(m->name, n->machine)) {
      m->refs++;
      return m;
    }
  struct hcq_machine *m = calloc(1, sizeof *m);
  if (!m) return db_fail_null(-ENOMEM, "%s: out of host memory", n->machine);
  m->refs = 1;
  m->emulated = n->emulated;
  pthread_mutex_init(&m->lock, NULL);
  strcpy(m->name, n->machine);
  if (machine_os(m, n)) {
    free(m);
    return NULL;
  }
  if (record && machine_record(m, n)) {
    m->os->release(m->os);
    free(m);
    return NULL;
  }
  m->next = hcq_registry.machines;
  hcq_registry.machines = m;
  return m;
}

struct hcq_machine *hcq_machine_open(const char *name) {
  struct device_name n;
  if (parse_name(name, &n)) return NULL;
  pthread_mutex_lock(&hcq_registry.opening);
  struct hcq_machine *m = machine_get(&n, false);
  pthread_mutex_unlock(&hcq_registry.opening);
  return m;
}

void hcq_machine_release(struct hcq_machine *m) {
  pthread_mutex_lock(&hcq_registry.opening);
  machine_release(m);
  pthread_mutex_unlock(&hcq_registry.opening);
}

void hcq_machine_each(struct hcq_machine *m, void (*each)(db_device *dev, void *ctx), void *ctx) {
  pthread_mutex_lock(&hcq_registry.lock);
  for (db_device *dev = hcq_registry.devices; dev; dev = dev->next)
    if (dev->machine == m) each(dev, ctx);
  pthread_mutex_unlock(&hcq_registry.lock);
}

/* ---- open and close ---- */

static db_device *unstoppable; /* linked by next: closed devices whose hardware may still run */

static void device_destroy(struct hcq_object *object) {
  db_device *dev = (db_device *)object, **p = &hcq_registry.devices;
  pthread_mutex_lock(&hcq_registry.opening);
  pthread_mutex_lock(&hcq_registry.lock);
  while (*p && *p != dev) p = &(*p)->next;
  /* Another thread may have opened the device again meanwhile, and perhaps closed and freed it. */
  bool last = *p && !atomic_load(&object->refs);
  if (last) *p = dev->next;
  pthread_mutex_unlock(&hcq_registry.lock);
  if (!last) goto out;
  /* If something still runs, it may use any of the device's memory, so all of it is kept. */
  if (!dev->ops->halt(dev)) {
    dev->next = unstoppable;
    unstoppable = dev;
    goto out;
  }
  hcq_record_closing(dev);
  db_queue_release(dev->copier);
  for (int i = 0; i < HCQ_RINGS; i++) hcq_ring_finish(dev->rings[i]);
  if (dev->staging) hcq_release(&dev->staging->object);
  hcq_imports_drop(dev);
  hcq_signals_free(dev);
  if (atomic_load(&dev->explained)) hcq_clocks_drop(dev); /* kernel_counters.c holds them */
  struct hcq_machine *m = dev->machine;
  dev->ops->close(dev);
  machine_release(m);
out:
  pthread_mutex_unlock(&hcq_registry.opening);
}

void hcq_device_init(db_device *dev, struct hcq_machine *machine, unsigned index, const char *name) {
  hcq_object_init(&dev->object, device_destroy);
  dev->ops = machine->ops;
  dev->machine = machine;
  dev->os = machine->os;
  dev->index = index;
  dev->nqueues[DB_QUEUE_COMPUTE] = dev->nqueues[DB_QUEUE_COPY] = 1;
  pthread_mutex_init(&dev->growing, NULL);
  pthread_mutex_init(&dev->transfer, NULL);
  pthread_mutex_init(&dev->lock, NULL);
  snprintf(dev->name, sizeof dev->name, "%s", name);
  dev->timeout_ns = hcq_registry.timeout_ns;
  hcq_profile_open_early();
}

static int read_timeout(uint64_t *ns) {
  const char *text = getenv("DB_TIMEOUT");
  char *end;
  double seconds = text && *text ? strtod(text, &end) : TIMEOUT_S;
  if (text && *text && (*end || !(seconds > 0) || seconds > 1e9))
    return db_fail(-EINVAL, "DB_TIMEOUT is '%s': it must be a number of seconds above 0", text);
  *ns = (uint64_t)(seconds * 1e9);
  return 0;
}

/* Called with hcq_registry.opening held, so the list of devices does not change. */
static db_device *open_locked(const char *name) {
  struct device_name n;
  if (parse_name(name, &n)) return NULL;
  char canonical[sizeof hcq_registry.devices->name];
  if (n.index)
    snprintf(canonical, sizeof canonical, "%s:%u", n.machine, n.index);
  else
    snprintf(canonical, sizeof canonical, "%s", n.machine);
  for (db_device *dev = hcq_registry.devices; dev; dev = dev->next)
    if (!strcmp(dev->name, canonical)) {
      if (hcq_device_check(dev)) return NULL;
      hcq_retain(&dev->object);
      dev->handles++;
      return dev;
    }
  struct hcq_machine *m = machine_get(&n, true);
  if (!m) return NULL;
  db_device *dev = NULL;
  if (m->ops->open(m, n.trace ? m->played_index : n.index, canonical, &dev)) {
    machine_release(m);
    return NULL;
  }
  dev->handles = 1;
  pthread_mutex_lock(&hcq_registry.lock);
  dev->next = hcq_registry.devices;
  hcq_registry.devices = dev;
  pthread_mutex_unlock(&hcq_registry.lock);
  hcq_record_opened(dev);
  return dev;
}

db_device *db_open(const char *name) {
  if (!name) name = getenv("DEV");
  if (!name || !*name) name = "CPU";
  pthread_mutex_lock(&hcq_registry.opening);
  db_device *dev = read_timeout(&hcq_registry.timeout_ns) ? NULL : open_locked(name);
  pthread_mutex_unlock(&hcq_registry.opening);
  return dev;
}

db_device *db_device_retain(db_device *dev) {
  if (!dev) return NULL;
  dev->handles++;
  hcq_retain(&dev->object);
  return dev;
}

unsigned hcq_device_pause(db_device *dev) {
  unsigned paused = 0;
  pthread_mutex_lock(&dev->growing);
  for (unsigned i = 0; i < HCQ_RINGS; i++)
    if (dev->rings[i]) {
      pthread_mutex_lock(&dev->rings[i]->submitting);
      paused |= 1u << i;
    }
  return paused;
}

void hcq_device_resume(db_device *dev, unsigned paused) {
  for (unsigned i = 0; i < HCQ_RINGS; i++)
    if (paused >> i & 1) pthread_mutex_unlock(&dev->rings[i]->submitting);
  pthread_mutex_unlock(&dev->growing);
}

uint64_t db_device_timeout(const db_device *dev) {
  return !dev ? 0 : dev->nmembers ? db_device_timeout(dev->members[0]) : dev->timeout_ns;
}
void db_device_set_timeout(db_device *dev, uint64_t timeout_ns) {
  if (dev) dev->timeout_ns = timeout_ns;
  for (unsigned i = 0; dev && i < dev->nmembers; i++) db_device_set_timeout(dev->members[i], timeout_ns);
}

void db_close(db_device *dev) {
  if (!dev) return;
  if (--dev->handles == 0 && !dev->nmembers) hcq_device_drain(dev); /* a group submits no work itself */
  hcq_release(&dev->object);
}

/* ---- queues ---- */

struct hcq_ring *hcq_device_ring(db_device *dev, enum db_queue_kind kind, unsigned index) {
  if (index >= dev->nqueues[kind])
    return db_fail_null(-EINVAL, "%s: %s queue %u; there %s %u, numbered from 0", dev->name,
                        kind == DB_QUEUE_COMPUTE ? "compute" : "copy", index, dev->nqueues[kind] == 1 ? "is" : "are",
                        dev->nqueues[kind]);
  unsigned at = hcq_ring_index(kind, index);
  struct hcq_ring *ring = dev->rings[at];
  if (ring) return ring;
  unsigned paused = hcq_device_pause(dev);
  if (dev->rings[at] || !dev->ops->ring_create(dev, kind, index)) ring = dev->rings[at];
  hcq_device_resume(dev, paused);
  return ring;
}

/* ---- facts ---- */

const char *db_device_name(const db_device *dev) { return dev ? dev->name : "?"; }
const char *db_device_arch(const db_device *dev) { return dev ? dev->arch : "?"; }
const char *db_device_description(const db_device *dev) { return dev ? dev->description : "?"; }
void db_device_counters(const db_device *dev, struct db_device_counters *out) {
  if (out) *out = (struct db_device_counters){0};
  if (!dev || !out) return;
  for (int i = 0; i < HCQ_RINGS; i++) {
    const struct hcq_ring *ring = dev->rings[i];
    if (!ring) continue;
    out->packets += ring->counters.packets;
    out->doorbells += ring->counters.doorbells;
    out->kernels += ring->counters.kernels;
    out->copies += ring->counters.copies;
  }
  pthread_mutex_lock((pthread_mutex_t *)&dev->lock);
  out->bytes_allocated = dev->bytes_allocated;
  out->bytes_allocated_peak = dev->bytes_allocated_peak;
  pthread_mutex_unlock((pthread_mutex_t *)&dev->lock);
}
unsigned db_device_queues(const db_device *dev, enum db_queue_kind kind) {
  if (!dev || (kind != DB_QUEUE_COMPUTE && kind != DB_QUEUE_COPY)) return 0;
  /* Counters are of the whole device, so kernels that are counted must not overlap. */
  return kind == DB_QUEUE_COMPUTE && hcq_profile_counted() ? 1 : dev->nqueues[kind];
}
struct os *db_device_os(db_device *dev) { return dev->os; }
unsigned db_device_index(const db_device *dev) { return dev->index; }

int db_device_synchronize(db_device *dev, uint64_t timeout_ns) {
  if (!dev) return db_null("device");
  uint64_t start = hcq_now_ns();
  for (unsigned i = 0; i < dev->nmembers; i++) {
    uint64_t spent = hcq_now_ns() - start;
    int err = db_device_synchronize(dev->members[i], spent < timeout_ns ? timeout_ns - spent : 0);
    if (err) return err;
  }
  for (int i = 0; i < HCQ_RINGS; i++) {
    const struct hcq_ring *ring = dev->rings[i];
    if (!ring) continue;
    uint64_t spent = hcq_now_ns() - start;
    int err = db_wait(ring->timeline, ring->submitted, spent < timeout_ns ? timeout_ns - spent : 0);
    if (err) return err;
  }
  return 0;
}

/* ---- restarting a timeline's count ---- */

atomic_bool hcq_quiescing;
static pthread_mutex_t quiesce_lock = PTHREAD_MUTEX_INITIALIZER; /* taken before all other locks */

/* Returns all devices with a reference on each; NULL if out of memory. */
static db_device **devices_retain(unsigned *n) {
  *n = 0;
  pthread_mutex_lock(&hcq_registry.lock);
  for (db_device *dev = hcq_registry.devices; dev; dev = dev->next) ++*n;
  db_device **all = calloc(*n + 1u, sizeof *all), **out = all;
  for (db_device *dev = hcq_registry.devices; dev && all; dev = dev->next) {
    hcq_retain(&dev->object);
    *out++ = dev;
  }
  pthread_mutex_unlock(&hcq_registry.lock);
  return all ? all : db_fail_null(-ENOMEM, "out of host memory");
}

static void retire_all(void) {
  unsigned n;
  db_device **devices = devices_retain(&n);
  for (unsigned i = 0; i < n && devices; i++) {
    for (int k = 0; k < HCQ_RINGS && !devices[i]->lost; k++)
      if (devices[i]->rings[k]) hcq_ring_retire(devices[i]->rings[k]);
    hcq_release(&devices[i]->object);
  }
  free(devices);
}

void hcq_devices_retire_at_exit(void) { atexit(retire_all); }

static bool count_exhausted(const struct hcq_ring *ring) {
  return ring->submitted + 1 - hcq_ring_base(ring) > ring->count_max;
}

static void restart_count(struct hcq_ring *ring) {
  pthread_mutex_lock(&ring->submitting);
  uint64_t base = ring->submitted;
  atomic_store(&ring->base, HCQ_BASE_CHANGES);
  atomic_store_explicit(&ring->timeline->slot->value, 0, memory_order_release);
  atomic_store_explicit(&ring->base, base, memory_order_release);
  pthread_mutex_unlock(&ring->submitting);
}

/* Waits until submissions that began before hcq_quiescing was set have ended, then until the queued work has finished.
 */
static int wait_idle(db_device *dev) {
  for (int i = 0; i < HCQ_RINGS; i++)
    if (dev->rings[i]) {
      pthread_mutex_lock(&dev->rings[i]->submitting);
      pthread_mutex_unlock(&dev->rings[i]->submitting);
    }
  return dev->lost ? 0 : db_device_synchronize(dev, dev->timeout_ns);
}

int hcq_quiesce(struct hcq_ring *ring) {
  int err = 0;
  pthread_mutex_lock(&quiesce_lock);
  if (ring && count_exhausted(ring)) {
    unsigned n;
    atomic_store(&hcq_quiescing, true);
    db_device **devices = devices_retain(&n);
    if (!devices) err = -ENOMEM;
    for (unsigned i = 0; i < n && !err; i++) err = wait_idle(devices[i]);
    if (!err) restart_count(ring);
    atomic_store(&hcq_quiescing, false);
    for (unsigned i = 0; i < n && devices; i++) hcq_release(&devices[i]->object);
    free(devices);
  }
  pthread_mutex_unlock(&quiesce_lock);
  return err;
}

/* ---- fork ----
 *
 * Threads of a CPU device or of an emulated device do not exist in the child, and a GPU's rings and doorbells belong to
 * the parent. So a child does not inherit devices: they are left as they are, every call on them fails, and the child
 * opens its own. */

static db_device *inherited;                   /* linked by next */
static struct hcq_machine *inherited_machines; /* linked by next */

static void before_fork(void) {
  pthread_mutex_lock(&hcq_registry.opening);
  pthread_mutex_lock(&hcq_registry.lock);
  pthread_mutex_lock(&hcq_imports_lock);
  for (db_device *dev = hcq_registry.devices; dev; dev = dev->next) pthread_mutex_lock(&dev->lock);
  hcq_profile_before_fork();
}

static void after_fork(void) {
  hcq_profile_after_fork(false);
  for (db_device *dev = hcq_registry.devices; dev; dev = dev->next) pthread_mutex_unlock(&dev->lock);
  pthread_mutex_unlock(&hcq_imports_lock);
  pthread_mutex_unlock(&hcq_registry.lock);
  pthread_mutex_unlock(&hcq_registry.opening);
}

/* Resets the device's locks, which threads of the parent may have held, and marks it as inherited. */
static void mark_inherited(db_device *dev) {
  pthread_mutex_init(&dev->growing, NULL);
  pthread_mutex_init(&dev->transfer, NULL);
  for (int i = 0; i < HCQ_RINGS; i++) {
    struct hcq_ring *ring = dev->rings[i];
    if (!ring) continue;
    pthread_mutex_init(&ring->submitting, NULL);
    if (ring->base == HCQ_BASE_CHANGES) ring->base = ring->submitted;
  }
  snprintf(dev->lost_reason, sizeof dev->lost_reason,
           "%s was opened before fork: it belongs to the parent process; open it again", dev->name);
  dev->lost = -ENODEV;
  dev->inherited = true;
}

/* A recursive lock stores the parent's thread as its owner, so the child initializes it again. The unlocks before
 * that fail, but they keep ThreadSanitizer's view consistent: it treats this thread as the one that locked them. */
static void in_child(void) {
  hcq_profile_after_fork(true);
  pthread_mutex_unlock(&hcq_imports_lock);
  pthread_mutex_unlock(&hcq_registry.lock);
  pthread_mutex_unlock(&hcq_registry.opening);
  hcq_registry.opening = hcq_registry.lock = hcq_imports_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  quiesce_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  atomic_store(&hcq_quiescing, false);
  for (db_device *dev; (dev = hcq_registry.devices);) {
    hcq_registry.devices = dev->next;
    pthread_mutex_unlock(&dev->lock);
    mark_inherited(dev);
    dev->next = inherited;
    inherited = dev;
  }
  struct hcq_machine **last = &inherited_machines;
  while (*last) last = &(*last)->next;
  *last = hcq_registry.machines;
  hcq_registry.machines = NULL;
}

/* Registered when the library is loaded. Handlers run in reverse order before a fork, so layers above, which register
 * later, take their locks first. */
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }
