/* Plans the loops of a kernel on the host that is no contraction: vectors along contiguous memory, rows in the order of
 * memory, transpositions by whole rows, short windows at once. */
#include "../dots.h"
#include "../view.h"

enum { WORK = 1 << 14 }; /* positions of all axes that are worth a workgroup */

/* Whether an access has smaller steps in the order of the axes than in the reverse order. */
static bool is_transposed(const struct view *p, int outer, int inner) {
  bool found = false;
  for (unsigned i = 0; i < p->n; i++) {
    int64_t far = llabs(stride(p, &p->access[i], outer)), near = llabs(stride(p, &p->access[i], inner));
    found = found || (far && far < near);
  }
  return found;
}

/* Moves the loops over axes [first, end) inside those that were split off from the axes before them, axes [end, ...). A
 * workgroup then computes its part in the order of memory. Where something is transposed, the order of the results is
 * not that of all loads, so the loops stay as they are. */
static bool restore_order(struct view *p, unsigned first, unsigned end) {
  struct codegen *k = p->k;
  struct axis_name name[MAX_AXES];
  unsigned n = 0;
  if (!view_read(p)) return false;
  for (unsigned a = first; a < end; a++) {
    if (k->axes[a].kind != AXIS_LOOP || k->axes[a].size < 2) continue;
    for (unsigned part = end; part < k->naxes; part++)
      if (is_transposed(p, (int)part, (int)a)) return true;
    name[n++] = k->axes[a].name;
  }
  for (unsigned i = 0; i < n; i++)
    if (!step(p, STEP_INNER, axis_named(k, name[i]), 0)) return false;
  return true;
}

bool spread_host(struct view *p) {
  struct codegen *k = p->k;
  if (k->is_phase) return true;
  double work = 1;
  for (unsigned a = 0; a < k->naxes; a++) work *= (double)k->axes[a].size;
  int64_t most = work / WORK < k->target->workgroups ? (int64_t)(work / WORK) : k->target->workgroups, used = 1;
  unsigned before = k->naxes, split = 0;
  for (unsigned a = 0; a < before && used < most; a++) {
    struct axis *x = &k->axes[a];
    if (x->kind != AXIS_LOOP || x->size < 2) continue;
    int64_t groups = most / used;
    if (x->size > groups) { /* prefer loops of equal length unless that costs too many workgroups */
      int64_t exact = groups;
      while (exact * 2 > groups && !divides(p, (int)a, exact)) exact--;
      if (exact * 2 > groups) groups = exact;
    } else
      groups = x->size;
    if (groups < 2 || !can(p, STEP_THREAD, (int)a, groups)) break;
    if (!step(p, STEP_THREAD, (int)a, groups)) return false;
    used *= k->axes[a].size;
    if (k->naxes > before) split = a + 1;
  }
  return !split || restore_order(p, split, before);
}

enum {
  AHEAD_BYTES = 1 << 10, /* minimum distance of rows that are read ahead: the processor reads short ones ahead itself */
  MOST_AHEAD_BYTES = 1 << 17, /* and maximum: two rows stay in the second-level cache */
};

/* The loop over the rows of an access, which are at most `most` bytes apart; -1 if there is none. */
static int axis_of_rows(const struct view *p, const struct access *x, int64_t most) {
  int rows = -1;
  int64_t least = most;
  for (unsigned a = 0; a < p->k->naxes; a++) {
    int64_t bytes = stride(p, x, (int)a) * dtype_info[x->dtype].size;
    bool loop = p->k->axes[a].kind == AXIS_LOOP || p->k->axes[a].kind == AXIS_SERIAL;
    if (loop && p->k->axes[a].size > 1 && bytes >= AHEAD_BYTES && bytes <= least) rows = (int)a, least = bytes;
  }
  return rows;
}

/* Whether access i is the first of several loops that read the argument. */
static bool is_read_again(const struct view *p, unsigned i) {
  const struct access *x = &p->access[i];
  bool again = false;
  for (unsigned j = 0; j < p->n; j++) {
    const struct access *y = &p->access[j];
    if (y->slot != x->slot || j == i) continue;
    if (j < i || y->store) return false;
    again = again || y->mask != x->mask;
  }
  return again;
}

