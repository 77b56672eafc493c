/* The process-wide runtime: the graph, the compiler, device slots with their recorders and loaded programs, and memory
 * by BUFFER id.
 *
 * A slot is the graph's name for a device. It keeps the device open while values or memory are on it; the default
 * device stays open until db_shutdown. Freed memory goes to a list of its slot and is reused for requests of the same
 * size, because allocating from the kernel driver costs far more than a launch. */
#include "beam.h"
#include "custom.h"
#include "exchange.h"
#include "launch.h"
#include "report.h"
#include "value.h"
#include "../../compiler/ptxas.h"
#include "../../hcq/object.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Upper bound of the freed memory that is kept per slot. */
#define SPARE_BYTES ((size_t)256 << 20)

struct spare {
  struct spare *next;
  db_buffer *buffer;
  size_t bytes;
  bool pinned;
};
struct slot {
  db_device *device;
  const struct target *target;
  struct schedule_machine machine;
  uint32_t refs;
  bool is_default;                 /* opened by this file, not by the caller */
  db_queue *queue[2][SLOT_QUEUES]; /* by kind */
  uint64_t submitted;
  struct {
    const struct kernel *kernel;
    db_program *program;
  } *programs; /* hash table with open addressing, keyed by kernel */
  size_t nprograms, capacity;
  struct custom_program { /* a program that the user loaded */
    struct custom_program *next;
    db_program *program;
    int64_t number;
  } *customs;
  struct spare *spares; /* most recently freed first */
  size_t spare_bytes;
  struct slot_stage *stage; /* allocated by the first copy that needs it */
};
struct slot_group {
  struct shard_group group;
  db_device *handle;
  uint32_t refs;
  uint8_t slots[DB_GROUP_MAX];
};
struct runtime rt = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- graph and compiler ---- */

static int make_dir(const char *path) {
  if (mkdir(path, 0777) && errno != EEXIST) return -errno;
  return 0;
}

/* Why compiled kernels are not kept on disk; "" if they are, or are not supposed to be. */
static char no_disk[512];

static const char *cannot_keep(const char *path, int err) {
  snprintf(no_disk, sizeof no_disk, "%.400s: %s", path, strerror(err));
  return NULL;
}

const char *cache_directory(char *buf, size_t cap) {
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  bool own = xdg && *xdg == '/';
  *no_disk = 0;
  if (!own && (!home || *home != '/')) return cannot_keep("HOME", ENOENT);
  int n = snprintf(buf, cap, own ? "%s" : "%s/.cache", own ? xdg : home);
  if (n < 0 || (size_t)n + sizeof "/doorbell" > cap) return cannot_keep(own ? xdg : home, ENAMETOOLONG);
  int err = make_dir(buf);
  if (err) return cannot_keep(buf, -err);
  strcpy(buf + n, "/doorbell");
  if ((err = make_dir(buf))) return cannot_keep(buf, -err);
  return access(buf, W_OK) ? cannot_keep(buf, errno) : buf;
}

const char *runtime_no_disk(void) { return *no_disk ? no_disk : NULL; }

static char cache_dir[4096];
const char *runtime_cache_dir(void) { return *cache_dir ? cache_dir : NULL; }

static void print_no_disk(const struct env *env) {
  if (env->debug) fprintf(stderr, "--- every process compiles its kernels again: %s\n", no_disk);
}

void runtime_check_disk(const struct env *env) {
  const char *why = compiler_no_disk(rt.compiler);
  if (!why || !strcmp(why, no_disk)) return;
  strcpy(no_disk, why);
  print_no_disk(env);
}

/* A child of fork opens a default device of its own. It keeps the parent's tensors, but cannot compute with them. */
static void before_fork(void) { pthread_mutex_lock(&rt.lock); }
static void after_fork(void) { pthread_mutex_unlock(&rt.lock); }
static void in_child(void) {
  for (unsigned i = 0; i < SLOTS; i++)
    if (rt.slots[i]) rt.slots[i]->is_default = false;
  pthread_mutex_unlock(&rt.lock);
}

