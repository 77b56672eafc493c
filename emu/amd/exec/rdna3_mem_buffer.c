/* MUBUF: loads and stores through a buffer descriptor, with its bounds check and element swizzle. Source: RDNA3 ISA
 * document, chapter "Vector Memory Buffer Instructions". Formatted accesses (buffer_load_format_*) are for graphics and
 * not supported. */
#include "rdna3_mem.h"

/* Fields of u: sdst is the descriptor's first SGPR, smask the operand number of the scalar offset, src[0] VADDR, src[1]
 * VDATA (also dst), src[2] the immediate offset, imm the kind of load or store. */
struct descriptor {
  uint64_t base;
  uint32_t stride, records, swizzle, index_stride, oob;
  bool add_tid;
};
static struct descriptor descriptor(const struct rdna3_wave *w, unsigned n) {
  const uint32_t *v = w->s + n;
  return (struct descriptor){
      .base = v[0] | (uint64_t)(v[1] & 0xffff) << 32,
      .stride = v[1] >> 16 & 0x3fff,
      .swizzle = v[1] >> 30,
      .records = v[2],
      .index_stride = 8u << (v[3] >> 21 & 3),
      .add_tid = v[3] >> 23 & 1,
      .oob = v[3] >> 28 & 3,
  };
}

/* Returns how many bytes from offset on are in bounds for an access of size bytes. */
static uint32_t is_allowed(const struct descriptor *d, uint64_t index, uint64_t offset, uint32_t size) {
  bool structured = true;
  switch (d->oob) {
  case 0: structured = index < d->records && offset + size <= d->stride; break;
  case 1: structured = index < d->records; break;
  case 2: structured = d->records != 0; break;
  default:
    if (d->swizzle && d->stride) {
      structured = index < d->records && offset + size <= d->stride;
      break;
    }
    /* For raw buffers the check is per word. */
    offset += index * d->stride;
    if (offset + size <= d->records) return size;
    if (size < 4 || offset >= d->records) return 0;
    return (uint32_t)(d->records - offset) & ~3u;
  }
  return structured ? size : 0;
}

/* Computes the addresses of all lanes; limit[i] is the number of bytes of lane i that are in bounds. */
static void addresses(struct rdna3_wave *w, const struct rdna3_uop *u, unsigned size, uint64_t *addr, uint32_t *limit) {
  const struct rdna3_inst *in = u->inst;
  struct descriptor d = descriptor(w, u->sdst);
  const uint32_t *first = rdna3_row(w, u, 0), *second = first + (in->idxen ? 32 : 0);
  uint32_t soffset = u->smask < RDNA3_INT0 && u->smask != RDNA3_NULL ? w->s[u->smask] : rdna3_scalar32(w, u->smask);
  for (uint32_t i = 0; i < 32; i++) {
    uint64_t index = in->idxen ? first[i] : 0, offset = (uint64_t)(uint32_t)u->src[2] + (in->offen ? second[i] : 0);
    if (d.add_tid) index += w->half * 32 + i;
    limit[i] = is_allowed(&d, index, offset, size);
    uint64_t at;
    if (d.swizzle && d.stride) {
      uint32_t element = 2u << d.swizzle;
      at = (index / d.index_stride * d.stride + offset / element * element) * d.index_stride +
           index % d.index_stride * element + offset % element;
    } else {
      at = index * d.stride + offset;
    }
    addr[i] = (d.base + soffset + at) & 0xffffffffffffull;
  }
}

uint32_t mem_buffer_addresses(struct rdna3_wave *w, const struct rdna3_uop *u, unsigned size, uint64_t *addr,
                              uint32_t *outside) {
  uint32_t limit[32], in = 0;
  addresses(w, u, size, addr, limit);
  for (uint32_t i = 0; i < 32; i++) in |= (uint32_t)(limit[i] >= size) << i;
  *outside = *w->lanes & ~in;
  return *w->lanes & in;
}

/* The lanes that are partly in bounds and whose word number `word` is; stores the word's addresses in at. */
static uint32_t lanes_with_word(const uint64_t *addr, const uint32_t *limit, unsigned size, unsigned word,
                                uint64_t *at) {
  uint32_t lanes = 0;
  for (unsigned i = 0; i < 32; i++) {
    lanes |= (uint32_t)(limit[i] < size && limit[i] >= 4 * (word + 1)) << i;
    at[i] = addr[i] + 4 * word;
  }
  return lanes;
}