/* Reads the next row into the second-level cache while several loops, one after the other, read the current one: only
 * the first of them would access memory. */
static bool prefetch_rows(struct view *p) {
  struct codegen *k = p->k;
  if (k->is_phase) return true;
  if (!view_read(p)) return false;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *x = &p->access[i];
    if (x->store || x->bytes < FAR_BYTES || !is_read_again(p, i)) continue;
    int rows = axis_of_rows(p, x, MOST_AHEAD_BYTES);
    if (can(p, STEP_PREFETCH, rows, x->slot) && !step(p, STEP_PREFETCH, rows, x->slot)) return false;
  }
  return true;
}

enum {
  ROWS_AT_ONCE = 4,
  SHARES = 8, /* minimum number of workgroups of a core that are left, so that all cores have about as much work */
};

/* The loop over the rows of a large matrix that are summed along axis a. Where the processor reads only the current row
 * ahead, summing several rows at once reads more memory at the same time. -1 if there is no such loop. */
static int summed_rows(const struct view *p, int a) {
  if (p->k->target->reads_ahead || p->k->is_phase || p->nreduces != 1 || p->expensive) return -1;
  if (total_size(p, AXIS_SERIAL) > 1) return -1; /* the rows are read again */
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *x = &p->access[i];
    if (p->k->axes[a].size * dtype_info[x->dtype].size < AHEAD_BYTES) continue;
    int rows = axis_of_rows(p, x, INT64_MAX);
    bool row = !x->store && x->bytes >= FAR_BYTES && stride(p, x, a) == 1;
    if (!row || rows < 0 || p->k->axes[rows].kind != AXIS_LOOP) continue;
    return p->k->axes[rows].size >= ROWS_AT_ONCE * SHARES * target_cores(p->k->target) ? rows : -1;
  }
  return -1;
}

enum { MOST_PARTS = 9 }; /* positions within the strides of all axes */
enum { SHORT_WINDOW = 8 };

/* Computes outputs at all positions within a stride at once: which of a window's elements each one uses is then known
 * at compile time, and outputs a stride apart use adjacent elements. Sets *last to the last split axis, or -1. */
static bool split_strides(struct view *p, int *last) {
  struct codegen *k = p->k;
  int64_t parts = 1;
  *last = -1;
  for (unsigned a = 0, n = k->naxes; a < n; a++) {
    int64_t stride = k->axes[a].kind == AXIS_LOOP ? windows_stride(k, a) : 1;
    if (stride < 2 || parts * stride > MOST_PARTS || !can(p, STEP_UPCAST, (int)a, stride)) continue;
    if (!step(p, STEP_UPCAST, (int)a, stride)) return false;
    parts *= stride, *last = (int)a;
  }
  return parts == 1 || view_read(p);
}

/* The number of elements of the largest access that is contiguous along the axis; 0 if there is none. */
static double contiguous_elements(const struct view *p, unsigned axis) {
  double most = 0;
  for (unsigned i = 0; i < p->n; i++) {
    double n = 1;
    if (stride(p, &p->access[i], (int)axis) != 1) continue;
    for (uint64_t m = p->access[i].mask; m; m &= m - 1) n *= (double)p->k->axes[__builtin_ctzll(m)].size;
    if (n > most) most = n;
  }
  return most;
}

/* Whether memory is contiguous along the axis of a reduction, and more of it than along another axis of the same
 * reduction; of equal ones, the last: lanes along two axes would be adjacent in no memory. */
static bool is_vector_of_sums(const struct view *p, unsigned axis) {
  double n = contiguous_elements(p, axis);
  if (p->k->axes[axis].kind != AXIS_REDUCE || n == 0) return false;
  for (unsigned r = 0; r < p->nreduces; r++)
    for (uint64_t m = p->reduce[r] >> axis & 1 ? p->reduce[r] : 0; m; m &= m - 1) {
      unsigned other = (unsigned)__builtin_ctzll(m);
      double elements = contiguous_elements(p, other);
      if (elements > n || (elements == n && other > axis)) return false;
    }
  return true;
}

