/* Channels: their groups, their rings and memory, and stopping them. */
#include "rm.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT_BYTES (64u << 20) /* address space for a channel's context buffers */
#define CONTEXT_ALIGN (2u << 20)
#define FIFO_BYTES    (64u << 10)
enum { USERD_OFFSET = NV_GPFIFO_ENTRIES * 8 };

static const char *name_of(const struct nv_ring *r) { return hcq_ring_name(&r->base); }

int nv_find_engines(struct nv_device *dev) {
  union {
    struct rm_ce_caps now;
    struct rm_ce_caps_535 before;
  } caps = {0};
  struct nv_machine *m = dev->machine;
  unsigned found = 0;
  int rc = rm_ctrl(m, dev->subdevice, RM_CTRL_CE_CAPS, &caps, m->branch.ce_caps);
  if (rc) return rm_error(dev->base.name, rc, "listing the copy engines");
  bool old = m->branch.ce_caps == sizeof caps.before;
  for (unsigned i = 0; i < (old ? 32 : 64) && found < HCQ_QUEUES; i++) {
    uint64_t present = old ? caps.before.present : caps.now.present;
    uint8_t c = old ? caps.before.caps[i][0] : caps.now.caps[i][0];
    if (!(present >> i & 1) || c & RM_CE_GRCE) continue; /* the graphics engine's copy engines share its runlist */
    dev->copy_engines[found++] = rm_engine_copy(i);
  }
  if (!found) return db_fail(-ENODEV, "%s: the GPU has no copy engine beside the graphics engine's", dev->base.name);
  dev->base.nqueues[DB_QUEUE_COPY] = found;
  dev->base.nqueues[DB_QUEUE_COMPUTE] = HCQ_QUEUES;
  return 0;
}

static int new_memory(struct nv_device *dev, struct nv_ring *r) {
  int err = nv_memory_alloc(dev, FIFO_BYTES, NV_MEMORY_FIFO, NULL, &r->fifo);
  if (!err) err = nv_memory_alloc(dev, NV_PUSHBUFFER_BYTES, NV_MEMORY_HOST, NULL, &r->push);
  if (!err) err = nv_memory_alloc(dev, 4096, NV_MEMORY_NOTIFIER, NULL, &r->notifier);
  if (!err) err = nv_memory_reserve(dev->machine, CONTEXT_BYTES, CONTEXT_ALIGN, true, &r->context);
  if (err) return err;
  uint8_t *fifo = (uint8_t *)(uintptr_t)r->fifo.va;
  memset(fifo, 0, USERD_OFFSET + sizeof(struct rm_userd));
  struct rm_userd *userd = (struct rm_userd *)(fifo + USERD_OFFSET);
  r->gpfifo = (uint64_t *)fifo;
  r->gp_put = (_Atomic uint32_t *)&userd->gp_put;
  r->notifications = (struct rm_notification *)(uintptr_t)r->notifier.va;
  memset(r->notifications, 0, RM_NOTIFIERS * sizeof *r->notifications);
  r->pushbuffer = (uint8_t *)(uintptr_t)r->push.va;
  r->pushbuffer_va = r->push.va;
  return 0;
}

/* The ring that owns the group of this ring's channel. */
static struct nv_ring *owner_of_group(struct nv_device *dev, struct nv_ring *r) {
  return r->base.kind == DB_QUEUE_COMPUTE ? &dev->rings[DB_QUEUE_COMPUTE] : r;
}

static int new_group(struct nv_device *dev, struct nv_ring *r) {
  struct nv_machine *m = dev->machine;
  const struct nv_ring *owner = owner_of_group(dev, r);
  if (owner != r) {
    r->group = owner->group, r->ctxshare = owner->ctxshare;
    return 0;
  }
  struct rm_channel_group_alloc group = {.va_space = dev->vaspace, .engine_type = r->engine};
  int rc = rm_object_new(m, dev->device, RM_CLASS_CHANNEL_GROUP, &group, sizeof group, &r->group);
  if (rc) return rm_error(dev->base.name, rc, "creating the %s channel's group", name_of(r));
  if (r->base.kind == DB_QUEUE_COPY) return 0;
  struct rm_ctxshare_alloc share = {.va_space = dev->vaspace, .flags = RM_CTXSHARE_ASYNC};
  rc = rm_object_new(m, r->group, RM_CLASS_CTXSHARE, &share, sizeof share, &r->ctxshare);
  return rc ? rm_error(dev->base.name, rc, "creating the %s channel's context", name_of(r)) : 0;
}

