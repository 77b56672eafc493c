/* Memory instructions of RDNA3, assembled by LLVM and run on one wave, compared with byte-wise models written here:
 * every width and addressing mode, every atomic, lanes with consecutive, equal and scattered addresses and partly
 * active, both wave sizes; then bounds and faults. */
#include <errno.h>
#include <math.h>

#include "wave.h"

enum { DATA_VA = 0x400000, SCRATCH_VA = 0x800000, BYTES = 16384, SCRATCH_LANE = 256, MAX_LANES = 64 };

struct bench {
  struct wave *t;
  unsigned lanes;
  uint8_t *data, *scratch;
};
static uint64_t seed = 99;
static uint32_t rnd(void) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(seed >> 32) ^ (uint32_t)(seed >> 9);
}

static struct bench bench_new(bool wave64) {
  struct bench b = {wave_new(wave64), wave64 ? 64 : 32, aligned_alloc(4096, BYTES), aligned_alloc(4096, BYTES)};
  for (unsigned i = 0; i < BYTES; i++) b.data[i] = (uint8_t)rnd(), b.scratch[i] = (uint8_t)rnd();
  for (unsigned i = 0; i < sizeof b.t->lds; i++) b.t->lds[i] = (uint8_t)rnd();
  assert_int_equal(vm_map(b.t->vm, DATA_VA, BYTES, b.data, VM_READ | VM_WRITE, 2), 0);
  assert_int_equal(vm_map(b.t->vm, SCRATCH_VA, BYTES, b.scratch, VM_READ | VM_WRITE, 3), 0);
  b.t->w.scratch_base = SCRATCH_VA;
  b.t->w.scratch_size = SCRATCH_LANE * b.lanes;
  return b;
}
static void bench_free(struct bench *b) {
  wave_free(b->t);
  free(b->data), free(b->scratch);
}

static uint32_t *vgpr(struct bench *b, unsigned n, unsigned lane) {
  return b->t->w.file + (lane / 32 * RDNA3_ROWS + n) * RDNA3_LANES + lane % 32;
}
static uint64_t exec_of(const struct bench *b) {
  return b->t->w.s[RDNA3_EXEC] | (uint64_t)b->t->w.s[RDNA3_EXEC + 1] << 32;
}
static void set_exec(struct bench *b, uint64_t mask) {
  b->t->w.s[RDNA3_EXEC] = (uint32_t)mask;
  b->t->w.s[RDNA3_EXEC + 1] = b->lanes == 64 ? (uint32_t)(mask >> 32) : 0;
}

/* ---- ways of addressing: text after the destination, base registers, and which memory byte a lane's offset names
 * ---- */
enum space { MEMORY, LDS, SCRATCH };
static const struct form {
  const char *prefix, *address, *tail;
  enum space space;
  int32_t constant; /* offset that the instruction adds to the lane's */
} forms[] = {
    {"global", "v[2:3]", ", off offset:-8", MEMORY, -8 + 256},
    {"global", "v4", ", s[4:5] offset:40", MEMORY, 40},
    {"flat", "v[2:3]", " offset:12", MEMORY, 12 + 256},
    {"flat", "v[6:7]", " offset:8", LDS, 8},
    {"flat", "v[8:9]", " offset:4", SCRATCH, 4},
    {"ds", "v4", " offset:24", LDS, 24},
    {"scratch", "v4", ", s6 offset:8", SCRATCH, 8 + 16},
    {"scratch", "v4", ", off offset:20", SCRATCH, 20},
    {"buffer", "v4", ", s[8:11], s7 offen offset:16", MEMORY, 16 + 32},
};
enum { FORMS = sizeof forms / sizeof *forms };

static void set_addresses(struct bench *b, const uint32_t *offset) {
  uint32_t *s = b->t->w.s;
  uint64_t base = DATA_VA;
  s[4] = (uint32_t)base, s[5] = 0, s[6] = 16, s[7] = 32;
  s[8] = DATA_VA, s[9] = 0, s[10] = BYTES, s[11] = 0x31014000;
  for (unsigned l = 0; l < b->lanes; l++) {
    *vgpr(b, 2, l) = DATA_VA + 256 + offset[l], *vgpr(b, 3, l) = 0;
    *vgpr(b, 4, l) = offset[l];
    *vgpr(b, 6, l) = offset[l], *vgpr(b, 7, l) = RDNA3_SHARED_HI;
    *vgpr(b, 8, l) = offset[l], *vgpr(b, 9, l) = RDNA3_PRIVATE_HI;
  }
}
static uint8_t *model_byte(uint8_t *data, uint8_t *lds, uint8_t *scratch, enum space space, unsigned lanes,
                           unsigned lane, uint32_t at) {
  switch (space) {
  case LDS: return lds + at;
  case SCRATCH: return scratch + (at / 4 * lanes + lane) * 4 + at % 4;
  default: return data + at;
  }
}

/* Lane offsets: consecutive, equal, scattered (multiples of the size), scattered at any byte. */
enum { PATTERNS = 4 };
static void pattern(unsigned p, unsigned size, bool atomic, enum space space, uint32_t *offset) {
  uint32_t room = space == SCRATCH ? SCRATCH_LANE - 48 - 16 : 2048, unit = atomic ? 8 : size;
  for (unsigned l = 0; l < MAX_LANES; l++) {
    uint32_t o = p == 0 ? l * size : p == 1 ? 16 * size : p == 2 ? rnd() % 12 * unit : rnd() % 160;
    offset[l] = o % room;
    if (atomic) offset[l] &= ~7u;
  }
}
static const uint64_t masks[] = {~0ull, 0x0000ffff0000ffff, 0x8000000180000001, 0x5a5a1234deadbeef,
                                 0,     0xffffffff00000000, 0x00000000ffffffff};
enum { MASKS = sizeof masks / sizeof *masks };