/* Whether outputs that are adjacent along the axis are reductions of short windows that move in small strides, as in
 * pooling. Lanes then load their elements one by one, from few cache lines. */
static bool reduces_windows(const struct view *p, int axis) {
  bool moves = false;
  for (unsigned i = 0; i < p->n; i++) {
    int64_t by = llabs(stride(p, &p->access[i], axis));
    if (p->access[i].store) continue;
    if (by > MOST_STRIDE) return false;
    moves = moves || by > 1;
  }
  for (unsigned a = 0; a < p->k->naxes; a++)
    if (is_vector_of_sums(p, a) && p->k->axes[a].size > SHORT_WINDOW) return false;
  return moves;
}

enum { SHORT_SUM = 64 }; /* with more elements, adding up lanes costs less than an operation for each */

/* Whether short reductions load the same elements for all outputs along the axis: the lanes of a vector of outputs need
 * not be added up. */
static bool reduces_for_all(const struct view *p, int axis) {
  double n = 1;
  for (unsigned i = 0; i < p->n; i++)
    if (!p->access[i].store && (p->access[i].mask >> axis & 1)) return false;
  for (unsigned a = 0; a < p->k->naxes; a++)
    if (p->k->axes[a].kind == AXIS_REDUCE) n *= (double)p->k->axes[a].size;
  return n <= SHORT_SUM;
}

/* Whether reductions combine a value of each output along the axis, which are contiguous in memory, with elements that
 * are the same for all outputs, as the places of sorted elements do. */
static bool reduces_pairs(const struct view *p, int axis) {
  uint64_t summed = 0;
  bool own = false, all = true;
  for (unsigned r = 0; r < p->nreduces; r++) summed |= p->reduce[r], all = all && p->result[r] >> axis & 1;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *x = &p->access[i];
    if (x->store || !(x->mask >> axis & 1)) continue;
    if ((x->mask & summed) || stride(p, x, axis) != 1) return false;
    own = true;
  }
  return own && all;
}

enum { PAIRED_VECTORS = 4 };  /* of outputs that each element is combined with at once */
enum { MOST_KEPT = 1 << 14 }; /* elements that stay in a near cache */

/* Computes the powers of a softmax, which are summed and then divided by their sum, only once. */
static bool keep_powers(struct view *p) {
  struct codegen *k = p->k;
  for (unsigned d = 0, n = k->naxes; d < n && p->expensive; d++)
    for (unsigned b = 0; b < n; b++) {
      struct step s = {.kind = STEP_KEEP, .list = {k->axes[d].name, k->axes[b].name}, .nlist = 2};
      bool wanted = k->axes[d].kind == AXIS_REDUCE && k->axes[b].kind == AXIS_SERIAL && k->axes[d].size <= MOST_KEPT;
      if (!wanted || !reduces_powers(k, d) || !step_possible(k, s, NULL, 0)) continue;
      return step_apply(k, s) && view_read(p);
    }
  return true;
}

/* The elements of a cache line of a large output along axis v, whose whole lines are stored past the caches; 0 if there
 * is no such output. */
static int64_t streamed_line(const struct view *p, int v) {
  const struct target *t = p->k->target;
  int64_t line = 0;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *x = &p->access[i];
    bool streams = x->store && stride(p, x, v) == 1 && t->stream_bytes && x->bytes >= t->stream_bytes;
    if (streams) line = LINE_BYTES / dtype_info[x->dtype].size;
  }
  return line;
}

/* Begins the vectors of long rows at lines of that many elements. */
static bool align_rows(struct view *p, int v, int64_t line) {
  return p->k->axes[v].size < LONG_ROW || !can(p, STEP_ALIGN, v, line) || step(p, STEP_ALIGN, v, line);
}

/* The output axis of constant size along which a load is contiguous that is not along v; -1 if there is none. */
static int axis_of_columns(const struct view *p, int v) {
  const struct codegen *k = p->k;
  int found = -1;
  for (unsigned a = 0; a < k->naxes; a++) {
    if (k->axes[a].ragged) return -1;
    if (k->axes[a].kind != AXIS_LOOP || !axis_is_static(&k->axes[a]) || (int)a == v) continue;
    for (unsigned i = 0; i < p->n; i++) {
      const struct access *x = &p->access[i];
      if (!x->store && stride(p, x, (int)a) == 1 && llabs(stride(p, x, v)) > 1) found = (int)a;
    }
  }
  return found;
}

