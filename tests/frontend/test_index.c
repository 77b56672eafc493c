/* Indexing, setting, gathering, scattering, choosing: x[...] compared with NumPy (tests/data/index), the others with
 * plain loops. */
#include "support.h"

enum { ROWS = 4, COLS = 5, DEPTH = 6, ALL = ROWS * COLS * DEPTH };

static db_tensor *counted(db_device *dev) {
  return db_reshape(db_arange(1, ALL + 1, 1, DB_F32, dev), ROWS, COLS, DEPTH);
}

/* ---- NumPy's cases ---- */

static int64_t bound(char **s) {
  if (**s == '_') return ++*s, DB_OPEN;
  return strtoll(*s, s, 10);
}

static db_subscript subscript(char *s, db_device *dev) {
  if (*s == 'N') return DB_NEW_AXIS;
  if (*s == 'R') return DB_REST;
  if (*s == 'T') {
    int64_t dim[4], value[16], n = 0;
    unsigned rank = 0;
    for (s += 2; *s != ']'; s += *s == ',') dim[rank++] = strtoll(s, &s, 10);
    for (s++; *s; s += *s == ',') value[n++] = strtoll(s, &s, 10);
    return DB_BY(db_from_at(DB_HERE, value, DB_I64, dev, (db_list){rank, dim}));
  }
  int64_t begin = bound(&s);
  if (*s != ':') return DB_PICK(begin);
  s++;
  int64_t end = bound(&s);
  s++;
  return DB_SLICE(begin, end, bound(&s));
}

static unsigned read_numbers(char *s, float *out) {
  unsigned n = 0;
  for (char *end;; s = end) {
    float v = strtof(s, &end);
    if (end == s) return n;
    out[n++] = v;
  }
}

static void one_case(char *line, db_device *dev) {
  char *result = strstr(line, " = "), *after = strstr(result + 3, " = "), *save;
  db_subscript s[8];
  unsigned n = 0, rank = 0;
  int64_t dim[8];
  float want[ALL], set[ALL], got[ALL];
  *result = *after = 0;
  for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save)) s[n++] = subscript(w, dev);
  char *p = result + 4;
  for (; *p != ']'; p += *p == ',') dim[rank++] = strtoll(p, &p, 10);
  unsigned count = read_numbers(p + 1, want);
  assert_int_equal(read_numbers(after + 3, set), ALL);

  db_tensor *x = counted(dev), *y = db_index_at(DB_HERE, x, s, n);
  if (db_poison(y)) fail_msg("%s", db_poison(y));
  assert_int_equal(db_rank(y), rank);
  for (unsigned i = 0; i < rank; i++) assert_int_equal(db_dim(y, (int)i), dim[i]);
  must_read(y, got, count * sizeof *got);
  assert_memory_equal(got, want, count * sizeof *got);

  db_tensor *v = db_neg(db_reshape_at(DB_HERE, db_arange(1, count + 1.0, 1, DB_F32, dev), (db_list){rank, dim}));
  db_tensor *memory = db_contiguous(db_add(x, 0));
  assert_int_equal(db_realize(memory), 0);
  for (int in_place = 0; in_place < 2; in_place++) {
    db_tensor *r = in_place ? db_set_at(DB_HERE, memory, db_operand_tensor(v), s, n)
                            : db_setitem_at(DB_HERE, x, db_operand_tensor(v), s, n);
    assert_true(!in_place || r == memory);
    must_read(r, got, sizeof got);
    for (unsigned i = 0; i < ALL; i++) /* if several values go to one position, the last one wins */
      if (got[i] != set[i]) fail_msg("%s: element %u is %g, NumPy has %g", line, i, (double)got[i], (double)set[i]);
  }
}

static void as_numpy(void **state) {
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    FILE *f = fopen(DATA_DIR "/index/index.txt", "r");
    static char line[1 << 14];
    unsigned cases = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
      {
        DB_SCOPED;
        one_case(line, dev);
      }
      cases++;
    }
    fclose(f);
    assert_true(cases >= 29);
    db_close(dev);
  }
}

/* ---- plain loops ---- */