static const struct kind {
  const char *name, *ds;
  unsigned bytes;
  bool sign, low, high;
} loads[] =
    {
        {"u8", "u8", 1, 0, 0, 0},
        {"i8", "i8", 1, 1, 0, 0},
        {"u16", "u16", 2, 0, 0, 0},
        {"i16", "i16", 2, 1, 0, 0},
        {"b32", "b32", 4, 0, 0, 0},
        {"b64", "b64", 8, 0, 0, 0},
        {"b96", "b96", 12, 0, 0, 0},
        {"b128", "b128", 16, 0, 0, 0},
        {"d16_u8", "u8_d16", 1, 0, 1, 0},
        {"d16_i8", "i8_d16", 1, 1, 1, 0},
        {"d16_b16", "u16_d16", 2, 0, 1, 0},
        {"d16_hi_u8", "u8_d16_hi", 1, 0, 0, 1},
        {"d16_hi_i8", "i8_d16_hi", 1, 1, 0, 1},
        {"d16_hi_b16", "u16_d16_hi", 2, 0, 0, 1},
},
  stores[] = {
      {"b8", "b8", 1, 0, 0, 0},
      {"b16", "b16", 2, 0, 0, 0},
      {"b32", "b32", 4, 0, 0, 0},
      {"b64", "b64", 8, 0, 0, 0},
      {"b96", "b96", 12, 0, 0, 0},
      {"b128", "b128", 16, 0, 0, 0},
      {"d16_hi_b8", "b8_d16_hi", 1, 0, 0, 1},
      {"d16_hi_b16", "b16_d16_hi", 2, 0, 0, 1},
};
enum { LOADS = sizeof loads / sizeof *loads, STORES = sizeof stores / sizeof *stores };

static void register_name(char *out, unsigned first, unsigned bytes) {
  unsigned words = (bytes + 3) / 4;
  words == 1 ? sprintf(out, "v%u", first) : sprintf(out, "v[%u:%u]", first, first + words - 1);
}

static void loads_of(struct bench *b) {
  char text[FORMS * LOADS][100];
  const char *at[FORMS * LOADS];
  for (unsigned i = 0; i < FORMS * LOADS; i++) {
    const struct form *f = &forms[i / LOADS];
    const struct kind *k = &loads[i % LOADS];
    char dst[20];
    register_name(dst, 20, k->bytes);
    sprintf(text[i], "%s_load_%s %s, %s%s", f->prefix, f->prefix[0] == 'd' ? k->ds : k->name, dst, f->address, f->tail);
    at[i] = text[i];
  }
  wave_snippets(b->t, at, sizeof *at, FORMS * LOADS);
  for (unsigned i = 0; i < FORMS * LOADS; i++)
    for (unsigned p = 0; p < PATTERNS; p++)
      for (unsigned m = 0; m < MASKS; m++) {
        const struct form *f = &forms[i / LOADS];
        const struct kind *k = &loads[i % LOADS];
        uint32_t offset[MAX_LANES], old[4][MAX_LANES];
        pattern(p, k->bytes, false, f->space, offset);
        set_addresses(b, offset);
        set_exec(b, masks[m]);
        for (unsigned l = 0; l < b->lanes; l++)
          for (unsigned n = 0; n < 4; n++) *vgpr(b, 20 + n, l) = old[n][l] = rnd();
        if (wave_run(b->t, i * WAVE_SNIPPET) != RDNA3_ENDED) fail_msg("%s: %s", text[i], b->t->fault.text);
        for (unsigned l = 0; l < b->lanes; l++) {
          uint32_t want[4];
          for (unsigned n = 0; n < 4; n++) want[n] = old[n][l];
          if (exec_of(b) >> l & 1) {
            uint8_t bytes[16] = {0};
            for (unsigned n = 0; n < k->bytes; n++)
              bytes[n] = *model_byte(b->data, b->t->lds, b->scratch, f->space, b->lanes, l,
                                     offset[l] + (uint32_t)f->constant + n);
            uint32_t value = bytes[0] | (k->bytes > 1 ? bytes[1] << 8 : 0);
            if (k->sign) value = k->bytes == 1 ? (uint32_t)(int8_t)value : (uint32_t)(int16_t)value;
            if (k->bytes >= 4)
              memcpy(want, bytes, k->bytes);
            else if (k->low || k->high)
              want[0] = k->low ? (want[0] & 0xffff0000) | (value & 0xffff) : (want[0] & 0xffff) | value << 16;
            else
              want[0] = value;
          }
          for (unsigned n = 0; n < 4; n++)
            if (*vgpr(b, 20 + n, l) != want[n])
              fail_msg("%s: pattern %u, mask %u, lane %u, register %u: %#x, not %#x", text[i], p, m, l, n,
                       *vgpr(b, 20 + n, l), want[n]);
        }
      }
}

static void stores_of(struct bench *b) {
  char text[FORMS * STORES][100];
  const char *at[FORMS * STORES];
  static uint8_t data[BYTES], scratch[BYTES], lds[65536];
  for (unsigned i = 0; i < FORMS * STORES; i++) {
    const struct form *f = &forms[i / STORES];
    const struct kind *k = &stores[i % STORES];
    char src[20];
    register_name(src, 20, k->bytes);
    const char *name = f->prefix[0] == 'd' ? k->ds : k->name;
    if (f->prefix[0] == 'b')
      sprintf(text[i], "%s_store_%s %s, %s%s", f->prefix, name, src, f->address, f->tail);
    else
      sprintf(text[i], "%s_store_%s %s, %s%s", f->prefix, name, f->address, src, f->tail);
    at[i] = text[i];
  }
  wave_snippets(b->t, at, sizeof *at, FORMS * STORES);
  for (unsigned i = 0; i < FORMS * STORES; i++)
    for (unsigned p = 0; p < PATTERNS; p++)
      for (unsigned m = 0; m < MASKS; m++) {
        const struct form *f = &forms[i / STORES];
        const struct kind *k = &stores[i % STORES];
        uint32_t offset[MAX_LANES];
        pattern(p, k->bytes, false, f->space, offset);
        set_addresses(b, offset);
        set_exec(b, masks[m]);
        memcpy(data, b->data, BYTES), memcpy(scratch, b->scratch, BYTES), memcpy(lds, b->t->lds, sizeof lds);
        for (unsigned l = 0; l < b->lanes; l++) {
          uint32_t value[4];
          for (unsigned n = 0; n < 4; n++) *vgpr(b, 20 + n, l) = value[n] = rnd();
          if (k->high) value[0] >>= 16;
          for (unsigned n = 0; n < k->bytes && exec_of(b) >> l & 1; n++)
            *model_byte(data, lds, scratch, f->space, b->lanes, l, offset[l] + (uint32_t)f->constant + n) =
                (uint8_t)(value[n / 4] >> 8 * (n % 4));
        }
        if (wave_run(b->t, i * WAVE_SNIPPET) != RDNA3_ENDED) fail_msg("%s: %s", text[i], b->t->fault.text);
        if (memcmp(data, b->data, BYTES) || memcmp(scratch, b->scratch, BYTES) || memcmp(lds, b->t->lds, sizeof lds))
          fail_msg("%s: pattern %u, mask %u: memory differs", text[i], p, m);
      }
}

