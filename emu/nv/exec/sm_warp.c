/* One warp: groups of lanes that diverge and converge, jumps, and faults.
 *
 * Lanes at one place form a group; the groups of a warp take turns. The group with the lowest address runs until it
 * reaches the place of another group (then they merge), waits, or has used up its time slice while others want to run.
 * Time slices make locks between lanes of a warp work. Source for what lanes may rely on: CUDA C++ Programming Guide,
 * "Independent Thread Scheduling"; for the instructions: ptxas output. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "sm_core.h"

enum {
  SLICE = 8192,       /* instructions that a warp executes before the next warp runs */
  GROUP_SLICE = 2048, /* the same for groups of one warp */
};

void sm_split(struct sm_warp *w, uint32_t mask, const struct sm_uop *next) {
  w->group[w->current].mask &= ~mask;
  w->active &= ~mask;
  w->group[w->groups++] = (struct sm_group){.mask = mask, .next = next, .turns = w->group[w->current].turns};
}

static void remove_group(struct sm_warp *w, uint32_t i) {
  w->groups--;
  if (i != w->groups) w->group[i] = w->group[w->groups];
}

/* Moves the lanes `free` of waiting group i to a running group. */
static void release_lanes(struct sm_warp *w, uint32_t i, uint32_t free) {
  struct sm_group *g = &w->group[i];
  w->alone = g->exclusive ? w->alone | free : w->alone & ~free;
  if (free == g->mask) {
    g->state = SM_RUNNING, g->exclusive = g->collective = false;
    return;
  }
  g->mask &= ~free;
  w->group[w->groups++] = (struct sm_group){.mask = free, .next = g->next, .turns = g->turns};
}

/* Returns the lanes that wait in the same state and at the same place as group g, for the same set of lanes. With
 * recursion other lanes at the same place may wait for a different set. */
static uint32_t waiting_for(const struct sm_warp *w, const struct sm_group *g, uint32_t set, uint32_t live) {
  const uint32_t *b = sm_b(w, g->which);
  uint32_t lanes = 0;
  for (uint32_t i = 0; i < w->groups; i++) {
    const struct sm_group *o = &w->group[i];
    if (o->state != g->state || o->which != g->which || (g->state == SM_AT_BSYNC && o->next != g->next)) continue;
    for (uint32_t m = o->mask; m; m &= m - 1)
      if ((b[__builtin_ctz(m)] & live) == set) lanes |= m & -m;
  }
  return lanes;
}

/* Releases the lanes that wait like g for the same set. The lanes of a collective all continue where g does. */
static void release_set(struct sm_warp *w, const struct sm_group *g, uint32_t lanes) {
  struct sm_group like = *g;
  uint32_t n = w->groups;
  for (uint32_t i = 0; i < n; i++) {
    struct sm_group *o = &w->group[i];
    if (o->state != like.state || o->which != like.which || !(o->mask & lanes)) continue;
    const struct sm_uop *next = o->next;
    bool rest = o->mask & ~lanes;
    if (like.collective && o->collective) o->next = like.next;
    release_lanes(w, i, o->mask & lanes);
    if (rest) w->group[i].next = next;
  }
}

/* Returns true if a set that continued alone is still running. */
static bool somebody_alone(const struct sm_warp *w) {
  for (uint32_t i = 0; i < w->groups; i++)
    if (w->group[i].state == SM_RUNNING && w->group[i].mask & w->alone) return true;
  return false;
}

/* Releases lanes that wait for lanes which have all arrived or exited. With exclusive, at most one set of those at
 * WARPSYNC.EXCLUSIVE; otherwise only lanes at other barriers. */
