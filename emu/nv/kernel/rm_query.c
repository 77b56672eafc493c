/* RM's queries: properties of the system, of a GPU and of its engines. Numbers as in NVIDIA open-gpu-kernel-modules,
 * ctrl0000*.h, ctrl0080*.h and ctrl2080*.h. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif
#include "nv.h"

typedef struct rm_call call;
typedef struct rm_object object;
#define KIB_OF(bytes) ((uint32_t)((bytes) >> 10))

/* ---- the system ---- */

static uint32_t build_version(call *c, object *o, void *params, uint32_t size) {
  const struct nv_machine *m = c->m;
  struct rm_build_version *p = params;
  struct rm_build_version_555 *before = params;
  bool branch = size == sizeof *p;
  memset(params, 0, size);
  snprintf(p->driver_version, sizeof p->driver_version, "%s", m->version);
  snprintf(p->version, sizeof p->version, "rel/gpu_drv/r%u/r%u_00", m->branch.major, m->branch.major);
  if (branch) snprintf(p->driver_branch, sizeof p->driver_branch, "r%u_00", m->branch.major);
  snprintf(branch ? p->title : before->title, sizeof p->title, "NVIDIA UNIX Open Kernel Module for x86_64  %s",
           m->version);
  return RM_OK;
}

static void list_ids(const struct nv_machine *m, uint32_t ids[32], bool attached) {
  size_t n = 0;
  memset(ids, 0xff, 32 * sizeof ids[0]);
  for (unsigned i = 0; i < m->ngpus; i++)
    if (!attached || m->gpus[i].attached) ids[n++] = m->gpus[i].gpu_id;
}
static uint32_t attached_ids(call *c, object *o, void *params, uint32_t size) {
  list_ids(c->m, ((struct rm_attached_ids *)params)->gpu_ids, true);
  return RM_OK;
}
static uint32_t probed_ids(call *c, object *o, void *params, uint32_t size) {
  struct rm_probed_ids *p = params;
  list_ids(c->m, p->gpu_ids, false);
  memset(p->excluded_gpu_ids, 0xff, sizeof p->excluded_gpu_ids);
  memset(p->gpu_flags, 0, sizeof p->gpu_flags);
  return RM_OK;
}
static uint32_t attach_ids(call *c, object *o, void *params, uint32_t size) {
  struct rm_attach_ids *p = params;
  for (unsigned i = 0; i < 32 && p->gpu_ids[i] != (uint32_t)RM_INVALID_GPU_ID; i++) {
    struct nv_gpu *gpu = nv_gpu_of_id(c->m, p->gpu_ids[i]);
    if (!gpu && p->gpu_ids[i]) {
      p->failed_id = p->gpu_ids[i];
      return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "ATTACH_IDS: no GPU 0x%x", p->gpu_ids[i]);
    }
    /* Id 0 attaches all GPUs. */
    for (unsigned g = 0; g < c->m->ngpus; g++)
      if (!gpu || gpu == &c->m->gpus[g]) c->m->gpus[g].attached = true;
    if (!gpu) break;
  }
  return RM_OK;
}
static uint32_t gpu_id_info(call *c, object *o, void *params, uint32_t size) {
  struct rm_gpu_id_info *p = params;
  const struct nv_gpu *gpu = nv_gpu_of_id(c->m, p->gpu_id);
  if (!gpu || !gpu->attached)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "GET_ID_INFO: GPU 0x%x is not %s", p->gpu_id,
                     gpu ? "attached" : "there");
  *p = (struct rm_gpu_id_info){.gpu_id = p->gpu_id,
                               .gpu_flags = 0x1, /* IN_USE */
                               .device_instance = gpu->index,
                               .board_id = gpu->gpu_id,
                               .gpu_instance = gpu->index,
                               .numa_id = -1};
  return RM_OK;
}
static uint32_t gpu_pci_info(call *c, object *o, void *params, uint32_t size) {
  struct rm_gpu_pci_info *p = params;
  const struct nv_gpu *gpu = nv_gpu_of_id(c->m, p->gpu_id);
  if (!gpu) return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "GET_PCI_INFO: no GPU 0x%x", p->gpu_id);
  p->domain = 0, p->bus = gpu->bus, p->slot = 0;
  return RM_OK;
}

