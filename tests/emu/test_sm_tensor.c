/* Tensor maps and copies of boxes of tensors on emulated SMs: kernels by nvcc (tests/data/nv/tensor.cu), whose
 * tensormap.replace instructions check the map's layout. */
#include <errno.h>
#include <math.h>
#include "hcq/nv/tensor_map.h"
#include "sm_harness.h"

static uint32_t seed;
static uint32_t rnd(uint32_t below) {
  seed = seed * 1664525 + 1013904223;
  return (uint32_t)((uint64_t)(seed >> 4) * below >> 28);
}

/* The same structure as in tensor.cu. */
struct description {
  uint64_t address, stride[4];
  uint32_t rank, type, interleave, swizzle, fill, size[5], box[5], step[5];
};
static void encode(uint64_t *map, const struct description *d) {
#define SET(f, i, v) tensor_map_set(map, TENSOR_##f, i, v)
  SET(ADDRESS, 0, d->address), SET(RANK, 0, d->rank - 1), SET(INTERLEAVE, 0, d->interleave), SET(FILL, 0, d->fill);
  SET(TYPE, 0, d->type < 11 ? d->type : d->type - 4), SET(SWIZZLE, 0, d->swizzle), SET(SWIZZLE_OTHER, 0, 0);
  if (d->type >= 11) SET(TF32, 0, 1);
  for (unsigned i = 0; i < 5; i++)
    SET(SIZE, i, d->size[i] - 1), SET(BOX, i, d->box[i] - 1), SET(STEP, i, d->step[i] - 1);
  for (unsigned i = 0; i < 4; i++) SET(STRIDE, i, d->stride[i] / 16), SET(STRIDE_HIGH, i, d->stride[i] >> 36);
#undef SET
}

static int setup(void **state) {
  struct sm_gpu *g = *state = sm_gpu_new("tensor.cubin");
  g->dynamic_shared = 64 << 10, seed = 1;
  return 0;
}
static int teardown(void **state) {
  sm_gpu_free(*state);
  return 0;
}

static void test_maps(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_out, va_d, want[TENSOR_MAP_WORDS];
  uint64_t *out = sm_alloc(g, 128, &va_out);
  struct description *d = sm_alloc(g, sizeof *d, &va_d);
  for (unsigned n = 0; n < 200; n++) {
    *d = (struct description){.address = (uint64_t)rnd(1 << 28) << 20 | rnd(1 << 16) * 16,
                              .rank = rnd(5) + 1,
                              .type = rnd(13),
                              .interleave = rnd(3),
                              .swizzle = rnd(4),
                              .fill = rnd(2)};
    for (unsigned i = 0; i < 5; i++)
      d->size[i] = rnd(1 << 28) << rnd(5), d->box[i] = rnd(256) + 1, d->step[i] = rnd(8) + 1;
    for (unsigned i = 0; i < 4; i++) d->stride[i] = (uint64_t)rnd(1 << 28) << 12 | rnd(256) << 4;
    uint64_t before = n & 1 ? ~0ull : 0;
    for (unsigned i = 0; i < TENSOR_MAP_WORDS; i++) want[i] = before;
    encode(want, d);
    SM_OK(g, "describe", 1, 32, va_out, va_d, before);
    assert_memory_equal(out, want, sizeof want);
  }
}

static const unsigned type_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2};

/* A random tensor of `rank` dimensions with elements of `type`, and a box in it of at most 32 KiB. */
static void random_tensor(struct description *d, unsigned rank, unsigned type) {
  unsigned bytes = type_bytes[type];
  *d = (struct description){.rank = rank, .type = type, .swizzle = rnd(4)};
  for (unsigned i = 0; i < 5; i++) d->size[i] = d->box[i] = d->step[i] = 1;
  unsigned row = d->swizzle ? 16u << d->swizzle : 16 * (1 + rnd(8));
  d->box[0] = row / bytes, d->size[0] = 1 + rnd(2 * d->box[0]), d->step[0] = 1 + rnd(8);
  uint64_t stride = ((uint64_t)d->size[0] * bytes + 15) & ~15ull;
  for (unsigned i = 1; i < rank; i++) {
    d->box[i] = 1 + rnd(rank > 3 ? 4 : 9), d->size[i] = 1 + rnd(9), d->step[i] = rnd(3) ? 1 : 1 + rnd(8);
    d->stride[i - 1] = stride, stride = stride * d->size[i] + 16 * rnd(3);
  }
}
/* For each element of the box, calls a function with its offset in shared memory and its offset in the tensor, or -1.
 * Returns the number of bytes. */
