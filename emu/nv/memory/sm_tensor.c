/* Copies boxes of a tensor between global and shared memory: UTMALDG, UTMASTG, UTMAREDG. There is one copy per warp.
 *
 * On hardware a load completes at any time before its mbarrier's phase ends, and a copy from shared memory reads it at
 * any time before the wait for its group ends. Here half of the copies complete immediately. The others complete when a
 * warp tests their mbarrier, or when the warp waits. So a kernel gets wrong data if it reads shared memory before the
 * mbarrier's phase ends, or writes there before the wait. A copy from shared memory for which no warp waited reads
 * after the CTA's end, when the memory may belong to another CTA. Sources: PTX ISA, "Tensors", "cp.async.bulk.tensor",
 * "cp.reduce.async.bulk.tensor"; CUDA programming guide, "Tensor memory access", for swizzling; encodings from nvdisasm
 * output. */
#include <stdlib.h>
#include <string.h>
#include "../../../hcq/nv/tensor_map.h"
#include "sm_memory.h"

enum { ROW_BYTES = 256 * 8, CHUNK = 16, SHARED_ALIGN = 128 };

static const struct {
  uint8_t bytes, reduced; /* reduced: type of reductions, enum mem_type */
} types[TENSOR_TYPES] = {
    [TENSOR_U8] = {1, MEM_T_COUNT}, [TENSOR_U16] = {2, MEM_T_COUNT}, [TENSOR_U32] = {4, MEM_T_U32},
    [TENSOR_S32] = {4, MEM_T_S32},  [TENSOR_U64] = {8, MEM_T_U64},   [TENSOR_S64] = {8, MEM_T_S64},
    [TENSOR_F16] = {2, MEM_T_F16},  [TENSOR_F32] = {4, MEM_T_F32},   [TENSOR_F32_FTZ] = {4, MEM_T_F32_FTZ},
    [TENSOR_F64] = {8, MEM_T_F64},  [TENSOR_BF16] = {2, MEM_T_BF16},
};

enum way { LOAD, STORE, REDUCE };

/* One copy: the contents of its map, and the destination. */
struct copy {
  struct sm_warp *w;
  const struct sm_uop *u;
  enum way way;
  unsigned lane; /* the lane that faults are reported for */
  uint64_t map_at, address;
  unsigned rank, type, bytes, swizzle; /* bytes: per element */
  bool nan;
  uint64_t size[TENSOR_DIMS], stride[TENSOR_DIMS];
  uint32_t step[TENSOR_DIMS], count[TENSOR_DIMS]; /* count: number of elements copied */
  int64_t first[TENSOR_DIMS];
  uint32_t to, barrier, ctas; /* in shared memory; ctas: with multicast, the mask of those that get the box */
  uint32_t group;             /* of a copy from shared memory: the warp's number of it */
  bool multicast;
};
struct sm_late_copy {
  struct copy copy;
};

static bool reduces(unsigned type, unsigned op) {
  if (op == MEM_OP_INC || op == MEM_OP_DEC) return type == TENSOR_U32;
  return types[type].reduced < MEM_T_F16X2 || (types[type].reduced != MEM_T_COUNT && op < MEM_FLOAT_OPS);
}

#define REFUSE(c, ...)                                                                                                 \
  (sm_fault((c)->w, (c)->u, FAULT_ILLEGAL, SM_ESR_ILLEGAL_PARAMETER, (int)(c)->lane, (c)->map_at, VM_READ,             \
            __VA_ARGS__),                                                                                              \
   false)

