/* Metrics: their formulas' notation, the values of a kernel, and that each counter they name exists. */
#define _GNU_SOURCE
#include "../../frontend/prof/metrics.h"
#include "../../hcq/nv/counters.h"
#include "support.h"

static bool letters(void *ctx, const char *name, size_t n, double *v) {
  if (n != 1 || *name < 'A' || *name > 'Z') return false;
  return *v = *name - 'A' + 1, true;
}

static void evaluates_formulas(void **state) {
  static const struct {
    const char *formula;
    double value; /* NAN: none */
  } cases[] = {{"3", 3},
               {"A + B * C", 7},
               {"(A + B) * C", 9},
               {"J - C - B", 5},
               {"J / E / B", 1},
               {" 100*A/( B + B ) ", 25},
               {"A / (B - B)", NAN},
               {"A +", NAN},
               {"(A", NAN},
               {"A)", NAN},
               {"A B", NAN},
               {"", NAN},
               {"A + UNKNOWN", NAN}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double v = metrics_evaluate(cases[i].formula, letters, NULL);
    if (isnan(cases[i].value) ? !isnan(v) : fabs(v - cases[i].value) > 0)
      fail_msg("%s is %g, not %g", cases[i].formula, v, cases[i].value);
  }
}

static struct prof_counter counted(char *name, char *source, unsigned instances, double value) {
  struct prof_counter c = {.name = name, .unit = "", .source = source, .instances = instances};
  prof_stats_add(&c.values, value);
  return c;
}

static void computes_what_was_counted(void **state) {
  struct prof_counter counters[] = {counted("SQ_WAVES", "exact", 48, 8), counted("SQ_INSTS_VALU", "exact", 48, 24),
                                    counted("SQ_INSTS_LDS", "model", 48, 16),
                                    counted("SQ_WAVE_CYCLES", "measured", 48, 48 * 64 * 10),
                                    counted("GRBM_GUI_ACTIVE", "measured", 1, 20)};
  struct prof_kernel k = {.counters = counters, .ncounters = 5};
  json_t *all = metrics_json("gfx1100", &k, 1e-3);
  static const struct {
    const char *name, *source;
    double value;
  } expected[] = {{"VALUInsts", "exact", 3}, {"LDSInsts", "model", 2}, {"Occupancy", "measured", 50}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const json_t *m = json_object_get(all, expected[i].name);
    assert_non_null(m);
    assert_float_equal(json_number_value(json_object_get(m, "value")), expected[i].value, 1e-9);
    assert_string_equal(json_string_value(json_object_get(m, "source")), expected[i].source);
  }
  assert_null(json_object_get(all, "L2CacheHit")); /* its counters were not counted */
  json_decref(all);
  all = metrics_json("sm_90", &k, 1e-3);
  assert_int_equal(json_object_size(all), 0);
  json_decref(all);
}

/* All counters of all machines. */
static const char *const known[] = {
#define E(block, number, name) #name,
#include "../../hcq/amd/gfx11_events.def"
#include "../../hcq/amd/gfx12_events.def"
#include "../../hcq/amd/gfx942_events.def"
#undef E
#define EVENT(name, type, config, processor, kernel, unit, description) #name,
#include "../../hcq/cpu/events.def"
#define X(name, exact, unit, description) ("SM_" #name),
    NV_COUNTERS(X)
#undef X
};

static void names_counters_that_exist(void **state) {
  char *list = metrics_counters("metrics"), *rest = list;
  unsigned n = 0;
  assert_non_null(list);
  for (char *name; (name = strsep(&rest, ",")); n++) {
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known && !found; i++) found = !strcmp(known[i], name);
    if (!found) fail_msg("no device has the counter %s", name);
  }
  assert_true(n > 50);
  free(list);
  list = metrics_counters("L2CacheHit,SQ_BUSY_CYCLES");
  assert_contains(list, "GL2C_HIT,GL2C_MISS");
  assert_contains(list, ",SQ_BUSY_CYCLES");
  free(list);
}

/* Waves that fit, computed by hand: 128 registers of gfx1100 become 144, so a SIMD of 1536 holds 10 waves, and two
 * SIMDs hold two workgroups of 8. */
static void limits_occupancy(void **state) {
  static const struct {
    const char *arch;
    uint32_t block, registers, local, wave;
    double share;
    const char *limit;
  } cases[] = {
      {"gfx1100", 256, 32, 0, 32, 1, "waves"},
      {"gfx1100", 256, 128, 0, 32, 0.5, "registers"},
      {"gfx1100", 64, 24, 32768, 32, 4.0 / 32, "local memory"},
      {"sm_90", 256, 32, 0, 32, 1, "waves"},
      {"sm_90", 256, 128, 0, 32, 16.0 / 64, "registers"},
      {"sm_90", 128, 32, 100 << 10, 32, 8.0 / 64, "local memory"},
      {"sm_86", 32, 32, 0, 32, 16.0 / 48, "workgroups"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct prof_occupancy got;
    struct prof_kernel k = {.block = {cases[i].block, 1, 1},
                            .registers = cases[i].registers,
                            .local_bytes = cases[i].local,
                            .wave = cases[i].wave};
    assert_true(prof_occupancy(cases[i].arch, &k, &got));
    if (fabs(got.share - cases[i].share) > 1e-9 || strcmp(got.limit, cases[i].limit) != 0)
      fail_msg("case %zu: %g by %s instead of %g by %s", i, got.share, got.limit, cases[i].share, cases[i].limit);
  }
  assert_false(prof_occupancy("x86_64", &(struct prof_kernel){.block = {1, 1, 1}}, &(struct prof_occupancy){0}));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(evaluates_formulas),
      cmocka_unit_test(computes_what_was_counted),
      cmocka_unit_test(names_counters_that_exist),
      cmocka_unit_test(limits_occupancy),
  };
  return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
