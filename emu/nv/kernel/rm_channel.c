/* RM's channel groups, context shares, channels and their engine objects, and the controls of these. Rules as in NVIDIA
 * open-gpu-kernel-modules (kernel_channel.c, kernel_channel_group_api.c, kernel_ctxshare.c, kernel_fifo_ctrl.c). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "nv.h"

/* ---- engines and runlists ---- */

int nv_rm_copy_engine(const struct nv_gpu *gpu, uint32_t engine_type) {
  for (unsigned i = 0; i < gpu->model->copy_engines; i++)
    if (rm_engine_copy(i) == engine_type) return (int)i;
  return -1;
}

/* The graphics engine and its copy engines share a runlist; each other copy engine has its own. */
static unsigned runlist_of(int copy) { return copy < NV_GRCES ? 0 : (unsigned)(copy - NV_GRCES + 1); }

static uint32_t group_init(struct nv_machine *m, struct nv_gpu *gpu, struct rm_group *g, uint32_t engine_type) {
  int copy = nv_rm_copy_engine(gpu, engine_type);
  if (engine_type != RM_ENGINE_GR0 && copy < 0)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of a channel (group): no engine type %u", engine_type);
  g->engine_type = engine_type;
  g->runlist = runlist_of(copy);
  g->id = gpu->groups++;
  g->group = nv_group_new(gpu->engines);
  return g->group ? RM_OK : RM_NO_MEMORY;
}

uint32_t nv_rm_channel_group(struct rm_call *c, struct rm_object *o, void *params) {
  const struct rm_channel_group_alloc *p = params;
  uint32_t status = RM_OK;
  if (p->va_space && !(o->group.vas = nv_rm_vas_find(c, o, p->va_space, &status))) return status;
  if (p->error_memory && !nv_rm_find_kind(c->m, o->client, p->error_memory, 1u << RM_KIND_MEMORY,
                                          "RM_ALLOC of CHANNEL_GROUP: hObjectError", &status))
    return status;
  return group_init(c->m, o->gpu, &o->group, p->engine_type);
}

void nv_rm_group_fini(struct nv_machine *m, struct rm_object *o) {
  if (o->group.group) nv_group_free(o->group.group);
  nv_rm_vas_put(o->group.vas);
}

uint32_t nv_rm_ctxshare(struct rm_call *c, struct rm_object *o, void *params) {
  enum { KNOWN_FLAGS = 0x3 };
  struct rm_ctxshare_alloc *p = params;
  struct rm_group *g = &o->parent->group;
  uint32_t status = RM_OK;
  if (p->flags & ~(uint32_t)KNOWN_FLAGS)
    return RM_REFUSE(c->m, RM_INVALID_FLAGS, "RM_ALLOC of CTXSHARE: flags 0x%x", p->flags);
  if (p->va_space)
    o->ctxshare.vas = nv_rm_vas_find(c, o, p->va_space, &status);
  else
    o->ctxshare.vas = g->vas ? nv_rm_vas_get(g->vas) : nv_rm_vas_find(c, o, 0, &status);
  for (const struct rm_object *other = o->next; other; other = other->next)
    if (other->type->kind == RM_KIND_CTXSHARE) o->ctxshare.id++;
  p->subctx_id = o->ctxshare.id;
  return status;
}

/* ---- channels ---- */

static bool allocate_id(struct nv_gpu *gpu, unsigned runlist, uint32_t *id) {
  uint64_t *ids = gpu->channel_ids[runlist];
  for (unsigned i = 0; i < NV_CHANNELS / 64; i++)
    if (~ids[i]) {
      unsigned bit = (unsigned)__builtin_ctzll(~ids[i]);
      ids[i] |= 1ull << bit;
      *id = i * 64 + bit;
      return true;
    }
  return false;
}

