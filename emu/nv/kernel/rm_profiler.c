/* RM's profiler object: who may profile, what is reserved, the stream of records, and register operations. Rules as in
 * NVIDIA open-gpu-kernel-modules (hwpm/profiler_v2, ctrlb0ccprofiler.h). Objects of a GPU exclude each other. */
#include <inttypes.h>
#include "nv.h"

typedef struct rm_call call;
typedef struct rm_object object;

#define REFUSE(status, ...) RM_REFUSE(c->m, RM_##status, __VA_ARGS__)

static const uint32_t contexts = 1u << RM_KIND_GROUP | 1u << RM_KIND_CHANNEL;

/* The channel or the channel group whose context is profiled; NULL and *status if it has been freed. */
static object *context_of(call *c, object *o, uint32_t *status) {
  return nv_rm_find_kind(c->m, o->client, o->profiler.context, contexts, "the profiler's hContextTarget", status);
}

uint32_t nv_rm_profiler(call *c, object *o, void *params) {
  const struct rm_profiler_alloc *p = params;
  uint32_t status = RM_OK;
  if (c->m->restricted)
    return REFUSE(INSUFFICIENT_PERMISSIONS, "RM_ALLOC of PROFILER: only administrators may profile");
  if (!p->client_target && !p->context_target) return RM_OK;
  object *client = nv_rm_client_find(c, p->client_target);
  if (!client) return REFUSE(INVALID_CLIENT, "RM_ALLOC of PROFILER: no client 0x%x", p->client_target);
  if (client != o->client) return REFUSE(NOT_SUPPORTED, "not supported: a profiler of another client's context");
  o->profiler.context = p->context_target;
  object *context = context_of(c, o, &status);
  return context && context->gpu != o->gpu
             ? REFUSE(INVALID_OBJECT_PARENT, "RM_ALLOC of PROFILER: 0x%x is of another GPU", p->context_target)
             : status;
}

/* ---- power ---- */

/* Each feature may have one of two actions or none. */
static uint32_t check_power(call *c, uint32_t control, unsigned action, unsigned other, const char *what) {
  enum { MASK = 3 };
  for (unsigned at = 0; at < RM_POWER_END; at += 2) {
    unsigned asked = control >> at & MASK;
    if (asked != RM_POWER_IGNORE && asked != action && asked != other)
      return REFUSE(INVALID_ARGUMENT, "%s: action %u for the feature at bit %u", what, asked, at);
  }
  return control >> RM_POWER_END ? REFUSE(INVALID_ARGUMENT, "%s: unknown features 0x%x", what, control) : RM_OK;
}
static uint32_t power_request(call *c, object *o, void *params, uint32_t size) {
  struct rm_power_request *p = params;
  p->global_status = p->status = 0; /* fulfilled */
  return check_power(c, p->control, RM_POWER_DISABLE, RM_POWER_ENABLE, "POWER_REQUEST_FEATURES");
}
static uint32_t power_release(call *c, object *o, void *params, uint32_t size) {
  uint32_t control = ((struct rm_power_release *)params)->control;
  return check_power(c, control, RM_POWER_RELEASED, RM_POWER_RELEASED, "POWER_RELEASE_FEATURES");
}

/* ---- reservations ---- */

static uint32_t reserve(call *c, object *o, object **owner, const char *what) {
  if (o->profiler.bound) return REFUSE(INVALID_STATE, "%s: the resources are bound", what);
  if (*owner) return REFUSE(STATE_IN_USE, "%s: profiler 0x%x has them", what, (*owner)->handle);
  *owner = o;
  return RM_OK;
}
static uint32_t release(call *c, object *o, object **owner, const char *what) {
  if (o->profiler.bound) return REFUSE(INVALID_STATE, "%s: the resources are bound", what);
  if (*owner != o) return REFUSE(INVALID_STATE, "%s: nothing is reserved", what);
  *owner = NULL;
  return RM_OK;
}