static uint32_t each(const struct description *d, const int32_t *c,
                     void (*f)(void *ctx, uint32_t place, int64_t offset), void *ctx) {
  unsigned bytes = type_bytes[d->type];
  uint32_t n[5], i[5], count = 0, mask = (1u << d->swizzle) - 1;
  for (unsigned k = 0; k < 5; k++) n[k] = k ? (d->box[k] + d->step[k] - 1) / d->step[k] : d->box[0];
  for (i[4] = 0; i[4] < n[4]; i[4]++)
    for (i[3] = 0; i[3] < n[3]; i[3]++)
      for (i[2] = 0; i[2] < n[2]; i[2]++)
        for (i[1] = 0; i[1] < n[1]; i[1]++)
          for (i[0] = 0; i[0] < n[0]; i[0]++, count++) {
            int64_t offset = 0;
            bool in = true;
            for (unsigned k = 0; k < 5; k++) {
              int64_t x = (int64_t)(k < d->rank ? c[k] : 0) + (int64_t)i[k] * (k ? d->step[k] : 1);
              if (x < 0 || x >= d->size[k]) in = false;
              offset += x * (int64_t)(k ? d->stride[k - 1] : bytes);
            }
            uint32_t at = count * bytes, line = at / 128 & mask;
            f(ctx, (at / 16 ^ line) * 16 + at % 16, in ? offset : -1);
          }
  return count * bytes;
}

struct check {
  const uint8_t *tensor, *box;
  uint8_t *expect;
  unsigned bytes;
  bool flush;
};
static void like_tensor(void *ctx, uint32_t place, int64_t offset) {
  const struct check *k = ctx;
  uint8_t want[8] = {0};
  if (offset >= 0) memcpy(want, k->tensor + offset, k->bytes);
  float f;
  memcpy(&f, want, 4);
  if (k->flush && fpclassify(f) == FP_SUBNORMAL) want[0] = want[1] = want[2] = 0, want[3] &= 0x80;
  assert_memory_equal(k->box + place, want, k->bytes);
}
static void to_tensor(void *ctx, uint32_t place, int64_t offset) {
  const struct check *k = ctx;
  if (offset >= 0) memcpy(k->expect + offset, k->box + place, k->bytes);
}
static void nothing(void *ctx, uint32_t place, int64_t offset) {}

enum { TENSOR_BYTES = 1 << 20, BOX_BYTES = 64 << 10, MAP_ARG = 3 };
struct memory {
  uint64_t va_tensor, va_box, va_c;
  uint8_t *tensor, *box;
  int32_t *c;
};
static void allocate(struct sm_gpu *g, struct memory *m) {
  m->tensor = sm_alloc(g, TENSOR_BYTES, &m->va_tensor), m->box = sm_alloc(g, BOX_BYTES, &m->va_box);
  m->c = sm_alloc(g, 32, &m->va_c);
}
static void random_place(struct memory *m, const struct description *d) {
  for (unsigned k = 0; k < 5; k++)
    m->c[k] = (int32_t)rnd(d->size[k] + d->box[k] * d->step[k] + 1) - (int32_t)(d->box[k] * d->step[k]);
}
static int launch(struct sm_gpu *g, const struct memory *m, const char *kernel, struct description *d, uint32_t bytes) {
  uint64_t args[MAP_ARG + TENSOR_MAP_WORDS] = {m->va_box, m->va_c, bytes};
  d->address = m->va_tensor;
  encode(args + MAP_ARG, d);
  return sm_launch(g, kernel, (struct sm_dims){{1}, {64}}, args, MAP_ARG + 1);
}