static void release_waiting(struct sm_warp *w, bool exclusive) {
  uint32_t live = sm_live(w);
  if (exclusive && somebody_alone(w)) return;
  for (uint32_t i = 0; i < w->groups; i++) {
    const struct sm_group *g = &w->group[i];
    if ((g->state != SM_AT_BSYNC && g->state != SM_AT_WARPSYNC) || g->exclusive != exclusive) continue;
    const uint32_t *b = sm_b(w, g->which);
    for (uint32_t left = g->mask; left;) {
      uint32_t set = b[__builtin_ctz(left)] & live, there = waiting_for(w, g, set, live);
      left &= ~there;
      if (set & ~there) continue;
      release_set(w, g, there);
      if (exclusive) return;
      if (g->state == SM_RUNNING) break;
    }
  }
}

static uint64_t pc_of(const struct sm_group *g) { return g->next->inst->pc; }

/* ---- uniform registers of groups that take turns ----
 *
 * A warp has one set of uniform registers. ptxas also keeps values in them on paths that only some lanes take. So an
 * interrupted group saves its values and restores them when it continues. */

static void save_uniforms(struct sm_warp *w, struct sm_group *g) {
  if (g->saved || g->state != SM_RUNNING) return;
  unsigned lane = (unsigned)__builtin_ctz(g->mask);
  uint32_t *to = sm_saved_uniforms(w, lane), predicates = 0;
  for (unsigned i = 0; i < SM_ROW_ZERO; i++) to[i] = w->r[(SM_ROW_UR + i) * SM_LANES];
  for (unsigned i = SM_UP; i < SM_UPT; i++) predicates |= (w->p[i] & 1) << (i - SM_UP);
  to[SM_ROW_ZERO] = predicates;
  g->saved = (uint8_t)(1 + lane);
}

/* Restores the uniform registers of group g. Groups that share the current values save a copy first. */
static void restore_uniforms(struct sm_warp *w, struct sm_group *g) {
  const uint32_t *from = sm_saved_uniforms(w, g->saved - 1u);
  for (uint32_t i = 0; i < w->groups; i++) save_uniforms(w, &w->group[i]);
  for (unsigned i = 0; i < SM_ROW_ZERO; i++)
    for (unsigned lane = 0; lane < SM_LANES; lane++) w->r[(SM_ROW_UR + i) * SM_LANES + lane] = from[i];
  for (unsigned i = SM_UP; i < SM_UPT; i++) w->p[i] = from[SM_ROW_ZERO] >> (i - SM_UP) & 1 ? ~0u : 0;
  g->saved = 0;
}

/* Merges running groups that are at the same place. */
static void merge_groups(struct sm_warp *w) {
  for (uint32_t i = 0; i < w->groups; i++) {
    struct sm_group *g = &w->group[i];
    if (g->state != SM_RUNNING) continue;
    for (uint32_t k = w->groups; k-- > i + 1;) {
      struct sm_group *o = &w->group[k];
      if (o->state != SM_RUNNING || o->next != g->next) continue;
      g->mask |= o->mask;
      if (!o->saved) g->saved = 0;
      if (o->turns < g->turns) g->turns = o->turns;
      remove_group(w, k);
    }
  }
}

/* Chooses the group to run next: the fewest time slices used up, then the lowest address. Returns false if all wait. */
static bool choose_group(struct sm_warp *w) {
  const struct sm_group *best = NULL;
  release_waiting(w, false);
  release_waiting(w, true);
  merge_groups(w);
  for (uint32_t i = 0; i < w->groups; i++) {
    const struct sm_group *g = &w->group[i];
    if (g->state != SM_RUNNING) continue;
    if (!best || g->turns < best->turns || (g->turns == best->turns && pc_of(g) < pc_of(best))) best = g;
  }
  if (!best) return false;
  w->current = (uint32_t)(best - w->group);
  return true;
}

/* Returns the place where the chosen group would next meet another running group. */
static const struct sm_uop *meeting_point(const struct sm_warp *w) {
  const struct sm_uop *at = NULL, *me = w->group[w->current].next;
  for (uint32_t i = 0; i < w->groups; i++) {
    const struct sm_group *g = &w->group[i];
    if (g->state == SM_RUNNING && g->next > me && (!at || g->next < at)) at = g->next;
  }
  return at;
}