/* Either all GPUs of the machine have peer access over PCIe, or none has. */
static uint32_t p2p_caps_v2(call *c, object *o, void *params, uint32_t size) {
  enum { PROP = 4, ATOMICS = 0x10, PCI = 0x40 };
  struct rm_p2p_caps_v2 *p = params;
  if (!p->gpu_count || p->gpu_count > 32)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "GET_P2P_CAPS_V2: %u GPUs", p->gpu_count);
  for (unsigned i = 0; i < p->gpu_count; i++) {
    if (!nv_gpu_of_id(c->m, p->gpu_ids[i]))
      return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "GET_P2P_CAPS_V2: no GPU 0x%x", p->gpu_ids[i]);
    for (unsigned k = 0; k < p->gpu_count; k++) p->bus_peer_ids[i * 32 + k] = i == k ? 0xffffffff : k;
  }
  p->caps = c->m->base.peers ? RM_P2P_WRITES | RM_P2P_READS | PROP | ATOMICS | PCI : 0;
  p->optimal_read_ces = p->optimal_write_ces = 0;
  memset(p->caps_status, 0, sizeof p->caps_status);
  return RM_OK;
}

static uint32_t cc_capabilities(call *c, object *o, void *params, uint32_t size) {
  memset(params, 0, size);
  return RM_OK;
}

/* ---- classes and names ---- */

static uint32_t count_classes(const struct nv_model *m) {
  uint32_t n = 0;
  while (m->classes[n]) n++;
  return n;
}
static uint32_t class_list(call *c, object *o, void *params, uint32_t size) {
  struct rm_class_list *p = params;
  uint32_t n = count_classes(o->gpu->model);
  if (p->list) {
    if (p->count < n)
      return RM_REFUSE(c->m, RM_INVALID_PARAM_STRUCT, "GET_CLASSLIST: room for %u of %u classes", p->count, n);
    if (user_write(p->list, o->gpu->model->classes, n * sizeof(uint32_t)))
      return RM_REFUSE(c->m, RM_INVALID_ADDRESS, "GET_CLASSLIST: list at 0x%llx", (unsigned long long)p->list);
  }
  p->count = n;
  return RM_OK;
}
static uint32_t class_list_v2(call *c, object *o, void *params, uint32_t size) {
  struct rm_class_list_v2 *p = params;
  uint32_t n = count_classes(o->gpu->model);
  memset(params, 0, size);
  p->count = n;
  memcpy(p->list, o->gpu->model->classes, n * sizeof(uint32_t));
  return RM_OK;
}
static uint32_t num_subdevices(call *c, object *o, void *params, uint32_t size) {
  memcpy(params, &(uint32_t){1}, sizeof(uint32_t));
  return RM_OK;
}

static uint32_t name_string(call *c, object *o, void *params, uint32_t size) {
  struct rm_name_string *p = params;
  const char *name = o->gpu->model->marketing;
  bool unicode = p->flags == 1 && size == 132;
  if (p->flags && !unicode) return RM_REFUSE(c->m, RM_INVALID_FLAGS, "GET_NAME_STRING: flags 0x%x", p->flags);
  memset(p->ascii, 0, size - sizeof p->flags);
  for (size_t i = 0; i < 63 && name[i]; i++) p->ascii[unicode ? 2 * i : i] = name[i];
  return RM_OK;
}
static uint32_t short_name(call *c, object *o, void *params, uint32_t size) {
  snprintf(params, size, "%s", o->gpu->model->codename);
  return RM_OK;
}

static uint32_t gid_info(call *c, object *o, void *params, uint32_t size) {
  struct rm_gid_info *p = params;
  if (p->index) return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "GET_GID_INFO: index %u", p->index);
  if (p->flags & ~2u) return RM_REFUSE(c->m, RM_INVALID_FLAGS, "GET_GID_INFO: flags 0x%x", p->flags);
  memset(p->data, 0, sizeof p->data);
  if (p->flags & RM_GID_BINARY_SHA1) {
    p->length = sizeof o->gpu->uuid;
    memcpy(p->data, &o->gpu->uuid, sizeof o->gpu->uuid);
  } else {
    p->length = 41;
    nv_uuid_text(&o->gpu->uuid, (char *)p->data);
  }
  return RM_OK;
}

