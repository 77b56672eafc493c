/* Translates decoded instructions to micro-operations: families build each instruction; this file lays out the result.
 * Constants follow the micro-operations in the same allocation; a micro-operation finds them by their offset from
 * it. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "sass_isa.h"
#include "sm_core.h"

struct target {
  uint32_t uop;
  uint64_t pc;
};
struct sm_builder {
  struct sm_trace *t;
  struct sm_uop *uop;
  uint32_t uops, uops_cap;
  uint32_t *row; /* constants: one value each, or the two halves of a value in adjacent elements */
  uint32_t rows, rows_cap;
  struct target *target;
  uint32_t targets, targets_cap;
  bool failed, takes_registers;
};

static sm_build_fn *build_of[SASS_ID_COUNT];

static void add_family(const struct sm_family *f) {
  for (; f && f->id != SASS_ID_COUNT; f++) build_of[f->id] = f->build;
}
static void init(void) {
  static const struct sm_family *const families[] = {
      sm_alu_family,  sm_float_family,   sm_convert_family, sm_mma_family,   sm_memory_family,        sm_control_family,
      sm_warp_family, sm_barrier_family, sm_atomic_family,  sm_async_family, sm_matrix_memory_family, sm_tensor_family};
  for (unsigned i = 0; i < sizeof families / sizeof *families; i++) add_family(families[i]);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

bool sm_executes(enum sass_id id) {
  pthread_once(&once, init);
  return id < SASS_ID_COUNT && build_of[id];
}

unsigned sm_version(const struct sm_builder *b) { return b->t->version; }

/* Makes room for at least one more element of `size` bytes. */
static bool grow_array(struct sm_builder *b, void *array, uint32_t n, uint32_t *cap, size_t size) {
  if (n + 2 <= *cap) return true;
  uint32_t bigger = *cap ? *cap * 2 : 256;
  void *old, *p;
  memcpy(&old, array, sizeof old);
  p = realloc(old, bigger * size);
  if (!p) {
    b->failed = true;
    return false;
  }
  memcpy(array, &p, sizeof p);
  *cap = bigger;
  return true;
}

struct sm_uop *sm_emit(struct sm_builder *b, const struct sass_inst *inst) {
  if (!grow_array(b, &b->uop, b->uops, &b->uops_cap, sizeof *b->uop)) return NULL;
  struct sm_uop *u = &b->uop[b->uops++];
  *u = (struct sm_uop){
      .inst = inst,
      .guard = inst->guard,
      .guard_not = inst->guard_not ? ~0u : 0,
      .pdst = {SM_PSINK, SM_PSINK},
      .psrc = {SM_PT, SM_PT, SM_PT},
  };
  return u;
}

/* Returns the index of the first of n rows with these values; adds the rows if there are none. */
static uint32_t constant_row(struct sm_builder *b, const uint32_t *value, uint32_t n) {
  for (uint32_t i = b->rows > 256 ? b->rows - 256 : 0; i + n <= b->rows; i++)
    if (!memcmp(&b->row[i], value, n * 4)) return i;
  if (!grow_array(b, &b->row, b->rows, &b->rows_cap, sizeof *b->row)) return 0;
  memcpy(&b->row[b->rows], value, n * 4);
  b->rows += n;
  return b->rows - n;
}
void sm_constant32(struct sm_builder *b, struct sm_uop *u, unsigned i, uint32_t value) {
  u->src[i] = (int32_t)constant_row(b, &value, 1), u->constant |= (uint8_t)(1 << i);
}
void sm_constant64(struct sm_builder *b, struct sm_uop *u, unsigned i, uint64_t value) {
  uint32_t halves[2] = {(uint32_t)value, (uint32_t)(value >> 32)};
  u->src[i] = (int32_t)constant_row(b, halves, 2), u->constant |= (uint8_t)(1 << i);
}

void sm_target(struct sm_builder *b, struct sm_uop *u, uint64_t pc) {
  if (!grow_array(b, &b->target, b->targets, &b->targets_cap, sizeof *b->target)) return;
  b->target[b->targets++] = (struct target){(uint32_t)(u - b->uop), pc};
}

bool sm_target_inside(const struct sm_builder *b, uint64_t pc) {
  return pc >= b->t->code.start && pc < b->t->code.end && pc % SASS_BYTES == 0;
}

/* Continues after the end of the trace. */
const struct sm_uop *sm_exec_continue(struct sm_warp *w, const struct sm_uop *u) {
  const struct sm_uop *to = sm_lookup(w, u, u->inst->pc, NULL);
  if (!to) return NULL;
  sm_count(w, u->inst);
  w->run = to;
  return to;
}

const struct sm_uop *sm_exec_refuse(struct sm_warp *w, const struct sm_uop *u) {
  const char *why = (const char *)(uintptr_t)u->imm;
  if (!u->inst->op) return sm_fault(w, u, FAULT_ILLEGAL, SM_ESR_ILLEGAL_INSTRUCTION, -1, 0, 0, "illegal instruction");
  return sm_fault(w, u, FAULT_ILLEGAL, SM_ESR_ILLEGAL_INSTRUCTION, -1, 0, 0, "not supported: %s%s%s",
                  sass_name(u->inst->id), why ? ", " : "", why ? why : "");
}

const struct sm_uop *sm_exec_no_register(struct sm_warp *w, const struct sm_uop *u) {
  return sm_fault(w, u, FAULT_ILLEGAL, SM_ESR_OUT_OF_RANGE_REG, -1, 0, 0, "register beyond the launch's %u",
                  w->grid->registers);
}
/* Returns true if a micro-operation uses a register that the launch does not have. Registers are allocated in units of
 * eight, so those up to the next multiple exist; of wide operands only the first register is checked. Code that
 * requests more registers at run time may use all. */
static bool uses_missing_register(const struct sm_builder *b, const struct sm_uop *u) {
  int32_t end = (int32_t)(SM_ROW_R + ((b->t->registers + 7) & ~7u)) * SM_LANES * 4, last = sm_r(SASS_RZ - 1);
  if (!b->t->registers || b->takes_registers) return false;
  if (u->dst >= end && u->dst <= last) return true;
  for (unsigned k = 0; k < 3; k++)
    if (!(u->constant >> k & 1) && u->src[k] >= end && u->src[k] <= last) return true;
  return false;
}

static void build_inst(struct sm_builder *b, const struct sass_inst *in) {
  uint32_t first = b->uops, targets = b->targets;
  const char *why = NULL;
  bool built = in->op && build_of[in->id] && build_of[in->id](b, in, &why), outside = false;
  for (uint32_t i = first; built && i < b->uops; i++) outside |= uses_missing_register(b, &b->uop[i]);
  if (built && !outside) return;
  b->uops = first, b->targets = targets;
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return;
  u->fn = outside ? sm_exec_no_register : sm_exec_refuse, u->imm = (uintptr_t)why;
  u->guard = SM_PT, u->guard_not = 0;
}

/* Returns the number of uniform register rows that micro-operations write; the widest result has four rows. */
static uint32_t uniform_rows(const struct sm_builder *b) {
  int32_t last = 0;
  for (uint32_t i = 0; i < b->uops; i++)
    if (b->uop[i].dst < sm_ur(SASS_URZ) && b->uop[i].dst > last) last = b->uop[i].dst;
  uint32_t n = (uint32_t)last / (SM_LANES * 4) + 4;
  return n < SM_ROW_ZERO ? n : SM_ROW_ZERO;
}

static int lay_out(struct sm_builder *b) {
  struct sm_trace *t = b->t;
  size_t code = (b->uops * sizeof *b->uop + 127) & ~(size_t)127, rows = (size_t)b->rows * SM_LANES * 4;
  if (code + rows > INT32_MAX) return -ENOMEM;
  char *pool = aligned_alloc(128, code + rows);
  if (!pool) return -ENOMEM;
  memcpy(pool, b->uop, b->uops * sizeof *b->uop);
  uint32_t *row = (uint32_t *)(pool + code);
  for (uint32_t i = 0; i < b->rows; i++)
    for (unsigned l = 0; l < SM_LANES; l++) *row++ = b->row[i];
  t->pool = pool, t->uop = (struct sm_uop *)pool, t->uops = b->uops;
  for (uint32_t i = 0; i < t->uops; i++)
    for (unsigned k = 0; k < 3; k++)
      if (t->uop[i].constant >> k & 1)
        t->uop[i].src[k] = (int32_t)(pool + code + (size_t)t->uop[i].src[k] * SM_LANES * 4 - (const char *)&t->uop[i]);
  for (uint32_t i = 0; i < b->targets; i++) {
    uint64_t pc = b->target[i].pc;
    if (sm_target_inside(b, pc))
      t->uop[b->target[i].uop].target = &t->uop[t->uop_of[(pc - t->code.start) / SASS_BYTES]];
  }
  return 0;
}

int sm_build(struct sm_trace *t) {
  pthread_once(&once, init);
  struct sm_builder b = {.t = t};
  int r = -ENOMEM;
  t->uop_of = malloc((t->insts + 1) * sizeof *t->uop_of);
  if (!t->uop_of) return -ENOMEM;
  for (uint32_t i = 0; i < t->insts; i++)
    if (t->inst[i].op && t->inst[i].id == SASS_USETMAXREG) b.takes_registers = true;
  for (uint32_t i = 0; i < t->insts; i++) {
    t->uop_of[i] = b.uops;
    if (t->counts_all && t->inst[i].op && sm_tallies(&t->inst[i])) {
      struct sm_uop *u = sm_emit(&b, &t->inst[i]);
      if (u) u->fn = sm_exec_tally;
    }
    build_inst(&b, &t->inst[i]);
    if (b.failed) goto out;
  }
  t->uop_of[t->insts] = b.uops;
  struct sm_uop *end = sm_emit(&b, &t->inst[t->insts]);
  if (!end) goto out;
  end->fn = sm_exec_continue;
  t->uniform_rows = uniform_rows(&b);
  r = b.failed ? -ENOMEM : lay_out(&b);
  if (!r && t->counts) r = sm_tally_kinds(t);
out:
  free(b.uop), free(b.row), free(b.target);
  return r;
}