/* Returns the memory of a handle in a channel's parameters, if it has room for size bytes at offset. */
static struct rm_memory *channel_memory(struct rm_call *c, struct rm_object *o, uint32_t handle, uint64_t offset,
                                        uint64_t size, const char *what, uint32_t *status) {
  struct rm_object *object = nv_rm_find_kind(c->m, o->client, handle, 1u << RM_KIND_MEMORY, what, status);
  if (!object) return NULL;
  struct rm_memory *mem = object->memory.memory;
  if (offset > mem->size || size > mem->size - offset || (mem->gpu && mem->gpu != o->gpu)) {
    *status = RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "%s 0x%x has no %" PRIu64 " bytes at 0x%" PRIx64 " for this GPU",
                        what, handle, size, offset);
    return NULL;
  }
  return nv_rm_memory_get(mem);
}

/* Sets the address space: that of the context share, else of the group, else the named one, else the device's. */
static uint32_t channel_vas(struct rm_call *c, struct rm_object *o, const struct rm_channel_alloc *p) {
  struct nv_machine *m = c->m;
  struct rm_channel *ch = &o->channel;
  uint32_t status = RM_OK;
  bool grouped = o->parent->type->kind == RM_KIND_GROUP;
  if (p->ctxshare && p->va_space)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of a channel: both hContextShare and hVASpace");
  if (grouped && p->va_space)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of a channel: the group sets hVASpace");
  if (!grouped && p->ctxshare)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of a channel: hContextShare without a channel group");
  if (grouped && ch->group->channels && ch->group->shares != (p->ctxshare != 0))
    return RM_REFUSE(m, RM_INVALID_STATE,
                     "RM_ALLOC of a channel: all channels of a group have a context share, or none has");
  if (p->ctxshare) {
    struct rm_object *share = nv_rm_find_kind(m, o->client, p->ctxshare, 1u << RM_KIND_CTXSHARE,
                                              "RM_ALLOC of a channel: hContextShare", &status);
    if (!share) return status;
    if (share->parent != o->parent)
      return RM_REFUSE(m, RM_INVALID_OBJECT_PARENT, "RM_ALLOC of a channel: context share 0x%x is another group's",
                       p->ctxshare);
    ch->vas = nv_rm_vas_get(share->ctxshare.vas);
    return RM_OK;
  }
  ch->vas = grouped && ch->group->vas ? nv_rm_vas_get(ch->group->vas) : nv_rm_vas_find(c, o, p->va_space, &status);
  return status;
}

static uint32_t check_ring(struct nv_machine *m, const struct rm_object *o, const struct rm_channel_alloc *p) {
  uint32_t n = p->gpfifo_entries;
  if (!n || n & (n - 1)) return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of a channel: %u GPFIFO entries", n);
  if (p->gpfifo_va % 8 || (p->gpfifo_va + n * 8ull) >> o->gpu->model->va_bits)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT,
                     "RM_ALLOC of a channel: the GPFIFO is at 0x%" PRIx64 "; channels have %u bits", p->gpfifo_va,
                     o->gpu->model->va_bits);
  if (p->userd_offset[0] % sizeof(struct rm_userd))
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of a channel: USERD at 0x%" PRIx64 " is not 512-byte aligned",
                     p->userd_offset[0]);
  return RM_OK;
}

static uint32_t channel_memories(struct rm_call *c, struct rm_object *o, const struct rm_channel_alloc *p) {
  struct rm_channel *ch = &o->channel;
  uint32_t status = RM_OK;
  if (p->userd_memory[0]) {
    ch->userd_offset = p->userd_offset[0];
    ch->userd = channel_memory(c, o, p->userd_memory[0], ch->userd_offset, sizeof(struct rm_userd),
                               "RM_ALLOC of a channel: hUserdMemory", &status);
  } else if (!(ch->userd = nv_rm_memory_new(c->m, o->gpu, NV_PAGE))) {
    status = RM_NO_MEMORY;
  }
  if (!status && p->error_memory)
    ch->notifier = channel_memory(c, o, p->error_memory, 0, sizeof(struct rm_notification),
                                  "RM_ALLOC of a channel: hObjectError", &status);
  if (ch->notifier) ch->notifiers = (uint32_t)(ch->notifier->size / sizeof(struct rm_notification) & 0xffff);
  return status;
}