static void test_loads(void **state) {
  struct sm_gpu *g = *state;
  struct memory m;
  allocate(g, &m);
  for (unsigned i = 0; i < TENSOR_BYTES / 4; i++)
    ((uint32_t *)(void *)m.tensor)[i] = i * 2654435761u >> (i % 7 ? 0 : 10);
  for (unsigned n = 0; n < 300; n++) {
    struct description d;
    char kernel[8];
    random_tensor(&d, n % 5 + 1, rnd(11));
    random_place(&m, &d);
    uint32_t bytes = each(&d, m.c, nothing, NULL);
    assert_in_range(bytes, 16, 32 << 10);
    snprintf(kernel, sizeof kernel, "load%u", d.rank);
    if (launch(g, &m, kernel, &d, bytes)) fail_msg("%s", g->fault.text);
    struct check k = {m.tensor, m.box, NULL, type_bytes[d.type], d.type == TENSOR_F32_FTZ};
    each(&d, m.c, like_tensor, &k);
  }
}

/* A kernel that reads a box before its mbarrier's phase has ended gets the box or what was there before. */
static void test_late_loads(void **state) {
  struct sm_gpu *g = *state;
  struct memory m;
  allocate(g, &m);
  for (unsigned i = 0; i < 16 * 64; i++) ((uint32_t *)(void *)m.tensor)[i] = i + 1;
  struct description d = {
      .rank = 2, .type = TENSOR_U32, .stride = {256}, .size = {64, 16, 1, 1, 1}, .box = {64, 1, 1, 1, 1}};
  for (unsigned i = 0; i < 5; i++) d.step[i] = 1;
  if (launch(g, &m, "impatient", &d, 256)) fail_msg("%s", g->fault.text);
  const uint32_t *early = (const uint32_t *)(const void *)m.box, *after = early + 16 * 64;
  unsigned came = 0;
  for (unsigned i = 0; i < 16 * 64; i++) {
    assert_int_equal(after[i], i + 1);
    assert_int_equal(early[i], early[i / 64 * 64] ? i + 1 : 0);
    came += early[i] != 0;
  }
  assert_in_range(came, 4 * 64, 12 * 64);
}

static void test_stores(void **state) {
  struct sm_gpu *g = *state;
  struct memory m;
  uint8_t *expect = calloc(1, TENSOR_BYTES);
  allocate(g, &m);
  for (unsigned n = 0; n < 200; n++) {
    struct description d;
    char kernel[8];
    random_tensor(&d, n % 5 + 1, rnd(11));
    random_place(&m, &d);
    for (unsigned i = 0; i < BOX_BYTES / 4; i++) ((uint32_t *)(void *)m.box)[i] = i * 2654435761u + n;
    uint32_t bytes = each(&d, m.c, nothing, NULL);
    snprintf(kernel, sizeof kernel, "store%u", d.rank);
    if (launch(g, &m, kernel, &d, bytes)) fail_msg("%s", g->fault.text);
    struct check k = {m.tensor, m.box, expect, type_bytes[d.type], false};
    each(&d, m.c, to_tensor, &k);
    assert_memory_equal(m.tensor, expect, TENSOR_BYTES);
  }
  free(expect);
}

/* A kernel that overwrites a box before it has been read, or ends before, stores something else. */
static void test_late_stores(void **state) {
  struct sm_gpu *g = *state;
  struct memory m;
  allocate(g, &m);
  struct description d = {
      .rank = 2, .type = TENSOR_U32, .stride = {256}, .size = {64, 16, 1, 1, 1}, .box = {64, 1, 1, 1, 1}};
  for (unsigned i = 0; i < 5; i++) d.step[i] = 1;
  for (uint32_t how = 0; how < 3; how++) {
    unsigned wrong = 0;
    memset(m.tensor, 0, 16 * 256);
    if (launch(g, &m, "hasty", &d, how)) fail_msg("%s", g->fault.text);
    for (unsigned i = 0; i < 16 * 64; i++) {
      uint32_t got = ((uint32_t *)(void *)m.tensor)[i];
      wrong += got != i / 64;
      if (!how && got != i / 64) assert_int_equal(got, 15); /* what the buffer holds at the only wait */
    }
    assert_in_range(wrong, how ? 0 : 4 * 64, how ? 0 : 12 * 64);
  }
  if (launch(g, &m, "hasty", &d, 3)) fail_msg("%s", g->fault.text);
  for (unsigned i = 0; i < 16 * 64; i++) /* the last copy is a late one */
    assert_int_equal(((uint32_t *)(void *)m.tensor)[i], i < 15 * 64 ? i / 64 : UINT32_MAX);
}