static uint32_t pci_info(call *c, object *o, void *params, uint32_t size) {
  const struct nv_model *m = o->gpu->model;
  uint32_t info[4] = {m->pci_device << 16 | 0x10de, m->pci_subsystem, 0xa1, m->pci_device};
  memcpy(params, info, sizeof info);
  return RM_OK;
}
static uint32_t arch_info(call *c, object *o, void *params, uint32_t size) {
  *(struct rm_arch_info *)params =
      (struct rm_arch_info){o->gpu->model->architecture, o->gpu->model->implementation, 0xa1, 0};
  return RM_OK;
}
static uint32_t recovery_action(call *c, object *o, void *params, uint32_t size) {
  ((struct rm_recovery_action *)params)->action = 0;
  return RM_OK;
}
static uint32_t perf_boost(call *c, object *o, void *params, uint32_t size) {
  const struct rm_perf_boost *p = params;
  return (p->flags & 3) == 3 ? RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "PERF_BOOST: flags 0x%x", p->flags) : RM_OK;
}

static uint32_t rated_tdp_get(call *c, object *o, void *params, uint32_t size) {
  struct rm_rated_tdp *p = params;
  if (p->client >= RM_CLOCK_CLIENTS)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "PERF_RATED_TDP_GET_CONTROL: client %u", p->client);
  p->action = o->gpu->clocks[p->client].action;
  if (size == sizeof *p) p->state = o->gpu->clocks[p->client].state;
  return RM_OK;
}
static uint32_t rated_tdp_set(call *c, object *o, void *params, uint32_t size) {
  struct rm_rated_tdp p = {0};
  memcpy(&p, params, size);
  if (p.client == RM_CLOCKS_RM || p.client >= RM_CLOCK_CLIENTS || p.action >= RM_CLOCK_ACTIONS ||
      p.state >= RM_CLOCK_STATES)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "PERF_RATED_TDP_SET_CONTROL: client %u, action %u, state %u", p.client,
                     p.action, p.state);
  o->gpu->clocks[p.client].action = p.action;
  o->gpu->clocks[p.client].state = p.state;
  return RM_OK;
}

/* ---- engines ---- */

static uint32_t engines(call *c, object *o, void *params, uint32_t size) {
  struct rm_engines_v2 *p = params;
  memset(params, 0, size);
  p->list[p->count++] = RM_ENGINE_GR0;
  for (unsigned i = 0; i < o->gpu->model->copy_engines; i++) p->list[p->count++] = rm_engine_copy(i);
  return RM_OK;
}

static void copy_caps(unsigned engine, uint8_t caps[2]) {
  caps[0] = RM_CE_SYSMEM_READ | RM_CE_SYSMEM_WRITE | RM_CE_SYSMEM | RM_CE_P2P;
  if (engine < NV_GRCES) caps[0] |= RM_CE_GRCE | RM_CE_SHARED;
  caps[1] = 0;
}
static uint32_t ce_caps(call *c, object *o, void *params, uint32_t size) {
  struct rm_ce_caps *p = params;
  struct rm_ce_caps_535 *before = params;
  unsigned n = o->gpu->model->copy_engines;
  memset(params, 0, size);
  for (unsigned i = 0; i < n; i++) copy_caps(i, p->caps[i]);
  if (size == sizeof *before)
    before->present = (1u << n) - 1;
  else
    p->present = (1u << n) - 1;
  return RM_OK;
}
static uint32_t ce_caps_v2(call *c, object *o, void *params, uint32_t size) {
  struct rm_ce_caps_v2 *p = params;
  int engine = nv_rm_copy_engine(o->gpu, p->engine_type);
  if (engine < 0) return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "CE_GET_CAPS_V2: engine type %u", p->engine_type);
  copy_caps((unsigned)engine, p->caps);
  return RM_OK;
}
static uint32_t ce_pce_mask(call *c, object *o, void *params, uint32_t size) {
  struct rm_ce_pce_mask *p = params;
  int engine = nv_rm_copy_engine(o->gpu, p->engine_type);
  if (engine < 0) return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "CE_GET_CE_PCE_MASK: engine type %u", p->engine_type);
  p->pce_mask = 1u << engine;
  return RM_OK;
}

