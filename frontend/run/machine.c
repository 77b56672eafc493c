/* The scheduler's model of the machine of a target: orders of magnitude of memory and f32 throughput, and of matrix
 * instructions with f32 sums, from the vendors' data sheets (the part named in the table) and per core of hosts. */
#include "../../compiler/plan/matrix.h"
#include "../../compiler/target/target.h"
#include "runtime.h"
#include <string.h>
#include <unistd.h>

static const struct {
  const char *arch;
  double bytes_per_ns, flops_per_ns, tile_flops_per_ns;
} rates[] = {
    {"gfx1100", 960, 61000, 123000}, /* Radeon RX 7900 XTX */
    {"sm_80", 1555, 19500, 312000},  /* A100 40 GB */
    {"sm_86", 936, 35600, 71000},    /* GeForce RTX 3090 */
    {"sm_89", 1008, 82600, 165000},  /* GeForce RTX 4090 */
    {"sm_90", 3350, 67000, 990000},  /* H100 SXM */
    {"sm_120", 1792, 105000, 209000} /* GeForce RTX 5090 */
};
/* Assumed rows and columns of a workgroup's results, with matrix instructions and without. compiler/plan/gpu/contract.c
 * and gpu/simt.c choose the real ones. */
enum { TILE = 64, BLOCK_ROWS = 32, BLOCK_COLUMNS = 64 };

/* Sets what depends on the types for which the machine has matrix instructions. Those of 16 bits can be transposed. f8
 * is converted to f16 where there are no instructions for it. */
static void set_types(struct schedule_machine *m, const struct target *t) {
  const uint32_t f8 = 1u << DT_F8E4M3 | 1u << DT_F8E5M2;
  m->phase_types = m->tile_types & ~(1u << DT_F32), m->large_types = 1u << DT_F32;
  if (t->has_fetch) m->straight_types = m->tile_types & ~(1u << DT_F16 | 1u << DT_BF16);
  if (m->tile_types >> DT_F16 & 1) m->tile_types |= f8;
}

/* Sets which bytes the machine multiplies. Tile registers, which multiply equal types, are faster than all others. */
static void set_bytes(struct schedule_machine *m, const struct target *t) {
  bool any = false, equal = false, mixed = false, tiles = false;
  for (unsigned i = 0; i < matrix_count; i++) {
    const struct matrix *x = &matrices[i];
    if (x->out != DT_I32 || !matrix_on(x, t)) continue;
    bool bytes = dtype_info[x->in].size == 1;
    any = any || !bytes, tiles = tiles || (bytes && x->parts == PARTS_TILES);
    mixed = mixed || x->parts == PARTS_BYTES, equal = equal || (bytes && x->parts != PARTS_BYTES);
  }
  if (equal && mixed && !tiles)
    m->bytes = BYTES_ANY;
  else
    m->bytes = equal ? BYTES_EQUAL : mixed ? BYTES_MIXED : any ? BYTES_ANY : BYTES_NONE;
}

struct schedule_machine machine_of_target(const struct target *t, bool any_order, bool tf32) {
  struct schedule_machine m = {.groups = t->workgroups,
                               .launch_ns = 3000,
                               .access_ns = 700,
                               .bytes_per_ns = 1000,
                               .flops_per_ns = 50000,
                               .compares_per_ns = 3000,
                               .stream_per_ns = 20};
  m.side = t->vector_bytes > 4 ? t->vector_bytes / 4 : t->wave;
  if (t->kind == TARGET_HOST) {
    double cores = target_cores(t), n = cores > (double)m.groups ? (double)m.groups : cores;
    m.columns = 1024, m.access_ns = 5, m.launch_ns = 2000, m.bytes_per_ns = 10 * n, m.flops_per_ns = 100 * n;
    m.stream_per_ns = 10;
    m.compares_per_ns = m.flops_per_ns / 4;
    m.scratch = t->local_bytes / 3;
    m.overwrites = true;
    m.skips = true; /* implemented by compiler/plan/rounds.c */
  } else {
    m.scratch = t->group_bytes ? t->group_bytes / 4 * 3 : t->local_bytes; /* the rest is for tiles of operands */
    m.tile_memory = t->group_bytes;
    m.phase_items = t->phase_items, m.phase_registers = (int64_t)t->phase_items * t->register_bytes;
    m.block_rows = BLOCK_ROWS, m.block_columns = BLOCK_COLUMNS;
    m.atomics = any_order ? ATOMICS_ANY : ATOMICS_EXACT;
  }
  for (unsigned i = 0; i < sizeof rates / sizeof *rates; i++)
    if (!strcmp(rates[i].arch, t->arch)) {
      m.bytes_per_ns = rates[i].bytes_per_ns, m.flops_per_ns = rates[i].flops_per_ns;
      m.compares_per_ns = m.flops_per_ns / 16; /* eight instructions; a multiply-add is one */
      m.tile = TILE, m.tile_flops_per_ns = rates[i].tile_flops_per_ns;
    }
  for (unsigned i = 0; i < matrix_count && m.tile; i++)
    if (matrix_on(&matrices[i], t) && (matrices[i].in != DT_F32 || tf32)) {
      m.tile_types |= 1u << matrices[i].in;
      if (!m.tile_rows) m.tile_rows = matrices[i].m;
      bool registers = matrices[i].parts == PARTS_MEMORY && !matrix_reads_tile(&matrices[i], MATRIX_A);
      if (registers) m.unaligned_types |= 1u << matrices[i].in; /* the other operand can be in any order of its rows */
    }
  set_types(&m, t);
  set_bytes(&m, t);
  for (unsigned i = 0; i < matrix_count && t->kind == TARGET_HOST; i++)
    if (matrix_on(&matrices[i], t) && dtype_is_narrow_float(matrices[i].in)) m.passed_types |= 1u << matrices[i].in;
  if (m.tile_types) m.channel_align = t->load_bytes;
  if (m.tile_types && t->has_fetch) m.align = 16;
  return m;
}