/* ---- atomics ---- */
static double as_double(uint64_t x, bool wide) {
  double d;
  float f;
  uint32_t low = (uint32_t)x;
  if (wide) {
    memcpy(&d, &x, 8);
    return d;
  }
  memcpy(&f, &low, 4);
  return (double)f;
}
static uint64_t float_bits(double d, bool wide) {
  uint64_t x = 0;
  float f = (float)d;
  wide ? memcpy(&x, &d, 8) : memcpy(&x, &f, 4);
  return x;
}
/* a: the data operand, c: the second (what cmpswap compares with, mskor's bits). */
static uint64_t atomic_model(const char *op, bool wide, uint64_t m, uint64_t a, uint64_t c) {
  int64_t sm = wide ? (int64_t)m : (int32_t)m, sa = wide ? (int64_t)a : (int32_t)a;
  if (!strcmp(op, "swap")) return a;
  if (!strcmp(op, "cmpswap")) return m == c ? a : m;
  if (!strcmp(op, "add")) return m + a;
  if (!strcmp(op, "sub")) return m - a;
  if (!strcmp(op, "rsub")) return a - m;
  if (!strcmp(op, "csub")) return m < a ? 0 : m - a;
  if (!strcmp(op, "min_i")) return sm < sa ? m : a;
  if (!strcmp(op, "max_i")) return sm > sa ? m : a;
  if (!strcmp(op, "min_u")) return m < a ? m : a;
  if (!strcmp(op, "max_u")) return m > a ? m : a;
  if (!strcmp(op, "and")) return m & a;
  if (!strcmp(op, "or")) return m | a;
  if (!strcmp(op, "xor")) return m ^ a;
  if (!strcmp(op, "inc")) return m >= a ? 0 : m + 1;
  if (!strcmp(op, "dec")) return m == 0 || m > a ? a : m - 1;
  if (!strcmp(op, "mskor")) return (m & ~a) | c;
  if (!strcmp(op, "wrap")) return m >= a ? m - a : m + c;
  double fm = as_double(m, wide), fa = as_double(a, wide);
  if (!strcmp(op, "fcmpswap")) return fm == as_double(c, wide) ? a : m;
  if (!strcmp(op, "fmin")) return fa < fm ? a : m;
  if (!strcmp(op, "fmax")) return fa > fm ? a : m;
  if (!strcmp(op, "fadd")) return float_bits(wide ? fm + fa : (double)((float)fm + (float)fa), wide);
  fail_msg("%s", op);
  return 0;
}
static const struct atomic {
  const char *model, *memory, *ds; /* memory, ds: names in memory and DS instructions; NULL if there is none */
  bool wide, two, floating;
} atomics[] = {
#define BOTH(model, name, two) {model, name "_b32", NULL, 0, two, 0}, {model, name "_b64", NULL, 1, two, 0}
    BOTH("swap", "swap", 0),
    BOTH("cmpswap", "cmpswap", 1),
    {"swap", NULL, "storexchg_rtn_b32", 0, 0, 0},
    {"swap", NULL, "storexchg_rtn_b64", 1, 0, 0},
    {"cmpswap", NULL, "cmpstore_b32", 0, 1, 0},
    {"cmpswap", NULL, "cmpstore_b64", 1, 1, 0},
    {"add", "add_u32", "add_u32", 0, 0, 0},
    {"add", "add_u64", "add_u64", 1, 0, 0},
    {"sub", "sub_u32", "sub_u32", 0, 0, 0},
    {"sub", "sub_u64", "sub_u64", 1, 0, 0},
    {"rsub", NULL, "rsub_u32", 0, 0, 0},
    {"rsub", NULL, "rsub_u64", 1, 0, 0},
    {"csub", "csub_u32", NULL, 0, 0, 0},
    {"min_i", "min_i32", "min_i32", 0, 0, 0},
    {"min_i", "min_i64", "min_i64", 1, 0, 0},
    {"max_i", "max_i32", "max_i32", 0, 0, 0},
    {"max_i", "max_i64", "max_i64", 1, 0, 0},
    {"min_u", "min_u32", "min_u32", 0, 0, 0},
    {"min_u", "min_u64", "min_u64", 1, 0, 0},
    {"max_u", "max_u32", "max_u32", 0, 0, 0},
    {"max_u", "max_u64", "max_u64", 1, 0, 0},
    {"and", "and_b32", "and_b32", 0, 0, 0},
    {"and", "and_b64", "and_b64", 1, 0, 0},
    {"or", "or_b32", "or_b32", 0, 0, 0},
    {"or", "or_b64", "or_b64", 1, 0, 0},
    {"xor", "xor_b32", "xor_b32", 0, 0, 0},
    {"xor", "xor_b64", "xor_b64", 1, 0, 0},
    {"inc", "inc_u32", "inc_u32", 0, 0, 0},
    {"inc", "inc_u64", "inc_u64", 1, 0, 0},
    {"dec", "dec_u32", "dec_u32", 0, 0, 0},
    {"dec", "dec_u64", "dec_u64", 1, 0, 0},
    {"mskor", NULL, "mskor_b32", 0, 1, 0},
    {"mskor", NULL, "mskor_b64", 1, 1, 0},
    {"wrap", NULL, "wrap_rtn_b32", 0, 1, 0},
    {"fcmpswap", "cmpswap_f32", "cmpstore_f32", 0, 1, 1},
    {"fcmpswap", NULL, "cmpstore_f64", 1, 1, 1},
    {"fmin", "min_f32", "min_f32", 0, 0, 1},
    {"fmax", "max_f32", "max_f32", 0, 0, 1},
    {"fmin", NULL, "min_f64", 1, 0, 1},
    {"fmax", NULL, "max_f64", 1, 0, 1},
    {"fadd", "add_f32", "add_f32", 0, 0, 1},
#undef BOTH
};
enum { ATOMICS = sizeof atomics / sizeof *atomics };