/* The level of compiler_options.debug at which kernels contain all texts. */
enum { ALL_TEXTS = 7 };

int runtime_init(void) {
  static bool watches;
  if (!watches) watches = !pthread_atfork(before_fork, after_fork, in_child);
  if (rt.graph && rt.compiler && rt.binder) return 0;
  const struct env *env;
  int err = env_get(&env);
  if (err) return err;
  if (!rt.graph) {
    rt.graph = graph_new();
    rt.graphs++;
  }
  if (!rt.binder) rt.binder = binder_new();
  if (!rt.graph || !rt.binder) return db_fail(-ENOMEM, "out of memory for the graph");
  if (rt.compiler) return 0;
  char *ptxas = ptxas_find(getenv("PTXAS"), getenv("PATH"));
  struct compiler_options o = {.noopt = env->noopt,
                               .spec = env->spec,
                               .tf32 = env->tf32,
                               .debug = env->code ? ALL_TEXTS : env->debug,
                               .rewrites = env->rewrites,
                               .plan = env->plan,
                               .plan_marks = env->plan_marks,
                               .cache_dir = env->cache ? cache_directory(cache_dir, sizeof cache_dir) : NULL,
                               .ptxas = ptxas};
  if (!o.cache_dir) *cache_dir = 0;
  rt.compiler = compiler_new(&o);
  free(ptxas);
  if (*no_disk) print_no_disk(env);
  return rt.compiler ? 0 : db_fail(-ENOMEM, "the compiler could not be started");
}

/* ---- slots ---- */

static void spares_free(struct slot *s) {
  for (struct spare *p = s->spares, *next; p; p = next) {
    next = p->next;
    db_buffer_release(p->buffer);
    object_free(p, sizeof *p);
  }
  s->spares = NULL;
  s->spare_bytes = 0;
}

static void slot_close(unsigned index) {
  struct slot *s = rt.slots[index];
  executables_drop(UINT64_C(1) << index);
  exchange_slot_closed(index);
  rt.slots[index] = NULL;
  for (unsigned i = 0; i < SLOTS; i++) /* closing waits for everything its queues do */
    if (rt.slots[i] && rt.slots[i]->stage) rt.slots[i]->stage->read[0][index] = rt.slots[i]->stage->read[1][index] = 0;
  if (s->stage) db_buffer_release(s->stage->buffer);
  free(s->stage);
  spares_free(s);
  for (size_t i = 0; i < s->capacity; i++) db_program_release(s->programs[i].program);
  free(s->programs);
  for (struct custom_program *p = s->customs, *next; p; p = next) {
    next = p->next;
    db_program_release(p->program);
    free(p);
  }
  for (unsigned i = 0; i < 2 * SLOT_QUEUES; i++) db_queue_release(s->queue[i / SLOT_QUEUES][i % SLOT_QUEUES]);
  db_close(s->device);
  free(s);
}

static int slot_add(db_device *dev, bool is_default) {
  unsigned i = 0;
  while (i < SLOTS && rt.slots[i]) i++;
  if (i == SLOTS) return db_fail(-EMFILE, "tensors use more than %d devices", SLOTS);
  const struct env *env;
  int err = env_get(&env);
  if (err) return err;
  const struct target *target = target_find(db_device_arch(dev));
  if (!target)
    return db_fail(-ENOTSUP, "not supported: tensors on %s: the compiler has no target for %s", db_device_name(dev),
                   db_device_arch(dev));
  struct slot *s = calloc(1, sizeof *s);
  if (!s) return db_fail(-ENOMEM, "out of memory for a device slot");
  s->device = dev;
  s->target = target;
  s->machine = machine_of_target(target, env->any_order, env->tf32);
  s->is_default = is_default;
  rt.slots[i] = s;
  return (int)i;
}