enum {
  LONG_BLOCK = 1024,  /* elements of a row that are read at once */
  LEAST_BLOCK = 64,   /* the same if that needs less padding: */
  MOST_PADDING = 16,  /* 1 / the part of the axis that padding may add */
  MOST_GATHERED = 16, /* elements of a line: loading the others one by one takes longer than to store parts of lines */
  WAY_BYTES = 4096,   /* distance of addresses that are in the same set of the first-level cache */
};

/* Copies squares of matrices that are loaded along their columns, which are axis `rows` and the lanes: elements below
 * each other are in the same set of a cache, which holds few of them. */
static bool copy_squares(struct view *p, struct axis_name rows, struct axis_name lane, int64_t lanes) {
  struct axis_name row;
  int w = axis_named(p->k, rows), v = axis_named(p->k, lane);
  bool collides = false;
  uint64_t slots = 0;
  for (unsigned i = 0; i < p->n; i++) {
    const struct access *x = &p->access[i];
    int64_t down = llabs(stride(p, x, v)) * dtype_info[x->dtype].size;
    if (x->store || x->slot < 0 || x->slot >= 64 || stride(p, x, w) != 1) continue;
    collides = collides || (down > 0 && down % WAY_BYTES == 0), slots |= UINT64_C(1) << x->slot;
  }
  if (!collides || p->k->nguards || p->k->axes[w].size <= lanes || !divides(p, w, lanes)) return true;
  if (!step_split(p->k, STEP_SERIAL, rows, lanes, &row)) return false;
  for (; slots; slots &= slots - 1) {
    struct step s = {.kind = STEP_STAGE, .amount = __builtin_ctzll(slots), .list = {row, lane}, .nlist = 2};
    if (step_possible(p->k, s, NULL, 0) && !step_apply(p->k, s)) return false;
  }
  return step_unless_one(p->k, STEP_UPCAST, row, lanes);
}

/* Plans the loops of a kernel that loads matrices along their columns, axis w, for vectors along v. A workgroup reads
 * long parts of the rows of a matrix, as many rows at once as a vector has lanes: as many as a line has elements if
 * lines are stored past the caches. */
static bool transpose(struct view *p, int v, int w, int64_t lanes) {
  struct codegen *k = p->k;
  struct axis_name rows = k->axes[w].name, columns = k->axes[v].name, lane, part;
  int64_t size = k->axes[w].size, block = LONG_BLOCK, line = streamed_line(p, v);
  if (line && line <= MOST_GATHERED && !align_rows(p, v, line)) return false;
  if (line && line > lanes && can(p, STEP_VECTOR, v, line)) lanes = line;
  while (block > LEAST_BLOCK && (size + block - 1) / block * block - size > size / MOST_PADDING) block /= 2;
  if (size <= LONG_BLOCK) block = size;
  if (!divides(p, w, block) && !step(p, STEP_PAD, w, block)) return false;
  if (!axis_divides(&k->axes[v], lanes) && !step(p, STEP_PAD, v, lanes)) return false;
  if (!step_split(k, STEP_VECTOR, columns, lanes, &lane) || !step_split(k, STEP_SERIAL, rows, block, &part))
    return false;
  return view_read(p) && copy_squares(p, part, lane, lanes) && spread_host(p) &&
         step(p, STEP_INNER, axis_named(k, part), 0);
}

/* Whether results along v, which are few and adjacent in memory, are computed from memory that is contiguous along w:
 * vectors along w take turns in memory. */
static bool takes_turns(const struct view *p, int v, int w) {
  int64_t n = p->k->axes[v].size;
  bool turns = p->k->axes[v].kind == AXIS_LOOP && n > 1 && n <= MOST_TURNS && can(p, STEP_UPCAST, v, n);
  for (unsigned i = 0; i < p->n && turns; i++)
    turns = !p->access[i].store || (stride(p, &p->access[i], v) == 1 && stride(p, &p->access[i], w) == n);
  return turns;
}

