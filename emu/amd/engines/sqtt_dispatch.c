/* Thread traces: places the workgroups of a dispatch on compute units, computes when their waves run, and writes the
 * packets. */
#include "gpu.h"
#include "sqtt.h"
#include "../../../hcq/amd/registers.h"
#include "../../../hcq/sqtt/wire.h"
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 16, SIMDS = 4, UNFINISHED = 64, CLOCKS_AFTER = 64 };
struct wave {
  uint64_t executed;
  struct shader_trace_inst *insts; /* of traced waves, else NULL */
  uint32_t n;
  uint8_t lanes;
};

struct sqtt_dispatch {
  const struct amd_unit *unit;
  unsigned units, waves, slots; /* waves: per workgroup; slots: waves that a SIMD may hold */
  bool wave32;
  double clocks_per_inst;
  uint64_t groups;
  struct wave *wave; /* groups times waves; NULL if there is no memory for them */
  struct {
    uint32_t mask, token_mask;
    bool on;
  } engine[SQTT_ENGINES];
};

#define GET(reg, f, value) BITS_GET(GFX11_SQ_THREAD_TRACE_##reg##_##f, value)
static bool excluded(const struct sqtt_engine *e, unsigned token) {
  return GET(TOKEN_MASK, TOKEN_EXCLUDE, e->token_mask) & token;
}

/* ---- placement ---- */

/* The SIMD of a wave of workgroup number `index`. */
static unsigned simd_of(const struct sqtt_dispatch *d, uint64_t index, unsigned wave) {
  return amd_simd_of(&d->unit[index % d->units], index / d->units, d->waves, wave);
}

/* Whether the trace contains the instructions of a wave there. */
static bool is_detailed(const struct sqtt_dispatch *d, const struct amd_unit *u, unsigned simd) {
  uint32_t mask = d->engine[u->engine].mask;
  return d->engine[u->engine].on && u->array == GET(MASK, SA_SEL, mask) && u->wgp == GET(MASK, WGP_SEL, mask) &&
         simd == GET(MASK, SIMD_SEL, mask);
}

struct sqtt_dispatch *amd_sqtt_dispatch(struct amd_queue *q, const struct shader_dispatch *sd,
                                        const struct amd_unit *unit, unsigned units, uint64_t groups, unsigned waves,
                                        uint64_t resident) {
  struct amd_sqtt *s = &q->gpu->sqtt;
  unsigned active = atomic_load(&s->active);
  if (!active || !q->sh[GFX11_COMPUTE_THREAD_TRACE_ENABLE - PM4_SH_BASE]) return NULL;
  struct sqtt_dispatch *d = calloc(1, sizeof *d);
  if (!d) return NULL;
  d->unit = unit, d->units = units;
  d->waves = waves, d->groups = groups, d->wave32 = sd->wave32;
  d->slots = (unsigned)(resident + 1) / 2 < SLOTS ? (unsigned)(resident + 1) / 2 : SLOTS;
  if (groups < SIZE_MAX / sizeof *d->wave / waves) d->wave = calloc(groups * waves, sizeof *d->wave);
  pthread_mutex_lock(&s->lock);
  for (unsigned i = 0; i < SQTT_ENGINES; i++) {
    const struct sqtt_engine *e = &s->engine[i];
    d->engine[i].mask = e->mask, d->engine[i].token_mask = e->token_mask;
    d->engine[i].on = active >> i & 1 && GET(MASK, WTYPE_INCLUDE, e->mask) & GFX11_TRACE_WAVES_CS;
  }
  pthread_mutex_unlock(&s->lock);
  return d;
}

struct shader_trace *amd_sqtt_group_begin(const struct sqtt_dispatch *d, uint64_t index,
                                          struct shader_trace *recorder) {
  if (!d || !d->wave) return NULL;
  const struct amd_unit *u = &d->unit[index % d->units];
  memset(recorder, 0, sizeof *recorder);
  for (unsigned i = 0; i < d->waves; i++) recorder->instructions |= is_detailed(d, u, simd_of(d, index, i));
  return recorder;
}

void amd_sqtt_group_end(struct sqtt_dispatch *d, uint64_t index, struct shader_trace *recorder) {
  if (!d || !d->wave) return;
  for (unsigned i = 0; i < recorder->waves && i < d->waves; i++) {
    const struct shader_trace_wave *w = &recorder->wave[i];
    d->wave[index * d->waves + i] = (struct wave){w->executed, w->insts, w->n, w->lanes};
  }
}