static uint32_t reserve_monitors(call *c, object *o, void *params, uint32_t size) {
  if (((struct rm_reserve_hwpm *)params)->per_context)
    return REFUSE(NOT_SUPPORTED, "not supported: RESERVE_HWPM_LEGACY per context");
  return reserve(c, o, &o->gpu->profiling.monitors, "RESERVE_HWPM_LEGACY");
}
static uint32_t release_monitors(call *c, object *o, void *params, uint32_t size) {
  return release(c, o, &o->gpu->profiling.monitors, "RELEASE_HWPM_LEGACY");
}
static uint32_t reserve_sampler(call *c, object *o, void *params, uint32_t size) {
  if (!o->profiler.context)
    return REFUSE(INVALID_ARGUMENT, "RESERVE_PM_AREA_PC_SAMPLER: the profiler has no hContextTarget");
  return reserve(c, o, &o->gpu->profiling.sampler, "RESERVE_PM_AREA_PC_SAMPLER");
}
static uint32_t release_sampler(call *c, object *o, void *params, uint32_t size) {
  return release(c, o, &o->gpu->profiling.sampler, "RELEASE_PM_AREA_PC_SAMPLER");
}

static uint32_t bind_resources(call *c, object *o, void *params, uint32_t size) {
  if (o->profiler.bound) return REFUSE(INVALID_STATE, "BIND_PM_RESOURCES: they are bound");
  o->profiler.bound = true;
  return RM_OK;
}
static uint32_t unbind_resources(call *c, object *o, void *params, uint32_t size) {
  if (!o->profiler.bound) return REFUSE(INVALID_STATE, "UNBIND_PM_RESOURCES: they are not bound");
  if (o->gpu->profiling.monitors == o) nv_pma_reset(o->gpu->engines);
  o->profiler.bound = false;
  return RM_OK;
}

/* ---- the stream ---- */

/* Finds memory of a stream, of at least offset + size bytes. */
static struct rm_memory *find_memory(call *c, object *o, uint32_t handle, uint64_t offset, uint64_t size,
                                     const char *what, uint32_t *status) {
  object *found = nv_rm_find_kind(c->m, o->client, handle, 1u << RM_KIND_MEMORY, what, status);
  if (!found) return NULL;
  struct rm_memory *mem = found->memory.memory;
  if (offset <= mem->size && size <= mem->size - offset) return mem;
  *status =
      REFUSE(INVALID_ARGUMENT, "%s: %" PRIu64 " bytes at 0x%" PRIx64 " of %" PRIu64, what, size, offset, mem->size);
  return NULL;
}

static uint32_t alloc_stream(call *c, object *o, void *params, uint32_t size) {
  const uint64_t hwpm_base = 4ull << 30; /* of the monitors' own address space */
  struct rm_pma_stream *p = params;
  uint32_t status = RM_OK;
  if (o->profiler.bound) return REFUSE(INVALID_STATE, "ALLOC_PMA_STREAM: the resources are bound");
  if (o->gpu->profiling.stream) return REFUSE(STATE_IN_USE, "ALLOC_PMA_STREAM: the only channel is in use");
  if (p->per_context) return REFUSE(NOT_SUPPORTED, "not supported: ALLOC_PMA_STREAM per context");
  if (!p->buffer_size || p->buffer_size > RM_PMA_BUFFER_MAX || p->buffer_size % NV_PAGE || p->buffer_offset % NV_PAGE)
    return REFUSE(INVALID_ARGUMENT, "ALLOC_PMA_STREAM: %" PRIu64 " bytes at 0x%" PRIx64, p->buffer_size,
                  p->buffer_offset);
  if (p->bytes_offset % sizeof(uint32_t)) /* of a register that has bits 31 to 2 */
    return REFUSE(INVALID_ARGUMENT, "ALLOC_PMA_STREAM: the number of bytes at 0x%" PRIx64 " is not aligned to 4",
                  p->bytes_offset);
  struct rm_memory *buffer =
      find_memory(c, o, p->buffer, p->buffer_offset, p->buffer_size, "ALLOC_PMA_STREAM: hMemPmaBuffer", &status);
  struct rm_memory *bytes = !buffer ? NULL
                                    : find_memory(c, o, p->bytes, p->bytes_offset, RM_PMA_BYTES_SIZE,
                                                  "ALLOC_PMA_STREAM: hMemPmaBytesAvailable", &status);
  if (!bytes) return status;
  if (!bytes->user_read_only)
    return REFUSE(INVALID_ARGUMENT, "ALLOC_PMA_STREAM: hMemPmaBytesAvailable 0x%x is writable for the process",
                  p->bytes);
  o->profiler.buffer = nv_rm_memory_get(buffer), o->profiler.bytes = nv_rm_memory_get(bytes);
  o->profiler.bytes_offset = p->bytes_offset;
  o->gpu->profiling.stream = o;
  nv_pma_attach(o->gpu->engines, buffer->host + p->buffer_offset, p->buffer_size);
  p->channel = 0, p->buffer_va = hwpm_base;
  return RM_OK;
}

