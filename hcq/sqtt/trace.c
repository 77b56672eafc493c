/* Decodes a thread trace to waves and instructions, and finds the instructions' addresses. */
#include "reader.h"
#include <errno.h>
#include <stdlib.h>
#include "../error.h"

/* ---- what a layout's fields and op codes mean ---- */

enum { UNIT_NONE, UNIT_SCALAR, UNIT_VECTOR, UNIT_LDS, UNIT_MEMORY, UNITS };

static const struct op {
  const char *name;
  uint8_t class, unit;
} ops[SQTT_LAYOUTS][256] = {
#define OP(layout, code, name, class, unit) [SQTT_##layout][code] = {#name, SQTT_CLASS_##class, UNIT_##unit},
#include "packets.def"
};

struct position {
  uint8_t shift, width;
};
#define AT(layout, packet, field)                                                                                      \
  {SQTT_##layout##_##packet##_##field##_SHIFT, SQTT_##layout##_##packet##_##field##_WIDTH}
/* Where a layout has the fields that this file reads and that other layouts have elsewhere. */
static const struct positions {
  struct position wave, op; /* of INST */
  struct position start_sa, start_wgp, start_simd, start_slot, end_sa, end_wgp, end_simd, end_slot;
  struct position address, value; /* of REG, in CDNA of REG_CS */
  struct position mark;
  uint8_t jump_no; /* the op of branches that are not taken */
} layouts[SQTT_LAYOUTS] = {
#define POSITIONS(l)                                                                                                   \
  .wave = AT(l, INST, wave), .op = AT(l, INST, op), .start_sa = AT(l, WAVESTART, sa),                                  \
  .start_wgp = AT(l, WAVESTART, wgp), .start_simd = AT(l, WAVESTART, simd), .start_slot = AT(l, WAVESTART, wave),      \
  .end_sa = AT(l, WAVEEND, sa), .end_wgp = AT(l, WAVEEND, wgp), .end_simd = AT(l, WAVEEND, simd),                      \
  .end_slot = AT(l, WAVEEND, wave), .address = AT(l, REG, address), .value = AT(l, REG, value),                        \
  .mark = AT(l, TS_DELTA_OR_MARK, mark), .jump_no = SQTT_##l##_OP_JUMP_NO
    [SQTT_GFX11] = {POSITIONS(GFX11)},
    [SQTT_GFX12] = {POSITIONS(GFX12)},
    [SQTT_CDNA] = {.wave = AT(CDNA, INST, wave),
                   .op = AT(CDNA, INST, op),
                   .start_sa = AT(CDNA, WAVESTART, sh),
                   .start_wgp = AT(CDNA, WAVESTART, cu),
                   .start_simd = AT(CDNA, WAVESTART, simd),
                   .start_slot = AT(CDNA, WAVESTART, wave),
                   .end_sa = AT(CDNA, WAVEEND, sh),
                   .end_wgp = AT(CDNA, WAVEEND, cu),
                   .end_simd = AT(CDNA, WAVEEND, simd),
                   .end_slot = AT(CDNA, WAVEEND, wave),
                   .address = AT(CDNA, REG_CS, address),
                   .value = AT(CDNA, REG_CS, value),
                   .jump_no = SQTT_CDNA_OP_JUMP_NO},
};

static inline uint32_t get(uint64_t bits, struct position p) {
  return (uint32_t)(bits >> p.shift & ((1ull << p.width) - 1));
}
/* A field that all layouts of RDNA have at the same place. */
#define GET(bits, packet, field) get(bits, (struct position)AT(GFX11, packet, field))

const char *sqtt_op_name(enum sqtt_layout layout, unsigned op) { return op < 256 ? ops[layout][op].name : NULL; }
const char *sqtt_class_name(enum sqtt_class class) {
  static const char *const names[SQTT_CLASS_COUNT] = {
#define X(name, text) [SQTT_CLASS_##name] = text,
      SQTT_CLASSES(X)
#undef X
  };
  return names[class];
}

/* ---- the decoder ---- */

enum { PLACES = 2 * 16 * 4 * 32, PENDING = 256 };

struct decoder {
  struct sqtt_trace *t;
  const struct positions *at;
  const struct sqtt_code *codes;
  unsigned ncodes;
  uint64_t program;        /* as the registers name it */
  uint32_t wave[PLACES];   /* the wave of each slot */
  uint32_t ended[PLACES];  /* the last wave of each slot that ended */
  uint64_t issued[PLACES]; /* time of its last instruction */
  uint32_t cap_waves, cap_insts;
  /* Instructions that were issued to a unit and have not begun to execute: a ring in order of issue. */
  struct {
    uint32_t inst[PENDING], head, tail;
  } pending[UNITS];
};

static inline unsigned place(unsigned sa, unsigned wgp, unsigned simd, unsigned slot) {
  return ((sa * 16 + wgp) * 4 + simd) * 32 + slot;
}

static bool is_traced(const struct sqtt_trace *t, unsigned sa, unsigned wgp, unsigned simd) {
  return sa == t->traced.sa && wgp == t->traced.wgp && (t->layout == SQTT_CDNA || simd == t->traced.simd);
}

/* Makes room for another element of an array. Returns the array, or NULL if memory runs out. */
static void *grow(void *array, uint32_t n, uint32_t *cap, size_t size) {
  if (n < *cap) return array;
  uint32_t more = *cap ? *cap + *cap / 2 : 256;
  void *p = more > *cap ? realloc(array, (size_t)more * size) : NULL;
  if (p) *cap = more;
  return p;
}

static int no_memory(const struct decoder *d, const struct sqtt_packet *p) {
  return db_fail(-ENOMEM, "thread trace: out of memory at nibble %llu, after %u waves and %u instructions",
                 (unsigned long long)p->offset, d->t->nwaves, d->t->ninsts);
}

/* ---- waves ---- */

static uint32_t code_of(const struct decoder *d, uint64_t program) {
  for (unsigned i = 0; i < d->ncodes; i++)
    if (program && d->codes[i].program == program) return i;
  for (unsigned i = 0; i < d->ncodes; i++)
    if (!d->codes[i].program) return i;
  return SQTT_NONE;
}

static int wave_new(struct decoder *d, const struct sqtt_packet *p, unsigned at, struct sqtt_wave **out) {
  struct sqtt_trace *t = d->t;
  struct sqtt_wave *waves = grow(t->waves, t->nwaves, &d->cap_waves, sizeof *waves);
  if (!waves) return no_memory(d, p);
  t->waves = waves;
  struct sqtt_wave *w = &waves[t->nwaves];
  *w = (struct sqtt_wave){.first = SQTT_NONE,
                          .last = SQTT_NONE,
                          .code = SQTT_NONE,
                          .pc = SQTT_NONE,
                          .jump = SQTT_NONE,
                          .sa = at >> 11,
                          .wgp = at >> 7 & 15,
                          .simd = at >> 5 & 3,
                          .slot = at & 31};
  w->traced = is_traced(t, w->sa, w->wgp, w->simd);
  d->wave[at] = t->nwaves++;
  *out = w;
  return 0;
}

static int wave_start(struct decoder *d, const struct sqtt_packet *p) {
  const struct positions *f = d->at;
  unsigned at = place(get(p->bits, f->start_sa), get(p->bits, f->start_wgp), get(p->bits, f->start_simd),
                      get(p->bits, f->start_slot));
  struct sqtt_wave *w;
  if (d->wave[at] != SQTT_NONE) {
    d->t->restarted++;
    d->t->waves[d->wave[at]].end = p->time;
  }
  int err = wave_new(d, p, at, &w);
  if (err) return err;
  w->start = p->time;
  w->has_start = true;
  w->program = d->program;
  if (d->t->layout == SQTT_CDNA)
    w->lanes = (uint8_t)get(p->bits, (struct position)AT(CDNA, WAVESTART, count));
  else if (GET(p->bits, WAVESTART, size) == 3)
    w->lanes = (uint8_t)(GET(p->bits, WAVESTART, lanes_minus_1) + 1);
  w->code = code_of(d, w->program);
  if (w->code != SQTT_NONE && w->traced) w->pc = d->codes[w->code].entry;
  return 0;
}

/* Finds the wave of a slot. If its start is not in the trace, adds a wave. */
static int wave_at(struct decoder *d, const struct sqtt_packet *p, unsigned at, struct sqtt_wave **out) {
  if (d->wave[at] == SQTT_NONE) return wave_new(d, p, at, out);
  *out = &d->t->waves[d->wave[at]];
  return 0;
}

/* ---- instructions ---- */

/* Returns whether a packet of that class can be one of the instruction. Flat instructions access LDS, too, but count as
 * memory. */
static bool agrees(unsigned packet, unsigned code) {
  return packet == code || packet == SQTT_CLASS_UNKNOWN || code == SQTT_CLASS_UNKNOWN;
}

static void leave_step(struct decoder *d, struct sqtt_wave *w, uint64_t offset) {
  struct sqtt_trace *t = d->t;
  if (!t->out_of_step++) {
    t->first_out_of_step.offset = offset;
    t->first_out_of_step.wave = (uint32_t)(w - t->waves);
    t->first_out_of_step.pc = w->pc;
  }
  w->pc = SQTT_NONE;
}

/* Finds the address of an instruction of a wave whose position is known. Moves the wave to the next instruction.
 * offset: of the packet that is read. */
static void find_pc(struct decoder *d, struct sqtt_wave *w, uint32_t index, uint64_t offset) {
  const struct sqtt_code *c = &d->codes[w->code];
  struct sqtt_inst *in = &d->t->insts[index];
  const struct sqtt_code_inst *i;
  for (;; w->pc += i->bytes) {
    if (w->pc % 4 || w->pc >= c->size || !c->at[w->pc / 4].bytes) return leave_step(d, w, offset);
    i = &c->at[w->pc / 4];
    bool waits = in->type == SQTT_INST && in->op == SQTT_GFX12_OP_BARRIER_WAIT;
    if (!i->silent && (!i->barrier_wait || waits)) break;
  }
  bool branch = i->class == SQTT_CLASS_BRANCH, op_jumps = in->class == SQTT_CLASS_BRANCH;
  if (!agrees(in->class, i->class) || branch != op_jumps) return leave_step(d, w, offset);
  in->pc = w->pc;
  in->class = i->class;
  if (i->indirect) {
    d->t->not_followed++;
    w->pc = SQTT_NONE, w->jump = index;
  } else {
    bool jumps = in->type == SQTT_INST && branch && in->op != d->at->jump_no;
    w->pc += jumps ? (uint32_t)i->jump : i->bytes;
  }
}

/* A packet with the target of a wave's oldest jump to an address in a register. It may come after packets of later
 * instructions, and after the wave's end. */
static void new_pc(struct decoder *d, const struct sqtt_packet *p) {
  struct sqtt_trace *t = d->t;
  unsigned at = place(t->traced.sa, t->traced.wgp, t->traced.simd, GET(p->bits, NEW_PC, wave));
  uint32_t index = d->wave[at] == SQTT_NONE ? d->ended[at] : d->wave[at];
  struct sqtt_wave *w = index == SQTT_NONE ? NULL : &t->waves[index];
  if (!w || w->jump == SQTT_NONE || !w->program) return;
  const struct position dword = AT(GFX11, NEW_PC, dword);
  uint64_t target = (p->bits >> dword.shift & ((1ull << dword.width) - 1)) * 4;
  uint64_t pc = target - w->program + d->codes[w->code].entry;
  w->pc = !GET(p->bits, NEW_PC, err) && pc < d->codes[w->code].size ? (uint32_t)pc : SQTT_NONE;
  uint32_t i = t->insts[w->jump].next;
  w->jump = SQTT_NONE;
  if (w->pc != SQTT_NONE) t->not_followed--;
  for (; i != SQTT_NONE && w->pc != SQTT_NONE; i = t->insts[i].next) find_pc(d, w, i, p->offset);
}

/* Appends an instruction of the wave in a slot. */
static inline int inst_new(struct decoder *d, const struct sqtt_packet *p, unsigned at, unsigned op, unsigned class,
                           unsigned unit) {
  struct sqtt_trace *t = d->t;
  struct sqtt_wave *w;
  int err = wave_at(d, p, at, &w);
  if (err) return err;
  if (t->ninsts == d->cap_insts) {
    struct sqtt_inst *insts = grow(t->insts, t->ninsts, &d->cap_insts, sizeof *insts);
    if (!insts) return no_memory(d, p);
    t->insts = insts;
  }
  uint32_t index = t->ninsts++;
  struct sqtt_inst *in = &t->insts[index];
  uint64_t before = w->last == SQTT_NONE ? w->start : d->issued[at] + 1;
  uint64_t stall = p->time > before ? p->time - before : 0;
  *in = (struct sqtt_inst){.time = p->time,
                           .wave = d->wave[at],
                           .next = SQTT_NONE,
                           .pc = SQTT_NONE,
                           .duration = SQTT_NONE,
                           .stall = stall < UINT32_MAX ? (uint32_t)stall : UINT32_MAX,
                           .type = p->type,
                           .op = (uint8_t)op,
                           .class = (uint8_t)class};
  if (w->last == SQTT_NONE)
    w->first = index;
  else
    t->insts[w->last].next = index;
  w->last = index;
  w->insts++;
  d->issued[at] = p->time;
  if (w->pc != SQTT_NONE) find_pc(d, w, index, p->offset);
  if (unit != UNIT_NONE) {
    d->pending[unit].inst[d->pending[unit].head++ % PENDING] = index;
    if (d->pending[unit].head - d->pending[unit].tail > PENDING) d->pending[unit].tail++;
  }
  return 0;
}

/* The oldest pending instruction of a unit begins to execute. */
static inline void begin(struct decoder *d, unsigned unit, uint64_t time) {
  if (d->pending[unit].head == d->pending[unit].tail) return;
  struct sqtt_inst *in = &d->t->insts[d->pending[unit].inst[d->pending[unit].tail++ % PENDING]];
  in->duration = (uint32_t)(time - in->time);
}

static int inst_op(struct decoder *d, const struct sqtt_packet *p) {
  const struct sqtt_trace *t = d->t;
  unsigned op = get(p->bits, d->at->op), wave = get(p->bits, d->at->wave);
  unsigned simd = t->layout == SQTT_CDNA ? get(p->bits, (struct position)AT(CDNA, INST, simd)) : t->traced.simd;
  const struct op *o = &ops[t->layout][op];
  /* Vector memory instructions of other SIMDs: a range that grows with the number of registers sent. */
  enum { OTHER_GFX11 = 0x5a, OTHER_GFX11_LAST = 0x66, OTHER_GFX12 = 0xbc, OTHER_GFX12_LAST = 0xdd };
  if (o->class == SQTT_CLASS_OTHER || (t->layout == SQTT_GFX11 && op >= OTHER_GFX11 && op <= OTHER_GFX11_LAST) ||
      (t->layout == SQTT_GFX12 && op >= OTHER_GFX12 && op <= OTHER_GFX12_LAST))
    return 0;
  return inst_new(d, p, place(t->traced.sa, t->traced.wgp, simd, wave), op, o->class, o->unit);
}

static int immediate_mask(struct decoder *d, const struct sqtt_packet *p) {
  const struct sqtt_trace *t = d->t;
  for (uint32_t mask = GET(p->bits, IMMEDIATE_MASK, mask); mask; mask &= mask - 1) {
    unsigned at = place(t->traced.sa, t->traced.wgp, t->traced.simd, (unsigned)__builtin_ctz(mask));
    int err = inst_new(d, p, at, 0, SQTT_CLASS_IMMEDIATE, UNIT_NONE);
    if (err) return err;
  }
  return 0;
}

/* Whether the end of a wave without other packets is the instruction at its entry. If not, instructions are excluded
 * from the trace. */
static bool ends_at_entry(const struct decoder *d, const struct sqtt_wave *w) {
  if (w->pc == SQTT_NONE) return true;
  const struct sqtt_code *c = &d->codes[w->code];
  return w->pc < c->size && c->at[w->pc / 4].class == SQTT_CLASS_END;
}

static int wave_end(struct decoder *d, const struct sqtt_packet *p) {
  const struct positions *f = d->at;
  unsigned at =
      place(get(p->bits, f->end_sa), get(p->bits, f->end_wgp), get(p->bits, f->end_simd), get(p->bits, f->end_slot));
  struct sqtt_wave *w;
  int err = wave_at(d, p, at, &w);
  /* On CDNA the instruction that ends a wave has an INST, too. */
  if (!err && w->traced && d->t->layout != SQTT_CDNA && (w->insts || ends_at_entry(d, w)))
    err = inst_new(d, p, at, 0, SQTT_CLASS_END, UNIT_NONE);
  if (err) return err;
  w->end = p->time;
  w->has_end = true;
  d->ended[at] = d->wave[at];
  d->wave[at] = SQTT_NONE;
  return 0;
}

/* ---- everything else ---- */

static void program_register(struct decoder *d, const struct sqtt_packet *p) {
  uint64_t value = get(p->bits, d->at->value);
  uint32_t address = get(p->bits, d->at->address);
  enum { BYTES_LO = 8, BYTES_HI = 40 }; /* the registers hold the address >> 8, 32 bits each */
  if (address == SQTT_REG_PGM_LO) d->program = (d->program >> BYTES_HI << BYTES_HI) | value << BYTES_LO;
  if (address == SQTT_REG_PGM_HI) d->program = (d->program & ((1ull << BYTES_HI) - 1)) | value << BYTES_HI;
}

static void mark(struct decoder *d, const struct sqtt_packet *p) {
  struct sqtt_trace *t = d->t;
  struct position rt = t->layout == SQTT_GFX11 ? (struct position)AT(GFX11, TS_DELTA_OR_MARK, rt)
                                               : (struct position)AT(GFX12, TS_DELTA_OR_MARK, rt);
  if (!get(p->bits, rt) || GET(p->bits, TS_DELTA_OR_MARK, pl)) return;
  unsigned i = t->marks++ > 0;
  t->mark[i].time = p->time;
  t->mark[i].counter = p->bits >> d->at->mark.shift;
}

static inline int rdna_packet(struct decoder *d, const struct sqtt_packet *p) {
  const struct sqtt_trace *t = d->t;
  unsigned base = place(t->traced.sa, t->traced.wgp, t->traced.simd, 0);
  switch (p->type) {
  case SQTT_VALUINST: return inst_new(d, p, base + GET(p->bits, VALUINST, wave), 0, SQTT_CLASS_VALU, UNIT_VECTOR);
  case SQTT_INST: return inst_op(d, p);
  case SQTT_IMMEDIATE: return inst_new(d, p, base + GET(p->bits, IMMEDIATE, wave), 0, SQTT_CLASS_IMMEDIATE, UNIT_NONE);
  case SQTT_IMMEDIATE_MASK: return immediate_mask(d, p);
  case SQTT_ALUEXEC: {
    unsigned source = GET(p->bits, ALUEXEC, src);
    if (source & SQTT_ALU_SCALAR) begin(d, UNIT_SCALAR, p->time);
    if (source & SQTT_ALU_VECTOR) begin(d, UNIT_VECTOR, p->time);
    return 0;
  }
  case SQTT_VMEMEXEC: {
    unsigned source = GET(p->bits, VMEMEXEC, src);
    if (source == SQTT_MEMORY_LDS) begin(d, UNIT_LDS, p->time);
    if (source == SQTT_MEMORY_VMEM) begin(d, UNIT_MEMORY, p->time);
    return 0;
  }
  case SQTT_WAVESTART: return wave_start(d, p);
  case SQTT_WAVEEND: return wave_end(d, p);
  case SQTT_NEW_PC: new_pc(d, p); return 0;
  case SQTT_REG:
    if (GET(p->bits, REG, is_sh)) program_register(d, p);
    return 0;
  case SQTT_TS_DELTA_OR_MARK: mark(d, p); return 0;
  default: return 0;
  }
}

static inline int cdna_packet(struct decoder *d, const struct sqtt_packet *p) {
  enum { PACKETS_LOST = 2 };
  switch (p->type) {
  case SQTT_INST: return inst_op(d, p);
  case SQTT_WAVESTART: return wave_start(d, p);
  case SQTT_WAVEEND: return wave_end(d, p);
  case SQTT_REG_CS: program_register(d, p); return 0;
  case SQTT_MISC:
    if (get(p->bits, (struct position)AT(CDNA, MISC, misc_type)) == PACKETS_LOST) d->t->lost++;
    return 0;
  default: return 0;
  }
}

/* The header names the unit whose instructions the trace contains. */
static void traced_unit(struct sqtt_trace *t, const struct sqtt_reader *r) {
  enum { TOOL_CU_SHIFT = 20, TOOL_CU_WIDTH = 4 }; /* in the header that tools write for CDNA */
  uint64_t header = sqtt_window(r, 0);
  if (t->layout == SQTT_CDNA) {
    t->traced.wgp = (uint8_t)get(header, (struct position){TOOL_CU_SHIFT, TOOL_CU_WIDTH});
    return;
  }
  t->traced.simd = (uint8_t)GET(header, LAYOUT_HEADER, simd);
  t->traced.wgp = (uint8_t)GET(header, LAYOUT_HEADER, group);
  t->traced.sa = (uint8_t)GET(header, LAYOUT_HEADER, sa);
}

static int decode(struct decoder *d, struct sqtt_reader *r) {
  struct sqtt_trace *t = d->t;
  struct sqtt_packet p;
  bool cdna = t->layout == SQTT_CDNA;
  int more, err = 0;
  while (!err && (more = sqtt_read(r, &p)) > 0) {
    t->count[p.type] += p.repeat;
    err = cdna ? cdna_packet(d, &p) : rdna_packet(d, &p);
  }
  t->clocks = r->time;
  if (!err && !more) t->cut = (unsigned)(r->end - r->at);
  return err ? err : more;
}

int sqtt_decode(struct sqtt_trace *t, const void *bytes, size_t size, const struct sqtt_code *codes, unsigned ncodes) {
  struct sqtt_reader r;
  *t = (struct sqtt_trace){0};
  int err = sqtt_open(&r, bytes, size);
  if (err) return err;
  struct decoder *d = malloc(sizeof *d);
  if (!d) return db_fail(-ENOMEM, "thread trace: out of memory");
  *d = (struct decoder){.t = t, .at = &layouts[r.layout], .codes = codes, .ncodes = ncodes};
  memset(d->wave, 0xff, sizeof d->wave); /* SQTT_NONE */
  memset(d->ended, 0xff, sizeof d->ended);
  t->layout = r.layout;
  traced_unit(t, &r);
  err = decode(d, &r);
  for (unsigned i = 0; t->waves && i < PLACES; i++)
    if (d->wave[i] != SQTT_NONE) t->waves[d->wave[i]].end = t->clocks;
  free(d);
  return err;
}

void sqtt_free(struct sqtt_trace *t) {
  free(t->waves);
  free(t->insts);
  *t = (struct sqtt_trace){0};
}

double sqtt_mhz(const struct sqtt_trace *t) {
  uint64_t ticks = t->mark[1].counter - t->mark[0].counter;
  return t->marks < 2 || !ticks ? 0 : 100.0 * (double)(t->mark[1].time - t->mark[0].time) / (double)ticks;
}