static int group_of(db_device *group) {
  int free_place = NO_SLOT;
  struct slot_group g = {.group.n = db_group_size(group)};
  unsigned held = 0;
  for (; held < g.group.n; held++) {
    int slot = slot_of(db_group_device(group, held));
    if (slot < 0) break;
    g.slots[held] = (uint8_t)slot;
  }
  int at = held == g.group.n ? NO_SLOT : -ENODEV;
  for (int i = SLOT_NUMBERS - SLOTS; i-- > 0 && held == g.group.n;) {
    const struct slot_group *p = rt.groups[i];
    if (!p)
      free_place = i;
    else if (p->group.n == g.group.n && !memcmp(p->slots, g.slots, g.group.n))
      at = i;
  }
  if (at == NO_SLOT) {
    struct slot_group *p = free_place < 0 ? NULL : malloc(sizeof *p);
    if (!p)
      at = free_place < 0 ? db_fail(-EMFILE, "tensors use more than %d groups of devices", SLOT_NUMBERS - SLOTS)
                          : db_fail(-ENOMEM, "out of memory for a group of devices");
    else {
      *p = g;
      p->group.device = p->slots;
      p->handle = db_device_retain(group);
      for (unsigned i = 0; i < held; i++) slot_retain(p->slots[i]);
      rt.groups[at = free_place] = p;
    }
  }
  while (held) slot_release(g.slots[--held]);
  if (at < 0) return at;
  slot_retain((unsigned)at + SLOTS);
  return at + SLOTS;
}

const struct shard_group *slot_group(unsigned slot) {
  return slot >= SLOTS && slot < SLOT_NUMBERS && rt.groups[slot - SLOTS] ? &rt.groups[slot - SLOTS]->group : NULL;
}

int slot_of_devices(db_device *const *devices, unsigned n) {
  db_device *group = db_group(devices, n);
  if (!group) return db_fail(-EINVAL, "%s", db_error());
  int slot = slot_of(group);
  db_close(group);
  return slot;
}

int slot_of(db_device *dev) {
  int index = NO_SLOT;
  if (dev && db_group_size(dev)) return group_of(dev);
  for (int i = 0; i < SLOTS && index < 0; i++)
    if (rt.slots[i] && (dev ? rt.slots[i]->device == dev : rt.slots[i]->is_default)) index = i;
  if (index < 0) {
    db_device *held = dev ? db_device_retain(dev) : db_open(NULL);
    if (!held) return db_fail(-ENODEV, "%s", db_error());
    if (!dev) /* the default device may be open already under its name */
      for (int i = 0; i < SLOTS && index < 0; i++)
        if (rt.slots[i] && rt.slots[i]->device == held) index = i;
    if (index >= 0) {
      rt.slots[index]->is_default = true;
      db_close(held);
    } else {
      index = slot_add(held, !dev);
      if (index < 0) {
        db_close(held);
        return index;
      }
    }
  }
  slot_retain((unsigned)index);
  return index;
}

db_device *slot_device(unsigned slot) {
  return slot < SLOTS ? rt.slots[slot]->device : rt.groups[slot - SLOTS]->handle;
}
const struct target *slot_target(unsigned slot) { return rt.slots[slot]->target; }
const struct schedule_machine *slot_machine(unsigned slot) { return rt.slots[slot] ? &rt.slots[slot]->machine : NULL; }
void slot_retain(unsigned slot) { ++*(slot < SLOTS ? &rt.slots[slot]->refs : &rt.groups[slot - SLOTS]->refs); }
static void group_release(unsigned index) {
  struct slot_group *p = rt.groups[index];
  if (--p->refs) return;
  rt.groups[index] = NULL;
  db_close(p->handle);
  for (unsigned i = 0; i < p->group.n; i++) slot_release(p->slots[i]);
  free(p);
}
void slot_release(unsigned slot) {
  if (slot >= SLOTS) {
    group_release(slot - SLOTS);
    return;
  }
  if (--rt.slots[slot]->refs == 0 && !rt.slots[slot]->is_default) slot_close(slot);
}

uint64_t *slot_submitted(unsigned slot) { return &rt.slots[slot]->submitted; }