static bool read_map(struct copy *c, const uint32_t *coordinates) {
  uint64_t map[TENSOR_MAP_WORDS];
  if (c->map_at % TENSOR_MAP_ALIGN)
    return REFUSE(c, "tensor map at 0x%llx, which is not a multiple of 64", (unsigned long long)c->map_at);
  for (uint32_t at = 0, n; at < sizeof map; at += n) {
    const uint8_t *p = mem_piece(c->w, c->u, c->lane, false, c->map_at + at, sizeof map - at, CHUNK, VM_READ, &n);
    if (!p) return false;
    memcpy((uint8_t *)map + at, p, n);
  }
#define GET(f, i) tensor_map_get(map, TENSOR_##f, i)
  unsigned dimensions = (unsigned)sass_bits(c->u->inst, 79, 3) + 1;
  c->address = GET(ADDRESS, 0), c->rank = (unsigned)GET(RANK, 0) + 1, c->type = (unsigned)GET(TYPE, 0);
  c->swizzle = (unsigned)GET(SWIZZLE, 0), c->nan = GET(FILL, 0);
  if (c->rank != dimensions) return REFUSE(c, "tensor map of %u dimensions, for a copy of %u", c->rank, dimensions);
  if (c->type >= TENSOR_TYPES) return REFUSE(c, "tensor map with element type %u", c->type);
  if (c->way == REDUCE && !reduces(c->type, (unsigned)sass_bits(c->u->inst, 87, 3)))
    return REFUSE(c, "this reduction of a tensor map's element type %u", c->type);
  if (GET(TF32, 0)) return REFUSE(c, "not supported: a tensor map that rounds to tf32");
  if (GET(INTERLEAVE, 0)) return REFUSE(c, "not supported: a tensor map with an interleaved layout");
  if (GET(SWIZZLE_OTHER, 0)) return REFUSE(c, "not supported: this swizzling of a tensor map");
  if (c->address % CHUNK)
    return REFUSE(c, "tensor map of address 0x%llx, which is not a multiple of 16", (unsigned long long)c->address);
  c->bytes = types[c->type].bytes;
  for (unsigned i = 0; i < TENSOR_DIMS; i++) {
    bool used = i < c->rank;
    c->size[i] = used ? GET(SIZE, i) + 1 : 1;
    c->stride[i] = !used || !i ? c->bytes : (GET(STRIDE, i - 1) | GET(STRIDE_HIGH, i - 1) << 32) * CHUNK;
    c->step[i] = used && i ? (uint32_t)GET(STEP, i) + 1 : 1;
    c->count[i] = used ? ((uint32_t)GET(BOX, i) + c->step[i]) / c->step[i] : 1;
    c->first[i] = used ? (int32_t)coordinates[i * SM_LANES] : 0;
  }
#undef GET
  uint32_t row = c->count[0] * c->bytes, span = c->swizzle ? 16u << c->swizzle : row;
  if (row % CHUNK) return REFUSE(c, "tensor map with rows of %u bytes, which is not a multiple of 16", row);
  if (row > span) return REFUSE(c, "tensor map with rows of %u bytes, swizzled over %u", row, span);
  if (row < span) return REFUSE(c, "not supported: a tensor map with rows of %u bytes swizzled over %u", row, span);
  return true;
}

/* Computes the part of the row at index that is inside the tensor: bytes [*from, *to) of the box's row, at address
 * *at. */
static void inside_part(const struct copy *c, const uint32_t *index, uint32_t *from, uint32_t *to, uint64_t *at) {
  *from = *to = 0, *at = c->address;
  for (unsigned i = 1; i < TENSOR_DIMS; i++) {
    int64_t x = c->first[i] + (int64_t)index[i] * c->step[i];
    if (x < 0 || (uint64_t)x >= c->size[i]) return;
    *at += (uint64_t)x * c->stride[i];
  }
  int64_t low = c->first[0] < 0 ? -c->first[0] : 0, high = (int64_t)c->size[0] - c->first[0];
  if (high > c->count[0]) high = c->count[0];
  if (low >= high) return;
  *from = (uint32_t)low * c->bytes, *to = (uint32_t)high * c->bytes;
  *at += (uint64_t)(c->first[0] + low) * c->bytes;
}

/* Moves the bytes of a row between the buffer and memory. */
static bool move_bytes(const struct copy *c, uint8_t *row, uint64_t at, uint32_t bytes) {
  enum way way = c->way;
  unsigned access = way == LOAD ? VM_READ : way == STORE ? VM_WRITE : VM_READ | VM_WRITE;
  for (uint32_t done = 0, n; done < bytes; done += n) {
    uint8_t *p = mem_piece(c->w, c->u, c->lane, false, at + done, bytes - done, c->bytes, access, &n);
    if (!p) return false;
    if (way == LOAD)
      memcpy(row + done, p, n);
    else if (way == STORE)
      memcpy(p, row + done, n);
    else
      for (uint32_t k = 0; k < n; k += c->bytes) {
        uint64_t value = 0;
        memcpy(&value, row + done + k, c->bytes);
        mem_atomic_unit((unsigned)sass_bits(c->u->inst, 87, 3), types[c->type].reduced, p + k, value, false);
      }
  }
  mem_count_copied(c->w, at, bytes, way == LOAD, way != LOAD);
  return true;
}
static void flush_denormals(uint8_t *row, uint32_t bytes) {
  for (uint32_t k = 0; k < bytes; k += 4)
    if (!(row[k + 2] & 0x80) && !(row[k + 3] & 0x7f)) row[k] = row[k + 1] = row[k + 2] = 0;
}