/* Writes the text of an atomic in a form, with or without returning the old value in v20. Returns false if there is no
 * such instruction. */
static bool atomic_text(char *out, const struct atomic *a, const struct form *f, bool returns) {
  unsigned size = a->wide ? 8 : 4;
  char dst[20], src[20], second[20];
  register_name(dst, 20, size);
  if (f->prefix[0] == 'd') {
    bool only_rtn = a->ds && strstr(a->ds, "_rtn");
    if (!a->ds || (only_rtn && !returns)) return false;
    register_name(src, 24, size), register_name(second, 26, size);
    const char *type = strrchr(a->ds, '_');
    int n = only_rtn || !returns ? sprintf(out, "ds_%s ", a->ds)
                                 : sprintf(out, "ds_%.*s_rtn%s ", (int)(type - a->ds), a->ds, type);
    if (returns) n += sprintf(out + n, "%s, ", dst);
    n += sprintf(out + n, "%s, %s", f->address, src);
    if (a->two) n += sprintf(out + n, ", %s", second);
    sprintf(out + n, "%s", f->tail);
    return true;
  }
  if (!a->memory || f->space == SCRATCH || f->prefix[0] == 's') return false;
  bool csub = !strcmp(a->model, "csub");
  if (csub && (f->prefix[0] == 'f' || !returns)) return false;
  register_name(src, 24, a->two ? 2 * size : size);
  if (f->prefix[0] == 'b')
    sprintf(out, "buffer_atomic_%s %s, %s%s%s", a->memory, src, f->address, f->tail, returns ? " glc" : "");
  else
    sprintf(out, "%s_atomic_%s %s%s%s, %s%s%s", f->prefix, a->memory, returns ? dst : "", returns ? ", " : "",
            f->address, src, f->tail, returns ? " glc" : "");
  return true;
}

static void atomics_of(struct bench *b) {
  static char text[FORMS * ATOMICS * 2][120];
  static const char *at[FORMS * ATOMICS * 2];
  static uint16_t which[FORMS * ATOMICS * 2];
  unsigned n = 0;
  for (unsigned i = 0; i < FORMS * ATOMICS * 2; i++)
    if (atomic_text(text[n], &atomics[i / 2 % ATOMICS], &forms[i / 2 / ATOMICS], i & 1))
      at[n] = text[n], which[n] = (uint16_t)i, n++;
  assert_true(n > 200);
  wave_snippets(b->t, at, sizeof *at, n);
  static uint8_t data[BYTES], lds[65536];
  for (unsigned i = 0; i < n; i++)
    for (unsigned p = 0; p < 3; p++)
      for (unsigned m = 0; m < MASKS; m++) {
        const struct form *f = &forms[which[i] / 2 / ATOMICS];
        const struct atomic *a = &atomics[which[i] / 2 % ATOMICS];
        bool returns = which[i] & 1, buffer = f->prefix[0] == 'b';
        unsigned size = a->wide ? 8 : 4, dst = buffer ? 24 : 20;
        uint32_t offset[MAX_LANES];
        pattern(p, 8, true, f->space, offset);
        if (f->constant % 8)
          for (unsigned l = 0; l < MAX_LANES; l++) offset[l] += 8 - (uint32_t)f->constant % 8;
        set_addresses(b, offset);
        set_exec(b, masks[m]);
        /* Small values, so that comparisons sometimes hold; floats of a few fixed values. */
        for (unsigned k = 0; k < 2200; k += size) {
          uint64_t v = a->floating ? float_bits((double)(int)(rnd() % 9) - 4, a->wide)
                       : rnd() & 1 ? rnd() % 4
                                   : ((uint64_t)rnd() << 32 | rnd());
          memcpy(b->data + k, &v, size), memcpy(b->t->lds + k, &v, size);
        }
        memcpy(data, b->data, BYTES), memcpy(lds, b->t->lds, sizeof lds);
        uint64_t old[MAX_LANES];
        for (unsigned l = 0; l < b->lanes; l++) {
          uint64_t v[2];
          for (int k = 0; k < 2; k++) {
            v[k] = a->floating ? float_bits((double)(int)(rnd() % 9) - 4, a->wide)
                   : rnd() & 1 ? rnd() % 4
                               : ((uint64_t)rnd() << 32 | rnd());
            if (!a->wide) v[k] = (uint32_t)v[k];
          }
          for (unsigned k = 0; k < 4; k++) *vgpr(b, 20 + k, l) = rnd();
          unsigned second = f->prefix[0] == 'd' ? 26 : 24 + size / 4;
          *vgpr(b, 24, l) = (uint32_t)v[0];
          if (a->wide) *vgpr(b, 25, l) = (uint32_t)(v[0] >> 32);
          *vgpr(b, second, l) = (uint32_t)v[1];
          if (a->wide) *vgpr(b, second + 1, l) = (uint32_t)(v[1] >> 32);
          old[l] = *vgpr(b, dst, l) | (a->wide ? (uint64_t)*vgpr(b, dst + 1, l) << 32 : 0);
          if (!(exec_of(b) >> l & 1)) continue;
          uint8_t *q = model_byte(data, lds, NULL, f->space, b->lanes, l, offset[l] + (uint32_t)f->constant);
          uint64_t before = 0, after;
          memcpy(&before, q, size);
          after = atomic_model(a->model, a->wide, before, v[0], v[1]);
          memcpy(q, &after, size);
          if (returns) old[l] = before;
        }
        if (wave_run(b->t, i * WAVE_SNIPPET) != RDNA3_ENDED) fail_msg("%s: %s", text[i], b->t->fault.text);
        if (memcmp(data, b->data, BYTES) || memcmp(lds, b->t->lds, sizeof lds))
          fail_msg("%s: pattern %u, mask %u: memory differs", text[i], p, m);
        for (unsigned l = 0; l < b->lanes; l++) {
          uint64_t got = *vgpr(b, dst, l) | (a->wide ? (uint64_t)*vgpr(b, dst + 1, l) << 32 : 0);
          if (got != old[l])
            fail_msg("%s: pattern %u, mask %u, lane %u: returned %#lx, not %#lx", text[i], p, m, l, got, old[l]);
        }
      }
}