/* ---- lists of index and value ---- */

static bool gr_value(const struct nv_gpu *gpu, uint32_t index, uint32_t *value) {
  const struct nv_model *m = gpu->model;
  /* A memory partition has 512 bits of HBM or 64 bits of GDDR. */
  uint32_t fbps = m->bus_bits > 1024 ? m->bus_bits / 512 : m->bus_bits / 64;
  uint32_t cores = m->sm_version == 0x800 ? 64 : 128;
  switch (index) {
  case RM_GR_SM_VERSION: *value = m->sm_version; break;
  case RM_GR_MAX_WARPS_PER_SM: *value = m->max_warps_per_sm; break;
  case RM_GR_MAX_THREADS_PER_WARP: *value = 32; break;
  case 0x13: *value = cores; break; /* MAX_SP_PER_SM */
  case RM_GR_GPCS: *value = m->gpcs; break;
  case RM_GR_FBPS: *value = fbps; break;
  case RM_GR_TPCS_PER_GPC: *value = m->tpcs_per_gpc; break;
  case 0x1a: *value = 1; break; /* TIMESLICE_ENABLED */
  case RM_GR_GPU_CORE_COUNT: *value = m->sms * cores; break;
  case RM_GR_SMS_PER_TPC: *value = m->sms_per_tpc; break;
  case 0x22: *value = m->bus_bits > 1024 ? 0 : m->sms; break; /* RT_CORE_COUNT */
  case RM_GR_TENSOR_CORE_COUNT: *value = m->sms * 4; break;
  case 0x25: *value = fbps * 2; break; /* LITTER_NUM_LTCS */
  case RM_GR_MAX_SUBCONTEXTS: *value = 64; break;
  default: return false;
  }
  return true;
}

static bool fb_value(const struct nv_gpu *gpu, uint32_t index, uint32_t *value) {
  const struct nv_model *m = gpu->model;
  uint64_t bar1 = 1ull << (64 - __builtin_clzll(m->vram_bytes - 1));
  switch (index) {
  case RM_FB_BAR1_SIZE:
  case RM_FB_BAR1_AVAILABLE: *value = KIB_OF(bar1); break;
  case RM_FB_RAM_SIZE:
  case RM_FB_TOTAL_RAM_SIZE:
  case RM_FB_USABLE_RAM_SIZE:
  case RM_FB_HEAP_SIZE: *value = KIB_OF(m->vram_bytes); break;
  case RM_FB_BUS_WIDTH: *value = m->bus_bits; break;
  case RM_FB_HEAP_FREE: *value = KIB_OF(gpu->vram.size - gpu->vram.used); break;
  case RM_FB_L2_SIZE: *value = m->l2_bytes; break;
  default: return false;
  }
  return true;
}

typedef bool lookup(const struct nv_gpu *gpu, uint32_t index, uint32_t *value);
static uint32_t fill_list(call *c, object *o, struct rm_info *list, uint32_t n, lookup *value, const char *what) {
  for (uint32_t i = 0; i < n; i++)
    if (!value(o->gpu, list[i].index, &list[i].data))
      return RM_REFUSE(c->m, RM_NOT_SUPPORTED, "not supported: %s 0x%x", what, list[i].index);
  return RM_OK;
}

static uint32_t fill_user_list(call *c, object *o, uint32_t n, uint64_t at, lookup *value, const char *what) {
  enum { MOST = 256 };
  struct rm_info list[MOST];
  if (n > MOST) return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "%s: a list of %u", what, n);
  if (user_read(list, at, n * sizeof list[0]))
    return RM_REFUSE(c->m, RM_INVALID_ADDRESS, "%s: list at 0x%llx", what, (unsigned long long)at);
  uint32_t status = fill_list(c, o, list, n, value, what);
  if (!status && user_write(at, list, n * sizeof list[0]))
    status = RM_REFUSE(c->m, RM_INVALID_ADDRESS, "%s: list at 0x%llx", what, (unsigned long long)at);
  return status;
}

