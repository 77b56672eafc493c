/* Launches a grid from a QMD: what the hardware's scheduler (SKED) checks, executes and signals. Fields:
 * hcq/nv/qmd.def. Limits: NVIDIA CUDA programming guide, compute capabilities; Mesa NVK for the values that drivers
 * write.
 *
 * A QMD runs when it is scheduled and its dependence counter is 0. After its grid come its release semaphores, then the
 * QMDs that depend on it. */
#include "engines.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
  MAX_THREADS = 1024,
  MAX_BARRIERS = 16,
  MAX_REGISTERS = 255,
  PARTITIONS = 4, /* per SM: the warps of a CTA go to them in turn */
  PARTITION_REGISTERS = 16384,
  REGISTER_UNIT = 8,
  MAX_CLUSTER = 16,
  SHARED_UNIT = 128,
  SHARED_RESERVED = 1024,
  LOCAL_UNIT = 16,
  CONSTANT_ALIGN = 64,
  CONSTANT_MAX = 65536,
  PROGRAM_ALIGN = 128,
  CHAIN_MAX = 1 << 20, /* most QMDs that one method may start; more is a cycle */
};

/* The launch of one QMD. */
struct launch {
  struct nv_channel *ch;
  struct nv_object *o;
  enum qmd_version v;
  uint64_t va;
  uint32_t q[QMD_MAX_WORDS];
};
#define GET(field)       ((uint32_t)qmd_get(l->q, l->v, QMD_##field, 0))
#define GET_AT(field, i) ((uint32_t)qmd_get(l->q, l->v, QMD_##field, i))
#define PAIR(field, i)   qmd_get_pair(l->q, l->v, QMD_##field, i)
/* Each release semaphore has its own fields, which are adjacent in the table. */
#define RELEASE(field, i) ((uint32_t)qmd_get(l->q, l->v, (enum qmd_field)(QMD_RELEASE0_##field + (i)), 0))
_Static_assert(QMD_RELEASE2_ADDR_LOWER == QMD_RELEASE0_ADDR_LOWER + 4 &&
                   QMD_RELEASE2_PAYLOAD_LOWER == QMD_RELEASE0_PAYLOAD_LOWER + 4 &&
                   QMD_RELEASE2_PAYLOAD64B == QMD_RELEASE0_PAYLOAD64B + 2,
               "order of qmd.def");

enum qmd_version nv_qmd_version(const struct nv_object *o) {
  static const uint8_t by_group[NV_GROUPS] = {QMD_V03, QMD_V03, QMD_V04, QMD_V05, QMD_V05};
  return (enum qmd_version)by_group[o->group];
}