/* ---- time ---- */

/* The packets of one engine, and when its slots become free. */
struct timeline {
  struct sqtt_engine *engine;
  struct sqtt_token *token;
  uint32_t n, cap, lost; /* lost: tokens for which there was no memory */
  uint64_t end;
};

static void add(struct timeline *t, uint64_t time, unsigned type, uint64_t bits) {
  if (time > t->end) t->end = time;
  if (t->n == t->cap) {
    uint32_t cap = t->cap ? t->cap * 2 : 1024;
    struct sqtt_token *p = cap > t->cap ? realloc(t->token, (size_t)cap * sizeof *p) : NULL;
    if (!p) {
      t->lost++;
      return;
    }
    t->token = p, t->cap = cap;
  }
  t->token[t->n] = (struct sqtt_token){time, bits, t->n, (uint8_t)type};
  t->n++;
}

#define F(packet, field, value) ((uint64_t)(value) << SQTT_GFX11_##packet##_##field##_SHIFT)

/* Adds the packets of one instruction of a traced wave: its issue, the target of a call, and when its unit begins to
 * execute it. */
static void add_inst(struct timeline *t, uint64_t time, unsigned slot, const struct shader_trace_inst *in) {
  static const struct {
    uint8_t clocks, type, src; /* as in recordings of short kernels; 0 clocks: no packet */
    uint16_t excluded;
  } units[] = {[SHADER_TRACE_SCALAR] = {4, SQTT_ALUEXEC, SQTT_ALU_SCALAR, GFX11_TRACE_NO_ALUEXEC},
               [SHADER_TRACE_VECTOR] = {9, SQTT_ALUEXEC, SQTT_ALU_VECTOR, GFX11_TRACE_NO_ALUEXEC},
               [SHADER_TRACE_LDS] = {3, SQTT_VMEMEXEC, SQTT_MEMORY_LDS, GFX11_TRACE_NO_VMEMEXEC},
               [SHADER_TRACE_MEMORY] = {8, SQTT_VMEMEXEC, SQTT_MEMORY_VMEM, GFX11_TRACE_NO_VMEMEXEC}};
  const struct sqtt_engine *e = t->engine;
  switch (in->kind) {
  case SHADER_TRACE_VALU:
    if (!excluded(e, GFX11_TRACE_NO_VALUINST)) add(t, time, SQTT_VALUINST, F(VALUINST, wave, slot));
    break;
  case SHADER_TRACE_IMMEDIATE:
    if (!excluded(e, GFX11_TRACE_NO_IMMEDIATE)) add(t, time, SQTT_IMMEDIATE, F(IMMEDIATE, wave, slot));
    break;
  default:
    if (!excluded(e, GFX11_TRACE_NO_INST)) add(t, time, SQTT_INST, F(INST, wave, slot) | F(INST, op, in->op));
    if (in->kind == SHADER_TRACE_CALL && !excluded(e, GFX11_TRACE_NO_INST))
      add(t, time, SQTT_NEW_PC, F(NEW_PC, wave, slot) | F(NEW_PC, dword, in->target / 4));
  }
  if (in->unit != SHADER_TRACE_NO_UNIT && !excluded(e, units[in->unit].excluded))
    add(t, time + units[in->unit].clocks, units[in->unit].type, F(ALUEXEC, src, units[in->unit].src));
}

/* A wave of a workgroup while its time passes. */
struct running {
  const struct wave *wave;
  uint64_t time;
  uint32_t at; /* next instruction */
  uint8_t simd, slot;
  bool detailed, waits;
  /* By counter: the memory instructions so far, and when the last ones finish, which they do in order. */
  uint32_t issued[SHADER_TRACE_COUNTERS];
  uint64_t finish[SHADER_TRACE_COUNTERS][UNFINISHED];
};

/* Clocks until a memory instruction finishes, by unit and counter, as in recordings of kernels whose data was in no
 * cache. */
static const uint16_t latency[][SHADER_TRACE_COUNTERS] = {
    [SHADER_TRACE_SCALAR] = {[SHADER_TRACE_LGKM] = 890},
    [SHADER_TRACE_LDS] = {[SHADER_TRACE_LGKM] = 33},
    [SHADER_TRACE_MEMORY] = {[SHADER_TRACE_VM] = 780, [SHADER_TRACE_LGKM] = 780, [SHADER_TRACE_VS] = 330},
};