bool optimize_host(struct view *p) {
  struct codegen *k = p->k;
  bool done;
  if (!dots_host(k, &done)) return false;
  if (done) return spread_host(p);
  if (!optimize_taps(p, &done)) return false;
  if (done) return true;
  if (!contract_host(k, p, &done)) return false;
  if (done) return true;
  int columns_at = columns_of(p);
  if (columns_at >= 0 && !optimize_columns(p, columns_at, &done)) return false;
  if (done) return true;
  if (!keep_powers(p)) return false;
  int strided = -1;
  if (p->nreduces && !split_strides(p, &strided)) return false;
  unsigned width = k->target->vector_bytes;
  int v = contiguous_axis(p, AXIS_LOOP, p->nreduces), stored = contiguous_axis(p, AXIS_LOOP, false);
  int u = p->nreduces ? tile_axis(p, stored) : -1;
  bool across = v < 0 && u < 0 && p->nreduces && stored >= 0, pairs = across && reduces_pairs(p, stored);
  if (across && (pairs || reduces_windows(p, stored) || reduces_for_all(p, stored))) v = stored;
  int serial = contiguous_axis(p, AXIS_SERIAL, false);
  /* Lanes along the results of reductions add one element after the other: only the order of loads is worth that. */
  if (serial >= 0 && (p->reduced >> serial & 1)) serial = contiguous_axis(p, AXIS_SERIAL, true);
  if (v < 0 || serial >= 0) v = serial;
  for (unsigned i = 0; strided >= 0 && i < p->n; i++)
    if (stride(p, &p->access[i], strided) == 1) v = strided;
  int w = v >= 0 && !p->nreduces ? axis_of_columns(p, v) : -1;
  int64_t turns = w >= 0 && takes_turns(p, v, w) ? largest_padded(p, STEP_VECTOR, w, lanes_for(p, w, width)) : 1;
  if (turns > 1)
    return step(p, STEP_UPCAST, v, k->axes[v].size) && step_padded(p, STEP_VECTOR, w, turns) && spread_host(p);
  if (v >= 0 && u < 0 && w < 0 && !align_rows(p, v, streamed_line(p, v))) return false;
  int64_t lanes = v >= 0 ? lanes_for(p, v, u >= 0 ? 2 * width : width) * (pairs ? PAIRED_VECTORS : 1) : 1;
  lanes = lanes > 1 ? largest_padded(p, STEP_VECTOR, v, lanes) : 1;
  bool columns = lanes > 1 && k->axes[v].kind == AXIS_LOOP && p->nreduces;
  if (w >= 0 && lanes > 1 && k->axes[w].size > lanes) return transpose(p, v, w, lanes);
  if (lanes > 1 && !step_padded(p, STEP_VECTOR, v, lanes)) return false;
  int64_t rows = u >= 0 ? largest_padded(p, STEP_UPCAST, u, 4) : 1;
  if (rows > 1 && !step_padded(p, STEP_UPCAST, u, rows)) return false;
  if (u >= 0 && !columns && can(p, STEP_UPCAST, stored, 2) && !step(p, STEP_UPCAST, stored, 2)) return false;
  /* Reductions whose value is not a vector yet become vectors of partial results in several registers. */
  for (unsigned a = 0, n = k->naxes; a < n && !columns; a++) {
    if (!is_vector_of_sums(p, a)) continue;
    bool cheap = !p->expensive || (k->axes[a].size >= LONG_ROW && !reduces_powers(k, a));
    int beside = u < 0 ? summed_rows(p, (int)a) : -1;
    int64_t sums = beside < 0 ? 1 : largest_padded(p, STEP_UPCAST, beside, ROWS_AT_ONCE);
    if (sums > 1 && !step_padded(p, STEP_UPCAST, beside, sums)) return false;
    int64_t registers = cheap && u < 0 && sums < 2 ? 4 : 1;
    int64_t amount = largest_padded(p, STEP_VECTOR, (int)a, registers * lanes_for(p, (int)a, width));
    if (amount > 1 && !step_padded(p, STEP_VECTOR, (int)a, amount)) return false;
  }
  return unroll(p) && spread_host(p) && prefetch_rows(p);
}