void sm_run_warp(struct sm_warp *w) {
  int64_t left = SLICE, none = sm_no_budget(w);
  while (w->groups && left > 0) {
    bool alone = w->groups == 1 && w->group[0].state == SM_RUNNING;
    const struct sm_uop *limit = NULL;
    if (alone) {
      w->current = 0;
    } else {
      if (!choose_group(w)) {
        w->runnable = false;
        return;
      }
      limit = meeting_point(w);
    }
    struct sm_group *g = &w->group[w->current];
    const struct sm_uop *u = g->next;
    int64_t slice = w->groups > 1 && left > GROUP_SLICE ? GROUP_SLICE : left;
    if (g->saved) restore_uniforms(w, g);
    w->active = w->running = g->mask;
    w->run = u, w->budget = slice + none;
    /* The subtraction makes NULL larger than every limit. */
    uintptr_t last = (uintptr_t)limit - 1;
    do u = u->fn(w, u);
    while ((uintptr_t)u - 1 < last);
    if (w->faulted) return;
    if (u) {
      sm_count(w, u->inst);
      w->group[w->current].next = u;
    }
    left -= slice + none - w->budget;
    if (w->budget <= none && w->groups > 1) {
      w->group[w->current].turns++;
      if (w->current < w->groups) save_uniforms(w, &w->group[w->current]);
    }
    if (w->groups == 1) w->group[0].turns = 0;
  }
}

/* ---- jumps ---- */

const struct sm_uop *sm_jump_slow(struct sm_warp *w, const struct sm_uop *u, const struct sm_uop *to) {
  if (w->counts) sm_count_run(w, u->inst + 1);
  w->run = to;
  if (w->budget > sm_no_budget(w)) return to;
  w->group[w->current].next = to;
  return NULL;
}

const struct sm_uop *sm_jump_pc(struct sm_warp *w, const struct sm_uop *u, uint64_t pc) {
  const struct sm_uop *to = sm_lookup(w, u, pc, NULL);
  return to ? sm_jump(w, u, to) : NULL;
}

/* ---- faults ---- */

const struct sm_uop *sm_fault(struct sm_warp *w, const struct sm_uop *u, enum fault_kind kind, uint32_t esr, int lane,
                              uint64_t address, unsigned access, const char *fmt, ...) {
  struct fault *f = w->fault;
  size_t n = 0, cap = sizeof f->text;
#define ADD(...) n += (size_t)snprintf(f->text + n, n < cap ? cap - n : 0, __VA_ARGS__), n = n < cap ? n : cap - 1
  memset(f, 0, sizeof *f);
  f->kind = kind, f->address = address, f->access = access, f->code = esr, f->wave = w->index, f->lane = lane;
  memcpy(f->workgroup, w->cta->id, sizeof f->workgroup);
  if (u && w->run) sm_count(w, u->inst + 1);
  w->faulted = true;
  va_list ap;
  va_start(ap, fmt);
  int len = vsnprintf(f->text, cap, fmt, ap);
  va_end(ap);
  n = len < 0 ? 0 : (size_t)len < cap ? (size_t)len : cap - 1;
  if (u) {
    char text[160];
    f->pc = u->inst->pc;
    sass_print(u->inst, text, sizeof text);
    ADD(", at pc 0x%llx (kernel + 0x%llx): %s (%016llx %016llx)", (unsigned long long)f->pc,
        (unsigned long long)(f->pc - w->grid->pgm), text, (unsigned long long)u->inst->lo,
        (unsigned long long)u->inst->hi);
  }
  ADD(", CTA %u %u %u, warp %u", w->cta->id[0], w->cta->id[1], w->cta->id[2], w->index);
  if (lane >= 0) ADD(", lane %d", lane);
#undef ADD
  return NULL;
}

uint32_t sm_fault_esr(const struct fault *fault) { return fault->code; }