/* When instruction number `n` of a counter, counted from 1, finishes. */
static uint64_t *finish_of(struct running *r, unsigned counter, uint32_t n) {
  return &r->finish[counter][n % UNFINISHED];
}

/* Lets a wave wait, in a wait or at its end, until at most `remaining` instructions of each counter are unfinished. */
static void wait_for(struct running *r, const uint8_t remaining[SHADER_TRACE_COUNTERS]) {
  for (unsigned c = 0; c < SHADER_TRACE_COUNTERS; c++) {
    if (remaining[c] == SHADER_TRACE_ANY || remaining[c] >= r->issued[c]) continue;
    uint64_t until = *finish_of(r, c, r->issued[c] - remaining[c]);
    if (until > r->time) r->time = until;
  }
}

static void issue_memory(struct running *r, const struct shader_trace_inst *in) {
  for (unsigned c = 0; c < SHADER_TRACE_COUNTERS; c++) {
    if (!(in->counters >> c & 1)) continue;
    uint64_t before = r->issued[c] ? *finish_of(r, c, r->issued[c]) : 0, at = r->time + latency[in->unit][c];
    *finish_of(r, c, ++r->issued[c]) = at > before ? at : before;
  }
}

/* Runs a wave up to its next barrier or its end. */
static void run_wave(struct timeline *t, struct running *r) {
  r->waits = false;
  while (r->at < r->wave->n && !r->waits) {
    const struct shader_trace_inst *in = &r->wave->insts[r->at++];
    r->time++;
    if (in->kind == SHADER_TRACE_SILENT) continue;
    if (in->kind == SHADER_TRACE_IMMEDIATE) wait_for(r, in->remaining);
    if (in->counters) issue_memory(r, in);
    if (t && r->detailed) add_inst(t, r->time, r->slot, in);
    r->waits = in->kind == SHADER_TRACE_BARRIER;
  }
}

/* Runs the waves of a workgroup whose instructions were recorded. Waves at a barrier continue when the others are there
 * or have ended. */
static void run_recorded(struct timeline *t, struct running *r, unsigned waves) {
  bool more = true;
  while (more) {
    uint64_t latest = 0;
    more = false;
    for (unsigned i = 0; i < waves; i++) {
      run_wave(t, &r[i]);
      if (r[i].waits && r[i].time > latest) latest = r[i].time;
      more |= r[i].waits;
    }
    for (unsigned i = 0; i < waves; i++)
      if (r[i].waits) r[i].time = latest;
  }
  for (unsigned i = 0; i < waves; i++) wait_for(&r[i], (const uint8_t[SHADER_TRACE_COUNTERS]){0});
}

/* Clocks per instruction of the waves that were recorded. The others are as fast. */
static double clocks_per_inst(const struct sqtt_dispatch *d) {
  uint64_t clocks = 0, executed = 0;
  for (uint64_t i = 0; i < d->groups; i++) {
    struct running running[SHADER_TRACE_WAVES];
    if (!d->wave[i * d->waves].insts) continue;
    for (unsigned k = 0; k < d->waves; k++) running[k] = (struct running){.wave = &d->wave[i * d->waves + k]};
    run_recorded(NULL, running, d->waves);
    for (unsigned k = 0; k < d->waves; k++) clocks += running[k].time, executed += running[k].wave->executed;
  }
  return executed ? (double)clocks / (double)executed : 1;
}

/* Runs one workgroup in the slots that are free first. free: when each slot of the unit's SIMDs is free. Returns when
 * its last wave was launched. */