/* Copies between the tensor and the box at `at` in shared memory. */
static bool copy_box(const struct copy *c, uint32_t at) {
  uint32_t index[TENSOR_DIMS] = {0}, bytes = c->count[0] * c->bytes, from, to;
  uint32_t swizzled = (1u << c->swizzle) - 1;
  uint8_t row[ROW_BYTES];
  for (uint32_t place = at;; place += bytes) {
    uint64_t where;
    inside_part(c, index, &from, &to, &where);
    if (c->way == LOAD) {
      if (c->nan && to - from < bytes) return REFUSE(c, "not supported: a tensor map that fills with NaN");
      memset(row, 0, bytes);
      if (!move_bytes(c, row + from, where, to - from)) return false;
      if (c->type == TENSOR_F32_FTZ) flush_denormals(row, bytes);
    }
    for (uint32_t k = 0; k < bytes; k += CHUNK) {
      uint32_t chunk = place + k;
      chunk ^= (chunk >> 7 & swizzled) << 4;
      uint8_t *p = mem_locate(c->w, c->u, MEM_SHARED, c->lane, chunk, CHUNK, c->way == LOAD ? VM_WRITE : VM_READ).host;
      if (!p) return false;
      if (c->way == LOAD)
        memcpy(p, row + k, CHUNK);
      else
        memcpy(row + k, p, CHUNK);
    }
    if (c->way != LOAD && !move_bytes(c, row + from, where, to - from)) return false;
    unsigned i = 1;
    while (i < TENSOR_DIMS && ++index[i] == c->count[i]) index[i++] = 0;
    if (i == TENSOR_DIMS) return true;
  }
}

static bool finish(const struct copy *c) {
  uint32_t bytes = c->bytes;
  for (unsigned i = 0; i < TENSOR_DIMS; i++) bytes *= c->count[i];
  for (uint32_t ctas = c->ctas; ctas; ctas &= ctas - 1) {
    uint32_t rank = (uint32_t)__builtin_ctz(ctas) << 24;
    if (!copy_box(c, c->multicast ? (c->to & 0xffffff) | rank : c->to)) return false;
    uint32_t barrier = c->multicast ? (c->barrier & 0xffffff) | rank : c->barrier;
    if (c->way == LOAD && !mem_bytes_came(c->w, c->u, c->lane, barrier, bytes)) return false;
  }
  return true;
}

/* Whether the next copy is late: every second one in a pseudo-random order. */
static bool is_late(struct sm_core *core) { return ++core->boxes * 2654435761u >> 31; }

static bool keep_late(struct sm_core *core, const struct copy *c) {
  if (core->nlate == core->late_cap) {
    uint32_t cap = core->late_cap ? 2 * core->late_cap : 16;
    struct sm_late_copy *p = realloc(core->late, cap * sizeof *p);
    if (!p) return false;
    core->late = p, core->late_cap = cap;
  }
  core->late[core->nlate++].copy = *c;
  return true;
}

/* Completes the late copies that `chosen` selects. */
static bool complete(struct sm_core *core, bool (*chosen)(const struct copy *c, const struct sm_warp *w, uint32_t what),
                     struct sm_warp *w, uint32_t what) {
  uint32_t n = 0;
  bool ok = true;
  for (uint32_t i = 0; i < core->nlate; i++) {
    struct copy c = core->late[i].copy;
    if (!ok || !chosen(&c, w, what)) {
      core->late[n++] = core->late[i];
      continue;
    }
    if (c.way == LOAD) c.w = w;
    const struct sm_uop *run = c.w->run;
    c.w->run = NULL; /* a fault of the copy is not an instruction of the warp's run: sm_fault must not count it */
    ok = finish(&c);
    c.w->run = run;
  }
  core->nlate = n;
  return ok;
}

static bool arrives_at(const struct copy *c, const struct sm_warp *w, uint32_t mbarrier) {
  return c->way == LOAD && !((c->barrier ^ mbarrier) & 0xffffff);
}
bool mem_complete_boxes(struct sm_warp *w, uint32_t mbarrier) { return complete(w->core, arrives_at, w, mbarrier); }

