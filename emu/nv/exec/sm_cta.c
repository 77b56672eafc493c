/* Clusters of CTAs: launches their warps as the grid specifies, and runs them in turns on one host thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sm_core.h"

enum { FILE_WORDS = SM_FILE_ROWS * SM_LANES };

void sm_core_free(struct sm_core *core) {
  if (!core) return;
  for (unsigned i = 0; i < SM_CONSTANT_BANKS; i++) free(core->bank_copy[i]);
  free(core->warp), free(core->files), free(core->shared), free(core->local), free(core->late);
  free(core);
}

struct sm_core *sm_core_new(void) { return calloc(1, sizeof(struct sm_core)); }

static int refuse_launch(struct fault *fault, const uint32_t first[3], const char *text) {
  memset(fault, 0, sizeof *fault);
  fault->kind = FAULT_PACKET, fault->lane = -1;
  memcpy(fault->workgroup, first, sizeof fault->workgroup);
  snprintf(fault->text, sizeof fault->text, "%s", text);
  return -EFAULT;
}

/* Replaces memory that is too small by a larger zeroed allocation; the old contents are lost. */
static bool ensure_capacity(void *piece, size_t *cap, size_t count, size_t size) {
  void *p;
  if (count <= *cap) return true;
  memcpy(&p, piece, sizeof p);
  free(p);
  size_t bytes = (count * size + 127) & ~(size_t)127;
  p = aligned_alloc(128, bytes);
  memcpy(piece, &p, sizeof p);
  *cap = p ? count : 0;
  return p;
}

static bool reserve_warps(struct sm_core *core, const struct sm_grid *g, uint32_t ctas, uint32_t warps) {
  size_t all = (size_t)ctas * warps;
  if (all > core->warps_cap) {
    size_t cap = core->warps_cap;
    if (!ensure_capacity(&core->files, &core->warps_cap, all, FILE_WORDS * 4)) return false;
    memset(core->files, 0, all * FILE_WORDS * 4);
    if (!ensure_capacity(&core->warp, &cap, all, sizeof *core->warp)) {
      core->warps_cap = 0;
      return false;
    }
    memset(core->warp, 0, all * sizeof *core->warp);
  }
  size_t shared = (g->shared_size + 127) & ~(size_t)127;
  if (!ensure_capacity(&core->shared, &core->shared_cap, ctas * shared, 1)) return false;
  if (all * g->local_size * SM_LANES > core->local_cap) {
    /* Use calloc: most of a large allocation is never touched. */
    free(core->local);
    core->local_cap = all * g->local_size * SM_LANES;
    core->local = calloc(core->local_cap, 1);
    if (!core->local) core->local_cap = 0;
    return core->local;
  }
  return true;
}

/* Binds the constant banks: in place if one mapping contains the readable part, else by a copy. */
static bool bind_banks(struct sm_core *core, const struct sm_grid *g, const uint32_t first[3], struct fault *fault) {
  enum { MOST = 64 << 10 };
  for (unsigned i = 0; i < SM_CONSTANT_BANKS; i++) {
    const struct sm_constant_bank *from = &g->bank[i];
    struct sm_bank *bank = &core->bank[i];
    struct vm_range range;
    uint64_t mapped = 0, at = 0;
    unsigned ranges = 0;
    *bank = (struct sm_bank){.va = from->va, .size = from->size};
    if (from->size > MOST) return !refuse_launch(fault, first, "a constant bank has at most 64 KiB");
    while (mapped < from->size && vm_find(g->vm, from->va + mapped, &range) && range.access & VM_READ) {
      bank->host = (const uint8_t *)(from->va + range.delta);
      mapped = range.end - from->va;
      ranges++;
    }
    bank->mapped = mapped < from->size ? (uint32_t)mapped : from->size;
    if (ranges < 2) continue;
    if (!core->bank_copy[i]) core->bank_copy[i] = malloc(MOST);
    bank->host = core->bank_copy[i];
    if (!bank->host) return !refuse_launch(fault, first, "no memory for a constant bank");
    if (!vm_read(g->vm, from->va, core->bank_copy[i], bank->mapped, &at)) bank->mapped = (uint32_t)(at - from->va);
  }
  return true;
}