/* The length of a device name without ":index". */
static size_t machine_length(const char *name) {
  size_t n = strlen(name), k = n;
  while (k && name[k - 1] >= '0' && name[k - 1] <= '9') k--;
  return k && k < n && name[k - 1] == ':' ? k - 1 : n;
}
static bool is_host(const struct slot *s) {
  const char *name = db_device_name(s->device);
  return machine_length(name) == 3 && !memcmp(name, "CPU", 3);
}
bool slots_reach(unsigned a, unsigned b) { return db_reaches(rt.slots[a]->device, rt.slots[b]->device); }

struct slot_stage *slot_stage(unsigned slot) {
  struct slot *s = rt.slots[slot];
  if (s->stage) return s->stage;
  struct slot_stage *stage = calloc(1, sizeof *stage);
  if (!stage) return db_fail_null(-ENOMEM, "out of memory for a copy");
  stage->buffer = db_alloc(s->device, STAGE_BYTES, DB_BUFFER_HOST);
  if (stage->buffer) return s->stage = stage;
  free(stage);
  return NULL;
}

db_queue *slot_queue_at(unsigned slot, enum db_queue_kind kind, unsigned index) {
  struct slot *s = rt.slots[slot];
  if (!s->queue[kind][index]) s->queue[kind][index] = hcq_queue_unprofiled(s->device, kind, index);
  return s->queue[kind][index];
}

db_queue *slot_queue(unsigned slot, enum db_queue_kind kind) { return slot_queue_at(slot, kind, 0); }

unsigned slot_queues(unsigned slot, enum db_queue_kind kind) {
  unsigned n = db_device_queues(rt.slots[slot]->device, kind);
  return n < SLOT_QUEUES ? n : SLOT_QUEUES;
}

/* ---- programs ---- */

static size_t program_at(const struct slot *s, const struct kernel *k) {
  size_t at = ((uintptr_t)k >> 4) * 0x9e3779b97f4a7c15 >> 20 & (s->capacity - 1);
  while (s->programs[at].kernel && s->programs[at].kernel != k) at = (at + 1) & (s->capacity - 1);
  return at;
}

static bool programs_grow(struct slot *s) {
  struct slot old = *s;
  s->capacity = old.capacity ? 2 * old.capacity : 64;
  s->programs = calloc(s->capacity, sizeof *s->programs);
  if (!s->programs) {
    *s = old;
    return false;
  }
  for (size_t i = 0; i < old.capacity; i++)
    if (old.programs[i].kernel) s->programs[program_at(s, old.programs[i].kernel)] = old.programs[i];
  free(old.programs);
  return true;
}

db_program *slot_load(unsigned slot, const struct kernel *k) {
  const struct slot *s = rt.slots[slot];
  struct db_param params[MAX_KERNEL_ARGS];
  unsigned n = 0;
  if (k->nparams > sizeof params / sizeof *params) {
    return db_fail_null(-E2BIG, "kernel %s has %u arguments, more than %d", k->name, k->nparams, MAX_KERNEL_ARGS);
  }
  for (unsigned i = 0; i < k->nparams; i++) {
    const struct kernel_param *p = &k->params[i];
    /* Images for GPUs describe all parameters but sizes of local memory that were added when the kernel was loaded. */
    if (!is_host(s) && (!p->is_local || p->size)) continue;
    params[n] = (struct db_param){.offset = p->offset,
                                  .size = p->size,
                                  .kind = p->is_local    ? DB_PARAM_LOCAL
                                          : p->is_buffer ? DB_PARAM_BUFFER
                                                         : DB_PARAM_VALUE};
    snprintf(params[n++].name, sizeof params->name, "%s", p->name ? p->name : "");
  }
  return hcq_program_load(s->device, k->image, k->image_size, k->entry ? k->entry : k->name, n ? params : NULL, n);
}

db_program *slot_program(unsigned slot, const struct kernel *k) {
  struct slot *s = rt.slots[slot];
  if (s->nprograms * 2 >= s->capacity && !programs_grow(s))
    return db_fail_null(-ENOMEM, "out of memory for the table of programs");
  size_t at = program_at(s, k);
  if (!s->programs[at].kernel) {
    db_program *p = slot_load(slot, k);
    if (!p) return NULL;
    s->programs[at].kernel = k;
    s->programs[at].program = p;
    s->nprograms++;
  }
  return s->programs[at].program;
}