uint32_t nv_rm_channel(struct rm_call *c, struct rm_object *o, void *params) {
  struct nv_machine *m = c->m;
  struct rm_channel_alloc *p = params;
  struct rm_channel *ch = &o->channel;
  bool grouped = o->parent->type->kind == RM_KIND_GROUP;
  uint32_t status = check_ring(m, o, p), id;
  ch->group = grouped ? &o->parent->group : NULL;
  ch->token_index = RM_NOTIFIER_TOKEN;
  if (!status && grouped && p->engine_type && p->engine_type != ch->group->engine_type)
    status = RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of a channel: engine type %u in a group of type %u",
                       p->engine_type, ch->group->engine_type);
  if (!status) status = channel_vas(c, o, p);
  if (!status) status = channel_memories(c, o, p);
  if (!status && !grouped) {
    status = group_init(m, o->gpu, &ch->own, p->engine_type);
    if (!status) ch->group = &ch->own;
  }
  if (status) {
    ch->group = NULL;
    return status;
  }
  struct rm_group *g = ch->group;
  ch->group = NULL; /* until the channel is a member of the group */
  if (!allocate_id(o->gpu, g->runlist, &id))
    return RM_REFUSE(m, RM_INSUFFICIENT_RESOURCES, "RM_ALLOC of a channel: %d exist already", NV_CHANNELS);
  ch->group = g;
  ch->id = id;
  ch->token = RM_TOKEN(id, g->runlist);
  ch->bound = grouped;
  g->shares = p->ctxshare != 0;
  g->channels++;
  int copy = nv_rm_copy_engine(o->gpu, g->engine_type);
  ch->channel = nv_channel_new(g->group, &(struct nv_channel_desc){
                                             .vm = ch->vas->vm,
                                             .kind = copy < 0 ? NV_ENGINE_GRAPHICS : NV_ENGINE_COPY,
                                             .engine = copy < 0 ? 0 : (unsigned)copy,
                                             .gpfifo_va = p->gpfifo_va,
                                             .gpfifo_entries = p->gpfifo_entries,
                                             .userd = (uint32_t *)(ch->userd->host + ch->userd_offset),
                                             .notifier = ch->notifier ? (struct nv_notifier *)ch->notifier->host : NULL,
                                             .token = ch->token,
                                             .id = id,
                                             .gpfifo_class = o->type->class,
                                         });
  p->cid = id;
  return ch->channel ? RM_OK : RM_NO_MEMORY;
}

void nv_rm_channel_fini(struct nv_machine *m, struct rm_object *o) {
  struct rm_channel *ch = &o->channel;
  if (ch->registered) nv_uvm_channel_gone(ch->registered);
  if (ch->channel) nv_channel_free(ch->channel);
  if (ch->group) {
    o->gpu->channel_ids[ch->group->runlist][ch->id / 64] &= ~(1ull << ch->id % 64);
    ch->group->channels--;
  }
  if (ch->own.group) nv_group_free(ch->own.group);
  nv_rm_memory_put(ch->userd);
  nv_rm_memory_put(ch->notifier);
  nv_rm_vas_put(ch->vas);
}

/* ---- engine objects ---- */

uint32_t nv_rm_compute(struct rm_call *c, struct rm_object *o, void *params) {
  const struct rm_channel *ch = &o->parent->channel;
  if (ch->group->engine_type != RM_ENGINE_GR0)
    return RM_REFUSE(c->m, RM_INVALID_CLASS, "RM_ALLOC of %s: the channel is of a copy engine", o->type->name);
  nv_channel_allow_class(ch->channel, o->type->class);
  return RM_OK;
}