static void launch_warp(struct sm_core *core, struct sm_cta *cta, uint32_t index, uint32_t threads,
                        const struct sm_uop *entry, uint32_t uniform_rows, struct sm_stats *stats,
                        struct fault *fault) {
  const struct sm_grid *g = core->grid;
  struct sm_warp *w = &cta->warp[index];
  size_t slot = (size_t)(w - core->warp);
  uint32_t lanes = threads - index * SM_LANES, *file = core->files + slot * FILE_WORDS;
  memset(w, 0, offsetof(struct sm_warp, group));
  w->r = file;
  w->present = lanes >= SM_LANES ? ~0u : (1u << lanes) - 1;
  w->p[SM_PT] = w->p[SM_UPT] = ~0u;
  w->cta = cta, w->index = index, w->vm = g->vm, w->grid = g, w->stats = stats, w->fault = fault, w->core = core;
  w->counts = stats->detail;
  w->local = g->local_size ? core->local + slot * g->local_size * SM_LANES : NULL;
  w->runnable = true, w->groups = 1;
  w->group[0] = (struct sm_group){.mask = w->present, .next = entry};
  w->run = entry;
  uint32_t registers = g->registers < 255 ? g->registers : 255;
  memset(file, 0, uniform_rows * SM_LANES * 4);
  memset(file + SM_ROW_ZERO * SM_LANES, 0, (size_t)(SM_ROW_R + registers - SM_ROW_ZERO) * SM_LANES * 4);
}

/* Launches the warps of all CTAs, which are in one array. */
static int launch_ctas(struct sm_core *core, struct code_cache *code, const struct sm_grid *g, const uint32_t first[3],
                       struct sm_stats *stats, struct fault *fault) {
  uint64_t threads = 1, ctas = 1;
  for (unsigned i = 0; i < 3; i++) {
    if (g->block[i] > SM_MAX_THREADS) return refuse_launch(fault, first, "a CTA has at most 1024 threads");
    if (g->cluster[i] > SM_MAX_CLUSTER) return refuse_launch(fault, first, "a cluster has at most 16 CTAs");
    threads *= g->block[i], ctas *= g->cluster[i] ? g->cluster[i] : 1;
  }
  if (threads > SM_MAX_THREADS) return refuse_launch(fault, first, "a CTA has at most 1024 threads");
  if (!threads) return refuse_launch(fault, first, "a CTA has no threads");
  if (ctas > SM_MAX_CLUSTER) return refuse_launch(fault, first, "a cluster has at most 16 CTAs");
  if (g->shared_size > SM_SHARED_BYTES)
    return refuse_launch(fault, first, "a CTA has at most 228 KiB of shared memory");
  if (g->local_size > 1 << 24) return refuse_launch(fault, first, "a thread has at most 16 MiB of local memory");
  uint32_t warps = (uint32_t)(threads + SM_LANES - 1) / SM_LANES, uniform_rows = SM_ROW_ZERO;
  if (!reserve_warps(core, g, (uint32_t)ctas, warps) ||
      (stats->sampler && !sm_sample_begin(stats->sampler, (size_t)ctas * warps)))
    return refuse_launch(fault, first, "no memory for the CTAs' registers");
  core->grid = g, core->code = code, core->ctas = (uint32_t)ctas;
  core->cluster_arrived = core->cluster_phase = 0, core->nlate = core->boxes = 0;
  if (!bind_banks(core, g, first, fault)) return -EFAULT;
  memset(core->jump, 0, sizeof core->jump);
  size_t shared = (g->shared_size + 127) & ~(size_t)127;
  for (uint32_t i = 0; i < ctas; i++) {
    struct sm_cta *cta = &core->cta[i];
    uint32_t cx = g->cluster[0] ? g->cluster[0] : 1, cy = g->cluster[1] ? g->cluster[1] : 1;
    memset(cta, 0, sizeof *cta);
    cta->core = core, cta->rank = i, cta->warps = cta->live = warps, cta->warp = core->warp + (size_t)i * warps;
    cta->id[0] = first[0] + i % cx, cta->id[1] = first[1] + i / cx % cy, cta->id[2] = first[2] + i / cx / cy;
    cta->shared = shared ? core->shared + i * shared : NULL, cta->shared_size = g->shared_size;
    for (unsigned k = 0; k < SM_BARRIERS; k++) cta->barrier[k].all = ~0u;
  }
  if (shared) memset(core->shared, 0, ctas * shared);
  /* The lookup needs a warp, to report a fault. */
  struct sm_warp *w = core->warp;
  memset(w, 0, offsetof(struct sm_warp, group));
  w->cta = &core->cta[0], w->vm = g->vm, w->grid = g, w->stats = stats, w->fault = fault, w->core = core;
  w->counts = stats->detail;
  const struct sm_uop *entry = sm_lookup(w, NULL, g->pgm, &uniform_rows);
  if (!entry) return -EFAULT;
  for (uint32_t i = 0; i < ctas; i++)
    for (uint32_t k = 0; k < warps; k++)
      launch_warp(core, &core->cta[i], k, (uint32_t)threads, entry, uniform_rows, stats, fault);
  return 0;
}