/* With one graphics engine and without MIG, routing has no effect. */
static uint32_t gr_info(call *c, object *o, void *params, uint32_t size) {
  const struct rm_gr_info *p = params;
  return fill_user_list(c, o, p->count, p->list, gr_value, "GR_GET_INFO");
}
static uint32_t gr_info_v2(call *c, object *o, void *params, uint32_t size) {
  struct rm_gr_info_v2 *p = params;
  if (p->count > (size - 4 - sizeof(struct rm_gr_route)) / sizeof(struct rm_info))
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "GR_GET_INFO_V2: a list of %u", p->count);
  return fill_list(c, o, p->list, p->count, gr_value, "GR_GET_INFO_V2");
}
static uint32_t fb_info(call *c, object *o, void *params, uint32_t size) {
  const struct rm_fb_info *p = params;
  return fill_user_list(c, o, p->count, p->list, fb_value, "FB_GET_INFO");
}
static uint32_t fb_info_v2(call *c, object *o, void *params, uint32_t size) {
  struct rm_fb_info_v2 *p = params;
  if (p->count > (size - 4) / sizeof(struct rm_info))
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "FB_GET_INFO_V2: a list of %u", p->count);
  return fill_list(c, o, p->list, p->count, fb_value, "FB_GET_INFO_V2");
}

static uint32_t gpc_mask(call *c, object *o, void *params, uint32_t size) {
  ((struct rm_gpc_mask *)params)->gpc_mask = (1u << o->gpu->model->gpcs) - 1;
  return RM_OK;
}
static uint32_t tpc_mask(call *c, object *o, void *params, uint32_t size) {
  struct rm_tpc_mask *p = params;
  if (p->gpc_id >= o->gpu->model->gpcs)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "GR_GET_TPC_MASK: GPC %u", p->gpc_id);
  p->tpc_mask = nv_model_tpc_mask(o->gpu->model, p->gpc_id);
  return RM_OK;
}
static uint32_t ctx_buffer_size(call *c, object *o, void *params, uint32_t size) {
  struct rm_ctx_buffer_size *p = params;
  uint32_t status = RM_OK;
  if (nv_rm_find_kind(c->m, o->client, p->channel, 1u << RM_KIND_CHANNEL, "GR_GET_CTX_BUFFER_SIZE: hChannel", &status))
    p->size = NV_CONTEXT_BYTES;
  return status;
}
static uint32_t flush_gpu_cache(call *c, object *o, void *params, uint32_t size) {
  const struct rm_flush_gpu_cache *p = params;
  return p->count > 500 || (p->flags & 3) == 3 ? RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "FLUSH_GPU_CACHE") : RM_OK;
}

/* ---- time ---- */

static uint32_t timer_time(call *c, object *o, void *params, uint32_t size) {
  ((struct rm_timer_time *)params)->ns = nv_engines_time(o->gpu->engines);
  return RM_OK;
}

static uint64_t clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint32_t time_correlation(call *c, object *o, void *params, uint32_t size) {
  enum { OSTIME = 1, TSC = 2, PLATFORM = 3 };
  struct rm_time_correlation *p = params;
  if (!p->count || p->count > 16 || p->cpu_clock < OSTIME || p->cpu_clock > PLATFORM)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "GET_GPU_CPU_TIME_CORRELATION_INFO: clock %u, %u samples", p->cpu_clock,
                     p->count);
  for (unsigned i = 0; i < p->count; i++) {
    struct rm_time_sample *s = &p->samples[i];
    if (p->cpu_clock == OSTIME) s->cpu_time = clock_ns(CLOCK_REALTIME) / 1000;
#if defined(__x86_64__)
    if (p->cpu_clock == TSC) s->cpu_time = __rdtsc();
#else
    if (p->cpu_clock == TSC) return RM_REFUSE(c->m, RM_NOT_SUPPORTED, "not supported: a TSC on this host");
#endif
    if (p->cpu_clock == PLATFORM) s->cpu_time = clock_ns(CLOCK_MONOTONIC_RAW);
    s->gpu_time = nv_engines_time(o->gpu->engines);
  }
  return RM_OK;
}

