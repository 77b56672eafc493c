/* doorbell prof from outside: what it reports of programs and kernels, its formats, comparisons, and broken records. */
#include "command.h"
#include "tests/sanitizers.h"

#define BENCH      DOORBELL " bench --case "
#define QUIET      " 2>/dev/null; exit $?" /* only the report is in `out` */
#define SAXPY_CO   KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co"
#define SAXPY_ARGS " --grid 4 --block 256 --arg f32[1024]=ones --arg f32[1024]=iota --arg f32:2 --arg u32:1024"
#define NINE_EVENTS                                                                                                    \
  "SQ_WAVES,SQ_WAVES_32,SQ_WAVES_64,SQ_INSTS_VALU,SQ_INSTS_SALU,SQ_INSTS_SMEM,SQ_INSTS_LDS,SQC_LDS_BANK_CONFLICT,"     \
  "SQC_LDS_IDX_ACTIVE"

static double number(const json_t *o, const char *name) {
  const json_t *v = json_object_get(o, name);
  if (!json_is_number(v)) fail_msg("no number %s", name);
  return json_number_value(v);
}
static const char *text(const json_t *o, const char *name) {
  const char *s = json_string_value(json_object_get(o, name));
  if (!s) fail_msg("no text %s", name);
  return s;
}
/* The entry of a list of the report in which `field` is `value`. */
static json_t *entry(const json_t *report, const char *list, const char *field, const char *value) {
  size_t i;
  json_t *o;
  json_array_foreach(json_object_get(report, list), i, o) if (!strcmp(text(o, field), value)) return o;
  fail_msg("%s has no %s %s: %s", list, field, value, out);
  return NULL;
}

/* ---- programs ---- */

static void check_times(const json_t *o) {
  double least = number(o, "min_ns"), mean = number(o, "mean_ns"), most = number(o, "max_ns");
  assert_true(least >= 0 && least <= mean && mean <= most);
  assert_float_equal(number(o, "total_ns"), mean * number(o, "calls"), 1e-6 * number(o, "total_ns") + 1);
}

static void reports_a_program(void **state) {
  static const char *const works[] = {"schedule", "compile", "submit", "wait"};
  EXPECT(0, "prof --json -- " BENCH "matmul --dev CPU --dev " EMULATED QUIET);
  json_t *report = json_out();
  double share = 0;
  for (unsigned i = 0; i < 2; i++) {
    const json_t *k = entry(report, "kernels", "device", i ? EMULATED : "CPU");
    check_times(k);
    share += number(k, "share");
    assert_float_equal(number(k, "flops") / number(k, "calls"), 2.0 * 256 * 256 * 256, 1e6);
    assert_float_equal(number(k, "gflops"), number(k, "flops") / number(k, "total_ns"), 1e-3);
    const json_t *d = entry(report, "devices", "name", i ? EMULATED : "CPU");
    assert_true(number(d, "peak_bytes") >= 3 * 4 * 256 * 256);
    assert_true(json_array_size(json_object_get(d, "memory")) > 2);
  }
  assert_float_equal(share, 1, 1e-6);
  const json_t *k = entry(report, "kernels", "device", EMULATED);
  assert_true(number(k, "registers") > 0 && number(k, "occupancy") > 0 && number(k, "occupancy") <= 1);
  for (unsigned i = 0; i < 4; i++) check_times(entry(report, "host", "work", works[i]));
  const json_t *written = entry(report, "copies", "kind", "write"), *read = entry(report, "copies", "kind", "read");
  check_times(written);
  assert_true(number(written, "bytes") >= 2 * 4 * 256 * 256 && number(read, "bytes") >= 4 * 256 * 256);
  json_decref(report);
}

static void adds_up_processes(void **state) {
  EXPECT(0, "prof --json -- sh -c '" BENCH "dot --dev " EMULATED "; " BENCH "dot --dev " EMULATED "'" QUIET);
  json_t *report = json_out();
  assert_int_equal(json_array_size(json_object_get(report, "processes")), 2);
  assert_int_equal(json_array_size(json_object_get(report, "kernels")), 1);
  const json_t *k = entry(report, "kernels", "device", EMULATED);
  assert_float_equal(number(k, "calls"), 4, 0); /* a timed and a counted run in each */
  json_decref(report);
}