int64_t slot_custom_number(unsigned slot, db_program *program) {
  static int64_t numbers;
  struct slot *s = rt.slots[slot];
  for (struct custom_program *p = s->customs; p; p = p->next)
    if (p->program == program) return p->number;
  struct custom_program *p = malloc(sizeof *p);
  if (!p) return 0;
  *p = (struct custom_program){s->customs, db_program_retain(program), ++numbers};
  s->customs = p;
  return p->number;
}

db_program *slot_custom_program(unsigned slot, int64_t number) {
  struct custom_program *p = rt.slots[slot]->customs;
  while (p && p->number != number) p = p->next;
  return p ? p->program : NULL;
}

/* ---- memory ---- */

static size_t round_size(size_t bytes) { /* rounds up to one of few sizes, so that freed memory can be reused */
  size_t unit = 256;
  while (bytes / unit >= 16) unit *= 2;
  return (bytes + unit - 1) / unit * unit;
}

static db_buffer *buffer_get(struct slot *s, size_t bytes, bool pinned) {
  unsigned flags = pinned ? DB_BUFFER_HOST : 0;
  for (struct spare **at = &s->spares; *at; at = &(*at)->next)
    if ((*at)->bytes == bytes && (*at)->pinned == pinned) {
      struct spare *p = *at;
      db_buffer *buffer = p->buffer;
      *at = p->next;
      s->spare_bytes -= bytes;
      object_free(p, sizeof *p);
      return buffer;
    }
  db_buffer *buffer = db_alloc(s->device, bytes, flags);
  if (buffer || !s->spares) return buffer;
  spares_free(s);
  return db_alloc(s->device, bytes, flags);
}

static void buffer_put(struct slot *s, db_buffer *buffer, size_t bytes, bool pinned) {
  struct spare *p = bytes <= SPARE_BYTES - s->spare_bytes ? object_new(sizeof *p) : NULL;
  if (!p) {
    db_buffer_release(buffer);
    return;
  }
  *p = (struct spare){s->spares, buffer, bytes, pinned};
  s->spares = p;
  s->spare_bytes += bytes;
}

static struct storage **bucket_of(int64_t id) { return &rt.buckets[(size_t)id & (rt.nbuckets - 1)]; }

static bool buckets_grow(void) {
  size_t old = rt.nbuckets;
  struct storage **from = rt.buckets, **to = calloc(old ? 2 * old : 256, sizeof *to);
  if (!to) return false;
  rt.buckets = to;
  rt.nbuckets = old ? 2 * old : 256;
  for (size_t i = 0; i < old; i++)
    for (struct storage *s = from[i], *next; s; s = next) {
      next = s->next;
      s->next = *bucket_of(s->id);
      *bucket_of(s->id) = s;
    }
  free(from);
  return true;
}

/* Makes a storage without memory. */
static struct storage *blank_storage(unsigned slot, int64_t id, size_t size) {
  if (rt.nstorages >= rt.nbuckets && !buckets_grow()) return db_fail_null(-ENOMEM, "out of memory");
  struct storage *s = object_new(sizeof *s);
  if (!s) return db_fail_null(-ENOMEM, "out of memory");
  s->size = size;
  s->id = id;
  s->refs = 1;
  s->slot = (uint8_t)slot;
  return s;
}

static struct storage *add_storage(struct storage *s) {
  slot_retain(s->slot);
  s->next = *bucket_of(s->id);
  *bucket_of(s->id) = s;
  rt.nstorages++;
  return s;
}

static struct storage *make_storage(unsigned slot, int64_t id, size_t bytes, bool pinned) {
  struct storage *s = blank_storage(slot, id, bytes);
  if (!s) return NULL;
  s->bytes = round_size(bytes ? bytes : 1);
  s->pinned = pinned;
  s->buffer = buffer_get(rt.slots[slot], s->bytes, pinned);
  if (s->buffer) return add_storage(s);
  object_free(s, sizeof *s);
  return NULL;
}