static uint64_t run_group(const struct sqtt_dispatch *d, struct timeline *t, const struct amd_unit *u, uint64_t index,
                          uint64_t launch, uint64_t free[SIMDS][SLOTS]) {
  struct running running[SHADER_TRACE_WAVES];
  bool recorded = false;
  for (unsigned i = 0; i < d->waves; i++) {
    struct running *r = &running[i];
    unsigned simd = simd_of(d, index, i), slot = 0;
    for (unsigned k = 1; k < d->slots; k++)
      if (free[simd][k] < free[simd][slot]) slot = k;
    *r = (struct running){.wave = &d->wave[index * d->waves + i], .simd = (uint8_t)simd, .slot = (uint8_t)slot};
    r->detailed = is_detailed(d, u, simd);
    recorded |= r->wave->insts != NULL;
    if (free[simd][slot] > launch) launch = free[simd][slot];
    free[simd][slot] = UINT64_MAX; /* taken */
  }
  bool waves_excluded = excluded(t->engine, GFX11_TRACE_NO_WAVES);
  for (unsigned i = 0; i < d->waves; i++) {
    struct running *r = &running[i];
    unsigned lanes = r->wave->lanes ? r->wave->lanes : 1;
    r->time = launch += 1;
    if (!waves_excluded)
      add(t, r->time, SQTT_WAVESTART,
          F(WAVESTART, sa, u->array) | F(WAVESTART, simd, r->simd) | F(WAVESTART, wgp, u->wgp) |
              F(WAVESTART, wave, r->slot) |
              (d->wave32 ? F(WAVESTART, lanes_minus_1, lanes - 1) | F(WAVESTART, size, 3) : 0));
  }
  if (recorded) run_recorded(t, running, d->waves);
  for (unsigned i = 0; i < d->waves; i++) {
    struct running *r = &running[i];
    r->time += recorded ? 1 : (uint64_t)((double)r->wave->executed * d->clocks_per_inst);
    free[r->simd][r->slot] = r->time + 1;
    if (!waves_excluded)
      add(t, r->time, SQTT_WAVEEND,
          F(WAVEEND, sa, u->array) | F(WAVEEND, simd, r->simd) | F(WAVEEND, wgp, u->wgp) | F(WAVEEND, wave, r->slot));
  }
  return launch;
}

/* Runs what the dispatch placed on one engine. In compute-unit mode two units share a processor, but not a SIMD. */
static void run_engine(const struct sqtt_dispatch *d, struct timeline *t, unsigned engine, uint64_t clock) {
  uint64_t launched = clock;
  for (unsigned k = 0; k < d->units; k++) {
    const struct amd_unit *u = &d->unit[k];
    uint64_t free[SIMDS][SLOTS] = {{0}}, launch = clock;
    if (u->engine != engine) continue;
    for (uint64_t i = k; i < d->groups; i += d->units) launch = run_group(d, t, u, i, launch, free);
    if (launch > launched) launched = launch;
  }
  add(t, launched + 1, SQTT_REG, F(REG, me, 1) | F(REG, is_sh, 1) | F(REG, address, SQTT_REG_DISPATCH_END));
}

/* ---- the end of a dispatch ---- */

static int by_time(const void *a, const void *b) {
  const struct sqtt_token *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  return x->order < y->order ? -1 : x->order > y->order;
}

/* The 100 MHz counter at a time, as if the engines ran at the model's frequency. */
static uint64_t counter_at(const struct amd_model *m, uint64_t time) { return time * 100 / m->engine_mhz; }

static void write_engine(const struct amd_queue *q, const struct sqtt_dispatch *d, unsigned i, uint64_t *end) {
  struct amd_sqtt *s = &q->gpu->sqtt;
  struct timeline t = {.engine = &s->engine[i]};
  sqtt_put_mark(t.engine, s->clock, counter_at(q->gpu->model, s->clock));
  run_engine(d, &t, i, s->clock);
  if (t.n) qsort(t.token, t.n, sizeof *t.token, by_time);
  for (uint32_t k = 0; k < t.n; k++) sqtt_put(t.engine, &t.token[k]);
  t.engine->dropped += t.lost;
  if (t.end > *end) *end = t.end;
  free(t.token);
}

enum cp_status amd_sqtt_dispatch_end(struct amd_queue *q, struct sqtt_dispatch *d) {
  if (!d) return CP_DONE;
  struct amd_sqtt *s = &q->gpu->sqtt;
  pthread_mutex_lock(&s->lock);
  uint64_t end = s->clock;
  unsigned active = atomic_load(&s->active);
  if (d->wave) d->clocks_per_inst = clocks_per_inst(d);
  for (unsigned i = 0; i < SQTT_ENGINES; i++) {
    if (!d->engine[i].on || !(active >> i & 1)) continue;
    if (d->wave)
      write_engine(q, d, i, &end);
    else
      s->engine[i].dropped++;
  }
  s->clock = end + CLOCKS_AFTER;
  for (unsigned i = 0; i < SQTT_ENGINES; i++)
    if (d->engine[i].on && active >> i & 1) sqtt_put_mark(&s->engine[i], s->clock, counter_at(q->gpu->model, s->clock));
  pthread_mutex_unlock(&s->lock);
  for (uint64_t i = 0; d->wave && i < d->groups * d->waves; i++) free(d->wave[i].insts);
  free(d->wave);
  free(d);
  return amd_sqtt_drain(q);
}