#define EACH_SIZE(body)                                                                                                \
  for (int wave64 = 0; wave64 < 2; wave64++) {                                                                         \
    struct bench b = bench_new(wave64);                                                                                \
    body;                                                                                                              \
    bench_free(&b);                                                                                                    \
  }
static void all_loads(void **state) { EACH_SIZE(loads_of(&b)) }
static void all_stores(void **state) { EACH_SIZE(stores_of(&b)) }
static void all_atomics(void **state) { EACH_SIZE(atomics_of(&b)) }

/* ---- scalar loads ---- */
static void scalar_loads(void **state) {
  struct bench b = bench_new(false);
  static const struct {
    const char *text;
    uint32_t words, at;
  } cases[] = {
      {"s_load_b32 s20, s[4:5], 0x10", 1, 0x110},
      {"s_load_b64 s[20:21], s[4:5], -0x20", 2, 0xe0},
      {"s_load_b128 s[20:23], s[4:5], s6 offset:0x40", 4, 0x150},
      {"s_load_b256 s[20:27], s[4:5], s6", 8, 0x110},
      {"s_load_b512 s[20:35], s[4:5], null", 16, 0x100},
      {"s_load_b32 s20, s[4:5], 0x13", 1, 0x110},
      {"s_buffer_load_b32 s20, s[8:11], 0x24", 1, 0x24},
      {"s_buffer_load_b64 s[20:21], s[8:11], s6 offset:0x8", 2, 0x18},
      {"s_buffer_load_b128 s[20:23], s[8:11], 0x38", 4, 0x38},
      {"s_buffer_load_b512 s[20:35], s[8:11], null", 16, 0},
  };
  const char *at[10];
  for (int i = 0; i < 10; i++) at[i] = cases[i].text;
  wave_snippets(b.t, at, sizeof *at, 10);
  uint32_t *s = b.t->w.s;
  for (unsigned i = 0; i < 10; i++) {
    bool buffer = i >= 6;
    s[4] = DATA_VA + 0x100, s[5] = 0, s[6] = 16;
    s[8] = DATA_VA, s[9] = 0, s[10] = 0x40, s[11] = 0x31014000;
    for (int k = 20; k < 40; k++) s[k] = 0xabcd0000u + (uint32_t)k;
    if (wave_run(b.t, i * WAVE_SNIPPET) != RDNA3_ENDED) fail_msg("%s: %s", cases[i].text, b.t->fault.text);
    for (uint32_t k = 0; k < 20; k++) {
      uint32_t want = 0xabcd0000u + 20 + k;
      if (k < cases[i].words) {
        memcpy(&want, b.data + cases[i].at + 4 * k, 4);
        if (buffer && cases[i].at + 4 * k + 4 > 0x40) want = 0;
      }
      if (s[20 + k] != want) fail_msg("%s: word %u is %#x, not %#x", cases[i].text, k, s[20 + k], want);
    }
  }
  bench_free(&b);
}