static void drop_stream(object *o) {
  nv_pma_attach(o->gpu->engines, NULL, 0);
  nv_rm_memory_put(o->profiler.buffer), nv_rm_memory_put(o->profiler.bytes);
  o->gpu->profiling.stream = NULL;
}

static uint32_t check_stream(call *c, object *o, uint32_t channel, const char *what) {
  if (o->gpu->profiling.stream != o) return REFUSE(INVALID_STATE, "%s: the profiler has no stream", what);
  return channel ? REFUSE(INVALID_ARGUMENT, "%s: channel %u", what, channel) : RM_OK;
}
static uint32_t free_stream(call *c, object *o, void *params, uint32_t size) {
  uint32_t status = check_stream(c, o, ((struct rm_pma_channel *)params)->channel, "FREE_PMA_STREAM");
  if (!status && o->profiler.bound) status = REFUSE(INVALID_STATE, "FREE_PMA_STREAM: the resources are bound");
  if (!status) drop_stream(o);
  return status;
}

static uint32_t get_put(call *c, object *o, void *params, uint32_t size) {
  struct rm_pma_get_put *p = params;
  struct nv_pma_position at;
  uint32_t status = check_stream(c, o, p->channel, "PMA_STREAM_UPDATE_GET_PUT");
  if (status) return status;
  if (!o->profiler.bound) return REFUSE(INVALID_STATE, "PMA_STREAM_UPDATE_GET_PUT: the resources are not bound");
  if (!nv_pma_position(o->gpu->engines, p->consumed, &at))
    return REFUSE(INVALID_ARGUMENT, "PMA_STREAM_UPDATE_GET_PUT: %" PRIu64 " bytes consumed of %" PRIu64, p->consumed,
                  at.available);
  if (p->update) *(uint32_t *)(void *)(o->profiler.bytes->host + o->profiler.bytes_offset) = (uint32_t)at.available;
  if (p->update && p->wait) p->available = at.available;
  if (p->return_put) p->put = at.put;
  p->overflow = at.overflow;
  return RM_OK;
}

/* ---- registers and credits ---- */

static uint32_t check_bound(call *c, object *o, const char *what) {
  if (!o->profiler.bound || o->gpu->profiling.monitors != o || o->gpu->profiling.sampler != o)
    return REFUSE(INVALID_STATE, "%s: the monitors and the PC sampler are not reserved and bound", what);
  return RM_OK;
}