static void prints_text_and_csv(void **state) {
  EXPECT(0, "prof -- " BENCH "dot --dev CPU");
  assert_contains(out, "1 of 1 ok");
  assert_contains(out, "\nCPU      r_2 ");
  assert_contains(out, "schedule ");
  assert_contains(out, "memory of process");
  EXPECT(0, "prof --csv -- " BENCH "dot --dev CPU" QUIET);
  assert_int_equal(strncmp(out, "device,name,calls,total_ns,min_ns,mean_ns,max_ns,deviation_ns,share,", 68), 0);
  assert_contains(out, "\r\n\"CPU\",\"r_2\",");
}

static void exits_like_the_program(void **state) {
  EXPECT(3, "prof -- sh -c '" BENCH "dot --dev CPU; exit 3'");
  EXPECT(127, "prof -- ./no-such-program");
  assert_contains(out, "cannot run ./no-such-program");
  EXPECT(143, "prof -- sh -c 'kill -TERM $$'");
  EXPECT(0, "prof -- true");
  assert_contains(out, "no process used Doorbell");
  REFUSES("no command to run", "prof");
}

static void keeps_records(void **state) {
  EXPECT(0, "prof --trace --out kept -- " BENCH "dot --dev CPU");
  EXPECT(0, "prof report kept");
  assert_contains(out, "\nCPU      r_2 ");
  EXPECT(0, "prof --json report kept/report.json");
  json_t *report = json_out();
  double calls = number(entry(report, "kernels", "name", "r_2"), "calls");
  json_decref(report);
  EXPECT(0, "prof --json report kept");
  report = json_out();
  assert_float_equal(number(entry(report, "kernels", "name", "r_2"), "calls"), calls, 0);
  json_decref(report);
  REFUSES("the folder has records of an earlier run", "prof --out kept -- true");
  REFUSES("report runs no program", "prof --counters metrics report kept");
  REFUSES("not supported: --html of a comparison", "prof --html x.html diff kept kept");
  EXPECT(0, "version; cat kept/trace.*.json");
  assert_contains(out, "\"ph\":\"C\",\"name\":\"CPU memory\"");
}

/* Programs that use only the queue layer, under `doorbell emu`: the emulator reports what it executed. */
static void counts_foreign_programs(void **state) {
#ifdef SANITIZED
  skip(); /* the sanitizer's runtime cannot be loaded into a program that was built without it */
#endif
  EXPECT(0, "prof --json -- env -u DEV " DOORBELL " emu -- " DOORBELL " run " SAXPY_CO SAXPY_ARGS " --dev AMD" QUIET);
  json_t *report = json_out(), *gpu = json_array_get(json_object_get(report, "emulated"), 0);
  const json_t *k = entry(gpu, "kernels", "name", "saxpy");
  assert_float_equal(number(k, "dispatches"), 1, 0);
  assert_float_equal(number(k, "waves"), 32, 0);
  json_decref(report);
}

/* Dynamic local memory counts for occupancy. */
static void occupancy_with_dynamic_memory(void **state) {
  EXPECT(0, "prof --json run " SAXPY_CO SAXPY_ARGS " --arg local:32768 --dev " EMULATED QUIET);
  json_t *report = json_out();
  const json_t *k = entry(report, "kernels", "name", "saxpy");
  assert_float_equal(number(k, "local_bytes"), 32768, 0);
  assert_string_equal(text(k, "occupancy_limit"), "local memory");
  json_decref(report);
}

/* Programs without Doorbell: the report and the page have the kernels of the emulated GPU, with their instructions. */
static void emulates_programs(void **state) {
#ifdef SANITIZED
  skip();
#endif
  EXPECT(0, "prof --json --emulate --annotate --out emulated --html emulated.html -- " DOORBELL
            " run " SAXPY_CO SAXPY_ARGS " --dev AMD 2>emulated.txt; exit $?");
  json_t *report = json_out(), *gpu = json_array_get(json_object_get(report, "emulated"), 0);
  const json_t *k = entry(gpu, "kernels", "name", "saxpy");
  assert_string_equal(text(gpu, "arch"), "gfx1100");
  assert_float_equal(number(k, "waves"), 32, 0);
  assert_null(json_object_get(k, "lines"));
  assert_float_equal(number(entry(report, "kernels", "name", "saxpy"), "calls"), 1, 0);
  json_decref(report);
  EXPECT(0, "version; cat emulated/*.emu emulated.txt");
  assert_contains(out, "\"columns\":[\"executed\",\"lanes\"");
  assert_contains(out, "[0,32,"); /* the first instruction, once per wave */
  assert_contains(out, "executed lanes sectors");
  REFUSES("no emulated AMD GPU", "prof --emulate=gfx0 -- true");
}