/* ---- DS pairs and cross-lane operations ---- */
static void ds_pairs(void **state) {
  for (int wave64 = 0; wave64 < 2; wave64++) {
    struct bench b = bench_new(wave64);
    static const struct {
      const char *text;
      unsigned words, first, second;
      char what;
    } cases[] = {
        {"ds_load_2addr_b32 v[20:21], v4 offset0:3 offset1:7", 1, 12, 28, 'l'},
        {"ds_load_2addr_b64 v[20:23], v4 offset0:3 offset1:7", 2, 24, 56, 'l'},
        {"ds_load_2addr_stride64_b32 v[20:21], v4 offset0:1 offset1:2", 1, 256, 512, 'l'},
        {"ds_load_2addr_stride64_b64 v[20:23], v4 offset0:2 offset1:1", 2, 1024, 512, 'l'},
        {"ds_load_2addr_b32 v[4:5], v4 offset0:3 offset1:7", 1, 12, 28, 'o'}, /* overwrites its address register */
        {"ds_store_2addr_b32 v4, v24, v26 offset0:3 offset1:7", 1, 12, 28, 's'},
        {"ds_store_2addr_b64 v4, v[24:25], v[26:27] offset0:3 offset1:7", 2, 24, 56, 's'},
        {"ds_store_2addr_stride64_b32 v4, v24, v26 offset0:1 offset1:2", 1, 256, 512, 's'},
        {"ds_store_2addr_stride64_b64 v4, v[24:25], v[26:27] offset0:2 offset1:1", 2, 1024, 512, 's'},
        {"ds_storexchg_2addr_rtn_b32 v[20:21], v4, v24, v26 offset0:3 offset1:7", 1, 12, 28, 'x'},
        {"ds_storexchg_2addr_stride64_rtn_b64 v[20:23], v4, v[24:25], v[26:27] offset0:2 offset1:1", 2, 1024, 512, 'x'},
    };
    enum { N = sizeof cases / sizeof *cases };
    const char *at[N];
    for (int i = 0; i < N; i++) at[i] = cases[i].text;
    wave_snippets(b.t, at, sizeof *at, N);
    static uint8_t lds[65536];
    for (unsigned i = 0; i < N; i++)
      for (unsigned m = 0; m < MASKS; m++) {
        uint32_t offset[MAX_LANES], want[4][MAX_LANES];
        for (unsigned l = 0; l < MAX_LANES; l++) offset[l] = 2048 * (l & 7) + (l >> 3) * 64;
        set_addresses(&b, offset);
        set_exec(&b, masks[m]);
        memcpy(lds, b.t->lds, sizeof lds);
        unsigned dst = cases[i].what == 'o' ? 4 : 20, words = cases[i].words;
        for (unsigned l = 0; l < b.lanes; l++) {
          for (unsigned k = 0; k < 8; k++) *vgpr(&b, 20 + k, l) = rnd();
          for (unsigned k = 0; k < 4; k++) want[k][l] = *vgpr(&b, dst + k, l);
          if (!(exec_of(&b) >> l & 1)) continue;
          for (unsigned k = 0; k < 2 * words; k++) {
            uint8_t *q = lds + offset[l] + (k < words ? cases[i].first : cases[i].second) + 4 * (k % words);
            if (cases[i].what != 's') memcpy(&want[k][l], q, 4);
            if (cases[i].what == 's' || cases[i].what == 'x')
              memcpy(q, vgpr(&b, (k < words ? 24 : 26) + k % words, l), 4);
          }
        }
        if (wave_run(b.t, i * WAVE_SNIPPET) != RDNA3_ENDED) fail_msg("%s: %s", cases[i].text, b.t->fault.text);
        if (memcmp(lds, b.t->lds, sizeof lds)) fail_msg("%s: mask %u: memory differs", cases[i].text, m);
        for (unsigned l = 0; l < b.lanes; l++)
          for (unsigned k = 0; k < 2 * words; k++)
            if (*vgpr(&b, dst + k, l) != want[k][l]) fail_msg("%s: mask %u, lane %u, word %u", cases[i].text, m, l, k);
      }
    bench_free(&b);
  }
}

static uint32_t swizzle_model(uint32_t mode, uint32_t lane) {
  uint32_t l = lane & 31, group = lane & 32;
  if (mode >= 0xc000 && mode < 0xe000) { /* rotate */
    uint32_t keep = mode & 31, by = mode >> 5 & 31, moved = mode >> 10 & 1 ? l - by : l + by;
    return group | (l & keep) | (moved & ~keep & 31);
  }
  if (mode & 0x8000) return group | (l & 28) | (mode >> 2 * (l & 3) & 3);
  return group | ((((l & (mode & 31)) | (mode >> 5 & 31)) ^ (mode >> 10 & 31)) & 31);
}
static void cross_lane(void **state) {
  static const uint16_t modes[] = {0x041f, 0x7c1f, 0x001f, 0x0018, 0x03e0, 0x8000,
                                   0x801b, 0x80b1, 0xc020, 0xc460, 0x1234};
  enum { SWIZZLES = sizeof modes / sizeof *modes, N = SWIZZLES + 4 };
  char text[N][60];
  const char *at[N];
  for (unsigned i = 0; i < SWIZZLES; i++) sprintf(text[i], "ds_swizzle_b32 v20, v24 offset:%u", modes[i]);
  strcpy(text[SWIZZLES], "ds_bpermute_b32 v20, v4, v24");
  strcpy(text[SWIZZLES + 1], "ds_bpermute_b32 v20, v4, v24 offset:12");
  strcpy(text[SWIZZLES + 2], "ds_permute_b32 v20, v4, v24 offset:4");
  strcpy(text[SWIZZLES + 3], "ds_bpermute_b32 v24, v4, v24");
  for (unsigned i = 0; i < N; i++) at[i] = text[i];
  for (int wave64 = 0; wave64 < 2; wave64++) {
    struct bench b = bench_new(wave64);
    wave_snippets(b.t, at, sizeof *at, N);
    for (unsigned i = 0; i < N; i++)
      for (unsigned m = 0; m < MASKS; m++) {
        set_exec(&b, masks[m]);
        uint32_t in[MAX_LANES], address[MAX_LANES], want[MAX_LANES], sent[MAX_LANES] = {0};
        unsigned dst = i == N - 1 ? 24 : 20;
        for (unsigned l = 0; l < b.lanes; l++) {
          *vgpr(&b, 24, l) = in[l] = rnd(), *vgpr(&b, 4, l) = address[l] = rnd();
          *vgpr(&b, 20, l) = rnd();
          want[l] = *vgpr(&b, dst, l);
        }
        for (unsigned l = 0; l < b.lanes; l++)
          if (exec_of(&b) >> l & 1) sent[(l & 32) | ((address[l] + 4) / 4 & 31)] = in[l];
        for (unsigned l = 0; l < b.lanes; l++) {
          if (!(exec_of(&b) >> l & 1)) continue;
          uint32_t from = i < SWIZZLES ? swizzle_model(modes[i], l)
                                       : (l & 32) | ((address[l] + (i == SWIZZLES + 1 ? 12 : 0)) >> 2 & 31);
          want[l] = i == SWIZZLES + 2 ? sent[l] : exec_of(&b) >> from & 1 ? in[from] : 0;
        }
        if (wave_run(b.t, i * WAVE_SNIPPET) != RDNA3_ENDED) fail_msg("%s: %s", text[i], b.t->fault.text);
        for (unsigned l = 0; l < b.lanes; l++)
          if (*vgpr(&b, dst, l) != want[l])
            fail_msg("%s: mask %u, lane %u: %#x, not %#x", text[i], m, l, *vgpr(&b, dst, l), want[l]);
      }
    bench_free(&b);
  }
}