static int new_channel(struct nv_device *dev, struct nv_ring *r) {
  struct nv_machine *m = dev->machine;
  bool compute = r->base.kind == DB_QUEUE_COMPUTE;
  struct rm_channel_alloc channel = {
      .error_memory = r->notifier.handle,
      .gpfifo_va = r->fifo.va,
      .gpfifo_entries = NV_GPFIFO_ENTRIES,
      .ctxshare = r->ctxshare,
      .userd_memory = {r->fifo.handle},
      .userd_offset = {USERD_OFFSET},
      .engine_type = r->engine,
  };
  int rc = rm_object_new(m, r->group, dev->gpfifo_class, &channel, sizeof channel, &r->channel);
  if (rc) return rm_error(dev->base.name, rc, "creating the %s channel", name_of(r));
  struct rm_copy_alloc copy = {.version = RM_COPY_ALLOC_ENGINE, .engine_type = r->engine};
  rc = rm_object_new(m, r->channel, compute ? dev->compute_class : dev->copy_class, compute ? NULL : &copy,
                     compute ? 0 : sizeof copy, &r->object);
  if (rc) return rm_error(dev->base.name, rc, "creating the %s channel's engine object", name_of(r));
  if (compute && dev->counts && (rc = nv_counters_attach(dev, r)))
    return rm_error(dev->base.name, rc, "creating the counters of the %s channel", name_of(r));
  struct rm_work_submit_token token = {0};
  rc = rm_ctrl(m, r->channel, RM_CTRL_WORK_SUBMIT_TOKEN, &token, sizeof token);
  if (rc) return rm_error(dev->base.name, rc, "querying the %s channel's token", name_of(r));
  r->token = token.token;
  return 0;
}

static int schedule(struct nv_device *dev, struct nv_ring *r, bool on) {
  struct rm_gpfifo_schedule s = {.enable = on};
  return rm_ctrl(dev->machine, r->group, RM_CTRL_GROUP_SCHEDULE, &s, dev->machine->branch.gpfifo_schedule);
}

static int create(struct nv_device *dev, struct nv_ring *r) {
  int err = new_memory(dev, r);
  if (!err) err = new_group(dev, r);
  if (!err) err = new_channel(dev, r);
  if (err) return err;
  /* Must happen before scheduling, because UVM handles the channel's faults. */
  int rc = uvm_channel_register(dev->machine, &dev->uuid, r->channel, r->context.va, r->context.size);
  if (rc) return rm_error(dev->base.name, rc, "registering the %s channel with UVM", name_of(r));
  r->registered = true;
  /* The set-up changes the context, which other channels may share, so they must be idle. */
  if (r->base.index && (err = db_device_synchronize(&dev->base, dev->base.timeout_ns))) return err;
  if ((rc = schedule(dev, r, true))) return rm_error(dev->base.name, rc, "scheduling the %s channel", name_of(r));
  r->running = true;
  return nv_ring_setup(dev, r);
}

static void disconnect(struct nv_device *dev, struct nv_ring *r) {
  r->running = false;
  if (r->registered) uvm_channel_unregister(dev->machine, &dev->uuid, r->channel);
  r->registered = false;
}

/* Frees a group with its channels and engine objects. A kernel that never ends may not be preemptible; the driver stops
 * it when the group is freed. Returns false if that failed. */
static bool free_group(struct nv_device *dev, struct nv_ring *first) {
  uint32_t group = first->group;
  if (!group) return true;
  schedule(dev, first, false);
  for (struct nv_ring *r = dev->rings; r < dev->rings + HCQ_RINGS; r++)
    if (r->group == group) disconnect(dev, r);
  int rc = rm_object_free(dev->machine, dev->device, &first->group);
  first->group = group;
  if (rc < 0 || rc == RM_TIMEOUT) return false;
  for (struct nv_ring *r = dev->rings; r < dev->rings + HCQ_RINGS; r++)
    if (r->group == group) {
      r->object = r->counters = r->ctxshare = r->group = 0;
      __atomic_store_n(&r->channel, 0, __ATOMIC_RELAXED); /* nv_fault_check in waiting threads loads it */
    }
  return true;
}

/* Stops a channel that could not be set up; other channels of its group continue. */
static bool free_channel(struct nv_device *dev, struct nv_ring *r) {
  if (owner_of_group(dev, r) == r) return free_group(dev, r);
  disconnect(dev, r);
  int rc = r->channel ? rm_object_free(dev->machine, r->group, &r->channel) : 0;
  return rc >= 0 && rc != RM_TIMEOUT;
}

int nv_ring_create(db_device *base, enum db_queue_kind kind, unsigned index) {
  struct nv_device *dev = nv_device(base);
  struct nv_ring *r = &dev->rings[hcq_ring_index(kind, index)];
  r->base.dev = base;
  r->engine = kind == DB_QUEUE_COMPUTE ? RM_ENGINE_GR0 : dev->copy_engines[index];
  int err = hcq_ring_init(&r->base, base, kind, index);
  if (!err) err = create(dev, r);
  if (!err) {
    base->rings[hcq_ring_index(kind, index)] = &r->base;
    return 0;
  }
  if (!free_channel(dev, r)) { /* the GPU may still use its memory */
    hcq_device_lost(base, "%s", db_error());
    return err;
  }
  hcq_ring_finish(&r->base);
  nv_ring_destroy(dev, r);
  *r = (struct nv_ring){0};
  return err;
}

bool nv_halt(db_device *base) {
  struct nv_device *dev = nv_device(base);
  bool stopped = true;
  for (int i = 0; i < HCQ_RINGS; i++) stopped &= free_group(dev, &dev->rings[i]);
  return stopped;
}

void nv_ring_destroy(struct nv_device *dev, struct nv_ring *r) {
  struct nv_memory *all[] = {&r->fifo, &r->push, &r->notifier, &r->context};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) nv_memory_free(dev, all[i]);
  nv_ring_release(r);
}