static bool is_older(const struct copy *c, const struct sm_warp *w, uint32_t pending) {
  return c->way != LOAD && c->w == w && c->group + pending < w->bulk_groups;
}
static bool is_abandoned(const struct copy *c, const struct sm_warp *w, uint32_t pending) { return c->way != LOAD; }

bool sm_abandon_copies(struct sm_core *core) {
  for (uint32_t i = 0; i < core->nlate; i++) {
    const struct sm_cta *cta = core->late[i].copy.w->cta;
    if (core->late[i].copy.way != LOAD) memset(cta->shared, 0xff, cta->shared_size);
  }
  return complete(core, is_abandoned, NULL, 0);
}

static const struct sm_uop *close_group(struct sm_warp *w, const struct sm_uop *u) {
  if (sm_lanes(w, u)) w->bulk_groups++;
  return u + 1;
}
/* arg: the number of groups that may be pending. The same instruction waits for groups of LDGSTS. */
static const struct sm_uop *wait_for_groups(struct sm_warp *w, const struct sm_uop *u) {
  if (w->core->nlate && sm_lanes(w, u) && !complete(w->core, is_older, w, u->arg)) return NULL;
  return u + 1;
}
static bool build_groups(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = in->id == SASS_DEPBAR ? wait_for_groups : close_group;
  if (in->id == SASS_UTMACMDFLUSH) u->all = ~0u, u->guard = (uint8_t)(SM_UP + in->guard);
  bool counts = in->form != 6 && sass_bit(in, 47);
  u->arg = counts ? (uint32_t)sass_bits(in, 38, 6) : 0;
  return true;
}

/* The uniform registers hold the box's address in shared memory, for loads then the mbarrier's address, then the first
 * coordinate of each dimension. With multicast, every CTA of a mask gets the same box. */
static const struct sm_uop *tensor_copy(struct sm_warp *w, const struct sm_uop *u) {
  const struct sass_inst *in = u->inst;
  if (!sm_lanes(w, u)) return u + 1;
  const uint32_t *what = mem_uniform(w, in, 32);
  bool multicast = in->opcode == 0x3b4 && sass_bit(in, 75);
  struct copy c = {.w = w,
                   .u = u,
                   .way = in->id == SASS_UTMALDG   ? LOAD
                          : in->id == SASS_UTMASTG ? STORE
                                                   : REDUCE,
                   .lane = (unsigned)__builtin_ctz(w->active),
                   .map_at = mem_uniform_pair(w, in, 24),
                   .to = what[0],
                   .barrier = what[SM_LANES],
                   .group = w->bulk_groups,
                   .ctas = multicast ? mem_uniform(w, in, 64)[0] >> 16 : 1,
                   .multicast = multicast};
  if (!read_map(&c, what + (c.way == LOAD ? 2 : 1) * SM_LANES)) return NULL;
  if (what[0] % SHARED_ALIGN)
    return sm_fault(w, u, FAULT_MISALIGNED, SM_ESR_MISALIGNED_ADDRESS, (int)c.lane, what[0], VM_WRITE,
                    "copies a box of a tensor at 0x%x of shared memory, which is not a multiple of 128", what[0]);
  if (is_late(w->core) && keep_late(w->core, &c)) return u + 1;
  return finish(&c) ? u + 1 : NULL;
}
static bool build_tensor_copy(struct sm_builder *b, const struct sass_inst *in, const char **why) {
  if (in->opcode != 0x5b4 && sass_bit(in, 82)) {
    *why = "of image columns: the place of their box in tensor maps is not public";
    return false;
  }
  struct sm_uop *u = sm_emit(b, in);
  if (!u) return true;
  u->fn = tensor_copy, u->arg = mem_next_range();
  u->all = ~0u, u->guard = (uint8_t)(SM_UP + in->guard);
  return true;
}

const struct sm_family sm_tensor_family[] = {{SASS_UTMALDG, build_tensor_copy},  {SASS_UTMASTG, build_tensor_copy},
                                             {SASS_UTMAREDG, build_tensor_copy}, {SASS_UTMACMDFLUSH, build_groups},
                                             {SASS_DEPBAR, build_groups},        {SASS_ID_COUNT, NULL}};