/* ---- counters ---- */

static void counts_kernels(void **state) {
  EXPECT(0, "prof --json --counters VALUInsts,SPI_CSN_NUM_THREADGROUPS run --repeat 3 " SAXPY_CO SAXPY_ARGS
            " --dev " EMULATED QUIET);
  json_t *report = json_out();
  const json_t *k = entry(report, "kernels", "name", "saxpy"), *counters = json_object_get(k, "counters");
  assert_float_equal(number(k, "calls"), 3, 0);
  assert_float_equal(number(json_object_get(counters, "SQ_WAVES"), "mean"), 32, 0);
  assert_float_equal(number(json_object_get(counters, "SPI_CSN_NUM_THREADGROUPS"), "total"), 12, 0);
  const json_t *metric = json_object_get(json_object_get(k, "metrics"), "VALUInsts");
  assert_float_equal(number(metric, "value"), number(json_object_get(counters, "SQ_INSTS_VALU"), "mean") / 32, 1e-9);
  assert_string_equal(text(metric, "source"), "exact");
  assert_true(number(k, "overhead_ns") >= 0);
  json_decref(report);
  if (has_ptxas()) {
    EXPECT(0, "prof --json --counters metrics -- " BENCH "softmax --dev " EMULATED_NVIDIA QUIET);
    report = json_out(), k = entry(report, "kernels", "device", EMULATED_NVIDIA);
    metric = json_object_get(json_object_get(k, "metrics"), "LaneUse");
    assert_true(number(metric, "value") > 50 && number(metric, "value") <= 100);
    assert_string_equal(text(json_object_get(json_object_get(k, "metrics"), "SharedConflicts"), "source"), "model");
    json_decref(report);
  }
  EXPECT(0, "prof --counters list");
  assert_contains(out, "LDSBankConflict");
  assert_contains(out, "WORKGROUPS");
  EXPECT(0, "prof --counters SQ_NO_SUCH -- " BENCH "dot --dev " EMULATED);
  assert_contains(out, "note: " EMULATED ": the device has no counter SQ_NO_SUCH");
}

/* What a machine lacks is left out, and the report says why. */
static void counts_the_cpu(void **state) {
  EXPECT(0, "prof --json --counters metrics,WORKGROUPS -- " BENCH "matmul --dev CPU" QUIET);
  json_t *report = json_out();
  const json_t *k = entry(report, "kernels", "device", "CPU"), *counters = json_object_get(k, "counters");
  const json_t *notes = json_object_get(report, "notes");
  assert_true(number(json_object_get(counters, "WORKGROUPS"), "mean") >= 1);
  if (json_object_get(counters, "CYCLES")) {
    assert_int_equal(json_array_size(notes), 0);
  } else {
    assert_int_equal(json_array_size(notes), 1);
    assert_contains(json_string_value(json_array_get(notes, 0)), "CPU: ");
  }
  json_decref(report);
}

/* Nine counters of the shaders: the program runs twice. */
static void counts_in_passes(void **state) {
  EXPECT(0, "prof --json --counters " NINE_EVENTS " -- " BENCH "softmax --dev " EMULATED QUIET);
  json_t *report = json_out();
  const json_t *k = entry(report, "kernels", "device", EMULATED), *counters = json_object_get(k, "counters");
  assert_float_equal(number(report, "passes"), 2, 0);
  assert_int_equal(json_array_size(json_object_get(report, "processes")), 2);
  assert_int_equal(json_object_size(counters), 9);
  assert_int_equal(json_array_size(json_object_get(report, "notes")), 0);
  double waves = number(json_object_get(counters, "SQ_WAVES_32"), "mean");
  assert_true(waves > 0);
  assert_float_equal(number(json_object_get(counters, "SQ_WAVES"), "mean"), waves, 0);
  json_decref(report);
}

/* A program that fails in its first pass does not run again. */
static void counts_until_the_program_fails(void **state) {
  EXPECT(3, "prof --json --counters " NINE_EVENTS " -- sh -c '" BENCH "softmax --dev " EMULATED " >&2; exit 3'" QUIET);
  json_t *report = json_out(), *notes = json_object_get(report, "notes");
  assert_int_equal(json_array_size(notes), 1);
  assert_contains(json_string_value(json_array_get(notes, 0)), "need 2 passes, of which 1 ran");
  json_decref(report);
}