uint32_t nv_rm_copy(struct rm_call *c, struct rm_object *o, void *params) {
  const struct rm_copy_alloc *p = params;
  const struct rm_channel *ch = &o->parent->channel;
  int own = nv_rm_copy_engine(o->gpu, ch->group->engine_type);
  int wanted = p->version == RM_COPY_ALLOC_ENGINE             ? nv_rm_copy_engine(o->gpu, p->engine_type)
               : p->engine_type < o->gpu->model->copy_engines ? (int)p->engine_type
                                                              : -1;
  if (p->version > RM_COPY_ALLOC_ENGINE || wanted < 0)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "RM_ALLOC of %s: version %u, engine %u", o->type->name, p->version,
                     p->engine_type);
  /* Without parameters, or with zeros, the channel's engine is meant. */
  if (!p->version && !p->engine_type) wanted = own < 0 ? 0 : own;
  if (own < 0 ? wanted >= NV_GRCES : wanted != own)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "RM_ALLOC of %s: copy engine %d is not on the channel's runlist",
                     o->type->name, wanted);
  nv_channel_allow_class(ch->channel, o->type->class);
  return RM_OK;
}

/* ---- controls ---- */

/* A channel in an address space that UVM owns must be registered with UVM, which maps its context buffers. */
static uint32_t check_registered(struct nv_machine *m, const struct rm_object *o) {
  const struct rm_channel *ch = &o->channel;
  if (!ch->vas->external || ch->registered || ch->group->engine_type != RM_ENGINE_GR0) return RM_OK;
  return RM_REFUSE(
      m, RM_INVALID_STATE,
      "GPFIFO_SCHEDULE: channel 0x%x is in an externally owned address space, and UVM_REGISTER_CHANNEL was "
      "not called",
      o->handle);
}

uint32_t nv_rm_schedule(struct nv_machine *m, struct rm_object *o, bool on) {
  struct rm_group *g = o->type->kind == RM_KIND_GROUP ? &o->group : o->channel.group;
  uint32_t status = RM_OK;
  if (on && g == &o->group)
    for (const struct rm_object *ch = o->children; ch && !status; ch = ch->next)
      if (ch->type->kind == RM_KIND_CHANNEL) status = check_registered(m, ch);
  if (on && g != &o->group) {
    if (!o->channel.bound)
      return RM_REFUSE(m, RM_INVALID_STATE, "GPFIFO_SCHEDULE: channel 0x%x is not bound to an engine", o->handle);
    status = check_registered(m, o);
  }
  if (status) return status;
  if (!nv_group_schedule(g->group, on))
    return RM_REFUSE(m, RM_TIMEOUT, "GPFIFO_SCHEDULE: the group of 0x%x does not stop", o->handle);
  g->scheduled = on;
  return RM_OK;
}

static uint32_t schedule(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  const struct rm_gpfifo_schedule *p = params;
  return nv_rm_schedule(c->m, o, p->enable);
}

static uint32_t bind(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  const struct rm_channel_bind *p = params;
  if (p->engine_type != o->channel.group->engine_type)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "BIND: engine type %u; the channel's is %u", p->engine_type,
                     o->channel.group->engine_type);
  o->channel.bound = true;
  return RM_OK;
}

static uint32_t stop_channel(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  return nv_rm_schedule(c->m, o, false);
}

void nv_rm_token_notify(struct rm_channel *ch) {
  if (!ch->notifier || ch->token_index >= ch->notifiers) return;
  struct nv_notifier *n = (struct nv_notifier *)ch->notifier->host + ch->token_index;
  atomic_store(&n->info32, ch->token);
  atomic_store(&n->status, 0);
}

static uint32_t token(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  struct rm_work_submit_token *p = params;
  if (!o->channel.bound)
    return RM_REFUSE(c->m, RM_INVALID_STATE, "GET_WORK_SUBMIT_TOKEN: channel 0x%x is not bound to an engine",
                     o->handle);
  p->token = o->channel.token;
  nv_rm_token_notify(&o->channel);
  return RM_OK;
}

static uint32_t token_index(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  const struct rm_token_notifier_index *p = params;
  if (p->index >= o->channel.notifiers)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX: %u of %u", p->index,
                     o->channel.notifiers);
  o->channel.token_index = p->index;
  nv_rm_token_notify(&o->channel);
  return RM_OK;
}