/* ---- other cases ---- */
static void append_and_addtid(void **state) {
  for (int wave64 = 0; wave64 < 2; wave64++) {
    struct bench b = bench_new(wave64);
    static const char *const text[] = {"ds_append v20 offset:8",
                                       "ds_consume v20 offset:8",
                                       "global_load_addtid_b32 v20, s[4:5] offset:16",
                                       "ds_load_addtid_b32 v20 offset:16",
                                       "ds_store_addtid_b32 v24 offset:16",
                                       "global_store_addtid_b32 v24, s[4:5] offset:16"};
    wave_snippets(b.t, text, sizeof *text, 6);
    for (unsigned m = 0; m < MASKS; m++) {
      set_exec(&b, masks[m]);
      b.t->w.s[RDNA3_M0] = 64, b.t->w.s[4] = DATA_VA, b.t->w.s[5] = 0;
      unsigned active = (unsigned)__builtin_popcountll(exec_of(&b));
      uint32_t counter = rnd(), now;
      for (unsigned i = 0; i < 6; i++) {
        memcpy(b.t->lds + 72, &counter, 4);
        for (unsigned l = 0; l < b.lanes; l++) *vgpr(&b, 20, l) = 7, *vgpr(&b, 24, l) = rnd();
        assert_int_equal(wave_run(b.t, i * WAVE_SNIPPET), RDNA3_ENDED);
        memcpy(&now, b.t->lds + 72, 4);
        if (i < 2) assert_int_equal(now, active ? (i ? counter - active : counter + active) : counter);
        for (unsigned l = 0; l < b.lanes; l++) {
          bool on = exec_of(&b) >> l & 1;
          uint32_t word, got = *vgpr(&b, 20, l);
          memcpy(&word, i == 2 || i == 5 ? b.data + 16 + 4 * l : b.t->lds + 80 + 4 * l, 4);
          if (i < 4) assert_int_equal(got, !on ? 7 : i < 2 ? counter : word);
          if (i >= 4 && on) assert_int_equal(word, *vgpr(&b, 24, l));
        }
      }
    }
    bench_free(&b);
  }
}

/* Out of bounds: LDS and raw buffers read zero and drop stores; descriptors with a stride check the index. */
static void bounds(void **state) {
  struct bench b = bench_new(false);
  static const char *const text[] = {"ds_load_b64 v[20:21], v4",
                                     "ds_store_b64 v4, v[24:25]",
                                     "ds_add_rtn_u32 v20, v4, v24",
                                     "buffer_load_b128 v[20:23], v4, s[8:11], 0 offen",
                                     "buffer_store_b32 v24, v4, s[8:11], 0 offen",
                                     "buffer_atomic_add_u32 v24, v4, s[8:11], 0 offen glc",
                                     "buffer_load_b32 v20, v5, s[12:15], 0 idxen offset:4",
                                     "buffer_load_b32 v20, v[4:5], s[16:19], 0 idxen offen",
                                     "buffer_load_b64 v[20:22], v4, s[8:11], 0 offen tfe"};
  wave_snippets(b.t, text, sizeof *text, 9);
  struct rdna3_wave *w = &b.t->w;
  w->lds_size = 512;
  uint32_t offset[MAX_LANES];
  for (uint32_t l = 0; l < MAX_LANES; l++)
    offset[l] = l < 30 ? 4 * (l * 5 % 32) + 448 : l == 30 ? 0xfffffffc : 0x80000000;
  memset(b.t->lds + 512, 0x77, 64);
  for (unsigned i = 0; i < 9; i++) {
    set_addresses(&b, offset);
    w->s[10] = 512;
    w->s[12] = DATA_VA, w->s[13] = 16u << 16, w->s[14] = 10,
    w->s[15] = 0x00014000; /* structured, 10 records of 16 bytes */
    w->s[16] = DATA_VA, w->s[17] = 16u << 16 | 1u << 30, w->s[18] = 64,
    w->s[19] = 0x00014000; /* swizzled, element 4, index stride 8 */
    for (unsigned l = 0; l < 32; l++) {
      for (unsigned k = 20; k < 28; k++) *vgpr(&b, k, l) = 0x1000 * k + l;
      *vgpr(&b, 5, l) = l;
      if (i == 7) *vgpr(&b, 4, l) = l, *vgpr(&b, 5, l) = 4 * (l & 3);
    }
    uint8_t before[1024], lds_before[512];
    memcpy(before, b.data, 1024), memcpy(lds_before, b.t->lds, 512);
    if (wave_run(b.t, i * WAVE_SNIPPET) != RDNA3_ENDED) fail_msg("%s: %s", text[i], b.t->fault.text);
    for (unsigned l = 0; l < 32; l++) {
      uint32_t o = offset[l], got = *vgpr(&b, 20, l), word = 0;
      switch (i) {
      case 0:
        if (o <= 504) memcpy(&word, lds_before + o, 4);
        assert_int_equal(got, word);
        break;
      case 2:
        if (o > 508) assert_int_equal(got, 0);
        break;
      case 3:
        for (unsigned k = 0; k < 4; k++) {
          word = 0;
          if (o < 0x80000000 && o + 4 * k + 4 <= 512) memcpy(&word, before + o + 4 * k, 4);
          assert_int_equal(*vgpr(&b, 20 + k, l), word);
        }
        break;
      case 5: assert_true(o <= 508 || *vgpr(&b, 24, l) == 0); break;
      case 6:
        if (l < 10) memcpy(&word, before + 16 * l + 4, 4);
        assert_int_equal(got, word);
        break;
      case 7:
        memcpy(&word, before + (l / 8 * 16 + (l & 3) * 4) * 8 + l % 8 * 4, 4);
        assert_int_equal(got, word);
        break;
      case 8: /* TFE: the word after the data reports that every page was mapped */
        for (unsigned k = 0; k < 2; k++) {
          word = 0;
          if (o < 0x80000000 && o + 4 * k + 4 <= 512) memcpy(&word, before + o + 4 * k, 4);
          assert_int_equal(*vgpr(&b, 20 + k, l), word);
        }
        assert_int_equal(*vgpr(&b, 22, l), 0);
        assert_int_equal(*vgpr(&b, 23, l), 0x1000 * 23 + l);
        break;
      default: break;
      }
    }
    for (unsigned k = 512; k < 576; k++) assert_int_equal(b.t->lds[k], 0x77);
    assert_memory_equal(b.data + 512, before + 512, 512);
  }
  bench_free(&b);
}