/* Adds 4 x 16 elements, in rows of 16, to those of a 5 x 19 tensor, starting at 1, 5. */
static void test_reductions(void **state) {
  struct sm_gpu *g = *state;
  struct memory m;
  allocate(g, &m);
  struct description d = {.rank = 2, .size = {19, 5, 1, 1, 1}, .box = {16, 4, 1, 1, 1}, .step = {1, 1, 1, 1, 1}};
  m.c[0] = 5, m.c[1] = 1;
  static const char *const names[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
  for (unsigned op = 0; op < 8; op++)
    for (unsigned wide = 0; wide < 2; wide++) {
      if (wide && (op == 3 || op == 4)) continue;
      d.type = wide ? TENSOR_S64 : TENSOR_U32, d.stride[0] = wide ? 160 : 80;
      uint64_t old[5][20], in[4][16];
      for (unsigned i = 0; i < 100; i++) {
        old[i / 20][i % 20] = rnd(20);
        if (wide)
          old[i / 20][i % 20] -= 10, memcpy(m.tensor + i * 8, &old[i / 20][i % 20], 8);
        else
          memcpy(m.tensor + i * 4, &old[i / 20][i % 20], 4);
      }
      for (unsigned i = 0; i < 64; i++) {
        in[i / 16][i % 16] = rnd(20);
        if (wide)
          in[i / 16][i % 16] -= 10, memcpy(m.box + i * 8, &in[i / 16][i % 16], 8);
        else
          memcpy(m.box + i * 4, &in[i / 16][i % 16], 4);
      }
      char kernel[16];
      snprintf(kernel, sizeof kernel, "reduce_%s", names[op]);
      if (launch(g, &m, kernel, &d, wide ? 512 : 256)) fail_msg("%s", g->fault.text);
      for (unsigned y = 0; y < 5; y++)
        for (unsigned x = 0; x < 20; x++) {
          uint64_t a = old[y][x], got = 0, want = a;
          memcpy(&got, m.tensor + (y * 20 + x) * (wide ? 8 : 4), wide ? 8 : 4);
          if (y >= 1 && x >= 5 && x < 19) {
            uint64_t b = in[y - 1][x - 5];
            bool less = wide ? (int64_t)a < (int64_t)b : a < b;
            switch (op) {
            case 0: want = a + b; break;
            case 1: want = less ? a : b; break;
            case 2: want = less ? b : a; break;
            case 3: want = a >= b ? 0 : a + 1; break;
            case 4: want = a == 0 || a > b ? b : a - 1; break;
            case 5: want = a & b; break;
            case 6: want = a | b; break;
            default: want = a ^ b;
            }
          }
          assert_int_equal(got, want);
        }
    }
  /* Halves, starting at an odd one. */
  d.type = TENSOR_F16, d.stride[0] = 48;
  _Float16 *t = (_Float16 *)(void *)m.tensor, *b = (_Float16 *)(void *)m.box;
  for (int i = 0; i < 5 * 24; i++) t[i] = (_Float16)i;
  for (int i = 0; i < 64; i++) b[i] = (_Float16)(i * 0.5f);
  if (launch(g, &m, "reduce_add", &d, 128)) fail_msg("%s", g->fault.text);
  for (int y = 0; y < 5; y++)
    for (int x = 0; x < 24; x++) {
      bool in = y >= 1 && x >= 5 && x < 19;
      float want = (float)(y * 24 + x) + (in ? 0.5f * (float)((y - 1) * 16 + x - 5) : 0);
      assert_float_equal((float)t[y * 24 + x], want, 0);
    }
}

static void test_places_of_maps(void **state) {
  struct sm_gpu *g = *state;
  uint64_t va_map, va_tensor, va_out, va_constant;
  uint64_t *map = sm_alloc(g, 128, &va_map), *constant = sm_alloc(g, 8, &va_constant);
  uint32_t *tensor = sm_alloc(g, 64 * 64 * 4, &va_tensor), *out = sm_alloc(g, 256, &va_out);
  for (uint32_t i = 0; i < 64 * 64; i++) tensor[i] = i * 3;
  struct description d = {.address = va_tensor, .rank = 2, .type = TENSOR_U32, .stride = {256}};
  for (unsigned i = 0; i < 5; i++) d.size[i] = i < 2 ? 64 : 1, d.box[i] = i ? 1 : 64, d.step[i] = 1;
  encode(map, &d);
  SM_OK(g, "load_from", 1, 64, va_out, va_map, 0, 7);
  for (uint32_t i = 0; i < 64; i++) assert_int_equal(out[i], (7 * 64 + i) * 3);
  SM_OK(g, "set_constant", 1, 1, va_constant);
  struct vm_range cache = {0};
  void *p = vm_translate(g->vm, &cache, *constant, 128, VM_READ);
  assert_non_null(p);
  memcpy(p, map, 128);
  SM_OK(g, "load_from", 1, 64, va_out, va_map, 1, 9);
  for (uint32_t i = 0; i < 64; i++) assert_int_equal(out[i], (9 * 64 + i) * 3);
}

static void test_multicast(void **state) {
  struct sm_gpu *g = *state;
  struct memory m;
  allocate(g, &m);
  struct description d = {.rank = 1, .type = TENSOR_U32, .size = {100, 1, 1, 1, 1}, .box = {64, 1, 1, 1, 1}};
  for (unsigned i = 0; i < 5; i++) d.step[i] = 1;
  for (uint32_t i = 0; i < 128; i++) ((uint32_t *)(void *)m.tensor)[i] = i + 1000;
  m.c[0] = 50, d.address = m.va_tensor;
  uint64_t args[MAP_ARG + TENSOR_MAP_WORDS] = {m.va_box, m.va_c, 256};
  encode(args + MAP_ARG, &d);
  if (sm_launch(g, "multicast", (struct sm_dims){{4}, {64}}, args, MAP_ARG + 1)) fail_msg("%s", g->fault.text);
  for (uint32_t b = 0; b < 4; b++)
    for (uint32_t i = 0; i < 64; i++)
      assert_int_equal(((uint32_t *)(void *)m.box)[b * 64 + i], b == 1 || i >= 50 ? 0 : i + 1050);
}

/* Integers, whose sums are exact in any order. */
static void test_products(void **state) {
  struct sm_gpu *g = *state;
  enum { ROWS = 128, COLUMNS = 192, DEPTH = 256 };
  static int8_t x[ROWS][DEPTH], y[DEPTH][COLUMNS];
  static const struct {
    const char *kernel;
    unsigned span;
    bool turned;
  } cases[] = {{"multiply128", 128, false},
               {"multiply64", 64, false},
               {"multiply32", 32, false},
               {"multiply128t", 128, true},
               {"multiply64t", 64, true}};
  uint64_t va_a, va_b, va_c;
  _Float16 *a = sm_alloc(g, sizeof(_Float16) * ROWS * DEPTH, &va_a);
  _Float16 *b = sm_alloc(g, sizeof(_Float16) * DEPTH * COLUMNS, &va_b);
  float *c = sm_alloc(g, 4 * ROWS * COLUMNS, &va_c);
  for (int i = 0; i < ROWS; i++)
    for (int k = 0; k < DEPTH; k++) x[i][k] = (int8_t)((int)rnd(17) - 8), a[i * DEPTH + k] = (_Float16)x[i][k];
  for (int k = 0; k < DEPTH; k++)
    for (int j = 0; j < COLUMNS; j++) y[k][j] = (int8_t)((int)rnd(15) - 7);
  for (unsigned n = 0; n < sizeof cases / sizeof *cases; n++) {
    bool turned = cases[n].turned;
    uint32_t wide = cases[n].span / 2, mode = cases[n].span / 64 + 1;
    for (int k = 0; k < DEPTH; k++)
      for (int j = 0; j < COLUMNS; j++) b[turned ? k * COLUMNS + j : j * DEPTH + k] = (_Float16)y[k][j];
    struct description da = {.address = va_a,
                             .rank = 2,
                             .type = TENSOR_F16,
                             .swizzle = mode == 3 ? 3 : mode,
                             .size = {DEPTH, ROWS, 1, 1, 1},
                             .box = {wide, 64, 1, 1, 1},
                             .step = {1, 1, 1, 1, 1},
                             .stride = {DEPTH * 2}};
    struct description db = da;
    db.address = va_b;
    db.size[0] = turned ? COLUMNS : DEPTH, db.size[1] = turned ? DEPTH : COLUMNS;
    db.box[1] = turned ? wide : 64, db.stride[0] = db.size[0] * 2;
    uint64_t args[2 + 2 * TENSOR_MAP_WORDS] = {va_c, DEPTH};
    encode(args + 2, &da), encode(args + 2 + TENSOR_MAP_WORDS, &db);
    memset(c, 0xff, 4 * ROWS * COLUMNS);
    if (sm_launch(g, cases[n].kernel, (struct sm_dims){{COLUMNS / 64, ROWS / 64}, {128}}, args, 3))
      fail_msg("%s: %s", cases[n].kernel, g->fault.text);
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < COLUMNS; j++) {
        int want = 0;
        for (int k = 0; k < DEPTH; k++) want += x[i][k] * y[k][j];
        assert_float_equal(c[i * COLUMNS + j], (float)want, 0);
      }
  }
}