static uint32_t reg_ops(call *c, object *o, void *params, uint32_t size) {
  struct rm_reg_ops *p = params;
  uint32_t status = check_bound(c, o, "EXEC_REG_OPS");
  object *context = status ? NULL : context_of(c, o, &status);
  if (status) return status;
  if (!p->count || p->count > RM_REG_OPS_MAX || p->mode > RM_REG_CONTINUE)
    return REFUSE(INVALID_ARGUMENT, "EXEC_REG_OPS: %u operations in mode %u", p->count, p->mode);
  struct nv_channel_group *group =
      context->type->kind == RM_KIND_GROUP ? context->group.group : context->channel.group->group;
  bool all = true;
  for (uint32_t i = 0; i < p->count; i++) {
    p->ops[i].status = (uint8_t)nv_pma_register(o->gpu->engines, group, &p->ops[i], true);
    all &= !p->ops[i].status;
  }
  if (!all && p->mode == RM_REG_ALL_OR_NONE)
    return REFUSE(INVALID_OFFSET, "EXEC_REG_OPS: an operation is refused, so none is executed");
  for (uint32_t i = 0; i < p->count; i++)
    if (!p->ops[i].status) nv_pma_register(o->gpu->engines, group, &p->ops[i], false);
  p->passed = all, p->direct = 0;
  return RM_OK;
}

static uint32_t set_credits(call *c, object *o, void *params, uint32_t size) {
  struct rm_hs_credits *p = params;
  const struct nv_model *model = o->gpu->model;
  uint16_t credits[32] = {0};
  uint32_t status = check_bound(c, o, "SET_HS_CREDITS");
  if (status) return status;
  if (p->count > RM_HS_CREDITS_MAX || p->channel)
    return REFUSE(INVALID_ARGUMENT, "SET_HS_CREDITS: %u entries for channel %u", p->count, p->channel);
  p->status = RM_CREDITS_OK;
  for (uint8_t i = 0; i < p->count && !p->status; i++) {
    const struct rm_hs_credit *e = &p->credit[i];
    if (e->chiplet != RM_CHIPLET_GPC || e->index >= model->gpcs)
      p->status = RM_CREDITS_INVALID_CHIPLET, p->failed = i;
    else if (e->credits > model->tpcs_per_gpc)
      p->status = RM_CREDITS_INVALID, p->failed = i;
    else
      credits[e->index] = e->credits;
  }
  if (!p->status) nv_pma_credits(o->gpu->engines, credits);
  return RM_OK;
}

void nv_rm_profiler_fini(struct nv_machine *m, object *o) {
  if (o->gpu->profiling.monitors == o) nv_pma_reset(o->gpu->engines), o->gpu->profiling.monitors = NULL;
  if (o->gpu->profiling.sampler == o) o->gpu->profiling.sampler = NULL;
  if (o->gpu->profiling.stream == o) drop_stream(o);
}

#define P(name, type, handler) {RM_CTRL_##name, 1u << RM_KIND_PROFILER, sizeof(struct type), 0, handler}
#define P0(name, handler)      {RM_CTRL_##name, 1u << RM_KIND_PROFILER, 0, 0, handler}
const struct rm_control_type nv_rm_profiler_controls[] = {
    P(RESERVE_HWPM_LEGACY, rm_reserve_hwpm, reserve_monitors),
    P0(RELEASE_HWPM_LEGACY, release_monitors),
    P(ALLOC_PMA_STREAM, rm_pma_stream, alloc_stream),
    P(FREE_PMA_STREAM, rm_pma_channel, free_stream),
    P0(BIND_PM_RESOURCES, bind_resources),
    P0(UNBIND_PM_RESOURCES, unbind_resources),
    P(PMA_GET_PUT, rm_pma_get_put, get_put),
    P(EXEC_REG_OPS, rm_reg_ops, reg_ops),
    P0(RESERVE_PC_SAMPLER, reserve_sampler),
    P0(RELEASE_PC_SAMPLER, release_sampler),
    P(SET_HS_CREDITS, rm_hs_credits, set_credits),
    P(POWER_REQUEST, rm_power_request, power_request),
    P(POWER_RELEASE, rm_power_release, power_release),
    {0},
};