static const char *state_text(const struct sm_group *g) {
  static const char *const names[] = {
      [SM_RUNNING] = "runs",
      [SM_AT_BSYNC] = "waits at convergence barrier",
      [SM_AT_WARPSYNC] = "waits at WARPSYNC for lanes",
      [SM_AT_BARRIER] = "waits at CTA barrier",
      [SM_AT_CLUSTER] = "waits at the cluster's barrier, arrived warps",
  };
  return names[g->state];
}

/* Reports that every warp waits and none can continue. */
static int deadlock(struct sm_core *core) {
  uint32_t all = core->ctas * core->cta[0].warps;
  for (uint32_t i = 0; i < all; i++) {
    struct sm_warp *w = &core->warp[i];
    if (!w->groups) continue;
    const struct sm_group *g = &w->group[0];
    const struct sm_barrier *b = &w->cta->barrier[g->which % SM_BARRIERS];
    uint32_t detail = g->state == SM_AT_WARPSYNC  ? sm_b(w, SM_B_WARPSYNC)[__builtin_ctz(g->mask)]
                      : g->state == SM_AT_CLUSTER ? core->cluster_arrived
                                                  : g->which;
    w->run = NULL;
    sm_fault(w, g->next, FAULT_TRAP, 0, __builtin_ctz(g->mask), 0, 0,
             "deadlock: every warp waits and none can continue; lanes 0x%08x %s %u (%u threads arrived, %u expected)",
             g->mask, state_text(g), detail, b->arrived, b->expected ? b->expected : w->cta->live * SM_LANES);
    break;
  }
  return -EFAULT;
}

static int run_warps(struct sm_core *core) {
  uint32_t all = core->ctas * core->cta[0].warps;
  const atomic_bool *stop = core->grid->stop;
  for (;;) {
    uint32_t ended = 0;
    bool ran = false;
    for (uint32_t i = 0; i < all; i++) {
      struct sm_warp *w = &core->warp[i];
      if (!w->groups) ended++;
      if (!w->groups || !w->runnable) continue;
      ran = true;
      core->current = w;
      sm_run_warp(w);
      if (w->faulted) return -EFAULT;
      if (stop && atomic_load_explicit(stop, memory_order_relaxed)) {
        if (!w->groups) return -ECANCELED;
        w->run = NULL;
        sm_fault(w, w->group[0].next, FAULT_NONE, 0, -1, 0, 0, "still running");
        return -ECANCELED;
      }
    }
    if (ended == all) return 0;
    if (!ran) return deadlock(core);
  }
}

int sm_run_cluster(struct sm_core *core, struct code_cache *code, const struct sm_grid *g, const uint32_t first[3],
                   struct sm_stats *stats, struct fault *fault) {
  code_cache_enter(code);
  core->ctas = 0, core->current = NULL;
  int r = launch_ctas(core, code, g, first, stats, fault);
  if (!r) {
    r = run_warps(core);
    if (!r && core->nlate && !sm_abandon_copies(core)) r = -EFAULT;
    uint32_t warps = core->cta[0].warps;
    for (uint32_t i = 0; i < core->ctas * warps; i++) stats->instructions += core->warp[i].executed;
    stats->warps += (uint64_t)core->ctas * warps, stats->ctas += core->ctas;
  }
  sm_count_finish(stats);
  code_cache_leave(code);
  return r;
}

void sm_interrupted(struct sm_core *core, struct code_cache *code, uint64_t address, unsigned access,
                    struct fault *fault) {
  static const uint32_t nowhere[3];
  struct sm_warp *w = core->current;
  const char *verb = access & VM_WRITE ? "writes" : "reads";
  if (w) {
    /* The position in the straight-line run was in a register of the host, which is lost. */
    uint64_t pc = w->run ? w->run->inst->pc : core->grid->pgm;
    w->fault = fault;
    sm_fault(w, NULL, FAULT_PAGE, 0, -1, address, access,
             "page fault: %s 0x%llx, host memory that is no longer mapped, at or after pc 0x%llx", verb,
             (unsigned long long)address, (unsigned long long)pc);
  } else {
    refuse_launch(fault, nowhere, "");
    fault->kind = FAULT_PAGE, fault->address = address, fault->access = access;
    snprintf(fault->text, sizeof fault->text, "page fault: %s 0x%llx, host memory that is no longer mapped", verb,
             (unsigned long long)address);
  }
  if (w) sm_count_finish(w->stats);
  code_cache_leave(code);
}