static void faults(void **state) {
  struct bench b = bench_new(false);
  static const char *const text[] = {"global_load_b32 v20, v[2:3], off",
                                     "global_store_b64 v[2:3], v[24:25], off",
                                     "global_atomic_add_u32 v[2:3], v24, off",
                                     "scratch_load_b32 v20, v4, off",
                                     "s_load_b64 s[20:21], s[4:5], null",
                                     "flat_store_b32 v[8:9], v24",
                                     "ds_add_u32 v4, v24",
                                     "s_buffer_load_b32 s20, s[8:11], 0x8",
                                     "buffer_load_b32 v20, v4, s[8:11], 0 offen"};
  static const struct {
    enum fault_kind kind;
    uint64_t address;
    int lane;
    unsigned access;
  } want[] = {
      {FAULT_PAGE, DATA_VA + BYTES, 17, VM_READ},
      {FAULT_PAGE, DATA_VA + BYTES, 17, VM_WRITE},
      {FAULT_MISALIGNED, DATA_VA + BYTES - 2, 17, VM_READ | VM_WRITE},
      {FAULT_PAGE, 254, 17, VM_READ},
      {FAULT_PAGE, DATA_VA + BYTES, -1, VM_READ},
      {FAULT_PAGE, 254, 17, VM_WRITE},
      {FAULT_MISALIGNED, 254, 17, VM_READ | VM_WRITE},
      {FAULT_PAGE, DATA_VA - 4096, -1, VM_READ},
      {FAULT_PAGE, DATA_VA + BYTES, 17, VM_READ},
  };
  wave_snippets(b.t, text, sizeof *text, 9);
  for (unsigned i = 0; i < 9; i++) {
    uint32_t offset[MAX_LANES] = {0}, *s = b.t->w.s;
    if (i == 3 || i == 5 || i == 6) offset[17] = 254;
    set_addresses(&b, offset);
    if (i < 3) *vgpr(&b, 2, 17) = DATA_VA + BYTES - 2; /* only half of it is mapped */
    s[4] = DATA_VA + BYTES;
    if (i == 7) s[8] = DATA_VA - 4104;
    if (i == 8) *vgpr(&b, 4, 17) = BYTES, s[10] = BYTES + 64;
    memset(&b.t->fault, 0, sizeof b.t->fault);
    if (wave_run(b.t, i * WAVE_SNIPPET) != RDNA3_FAULTED) fail_msg("%s: no fault", text[i]);
    const struct fault *f = &b.t->fault;
    if (f->kind != want[i].kind || f->address != want[i].address || f->lane != want[i].lane ||
        f->access != want[i].access)
      fail_msg("%s: kind %d, address %#lx, lane %d, access %u: %s", text[i], f->kind, f->address, f->lane, f->access,
               f->text);
    assert_int_equal(f->pc, WAVE_CODE + i * WAVE_SNIPPET);
    if (!strstr(f->text, text[i])) fail_msg("'%s' does not name %s", f->text, text[i]);
  }
  bench_free(&b);
}

/* Two adjacent mappings: lanes on either side, and accesses across the boundary. */
static void accesses_across_mappings(void **state) {
  struct bench b = bench_new(false);
  uint8_t *other = aligned_alloc(4096, 4096);
  memset(other, 0x5a, 4096);
  assert_int_equal(vm_map(b.t->vm, DATA_VA + BYTES, 4096, other, VM_READ | VM_WRITE, 9), 0);
  static const char *const text[] = {"global_load_b64 v[20:21], v[2:3], off",
                                     "global_store_b64 v[2:3], v[20:21], off offset:256",
                                     "s_load_b128 s[20:23], s[4:5], null"};
  wave_snippets(b.t, text, sizeof *text, 3);
  uint32_t offset[MAX_LANES];
  for (uint32_t l = 0; l < MAX_LANES; l++) offset[l] = BYTES - 256 - 64 + 6 * l;
  set_addresses(&b, offset);
  b.t->w.s[4] = DATA_VA + BYTES - 8;
  if (wave_run(b.t, 0) != RDNA3_ENDED) fail_msg("%s", b.t->fault.text);
  for (unsigned l = 0; l < 32; l++)
    for (unsigned k = 0; k < 8; k++) {
      uint32_t at = offset[l] + 256 + k;
      assert_int_equal(*vgpr(&b, 20 + k / 4, l) >> 8 * (k % 4) & 255, at < BYTES ? b.data[at] : other[at - BYTES]);
    }
  if (wave_run(b.t, 2 * WAVE_SNIPPET) != RDNA3_ENDED) fail_msg("%s", b.t->fault.text);
  assert_memory_equal(&b.t->w.s[20], b.data + BYTES - 8, 8);
  assert_int_equal(b.t->w.s[22], 0x5a5a5a5a);
  if (wave_run(b.t, WAVE_SNIPPET) != RDNA3_ENDED) fail_msg("%s", b.t->fault.text);
  uint32_t high = *vgpr(&b, 21, 31);
  assert_memory_equal(other + offset[31] + 512 + 4 - BYTES, &high, 4);
  bench_free(&b);
  free(other);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_loads),
      cmocka_unit_test(all_stores),
      cmocka_unit_test(all_atomics),
      cmocka_unit_test(scalar_loads),
      cmocka_unit_test(ds_pairs),
      cmocka_unit_test(cross_lane),
      cmocka_unit_test(append_and_addtid),
      cmocka_unit_test(bounds),
      cmocka_unit_test(faults),
      cmocka_unit_test(accesses_across_mappings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