static void refused(struct sm_gpu *g, const struct memory *m, const char *kernel, const struct description *of,
                    const char *message) {
  struct description d = *of;
  assert_int_equal(launch(g, m, kernel, &d, 512), -EFAULT);
  if (!strstr(g->fault.text, message)) fail_msg("%s, not: %s", g->fault.text, message);
}
static void test_faults(void **state) {
  struct sm_gpu *g = *state;
  struct memory m;
  allocate(g, &m);
  const struct description good = {.rank = 2,
                                   .type = TENSOR_U32,
                                   .size = {64, 64, 1, 1, 1},
                                   .box = {32, 4, 1, 1, 1},
                                   .step = {1, 1, 1, 1, 1},
                                   .stride = {256}};
  struct description d = good;
  assert_int_equal(launch(g, &m, "load2", &d, 512), 0);
  refused(g, &m, "load3", &good, "tensor map of 2 dimensions, for a copy of 3");
#define REFUSED(message, ...)                                                                                          \
  do {                                                                                                                 \
    d = good, __VA_ARGS__;                                                                                             \
    refused(g, &m, "load2", &d, message);                                                                              \
  } while (0)
  REFUSED("interleaved", d.interleave = 1);
  REFUSED("rounds to tf32", d.type = 11);
  REFUSED("rows of 12 bytes, which is not a multiple of 16", d.box[0] = 3);
  REFUSED("rows of 128 bytes, swizzled over 64", d.swizzle = 2);
  REFUSED("rows of 64 bytes swizzled over 128", d.swizzle = 3, d.box[0] = 16);
  REFUSED("page fault: reads", d.stride[0] = 1 << 28);
  m.c[0] = 60;
  REFUSED("fills with NaN", d.fill = 1);
  d = good, d.type = TENSOR_U16, d.box[0] = 64;
  refused(g, &m, "reduce_add", &d, "this reduction of a tensor map's element type 1");
  d = good, d.type = TENSOR_F32;
  refused(g, &m, "reduce_xor", &d, "this reduction of a tensor map's element type 7");
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {T(test_maps),           T(test_loads),      T(test_stores),   T(test_reductions),
                                     T(test_places_of_maps), T(test_multicast),  T(test_products), T(test_faults),
                                     T(test_late_loads),     T(test_late_stores)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