static uint32_t class_engine(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  struct rm_class_engine *p = params;
  uint32_t status = RM_OK;
  const struct rm_object *engine =
      nv_rm_find_kind(c->m, o->client, p->object, 1u << RM_KIND_ENGINE, "hObject", &status);
  if (!engine) return status;
  p->class = engine->type->class;
  p->engine = o->channel.group->engine_type;
  p->class_engine = engine->type->class;
  return RM_OK;
}

static uint32_t timeslice(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  const struct rm_timeslice *p = params;
  return p->us ? RM_OK : RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "TIMESLICE: 0 us");
}
static uint32_t interleave(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  uint32_t level;
  memcpy(&level, params, sizeof level);
  return level <= 2 ? RM_OK : RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "INTERLEAVE_LEVEL %u", level);
}
static uint32_t preempt(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) { return RM_OK; }
static uint32_t group_info(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  ((struct rm_group_info *)params)->id = o->group.id;
  return RM_OK;
}

/* NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS. A group stops as a whole. */
struct disable_channels {
  uint8_t disable;
  uint32_t count;
  uint8_t only_scheduling, rewind;
  uint64_t event;
  uint32_t clients[64], channels[64];
};
static uint32_t disable_channels(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  const struct disable_channels *p = params;
  struct nv_machine *m = c->m;
  uint32_t status = RM_OK;
  if (p->count > 64) return RM_REFUSE(m, RM_INVALID_ARGUMENT, "FIFO_DISABLE_CHANNELS: %u channels", p->count);
  if (p->event || p->rewind) return RM_REFUSE(m, RM_NOT_SUPPORTED, "not supported: FIFO_DISABLE_CHANNELS with rewind");
  for (uint32_t i = 0; i < p->count && !status; i++) {
    struct rm_object *client = nv_rm_client_find(c, p->clients[i]);
    if (!client) return RM_REFUSE(m, RM_INVALID_CLIENT, "FIFO_DISABLE_CHANNELS: no client 0x%x", p->clients[i]);
    struct rm_object *ch = nv_rm_find_kind(m, client, p->channels[i], 1u << RM_KIND_CHANNEL, "hChannel", &status);
    if (!ch) return status;
    if (ch->gpu != o->gpu)
      return RM_REFUSE(m, RM_INVALID_ARGUMENT, "FIFO_DISABLE_CHANNELS: channel 0x%x is another GPU's", ch->handle);
    status = nv_rm_schedule(m, ch, !p->disable);
  }
  return status;
}

#define CHANNEL 1u << RM_KIND_CHANNEL
#define GROUP   1u << RM_KIND_GROUP
const struct rm_control_type nv_rm_channel_controls[] = {
    {0xa06c0101, GROUP, sizeof(struct rm_gpfifo_schedule), offsetof(struct rm_branch, gpfifo_schedule), schedule},
    {0xa06f0103, CHANNEL, sizeof(struct rm_gpfifo_schedule), offsetof(struct rm_branch, gpfifo_schedule), schedule},
    {0xa06f0104, CHANNEL, sizeof(struct rm_channel_bind), 0, bind},
    {0xa06f0112, CHANNEL, sizeof(struct rm_stop_channel), 0, stop_channel},
    {0xc36f0108, CHANNEL, sizeof(struct rm_work_submit_token), 0, token},
    {0xc36f010a, CHANNEL, sizeof(struct rm_token_notifier_index), 0, token_index},
    {0x906f0101, CHANNEL, sizeof(struct rm_class_engine), 0, class_engine},
    {0xa06c0103, GROUP, sizeof(struct rm_timeslice), 0, timeslice},
    {0xa06c0105, GROUP, sizeof(struct rm_preempt), 0, preempt},
    {0xa06c0106, GROUP, sizeof(struct rm_group_info), 0, group_info},
    {0xa06c0107, GROUP, sizeof(uint32_t), 0, interleave},
    {0x2080110b, 1u << RM_KIND_SUBDEVICE, sizeof(struct disable_channels), 0, disable_channels},
    {0},
};