struct storage *storage_over(unsigned slot, int64_t id, db_buffer *buffer, size_t bytes, void (*give_back)(void *ctx),
                             void *ctx) {
  struct storage *s = blank_storage(slot, id, bytes);
  if (!s) return NULL;
  s->bytes = bytes;
  s->buffer = db_buffer_retain(buffer);
  s->borrowed = true;
  s->give_back = give_back, s->ctx = ctx;
  return add_storage(s);
}

struct storage *storage_new(unsigned slot, int64_t id, size_t bytes) { return make_storage(slot, id, bytes, false); }
struct storage *storage_new_pinned(unsigned slot, int64_t id, size_t bytes) {
  return make_storage(slot, id, bytes, true);
}

struct storage *storage_find(int64_t id) {
  if (!rt.nbuckets) return NULL;
  struct storage *s = *bucket_of(id);
  while (s && s->id != id) s = s->next;
  return s;
}

static void unlink_storage(struct storage *s) {
  struct storage **at = bucket_of(s->id);
  while (*at != s) at = &(*at)->next;
  *at = s->next;
}

void storage_rename(struct storage *s, int64_t id) {
  unlink_storage(s);
  s->id = id;
  s->next = *bucket_of(id);
  *bucket_of(id) = s;
}

void storage_written(struct storage *s) { s->written = rt.slots[s->slot]->submitted; }

int storage_check(const struct storage *s) {
  db_queue *q = s->written ? slot_queue(s->slot, DB_QUEUE_COMPUTE) : NULL;
  return q ? db_check(db_queue_timeline(q), s->written) : 0;
}

void storage_release(struct storage *s) {
  if (!s || --s->refs) return;
  unlink_storage(s);
  rt.nstorages--;
  if (s->give_back) {
    s->next = rt.unused;
    rt.unused = s;
    return;
  }
  if (s->borrowed)
    db_buffer_release(s->buffer);
  else
    buffer_put(rt.slots[s->slot], s->buffer, s->bytes, s->pinned);
  slot_release(s->slot);
  object_free(s, sizeof *s);
}

void storages_give_back(void) {
  for (;;) {
    pthread_mutex_lock(&rt.lock);
    struct storage *s = rt.unused;
    if (s) rt.unused = s->next;
    pthread_mutex_unlock(&rt.lock);
    if (!s) return;
    db_device *dev = slot_device(s->slot);
    bool idle = !db_device_synchronize(dev, db_device_timeout(dev)); /* kernels may still use the memory */
    db_buffer_release(s->buffer);
    if (idle) s->give_back(s->ctx);
    pthread_mutex_lock(&rt.lock);
    slot_release(s->slot);
    object_free(s, sizeof *s);
    pthread_mutex_unlock(&rt.lock);
  }
}

int db_shutdown(void) {
  storages_give_back();
  pthread_mutex_lock(&rt.lock);
  int err = 0;
  if (rt.nvalues)
    err = db_fail(-EBUSY, "shutdown: %zu tensors have not been released", rt.nvalues);
  else {
    reports_settle(true);
    executables_drop(UINT64_MAX);
    for (unsigned i = 0; i < SLOTS; i++)
      if (rt.slots[i]) slot_close(i);
    free(rt.sizes);
    free(rt.size_slot);
    rt.sizes = NULL;
    rt.size_slot = NULL;
    rt.nsizes = rt.size_slots = 0;
    objects_free();
    binder_free(rt.binder);
    rt.binder = NULL;
    beam_shutdown();
    compiler_free(rt.compiler);
    graph_free(rt.graph);
    free(rt.buckets);
    rt.compiler = NULL;
    rt.graph = NULL;
    rt.buckets = NULL;
    rt.nbuckets = 0;
    rt.collect_at = 0;
  }
  pthread_mutex_unlock(&rt.lock);
  return err;
}
