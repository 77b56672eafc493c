/* Plans sums along the columns of a matrix on the host. */
#include "../view.h"

enum {
  ROWS_AT_ONCE = 16,      /* rows that are summed before their sum is added to a block's results */
  FEW_ROWS = 16,          /* with fewer rows, clearing the results costs too much */
  BLOCK_COLUMNS = 1024,   /* minimum per workgroup: memory is read a page at a time */
  MOST_COLUMNS = 8192,    /* maximum per block: its results stay in the first-level or second-level cache */
  COLUMN_VECTORS = 4,     /* of a tile that adds all rows */
  COLUMN_BYTES = 1 << 16, /* minimum size of a matrix that does not stay in the first-level cache */
};

int columns_of(struct view *p) {
  const struct codegen *k = p->k;
  int v = contiguous_axis(p, AXIS_LOOP, true), row = -1;
  int64_t depth = 1;
  if (v < 0 || !p->nreduces || p->nreduces == 16 || !(p->reduced >> v & 1)) return -1;
  for (unsigned r = 1; r < p->nreduces; r++)
    if (p->reduce[r] != p->reduce[0]) return -1;
  if (p->reduced & p->reduce[0]) return -1; /* a reduction is inside another one */
  for (unsigned a = 0; a < k->naxes; a++) {
    const struct axis *x = &k->axes[a];
    if ((x->kind != AXIS_LOOP && x->kind != AXIS_REDUCE) || !axis_is_static(x)) return -1;
    if (x->kind == AXIS_REDUCE) depth *= x->size, row = (int)a;
  }
  double bytes = 0;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *a = &p->access[i];
    if (!(a->mask & p->reduce[0])) continue;
    int64_t along = stride(p, a, v);
    if ((along && along != 1) || (along && stride(p, a, row) < k->axes[v].size)) return -1;
    bytes += along ? (double)depth * (double)k->axes[v].size * dtype_info[a->dtype].size : 0;
  }
  return depth >= FEW_ROWS && bytes >= COLUMN_BYTES ? v : -1;
}

/* The number of workgroups among which `all` columns are divided. */
static int64_t groups_of_columns(const struct view *p, int v, int64_t all) {
  int64_t others = total_size(p, AXIS_LOOP) / p->k->axes[v].size, least = (all + MOST_COLUMNS - 1) / MOST_COLUMNS;
  int64_t groups = all / BLOCK_COLUMNS, room = p->k->target->workgroups / (others < 1 ? 1 : others);
  if (groups > room) groups = room;
  return groups < least ? least : groups;
}

/* Plans sums of columns whose number is no multiple of a vector, if the matrix stays in a cache or the machine has no
 * masked vectors: tiles of vectors add all rows. If their sums were kept in memory, each round would check its elements
 * (lower/edge.c), but it reads rows in the order of memory. */
static bool optimize_odd_columns(struct view *p, int v, int64_t lanes, bool *done) {
  int64_t tile = COLUMN_VECTORS * lanes, size = p->k->axes[v].size;
  *done = size >= PADDED * tile && can(p, STEP_PAD, v, tile);
  if (!*done) return true;
  bool ok = step(p, STEP_PAD, v, tile) && step(p, STEP_VECTOR, v, lanes) && step(p, STEP_UPCAST, v, COLUMN_VECTORS);
  int64_t groups = groups_of_columns(p, v, size), rest = p->k->axes[v].size;
  return ok && step(p, groups > 1 ? STEP_THREAD : STEP_SERIAL, v, groups > 1 ? groups : rest) && spread_host(p);
}

bool optimize_columns(struct view *p, int v, bool *done) {
  struct codegen *k = p->k;
  int64_t lanes = largest_padded(p, STEP_VECTOR, v, lanes_for(p, v, k->target->vector_bytes));
  *done = false;
  if (lanes < 2 || k->axes[v].size < 2 * lanes) return true;
  bool near = (double)total_size(p, AXIS_REDUCE) * (double)k->axes[v].size * sizeof(float) < FAR_BYTES;
  if (k->axes[v].size % lanes && (near || !k->target->has_masks) && !optimize_odd_columns(p, v, lanes, done))
    return false;
  if (*done) return true;
  if (!step_padded(p, STEP_VECTOR, v, lanes)) return false;
  struct axis_name lane = k->axes[k->naxes - 1].name;
  int row = -1;
  for (unsigned a = 0; a < k->naxes; a++)
    if (k->axes[a].kind == AXIS_REDUCE) row = (int)a;
  int64_t rows = largest_padded(p, STEP_UNROLL, row, ROWS_AT_ONCE), size = k->axes[row].size;
  if (size <= ROWS_AT_ONCE) rows = size;
  if (rows > 1 && !step_padded(p, STEP_UNROLL, row, rows)) return false;
  int64_t groups = groups_of_columns(p, v, k->axes[v].size * lanes);
  /* The columns are split even for one workgroup: if spread_host distributed the axis itself, each workgroup would sum
   * the columns of all. */
  if (!step(p, groups > 1 ? STEP_THREAD : STEP_SERIAL, v, groups > 1 ? groups : k->axes[v].size)) return false;
  struct axis_name column = k->axes[groups > 1 ? (int)k->naxes - 1 : v].name;
  struct step order = {.kind = STEP_ORDER};
  for (unsigned a = 0; a < k->naxes && order.nlist < MAX_STAGED - 2; a++)
    if (k->axes[a].kind == AXIS_REDUCE) order.list[order.nlist++] = k->axes[a].name;
  order.list[order.nlist++] = column, order.list[order.nlist++] = lane;
  *done = true;
  if (step_possible(k, order, NULL, 0) && !step_apply(k, order)) return false;
  return spread_host(p);
}