static void outside_is_zero_or_refused(void **state) {
  {
    DB_SCOPED;
    float got[3], all[ALL];
    db_tensor *x = counted(NULL), *at = db_from(((int64_t[]){3, 4, -5}), DB_I64, NULL, 3);
    must_read(db_index(x, DB_BY(at), DB_PICK(0), DB_PICK(0)), got, sizeof got);
    assert_memory_equal(got, ((float[]){91, 0, 0}), sizeof got);
    must_read(db_setitem(x, 7, DB_BY(at), DB_BY(at)), all, sizeof all); /* an index [3, 3] */
    for (int i = 0; i < ALL; i++) assert_true(all[i] == (i / DEPTH == 3 * COLS + 3 ? 7 : i + 1));
    uint64_t far[1] = {UINT64_MAX};
    must_read(db_take(x, db_from(far, DB_U64, NULL, 1)), got, sizeof *got);
    assert_true(got[0] == 0);
    assert_contains(db_poison(db_index(x, DB_PICK(4))), "4 is outside of axis 0 of [4, 5, 6]");
    assert_contains(db_poison(db_index(x, DB_WHOLE, DB_WHOLE, DB_WHOLE, DB_WHOLE)), "4 subscripts of [4, 5, 6]");
    assert_contains(db_poison(db_index(x, DB_REST, DB_REST)), "more than one of them means all remaining axes");
    assert_contains(db_poison(db_index(x, DB_SLICE(0, 2, 0))), "has a step of 0");
    assert_contains(db_poison(db_index(x, DB_BY(x))), "is a tensor of f32");
    assert_contains(db_poison(db_index(x, DB_BY(at), DB_BY(db_zeros(DB_I32, NULL, 2)))), "do not broadcast");
    assert_contains(db_poison(db_setitem(x, db_zeros(DB_F32, NULL, 2, 2), DB_PICK(0))),
                    "[5, 6] of [4, 5, 6] cannot hold [2, 2]");
    assert_contains(db_poison(db_setitem(db_cast(x, DB_U8), 300, DB_PICK(0))), "300 does not fit u8");
    assert_contains(db_poison(db_gather(x, 3, at)), "no axis 3");
    assert_contains(db_poison(db_gather(x, 0, at)), "have the same rank");
    assert_contains(db_poison(db_scatter(x, 0, db_zeros(DB_I64, NULL, 1, 9, 1), 0)),
                    "not be larger except along axis 0");
    assert_contains(db_poison(db_scatter(x, 0, db_zeros(DB_I64, NULL, 1, 1, 1), db_zeros(DB_F64, NULL, 1, 1, 1))),
                    "cast the source");
    assert_contains(db_poison(db_index_select(x, 0, db_zeros(DB_F32, NULL, 2))), "a vector of integers");
    assert_contains(db_poison(db_masked_select(x, x)), "not bool");
    assert_contains(db_poison(db_masked_fill(x, db_ones(DB_BOOL, NULL, 4, 4), 0)), "do not broadcast");
    assert_contains(db_poison(db_one_hot(x, 3)), "one_hot at ");
  }
}

static void sets_in_place(void **state) {
  {
    DB_SCOPED;
    float got[6];
    db_tensor *x = db_from(((float[]){0, 1, 2, 3, 4, 5}), DB_F32, NULL, 2, 3);
    db_set(x, db_mul(db_index(x, DB_WHOLE, DB_PICK(0)), 10), DB_WHOLE, DB_PICK(2));
    db_set(x, -1, DB_PICK(0), DB_SLICE(DB_OPEN, DB_OPEN, -2));
    must_read(x, got, sizeof got);
    assert_memory_equal(got, ((float[]){-1, 1, -1, 3, 4, 30}), sizeof got);
    assert_ptr_equal(db_set(x, 5, DB_SLICE(1, 1, 1)), x); /* nothing */
    db_set(x, db_zeros(DB_F32, NULL, 4), DB_PICK(0));
    assert_contains(db_poison(x), "set at ");
    assert_contains(db_poison(x), "[3] of [2, 3] cannot hold [4]");
  }
}