/* Lanes that are partly in bounds are accessed word by word. */
static const struct rdna3_uop *buffer_load(struct rdna3_wave *w, const struct rdna3_uop *u) {
  enum mem_load k = (enum mem_load)u->imm;
  unsigned size = mem_load_bytes(k);
  uint64_t addr[32];
  uint32_t limit[32], whole = 0, *d = rdna3_dst(w, u), mask = *w->lanes;
  addresses(w, u, size, addr, limit);
  static const uint8_t zero[16];
  /* A destination register may hold addresses, so all addresses are computed before any write. */
  for (uint32_t m = mask; m; m &= m - 1) {
    unsigned i = (unsigned)__builtin_ctz(m);
    if (limit[i] >= size)
      whole |= 1u << i;
    else
      mem_put(k, d, i, zero);
  }
  const struct rdna3_uop *next = rdna3_mem_load_lanes(w, u, k, addr, whole);
  for (unsigned word = 0; next && word < size / 4; word++) {
    uint64_t at[32];
    uint32_t lanes = mask & lanes_with_word(addr, limit, size, word, at);
    struct rdna3_uop one = *u;
    one.dst += (int32_t)(word * 128);
    if (lanes && !rdna3_mem_load_lanes(w, &one, MEM_LOAD_B32, at, lanes)) return NULL;
  }
  if (next && u->inst->tfe) { /* the status word after the data: pages are always fully resident here */
    uint32_t *status = d + (size + 3) / 4 * RDNA3_LANES;
    for (uint32_t m = mask; m; m &= m - 1) status[__builtin_ctz(m)] = 0;
  }
  return next;
}
static const struct rdna3_uop *buffer_store(struct rdna3_wave *w, const struct rdna3_uop *u) {
  enum mem_store k = (enum mem_store)u->imm;
  unsigned size = mem_store_bytes(k);
  uint64_t addr[32];
  uint32_t limit[32], whole = 0, mask = *w->lanes;
  addresses(w, u, size, addr, limit);
  for (uint32_t i = 0; i < 32; i++) whole |= (uint32_t)(limit[i] >= size) << i;
  const struct rdna3_uop *next = rdna3_mem_store_lanes(w, u, k, addr, whole & mask);
  for (unsigned word = 0; next && word < size / 4; word++) {
    uint64_t at[32];
    uint32_t lanes = mask & lanes_with_word(addr, limit, size, word, at);
    struct rdna3_uop one = *u;
    one.src[1] += (int32_t)(word * 128);
    if (lanes && !rdna3_mem_store_lanes(w, &one, MEM_STORE_B32, at, lanes)) return NULL;
  }
  return next;
}

/* Loads to LDS: one word per lane at M0 + the immediate offset, the lanes in order. */
static const struct rdna3_uop *buffer_load_lds(struct rdna3_wave *w, const struct rdna3_uop *u) {
  enum mem_load k = (enum mem_load)u->imm;
  uint64_t addr[32];
  uint32_t outside, rows[32], in = mem_buffer_addresses(w, u, mem_load_bytes(k), addr, &outside);
  memset(rows, 0, sizeof rows);
  struct rdna3_uop temporary = *u;
  temporary.dst = RDNA3_TMP * RDNA3_LANES * 4;
  uint32_t *t = rdna3_dst(w, &temporary);
  memset(t, 0, 128);
  if (!rdna3_mem_load_lanes(w, &temporary, k, addr, in)) return NULL;
  memcpy(rows, t, sizeof rows);
  uint32_t base = (w->s[RDNA3_M0] & 0xffff) + (uint32_t)u->src[2];
  for (uint32_t m = *w->lanes; m; m &= m - 1) {
    uint32_t i = (uint32_t)__builtin_ctz(m), at = base + (w->half * 32 + i) * 4;
    if (at + 4ull <= w->lds_size)
      memcpy(w->lds + at, &rows[i], 4);
    else
      mem_lds_outside(w, u, i, at, 4, VM_WRITE);
  }
  return u + 1;
}

rdna3_exec_fn *mem_buffer(struct rdna3_uop *u, unsigned row) {
  enum { PLAIN, TO_LDS, STORE };
  static const struct {
    uint16_t row;
    uint8_t action, kind;
  } rows[] = {
#define X(N, n, bytes) {RDNA3_MUBUF_buffer_load_##n, PLAIN, MEM_LOAD_##N},
      MEM_LOADS(X)
#undef X
#define X(N, n, bytes) {RDNA3_MUBUF_buffer_store_##n, STORE, MEM_STORE_##N},
          MEM_STORES(X)
#undef X
              {RDNA3_MUBUF_buffer_load_lds_u8, TO_LDS, MEM_LOAD_U8},
      {RDNA3_MUBUF_buffer_load_lds_i8, TO_LDS, MEM_LOAD_I8},
      {RDNA3_MUBUF_buffer_load_lds_u16, TO_LDS, MEM_LOAD_U16},
      {RDNA3_MUBUF_buffer_load_lds_i16, TO_LDS, MEM_LOAD_I16},
      {RDNA3_MUBUF_buffer_load_lds_b32, TO_LDS, MEM_LOAD_B32},
  };
  const struct rdna3_inst *in = u->inst;
  for (unsigned i = 0; i < in->operands; i++) {
    unsigned n = in->arg[i];
    switch (in->operand[i].field) {
    case RDNA3_FIELD_vdata: u->dst = u->src[1] = rdna3_vgpr(n); break;
    case RDNA3_FIELD_vaddr: u->src[0] = rdna3_vgpr(n); break;
    case RDNA3_FIELD_srsrc: u->sdst = (uint8_t)n; break;
    case RDNA3_FIELD_soffset: u->smask = (uint8_t)n; break;
    default: break;
    }
  }
  u->src[2] = in->offset;
  for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].row != row) continue;
    u->imm = rows[i].kind;
    return rows[i].action == STORE ? buffer_store : rows[i].action == TO_LDS ? buffer_load_lds : buffer_load;
  }
  return mem_atomic(row);
}