/* ---- roofs ---- */

static double rate_of(const json_t *peaks, const char *name) {
  return number(entry(peaks, "rates", "name", name), "flops");
}

static void measures_roofs(void **state) {
  char cache[96], *before = strdup(getenv("XDG_CACHE_HOME"));
  snprintf(cache, sizeof cache, "%s/roofs", dir);
  setenv("XDG_CACHE_HOME", cache, 1);
  EXPECT(0, "prof --json -- " BENCH "matmul --dev CPU" QUIET);
  json_t *report = json_out(), *k = json_array_get(json_object_get(report, "kernels"), 0);
  assert_true(json_is_null(json_object_get(k, "roofline"))); /* not measured yet */
  json_decref(report);
  EXPECT(0, "bench --peaks --json --dev CPU --dev " EMULATED);
  json_t *all = json_out(), *peaks = json_object_get(all, "peaks");
  const json_t *cpu = json_array_get(peaks, 0), *gpu = json_array_get(peaks, 1);
  assert_true(rate_of(cpu, "f64") > 0 && rate_of(cpu, "f32") > 0);
  assert_true(rate_of(gpu, "f32") > 0 && rate_of(gpu, "f16 matrix") > 0);
  for (unsigned i = 0; i < 2; i++) {
    const json_t *p = json_array_get(peaks, i);
    assert_true(number(entry(p, "levels", "name", "memory"), "bandwidth") > 0);
    assert_true(number(p, "launch_s") > 0 && number(p, "copy_s") > 0 && number(p, "copy_bandwidth") > 0);
  }
  json_decref(all);
  EXPECT(0, "prof --json -- " BENCH "matmul --dev CPU" QUIET);
  report = json_out(), k = json_array_get(json_object_get(report, "kernels"), 0);
  assert_true(number(k, "roofline") > 0);
  assert_non_null(json_string_value(json_object_get(k, "limit")));
  json_decref(report);
  EXPECT(1, "bench --peaks --json --dev EMU+AMD:gfx0 --dev CPU" QUIET); /* still an array of the others */
  all = json_out();
  assert_int_equal(json_array_size(json_object_get(all, "peaks")), 1);
  json_decref(all);
  REFUSES("--peaks does not run cases", "bench --peaks --case dot");
  setenv("XDG_CACHE_HOME", before, 1);
  free(before);
}

/* ---- comparisons ---- */

#define KERNEL(name, calls, least, mean, deviation)                                                                    \
  "{\"device\":\"CPU\",\"name\":\"" name "\",\"calls\":" #calls ",\"min_ns\":" #least ",\"mean_ns\":" #mean            \
  ",\"total_ns\":1,\"deviation_ns\":" #deviation "}"
/* clang-format off */
static const char before[] = "{\"version\":1,\"kernels\":["
    KERNEL("slow", 100, 900, 1000, 50) ","
    KERNEL("fast", 100, 900, 1000, 50) ","
    KERNEL("noisy", 10, 900, 1000, 500) ","
    KERNEL("tail", 100, 900, 1000, 50) ","
    KERNEL("small", 10000, 900, 1000, 1) ","
    KERNEL("once", 1, 1000, 1000, 0) ","
    KERNEL("old", 1, 1, 1, 0)
    "]}";
static const char after[] = "{\"version\":1,\"kernels\":["
    KERNEL("slow", 100, 950, 1100, 50) ","
    KERNEL("fast", 100, 700, 800, 50) ","
    KERNEL("noisy", 10, 990, 1200, 500) ","
    KERNEL("tail", 100, 900, 1200, 50) ","
    KERNEL("small", 10000, 905, 1010, 1) ","
    KERNEL("once", 1, 2000, 2000, 0) ","
    KERNEL("new", 1, 1, 1, 0)
    "]}";
/* clang-format on */