#define CLIENT                        1u << RM_KIND_CLIENT
#define DEVICE                        1u << RM_KIND_DEVICE
#define SUBDEVICE                     1u << RM_KIND_SUBDEVICE
#define Q(name, kinds, type, handler) {(uint32_t)RM_CTRL_##name, kinds, sizeof(struct type), 0, handler}
#define QB(name, kinds, member, handler)                                                                               \
  {(uint32_t)RM_CTRL_##name, kinds, sizeof(struct rm_##member), offsetof(struct rm_branch, member), handler}
const struct rm_control_type nv_rm_query_controls[] = {
    Q(ATTACHED_IDS, CLIENT, rm_attached_ids, attached_ids),
    Q(GPU_ID_INFO, CLIENT, rm_gpu_id_info, gpu_id_info),
    Q(ATTACH_IDS, CLIENT, rm_attach_ids, attach_ids),
    Q(GPU_PCI_INFO, CLIENT, rm_gpu_pci_info, gpu_pci_info),
    QB(P2P_CAPS_V2, CLIENT, p2p_caps_v2, p2p_caps_v2),
    QB(BUILD_VERSION, CLIENT, build_version, build_version),
    QB(PROBED_IDS, CLIENT, probed_ids, probed_ids),
    QB(CC_CAPABILITIES, 1u << RM_KIND_CC, cc_capabilities, cc_capabilities),
    Q(CLASS_LIST, DEVICE, rm_class_list, class_list),
    QB(CLASS_LIST_V2, DEVICE, class_list_v2, class_list_v2),
    {0x800280, DEVICE, sizeof(uint32_t), 0, num_subdevices},
    Q(GID_INFO, SUBDEVICE, rm_gid_info, gid_info),
    QB(NAME_STRING, SUBDEVICE, name_string, name_string),
    {0x20800111, SUBDEVICE, 64, 0, short_name},
    QB(ENGINES_V2, SUBDEVICE, engines_v2, engines),
    Q(RECOVERY_ACTION, SUBDEVICE, rm_recovery_action, recovery_action),
    Q(EVENT_SET_NOTIFICATION, SUBDEVICE, rm_event_set_notification, nv_rm_event_enable),
    Q(TIMER_TIME, SUBDEVICE, rm_timer_time, timer_time),
    Q(TIME_CORRELATION, SUBDEVICE, rm_time_correlation, time_correlation),
    Q(GR_INFO, SUBDEVICE, rm_gr_info, gr_info),
    {RM_CTRL_GR_INFO_V2, SUBDEVICE, 496, offsetof(struct rm_branch, gr_info_v2), gr_info_v2},
    Q(CTX_BUFFER_SIZE, SUBDEVICE, rm_ctx_buffer_size, ctx_buffer_size),
    Q(GPC_MASK, SUBDEVICE, rm_gpc_mask, gpc_mask),
    Q(TPC_MASK, SUBDEVICE, rm_tpc_mask, tpc_mask),
    Q(FB_INFO, SUBDEVICE, rm_fb_info, fb_info),
    QB(FB_INFO_V2, SUBDEVICE, fb_info_v2, fb_info_v2),
    Q(FLUSH_GPU_CACHE, SUBDEVICE, rm_flush_gpu_cache, flush_gpu_cache),
    Q(ARCH_INFO, SUBDEVICE, rm_arch_info, arch_info),
    {0x20801801, SUBDEVICE, 16, 0, pci_info},
    Q(PERF_BOOST, SUBDEVICE, rm_perf_boost, perf_boost),
    {RM_CTRL_RATED_TDP_GET, SUBDEVICE, sizeof(struct rm_rated_tdp), offsetof(struct rm_branch, rated_tdp),
     rated_tdp_get},
    {RM_CTRL_RATED_TDP_SET, SUBDEVICE, sizeof(struct rm_rated_tdp), offsetof(struct rm_branch, rated_tdp),
     rated_tdp_set},
    QB(CE_CAPS, SUBDEVICE, ce_caps, ce_caps),
    Q(CE_CAPS_V2, SUBDEVICE, rm_ce_caps_v2, ce_caps_v2),
    Q(CE_PCE_MASK, SUBDEVICE, rm_ce_pce_mask, ce_pce_mask),
    {0},
};