/* Scheduler errors are exceptions of the graphics engine. */
static enum nv_status refuse_qmd(struct launch *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static enum nv_status refuse_qmd(struct launch *l, const char *format, ...) {
  struct nv_channel_error e = {.xid = NV_XID_GR_EXCEPTION,
                               .fault = {.kind = FAULT_PACKET, .address = l->va, .access = VM_READ, .lane = -1}};
  char where[256], what[200];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  nv_position(l->ch, where, sizeof where);
  snprintf(e.fault.text, sizeof e.fault.text, "%s: QMD at 0x%" PRIx64 ": %s", where, l->va, what);
  return nv_channel_fail(l->ch, &e);
}

static enum nv_status load_qmd(struct launch *l) {
  uint64_t bad = l->va;
  race_task = race_front(l->ch->race);
  bool read = vm_read(l->ch->d.vm, l->va, l->q, 4 * qmd_words(l->v), &bad);
  race_task = NULL;
  if (!read) return nv_page_fault(l->ch, "the scheduler's fetch of a QMD", bad, VM_READ);
  return NV_DONE;
}

/* ---- checks ---- */

/* Fields that must be 0: features that are not emulated, and fields that hardware reserves for itself. */
static const struct {
  enum qmd_field field;
  bool hardware;
} zero[] = {
    {QMD_CIRCULAR_QUEUE_SIZE},
    {QMD_SELF_COPY_ON_COMPLETION},
    {QMD_ARRIVE_AT_LATCH_VALID},
    {QMD_WAIT_ON_LATCH_VALID},
    {QMD_CWD_REFERENCE_COUNT_INCR_ENABLE},
    {QMD_CWD_REFERENCE_COUNT_DECR_ENABLE},
    {QMD_SHARED_ALLOCATION_ENABLE},
    {QMD_SHARED_MEM_BARRIER_INIT_ENABLE},
    {QMD_RUN_CTA_IN_ONE_SM_PARTITION},
    {QMD_GRID_WIDTH_RESUME},
    {QMD_GRID_HEIGHT_RESUME},
    {QMD_GRID_DEPTH_RESUME},
    {QMD_LARGE_GPC_CGA_WIDTH_MINUS_ONE},
    {QMD_LARGE_GPC_CGA_HEIGHT_MINUS_ONE},
    {QMD_HW_ONLY_SKED_NEXT_QMD_POINTER, true},
    {QMD_HW_ONLY_DEPENDENCE_COUNTER, true},
    {QMD_HW_ONLY_SPAN_LIST_HEAD_INDEX, true},
    {QMD_HW_ONLY_SPAN_LIST_HEAD_INDEX_VALID, true},
    {QMD_HW_ONLY_REQUIRE_SCHEDULING_PCAS, true},
    {QMD_HW_ONLY_INNER_GET, true},
    {QMD_HW_ONLY_INNER_PUT, true},
    {QMD_OUTER_OVERFLOW, true},
    {QMD_OUTER_STICKY_OVERFLOW, true},
    {QMD_INNER_OVERFLOW, true},
    {QMD_INNER_STICKY_OVERFLOW, true},
};

static enum nv_status check_kind(struct launch *l) {
  unsigned major = GET(QMD_MAJOR_VERSION), minor = GET(QMD_MINOR_VERSION), type = GET(QMD_TYPE);
  if (major != qmd_major(l->v) || minor)
    return refuse_qmd(l, "version %u.%u, class 0x%x takes %u.0", major, minor, l->o->class, qmd_major(l->v));
  for (unsigned i = 0; i < qmd_words(l->v); i++) {
    uint32_t reserved = l->q[i] & ~l->ch->e->qmd_bits[l->v][i];
    if (reserved) return refuse_qmd(l, "dword %u = 0x%08x sets reserved bits 0x%08x", i, l->q[i], reserved);
  }
  for (size_t i = 0; i < sizeof zero / sizeof *zero; i++)
    if (qmd_get(l->q, l->v, zero[i].field, 0))
      return refuse_qmd(l, zero[i].hardware ? "%s belongs to the hardware" : "not supported: %s",
                        qmd_field_info(zero[i].field)->name);
  if (l->v == QMD_V03 ? GET(IS_QUEUE) : l->v == QMD_V05 && type == QMD_TYPE_QUEUE)
    return refuse_qmd(l, "not supported: queues");
  if (type > QMD_TYPE_GRID_GPU_GPC_CGA) return refuse_qmd(l, "type %u", type);
  if (type >= QMD_TYPE_GRID_GPU_CGA) return refuse_qmd(l, "not supported: type %u, clusters of the whole GPU", type);
  return NV_DONE;
}

static enum nv_status check_grid(struct launch *l, struct sm_grid *g) {
  static const uint32_t max_block[3] = {1024, 1024, 64};
  const enum qmd_field grid[3] = {QMD_GRID_WIDTH, QMD_GRID_HEIGHT, QMD_GRID_DEPTH};
  const enum qmd_field block[3] = {QMD_CTA_THREAD_DIMENSION0, QMD_CTA_THREAD_DIMENSION1, QMD_CTA_THREAD_DIMENSION2};
  const enum qmd_field cga[3] = {QMD_GPC_CGA_WIDTH, QMD_GPC_CGA_HEIGHT, QMD_GPC_CGA_DEPTH};
  bool clusters = GET(QMD_TYPE) == QMD_TYPE_GRID_GPC_CGA;
  for (int k = 0; k < 3; k++) {
    g->grid[k] = (uint32_t)qmd_get(l->q, l->v, grid[k], 0);
    g->block[k] = (uint32_t)qmd_get(l->q, l->v, block[k], 0);
    g->cluster[k] = (uint32_t)qmd_get(l->q, l->v, cga[k], 0);
    if (!g->grid[k] || g->grid[k] > INT32_MAX) return refuse_qmd(l, "grid dimension %d is %u", k, g->grid[k]);
    if (!g->block[k] || g->block[k] > max_block[k]) return refuse_qmd(l, "CTA dimension %d is %u", k, g->block[k]);
    if (!clusters && g->cluster[k] > 1)
      return refuse_qmd(l, "a cluster of %u, but type %u", g->cluster[k], GET(QMD_TYPE));
    if (!clusters) g->cluster[k] = 1;
    if (!g->cluster[k] || g->grid[k] % g->cluster[k])
      return refuse_qmd(l, "grid dimension %d is %u, in clusters of %u", k, g->grid[k], g->cluster[k]);
  }
  if (g->block[0] * g->block[1] * g->block[2] > MAX_THREADS)
    return refuse_qmd(l, "a CTA of %u x %u x %u exceeds %d threads", g->block[0], g->block[1], g->block[2],
                      MAX_THREADS);
  if (g->cluster[0] * g->cluster[1] * g->cluster[2] > MAX_CLUSTER)
    return refuse_qmd(l, "a cluster of %u x %u x %u exceeds %d CTAs", g->cluster[0], g->cluster[1], g->cluster[2],
                      MAX_CLUSTER);
  return NV_DONE;
}

/* The valid sizes of an SM's shared memory in KiB. A field holds KiB / 4 + 1. */
static bool shared_config(const struct nv_model *m, unsigned code) {
  static const uint16_t kib[] = {0, 8, 16, 32, 64, 100, 132, 164, 196, 228};
  unsigned largest = m->shared_kib_per_sm;
  for (size_t i = 0; i < sizeof kib / sizeof *kib; i++)
    if (code == kib[i] / 4u + 1) return kib[i] <= largest;
  return false;
}

static enum nv_status check_shared(struct launch *l, struct sm_grid *g) {
  const struct nv_model *m = l->ch->e->config.model;
  const enum qmd_field fields[3] = {QMD_MIN_SM_CONFIG_SHARED_MEM_SIZE, QMD_TARGET_SM_CONFIG_SHARED_MEM_SIZE,
                                    QMD_MAX_SM_CONFIG_SHARED_MEM_SIZE};
  unsigned code[3];
  g->shared_size = GET(SHARED_MEMORY_SIZE);
  for (int i = 0; i < 3; i++) {
    code[i] = (unsigned)qmd_get(l->q, l->v, fields[i], 0);
    if (!shared_config(m, code[i]))
      return refuse_qmd(l, "%s %u is not a configuration", qmd_field_info(fields[i])->name, code[i]);
  }
  if (code[0] > code[1] || code[1] > code[2])
    return refuse_qmd(l, "shared memory configurations %u, %u, %u of MIN, TARGET, MAX are not ascending", code[0],
                      code[1], code[2]);
  if (g->shared_size % SHARED_UNIT)
    return refuse_qmd(l, "SHARED_MEMORY_SIZE %u is not a multiple of %d", g->shared_size, SHARED_UNIT);
  if (g->shared_size > m->shared_bytes_per_cta + SHARED_RESERVED)
    return refuse_qmd(l, "SHARED_MEMORY_SIZE %u, a CTA can have %u", g->shared_size,
                      m->shared_bytes_per_cta + SHARED_RESERVED);
  if (g->shared_size > (code[2] - 1) * 4096)
    return refuse_qmd(l, "SHARED_MEMORY_SIZE %u with a largest configuration of %u KiB", g->shared_size,
                      (code[2] - 1) * 4);
  return NV_DONE;
}

/* Checks the set-up of local memory: it must have room for each warp that can be resident. The emulated SMs allocate
 * their local memory themselves. */
static enum nv_status check_local(struct launch *l, struct sm_grid *g) {
  const struct nv_model *m = l->ch->e->config.model;
  uint32_t low = GET(SHADER_LOCAL_MEMORY_LOW_SIZE), high = GET(SHADER_LOCAL_MEMORY_HIGH_SIZE);
  if (low % LOCAL_UNIT || high % LOCAL_UNIT)
    return refuse_qmd(l, "local memory of %u and %u bytes, not multiples of %d", low, high, LOCAL_UNIT);
  g->local_size = low + high, g->local_high = high;
  if (!g->local_size) return NV_DONE;
  const struct nv_object *o = l->o;
  uint64_t base = nv_reg64(o, NV_COMPUTE_SET_SHADER_LOCAL_MEMORY_A, NV_COMPUTE_SET_SHADER_LOCAL_MEMORY_B);
  uint64_t per_tpc = nv_reg64(o, NV_COMPUTE_SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A,
                              NV_COMPUTE_SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B);
  uint64_t need = 32ull * g->local_size * m->max_warps_per_sm * m->sms_per_tpc;
  if (need > per_tpc)
    return refuse_qmd(l, "%u bytes of local memory a thread need %" PRIu64 " a TPC, NON_THROTTLED is %" PRIu64,
                      g->local_size, need, per_tpc);
  uint64_t tpcs = m->sms / m->sms_per_tpc, at = base;
  struct vm_range range = {0};
  for (uint64_t end = base + per_tpc * tpcs; at < end; at = range.end)
    if (!vm_find(l->ch->d.vm, at, &range) || !(range.access & VM_WRITE))
      return nv_page_fault(l->ch, "local memory", at, VM_WRITE);
  return NV_DONE;
}

static enum nv_status check_program(struct launch *l, struct sm_grid *g) {
  const struct nv_model *m = l->ch->e->config.model;
  uint32_t threads = g->block[0] * g->block[1] * g->block[2], version = GET(SASS_VERSION);
  struct vm_range code;
  g->pgm = PAIR(PROGRAM_ADDRESS_LOWER, 0);
  g->version = version;
  g->registers = GET(REGISTER_COUNT);
  g->barriers = GET(BARRIER_COUNT);
  if (version >> 4 != m->sass_version >> 4 || version > m->sass_version)
    return refuse_qmd(l, "SASS_VERSION 0x%x, the GPU executes 0x%x", version, m->sass_version);
  if (g->pgm % PROGRAM_ALIGN)
    return refuse_qmd(l, "program 0x%" PRIx64 " is not %d-byte aligned", g->pgm, PROGRAM_ALIGN);
  if (!g->registers || g->registers > MAX_REGISTERS) return refuse_qmd(l, "%u registers", g->registers);
  uint32_t unit = (g->registers + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
  uint32_t warps = ((threads + 31) / 32 + PARTITIONS - 1) / PARTITIONS;
  if (unit * 32 * warps > PARTITION_REGISTERS)
    return refuse_qmd(l, "%u threads with %u registers exceed the %d of an SM", threads, g->registers,
                      PARTITIONS * PARTITION_REGISTERS);
  if (g->barriers > MAX_BARRIERS) return refuse_qmd(l, "%u barriers", g->barriers);
  if (!vm_find(l->ch->d.vm, g->pgm, &code) || !(code.access & VM_READ))
    return nv_page_fault(l->ch, "the fetch of a program", g->pgm, VM_READ);
  return NV_DONE;
}

static enum nv_status check_constants(struct launch *l, struct sm_grid *g) {
  for (unsigned i = 0; i < SM_CONSTANT_BANKS; i++) {
    if (!GET_AT(CONSTANT_BUFFER_VALID, i)) continue;
    uint64_t va = PAIR(CONSTANT_BUFFER_ADDR_LOWER, i);
    uint32_t size = GET_AT(CONSTANT_BUFFER_SIZE, i);
    if (va % CONSTANT_ALIGN)
      return refuse_qmd(l, "constant bank %u at 0x%" PRIx64 " is not %d-byte aligned", i, va, CONSTANT_ALIGN);
    g->bank[i] = (struct sm_constant_bank){va, size > CONSTANT_MAX ? CONSTANT_MAX : size};
  }
  return NV_DONE;
}

/* Sets the windows in generic address space. From Hopper on, bits 24 and up of a shared address hold the CTA's rank, so
 * that window takes 4 GiB. */
static enum nv_status check_windows(struct launch *l, struct sm_grid *g) {
  const struct nv_object *o = l->o;
  uint64_t shared_size = o->group >= 2 ? 1ull << 32 : 1ull << 24, local_size = 1ull << 24;
  g->shared_window =
      nv_reg64(o, NV_COMPUTE_SET_SHADER_SHARED_MEMORY_WINDOW_A, NV_COMPUTE_SET_SHADER_SHARED_MEMORY_WINDOW_B);
  g->local_window =
      nv_reg64(o, NV_COMPUTE_SET_SHADER_LOCAL_MEMORY_WINDOW_A, NV_COMPUTE_SET_SHADER_LOCAL_MEMORY_WINDOW_B);
  if (g->shared_window % shared_size || g->local_window % local_size)
    return refuse_qmd(
        l, "windows of shared memory 0x%" PRIx64 " and local memory 0x%" PRIx64 " are not aligned to their size",
        g->shared_window, g->local_window);
  if (g->shared_window && g->local_window - g->shared_window < shared_size)
    return refuse_qmd(l, "the windows of shared and local memory overlap");
  return NV_DONE;
}

/* ---- after the grid ---- */

static enum nv_status release_semaphores(struct launch *l) {
  for (unsigned i = 0; i < 3; i++) {
    unsigned size = RELEASE(STRUCTURE_SIZE, i), format = RELEASE(REDUCTION_FORMAT, i);
    bool wide = RELEASE(PAYLOAD64B, i);
    if (!RELEASE(ENABLE, i)) continue;
    if (RELEASE(TRAP_TYPE, i)) return refuse_qmd(l, "not supported: a trap of release semaphore %u", i);
    if (size > QMD_RELEASE_TWO_WORDS || (size == QMD_RELEASE_ONE_WORD && wide) ||
        (size == QMD_RELEASE_TWO_WORDS && !wide) || format > 1)
      return refuse_qmd(l, "release semaphore %u: structure size %u with a payload of %u bits, reduction format %u", i,
                        size, wide ? 64 : 32, format);
    struct nv_semaphore s = {
        .what = "a QMD's release semaphore",
        .va = qmd_get_pair(l->q, l->v, (enum qmd_field)(QMD_RELEASE0_ADDR_LOWER + 2 * i), 0),
        .payload = qmd_get_pair(l->q, l->v, (enum qmd_field)(QMD_RELEASE0_PAYLOAD_LOWER + 2 * i), 0),
        .wide = wide,
        .timestamp = size == QMD_RELEASE_FOUR_WORDS,
        .is_signed = format,
    };
    if (RELEASE(REDUCTION_ENABLE, i)) s.reduction = nv_reduction_of_qmd(RELEASE(REDUCTION_OP, i));
    if (nv_semaphore_release(l->ch, &s) != NV_DONE) return NV_DEAD;
  }
  return NV_DONE;
}

/* ---- scheduling ---- */

/* QMDs that are ready to run, in order. */
struct ready {
  uint64_t va[NV_PENDING_MAX];
  unsigned first, n;
};

static struct nv_pending *find_pending(struct nv_channel *ch, uint64_t va) {
  unsigned i = 0;
  while (i < ch->npending && ch->pending[i].va != va) i++;
  return i < ch->npending ? &ch->pending[i] : NULL;
}

/* Adds change to the QMD's dependence counter. The QMD becomes ready when the counter is 0 and it was scheduled. The
 * last decrement schedules it, too, unless the QMD requires a separate action. */
static enum nv_status change_dependence(struct nv_channel *ch, struct nv_object *o, struct ready *ready, uint64_t va,
                                        int change, bool schedule) {
  struct launch l = {.ch = ch, .o = o, .v = nv_qmd_version(o), .va = va};
  if (load_qmd(&l) != NV_DONE) return NV_DEAD;
  struct nv_pending *p = find_pending(ch, va);
  struct nv_pending now =
      p ? *p : (struct nv_pending){va, (uint32_t)qmd_get(l.q, l.v, QMD_DEPENDENCE_COUNTER, 0), false};
  if (change < 0 && !now.count) return refuse_qmd(&l, "its dependence counter is already 0");
  now.count += (uint32_t)change;
  now.scheduled |= schedule;
  bool last = change < 0 && !qmd_get(l.q, l.v, QMD_REQUIRE_SCHEDULING_PCAS, 0);
  if (!now.count && (now.scheduled || last)) {
    if (p) *p = ch->pending[--ch->npending];
    if (ready->n == NV_PENDING_MAX)
      return refuse_qmd(&l, "not supported: more than %d dependent QMDs at a time", NV_PENDING_MAX);
    ready->va[(ready->first + ready->n++) % NV_PENDING_MAX] = va;
    return NV_DONE;
  }
  if (!p) {
    if (ch->npending == NV_PENDING_MAX)
      return refuse_qmd(&l, "not supported: more than %d waiting QMDs", NV_PENDING_MAX);
    p = &ch->pending[ch->npending++];
  }
  *p = now;
  return NV_DONE;
}

static enum nv_status schedule_dependents(struct launch *l, struct ready *ready) {
  for (unsigned i = 0; i < 2; i++) {
    if (!qmd_get(l->q, l->v, (enum qmd_field)(QMD_DEPENDENT_QMD0_ENABLE + i), 0)) continue;
    enum qmd_field pointer = (enum qmd_field)(QMD_DEPENDENT_QMD0_POINTER + i);
    unsigned action = (unsigned)qmd_get(l->q, l->v, (enum qmd_field)(QMD_DEPENDENT_QMD0_ACTION + i), 0);
    uint64_t va = qmd_get(l->q, l->v, pointer, 0);
    if (!qmd_has(l->v, pointer)) return refuse_qmd(l, "not supported: dependent QMD %u", i);
    enum nv_status status = NV_DONE;
    switch (action) {
    case QMD_DEPENDENT_SCHEDULE:
    case QMD_DEPENDENT_INVALIDATE_COPY_SCHEDULE: status = change_dependence(l->ch, l->o, ready, va, 0, true); break;
    case QMD_DEPENDENT_DECREMENT_DEPENDENCE: status = change_dependence(l->ch, l->o, ready, va, -1, false); break;
    case QMD_DEPENDENT_INCREMENT_PUT: return refuse_qmd(l, "not supported: queues");
    default: return refuse_qmd(l, "dependent QMD %u: action %u", i, action);
    }
    if (status != NV_DONE) return status;
  }
  return NV_DONE;
}

static enum nv_status run_grid(struct launch *l) {
  const struct nv_model *m = l->ch->e->config.model;
  struct sm_grid g = {.vm = l->ch->d.vm, .sms = m->sms, .gpcs = m->gpcs};
  if (check_grid(l, &g) != NV_DONE || check_shared(l, &g) != NV_DONE || check_program(l, &g) != NV_DONE ||
      check_local(l, &g) != NV_DONE || check_constants(l, &g) != NV_DONE || check_windows(l, &g) != NV_DONE)
    return NV_DEAD;
  if (GET(INVALIDATE_INSTRUCTION_CACHE)) code_cache_invalidate(l->ch->space->code);
  return nv_grid_run(l->ch, &g, GET(SEQUENTIALLY_RUN_CTAS));
}

/* Runs the ready QMDs, and those that become ready by that. */
static enum nv_status run_all(struct nv_channel *ch, struct nv_object *o, struct ready *ready) {
  for (unsigned n = 0; ready->n; n++) {
    struct launch l = {.ch = ch, .o = o, .v = nv_qmd_version(o), .va = ready->va[ready->first]};
    ready->first = (ready->first + 1) % NV_PENDING_MAX;
    ready->n--;
    if (load_qmd(&l) != NV_DONE || check_kind(&l) != NV_DONE) return NV_DEAD;
    if (n) nv_idle(ch); /* a dependent QMD starts after the QMD that names it has finished */
    if (n == CHAIN_MAX) return refuse_qmd(&l, "the dependent QMDs form a loop");
    if (qmd_get(l.q, l.v, QMD_QMD_TYPE, 0) != QMD_TYPE_GRID_NULL && run_grid(&l) != NV_DONE) return NV_DEAD;
    if (release_semaphores(&l) != NV_DONE || schedule_dependents(&l, ready) != NV_DONE) return NV_DEAD;
  }
  return NV_DONE;
}

enum nv_status nv_qmd_schedule(struct nv_channel *ch, struct nv_object *o, uint64_t va) {
  struct ready ready = {.n = 0};
  enum nv_status status = change_dependence(ch, o, &ready, va, 0, true);
  return status == NV_DONE ? run_all(ch, o, &ready) : status;
}

enum nv_status nv_qmd_action(struct nv_channel *ch, struct nv_object *o, uint64_t va, unsigned action) {
  struct ready ready = {.n = 0};
  struct nv_pending *p = find_pending(ch, va);
  enum nv_status status;
  switch (action) {
  case NV_PCAS_NOP:
  case NV_PCAS_PREFETCH: return NV_DONE;
  case NV_PCAS_INVALIDATE:
    if (p) *p = ch->pending[--ch->npending];
    return NV_DONE;
  case NV_PCAS_SCHEDULE:
  case NV_PCAS_INVALIDATE_COPY_SCHEDULE:
  case NV_PCAS_PREFETCH_SCHEDULE:
  case NV_PCAS_INVALIDATE_PREFETCH_COPY_SCHEDULE:
  case NV_PCAS_INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING: return nv_qmd_schedule(ch, o, va);
  case NV_PCAS_DECREMENT_DEPENDENCE:
    status = change_dependence(ch, o, &ready, va, -1, false);
    return status == NV_DONE ? run_all(ch, o, &ready) : status;
  case NV_PCAS_INCREMENT_DEPENDENCE:
    if (o->group) return change_dependence(ch, o, &ready, va, 1, false);
    return nv_method_error(ch, "PCAS action %u", action);
  case NV_PCAS_INCREMENT_CWD_REF_COUNTER:
  case NV_PCAS_INCREMENT_PUT: return nv_method_error(ch, "not supported: PCAS action %u", action);
  default: return nv_method_error(ch, "PCAS action %u", action);
  }
}