static void compares_runs(void **state) {
  static const struct {
    const char *name, *change;
  } expected[] = {{"slow", "slower"}, {"fast", "faster"},   {"noisy", "noise"}, {"tail", "noise"},
                  {"small", "noise"}, {"once", "one call"}, {"old", "gone"},    {"new", "new"}};
  write_text("a.json", before);
  write_text("b.json", after);
  EXPECT(0, "prof --json diff a.json b.json");
  json_t *diff = json_out();
  assert_int_equal(json_array_size(json_object_get(diff, "kernels")), sizeof expected / sizeof *expected);
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
    assert_string_equal(text(entry(diff, "kernels", "name", expected[i].name), "change"), expected[i].change);
  json_decref(diff);
  EXPECT(0, "prof diff a.json b.json");
  assert_contains(out, "+10.0 %");
  assert_contains(out, "slower");
  REFUSES("diff needs two folders or reports", "prof diff a.json");
  EXPECT(1, "prof diff a.json no-such-file");
  assert_contains(out, "no-such-file: No such file or directory");
}

/* ---- records ---- */

#define PROCESS "{\"type\":\"process\",\"version\":1,\"pid\":7,\"rank\":-1,\"pass\":0,\"begin_ns\":10,\"command\":[]}\n"
#define DEVICE  "{\"type\":\"device\",\"id\":0,\"name\":\"CPU\",\"arch\":\"x86_64\",\"description\":\"\"}\n"
#define ENTRY   "{\"type\":\"kernel\",\"id\":0,\"device\":0,\"name\":\"k\",\"grid\":[1,1,1],\"block\":[1,1,1]}\n"

/* A process that was killed leaves a file without its last lines. */
static void reads_cut_records(void **state) {
  EXPECT(0, "version; mkdir -p cut");
  write_text("cut/7.prof.part", PROCESS DEVICE ENTRY
             "{\"type\":\"call\",\"kernel\":0,\"queue\":0,\"begin_ns\":20,\"end_ns\":50}\n{\"type\":\"call\",\"ker");
  EXPECT(0, "prof --json report cut");
  json_t *report = json_out();
  assert_float_equal(number(entry(report, "kernels", "name", "k"), "total_ns"), 30, 0);
  assert_contains(json_string_value(json_array_get(json_object_get(report, "notes"), 0)), "process 7 was killed");
  json_decref(report);
  EXPECT(0, "version; mkdir -p empty");
  write_text("empty/8.prof.part", "{\"type\":\"proc");
  EXPECT(0, "prof report empty");
  assert_contains(out, "note: empty/8.prof.part: the record has no complete line");
  REFUSES("--json and --csv exclude each other", "prof --json --csv report cut");
}

static void refuses_broken_records(void **state) {
  static const struct {
    const char *contents, *message;
  } cases[] = {
      {PROCESS "{\"type\":\n", "7.prof:2: "},
      {DEVICE, "7.prof:1: the first line is not of type process"},
      {PROCESS PROCESS, "7.prof:2: a second line of type process"},
      {"{\"type\":\"process\",\"version\":2}\n", "7.prof: not supported: a record of version 2; this is version 1"},
      {PROCESS "{\"type\":\"call\",\"kernel\":0}\n", "7.prof:2: an unknown kernel"},
      {PROCESS DEVICE "{\"type\":\"kernel\",\"id\":4,\"device\":0}\n",
       "7.prof:3: the kernels are not numbered in order"},
      {PROCESS "{\"type\":\"memory\",\"device\":3}\n", "7.prof:2: an unknown device"},
      {PROCESS "{\"type\":\"other\"}\n", "7.prof:2: an unknown type of line"},
      {PROCESS "[1]\n", "7.prof:2: an unknown type of line"},
  };
  EXPECT(0, "version; mkdir -p broken");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_text("broken/7.prof", cases[i].contents);
    EXPECT(1, "prof report broken");
    assert_contains(out, cases[i].message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reports_a_program),   cmocka_unit_test(adds_up_processes),
      cmocka_unit_test(prints_text_and_csv), cmocka_unit_test(exits_like_the_program),
      cmocka_unit_test(keeps_records),       cmocka_unit_test(counts_foreign_programs),
      cmocka_unit_test(emulates_programs),   cmocka_unit_test(occupancy_with_dynamic_memory),
      cmocka_unit_test(counts_kernels),      cmocka_unit_test(counts_the_cpu),
      cmocka_unit_test(counts_in_passes),    cmocka_unit_test(counts_until_the_program_fails),
      cmocka_unit_test(measures_roofs),      cmocka_unit_test(compares_runs),
      cmocka_unit_test(reads_cut_records),   cmocka_unit_test(refuses_broken_records),
  };
  return cmocka_run_group_tests_name("prof command", tests, begin, finish);
}
