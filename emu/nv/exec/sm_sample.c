/* The PC sampler of an SM: which instruction each warp is about to issue, at regular times of a model.
 *
 * The model of a warp: it starts a cycle after the previous one, and issues one instruction after the other. An
 * instruction waits for the cycles that the previous one's control bits state (stall count), then for the scoreboards
 * that its own bits name. A scoreboard is free again when the latency of the instruction that took it has passed
 * (exec/cost.def, the latencies of sm_90). At a barrier a warp waits for the last warp of its CTA that arrives there.
 * Warps do not delay each other otherwise: caches, busy units and other CTAs are not part of the model. Source of the
 * control bits: disassembly of ptxas's output. */
#include <stdlib.h>
#include <string.h>
#include "../../exec/cost.h"
#include "sm_core.h"

enum {
  PERIOD = 64, /* cycles between two samples of a warp */
  BOARDS = 6,
  READ_CYCLES = 16, /* until an instruction has read its operands */
  ARRIVE = 1,       /* mode of BAR that does not wait */
};

struct clock {
  uint64_t now;   /* cycle that the warp has reached */
  uint64_t next;  /* of the next sample */
  uint64_t issue; /* of the next instruction, at the earliest */
  uint64_t ready[BOARDS];
  enum sm_stall why[BOARDS];
  uint32_t barriers; /* number of barriers where it arrived */
  bool waits;        /* for the last of them */
};

struct sm_sampler {
  sm_sample_fn *sample;
  void *ctx;
  uint64_t clusters;
  struct clock *clock; /* by warp of the cluster */
  size_t cap;
  /* By CTA: the latest arrival at its barriers with an even and with an odd number. No warp is two barriers ahead. */
  uint64_t arrived[SM_MAX_CLUSTER][2];
  unsigned latency[EMU_CLASS_COUNT];
};

struct sm_sampler *sm_sampler_new(sm_sample_fn *sample, void *ctx) {
  struct sm_sampler *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->sample = sample, s->ctx = ctx;
  for (int i = 0; i < EMU_CLASS_COUNT; i++) s->latency[i] = emu_class_latency("sm_90", (enum emu_class)i);
  return s;
}

void sm_sampler_free(struct sm_sampler *s) {
  if (s) free(s->clock);
  free(s);
}

bool sm_sample_begin(struct sm_sampler *s, size_t warps) {
  if (warps > s->cap) {
    struct clock *clock = realloc(s->clock, warps * sizeof *clock);
    if (!clock) return false;
    s->clock = clock, s->cap = warps;
  }
  memset(s->clock, 0, warps * sizeof *s->clock);
  memset(s->arrived, 0, sizeof s->arrived);
  /* Warps are sampled at different times, so that those which do the same do not all report the same instruction. */
  for (size_t i = 0; i < warps; i++)
    s->clock[i].now = s->clock[i].issue = i, s->clock[i].next = i + (s->clusters * 37 + i * 11) % PERIOD;
  s->clusters++;
  return true;
}

/* The warp waits at an instruction until a cycle, unless that has passed. */
static void wait_until(struct sm_sampler *s, struct clock *c, uint64_t until, const struct sm_warp *w, uint64_t pc,
                       enum sm_stall why) {
  for (; c->next < until; c->next += PERIOD)
    s->sample(s->ctx, &(struct sm_sample){.pc = pc, .cta = w->cta->rank, .warp = w->index, .stall = why});
  if (until > c->now) c->now = until;
}

static enum sm_stall scoreboard_of(enum emu_class class) {
  switch (class) {
  case EMU_GLOBAL_CLASS:
  case EMU_SCRATCH_CLASS: return SM_STALL_LONG_SCOREBOARD;
  case EMU_SMEM_CLASS: return SM_STALL_CONSTANT;
  default: return SM_STALL_SHORT_SCOREBOARD;
  }
}

static void take_board(struct clock *c, uint64_t board, uint64_t cycles, enum sm_stall why) {
  if (board >= BOARDS || c->now + cycles < c->ready[board]) return;
  c->ready[board] = c->now + cycles, c->why[board] = why;
}

static void execute(struct sm_sampler *s, struct clock *c, const struct sm_warp *w, const struct sass_inst *in) {
  uint64_t *arrived = s->arrived[w->cta->rank], waited = sass_bits(in, 116, BOARDS), stall = sass_bits(in, 105, 4);
  if (c->waits) wait_until(s, c, arrived[(c->barriers - 1) % 2], w, in->pc, SM_STALL_BARRIER);
  c->waits = false;
  wait_until(s, c, c->issue, w, in->pc, SM_STALL_WAIT);
  for (unsigned i = 0; i < BOARDS; i++)
    if (waited >> i & 1) wait_until(s, c, c->ready[i], w, in->pc, c->why[i]);
  wait_until(s, c, c->now + 1, w, in->pc, SM_ISSUED);
  c->issue = c->now + (stall ? stall - 1 : 0);
  enum emu_class class = sm_class(in);
  take_board(c, sass_bits(in, 113, 3), READ_CYCLES, SM_STALL_SHORT_SCOREBOARD);
  take_board(c, sass_bits(in, 110, 3), s->latency[class], scoreboard_of(class));
  if (in->id != SASS_BAR || sass_bits(in, 77, 2) == ARRIVE) return;
  if (arrived[c->barriers % 2] < c->now) arrived[c->barriers % 2] = c->now;
  c->barriers++, c->waits = true;
}

void sm_sample_run(struct sm_warp *w, const struct sass_inst *after) {
  struct sm_sampler *s = w->stats->sampler;
  struct clock *c = &s->clock[w - w->core->warp];
  for (const struct sass_inst *in = w->run->inst; in != after; in++)
    if (in->op) execute(s, c, w, in);
}