static void gathers_and_scatters(void **state) {
  enum { N = 7, K = 9 };
  int32_t at[K][2];
  float x[N][2], src[K][2], got[N][2], taken[K][2];
  for (int k = 0; k < K; k++)
    for (int c = 0; c < 2; c++)
      at[k][c] = (k * k * 3 + c * k) % 5 - (k == 4 ? 7 : 0), src[k][c] = (float)((k * 5 + c) % 7 - 3);
  for (int n = 0; n < N; n++) x[n][0] = (float)n + 0.5f, x[n][1] = (float)-n;
  FOR_DEVICES {
    db_device *dev = open_device(DEVICE_NAME);
    {
      DB_SCOPED;
      db_tensor *t = db_from(x, DB_F32, dev, N, 2), *i = db_from(at, DB_I32, dev, K, 2),
                *s = db_from(src, DB_F32, dev, K, 2);
      must_read(db_gather(t, 0, i), taken, sizeof taken);
      for (int k = 0; k < K; k++)
        for (int c = 0; c < 2; c++) assert_true(taken[k][c] == x[(at[k][c] + N) % N][c]);
      for (enum db_scatter mode = DB_SCATTER_REPLACE; mode <= DB_SCATTER_MEAN; mode++)
        for (int with_x = 0; with_x < 2; with_x++) {
          must_read(db_scatter_reduce(t, 0, i, s, mode, with_x), got, sizeof got);
          for (int n = 0; n < N; n++)
            for (int c = 0; c < 2; c++) {
              float want = x[n][c];
              int hits = 0, count = with_x;
              for (int k = 0; k < K; k++) {
                if ((at[k][c] + N) % N != n) continue;
                float v = src[k][c];
                bool fresh = !hits++ && !with_x;
                count++;
                if (mode == DB_SCATTER_REPLACE || fresh)
                  want = v;
                else if (mode == DB_SCATTER_SUM || mode == DB_SCATTER_MEAN)
                  want += v;
                else if (mode == DB_SCATTER_PROD)
                  want *= v;
                else if (mode == DB_SCATTER_MAX)
                  want = fmaxf(want, v);
                else
                  want = fminf(want, v);
              }
              if (mode == DB_SCATTER_MEAN && hits) want /= (float)count;
              assert_true(fabsf(got[n][c] - want) <= 1e-5f * fabsf(want));
            }
        }
    }
    db_close(dev);
  }
}

static void chooses_by_mask(void **state) {
  {
    DB_SCOPED;
    db_tensor *x = counted(NULL), *mask = db_eq(db_mod(x, 7), 0), *y = db_masked_select(x, mask),
              *where = db_nonzero(mask);
    float got[ALL], filled[ALL];
    int64_t at[ALL][3], n = db_dim(y, 0);
    assert_int_equal(n, ALL / 7);
    must_read(y, got, (size_t)n * sizeof *got);
    assert_int_equal(db_dim(where, 0), n);
    assert_int_equal(db_dim(where, 1), 3);
    must_read(where, at, (size_t)n * sizeof *at);
    for (int64_t i = 0; i < n; i++) {
      assert_true(got[i] == (float)(7 * (i + 1)));
      assert_int_equal((at[i][0] * COLS + at[i][1]) * DEPTH + at[i][2], 7 * (i + 1) - 1);
    }
    must_read(db_masked_fill(x, mask, -INFINITY), filled, sizeof filled);
    for (int i = 0; i < ALL; i++) assert_true(filled[i] == ((i + 1) % 7 ? (float)(i + 1) : -INFINITY));
    assert_int_equal(db_dim(db_masked_select(x, db_lt(x, 0)), 0), 0);
    assert_int_equal(db_dim(db_nonzero(db_zeros(DB_F32, NULL, 3)), 0), 0);
  }
}

static void counts(void **state) {
  {
    DB_SCOPED;
    int32_t v[8] = {0, 2, 2, -1, 3, 2, 9, 0};
    int64_t hot[8][4], bins[4], spread[3];
    db_tensor *x = db_from(v, DB_I32, NULL, 8);
    must_read(db_one_hot(x, 4), hot, sizeof hot);
    for (int i = 0; i < 8; i++)
      for (int k = 0; k < 4; k++) assert_int_equal(hot[i][k], v[i] == k);
    must_read(db_bincount(x, 4), bins, sizeof bins);
    assert_memory_equal(bins, ((int64_t[]){2, 0, 3, 1}), sizeof bins);
    must_read(db_histogram(db_from(((float[]){0, 0.9f, 1, 2.5f, 3, 3.1f, -0.1f, NAN}), DB_F32, NULL, 8), 3, 0, 3),
              spread, sizeof spread);
    assert_memory_equal(spread, ((int64_t[]){2, 1, 2}), sizeof spread);
  }
}

static int finish(void **state) { return db_shutdown(); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_numpy),        cmocka_unit_test(outside_is_zero_or_refused),
                                     cmocka_unit_test(sets_in_place),   cmocka_unit_test(gathers_and_scatters),
                                     cmocka_unit_test(chooses_by_mask), cmocka_unit_test(counts)};
  has_ptxas();
  return cmocka_run_group_tests_name("index", tests, NULL, finish);
}
