/* The doorbell command from outside: its output, its errors, and its exit status. */
#include "../hcq/sqtt_writer.h"
#include "command.h"
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define TEST_CO(name)  KERNELS_DIR "/tests/kernels/" name ".gfx1100.co"
#define BENCH_CO(name) KERNELS_DIR "/bench/kernels/" name ".gfx1100.co"
#define BENCH_FOLDER   DATA_DIR "/../../bench/kernels"
#define GPU            " --dev " EMULATED " "

/* ---- help and usage ---- */

static void help_everywhere(void **state) {
  EXPECT(0, "help");
  assert_contains(out, "Usage: doorbell COMMAND");
  EXPECT(0, "--help");
  EXPECT(2, " ");
  EXPECT(0, "version");
  assert_string_equal(out, "doorbell " DB_VERSION "\n");
  assert_string_equal(db_version(), DB_VERSION);
  static const char *const commands[] = {"devices", "bench", "run"};
  for (int i = 0; i < 3; i++) {
    char usage[64];
    snprintf(usage, sizeof usage, "Usage: doorbell %s [OPTION...]", commands[i]);
    EXPECT(0, "%s --help", commands[i]);
    assert_contains(out, usage);
    EXPECT(0, "help %s", commands[i]);
    assert_contains(out, usage);
    REFUSES("unrecognized option '--frobnicate=1'", "%s --frobnicate=1", commands[i]);
  }
  REFUSES("unknown command 'frobnicate'", "frobnicate");
  REFUSES("unknown command 'frobnicate'", "help frobnicate");
  REFUSES("unknown option '--frobnicate'", "--frobnicate");
  REFUSES("unknown command 'ben'; did you mean 'bench'?", "ben");
  REFUSES("unknown command 'dvices'; did you mean 'devices'?", "help dvices");
}

static char *file_text(const char *path) {
  FILE *f = fopen(path, "r");
  char *text = NULL;
  size_t n = 0;
  if (!f || getdelim(&text, &n, 0, f) < 0) fail_msg("%s cannot be read", path);
  fclose(f);
  return text;
}

/* The README's list of variables is the table's, and the table has every variable that the source reads. The others are
 * set by the shell, by launchers of several processes, and by `doorbell emu` for the library that it preloads. */
static void variables_are_listed(void **state) {
  static const char *const others[] = {"HOME",       "PATH",     "TERM",     "XDG_CACHE_HOME", "OMPI_COMM_WORLD_SIZE",
                                       "LD_PRELOAD", "PMI_RANK", "PMIX_RANK"};
  char name[64], *readme = file_text(DATA_DIR "/../../frontend/README.md");
  EXPECT(0, "help --variables");
  assert_contains(readme, out);
  free(readme);
  FILE *p = popen("cd " DATA_DIR
                  "/../.. && grep -rhoE 'getenv\\(\"[A-Z_0-9]+\"' hcq emu compiler graph frontend --include=*.c "
                  "| cut -d '\"' -f 2 | sort -u",
                  "r");
  unsigned found = 0;
  assert_non_null(p);
  while (fscanf(p, "%63s", name) == 1) {
    char row[80];
    bool other = false;
    snprintf(row, sizeof row, "- `%s`:", name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) other = other || !strcmp(name, others[i]);
    if (!other && !strstr(out, row)) fail_msg("%s is read, and not in frontend/run/variables.def", name);
    found++;
  }
  assert_int_equal(pclose(p), 0);
  assert_true(found > 10);
}

static bool is_installed(const char *tool) {
  char line[128];
  snprintf(line, sizeof line, "command -v %s >/dev/null", tool);
  return !system(line);
}

static void manual_pages(void **state) {
  EXPECT(0, "help --commands");
  char *commands = strdup(out), *rest = NULL;
  for (char *c = strtok_r(commands, "\n", &rest); c; c = strtok_r(NULL, "\n", &rest)) {
    char title[64];
    EXPECT(0, "help --man %s", c);
    snprintf(title, sizeof title, ".TH doorbell-%s 1", c);
    assert_contains(out, title);
    assert_contains(out, ".SH DESCRIPTION");
    if (is_installed("groff")) {
      EXPECT(0, "help --man %s | groff -man -Tutf8 -ww -z", c);
      assert_string_equal(out, "");
    }
  }
  free(commands);
  EXPECT(0, "help --man run");
  assert_contains(out, ".B \\-\\-grid\\fR=\\fIX[,Y[,Z]]");
  EXPECT(0, "help --man");
  assert_contains(out, ".B DB_TIMEOUT");
}

static void completions(void **state) {
  REFUSES("--completion csh", "help --completion csh");
  static const char *const shells[] = {"bash", "zsh", "fish"};
  for (int i = 0; i < 3; i++) {
    EXPECT(0, "help --completion=%s >%s", shells[i], shells[i]);
    if (!is_installed(shells[i])) continue;
    EXPECT(0, "version && %s -n %s", shells[i], shells[i]);
    assert_string_equal(strchr(out, '\n'), "\n");
  }
  if (!is_installed("bash")) return;
  static const struct {
    const char *words, *last, *completed;
  } cases[] = {{"doorbell be", "1", "bench "},
               {"doorbell run --de", "2", "--dev "},
               {"doorbell bench --dev EMU+A", "3", "EMU+AMD:gfx1100 "},
               {"doorbell disasm ba", "2", "bash "}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    EXPECT(
        0,
        "version && bash -c '. ./bash; COMP_WORDS=(%s); COMP_CWORD=%s; _doorbell; printf \"%%s \" \"${COMPREPLY[@]}\"'",
        cases[i].words, cases[i].last);
    assert_string_equal(strchr(out, '\n') + 1, cases[i].completed);
  }
}

static void every_bad_flag_names_itself(void **state) {
  const char *co = BENCH_CO("saxpy");
  REFUSES("the file is missing", "run");
  REFUSES("--grid is missing", "run %s --block 64", co);
  REFUSES("--block is missing", "run %s --grid 1", co);
  REFUSES("--grid 0: expected X[,Y[,Z]]", "run %s --grid 0 --block 64", co);
  REFUSES("--grid 1,2,3,4", "run %s --grid 1,2,3,4 --block 64", co);
  REFUSES("--grid 1,,2", "run %s --grid 1,,2 --block 64", co);
  REFUSES("--block x", "run %s --grid 1 --block x", co);
  REFUSES("--block -1", "run %s --grid 1 --block -1", co);
  REFUSES("--block 4294967296", "run %s --grid 1 --block 4294967296", co);
  REFUSES("--repeat 0", "run %s --grid 1 --block 1 --repeat 0", co);
  REFUSES("--repeat many", "run %s --grid 1 --block 1 --repeat many", co);
  REFUSES("--timeout -1", "run %s --grid 1 --block 1 --timeout -1", co);
  REFUSES("--timeout nan", "run %s --grid 1 --block 1 --timeout nan", co);
  REFUSES("option '--json' doesn't allow an argument", "run %s --json=1", co);
  REFUSES("option '--kernel' requires an argument", "run %s --kernel", co);
  REFUSES("only one file is possible", "run %s other", co);
  REFUSES("the prefix is longer", "run %s --grid 1 --block 1 --thread-trace %01100d", co, 0);
  REFUSES("Too many arguments", "devices x");
  REFUSES("--case nothing", "bench --case nothing");
}

static void every_bad_spec_names_itself(void **state) {
  static const struct {
    const char *spec, *part;
  } bad[] = {
      {"f31:1", "'f31' is not an element type; the types are bool"},
      {"f32", "neither DTYPE:VALUE nor"},
      {"", "'' is not an element type"},
      {"f32:", "'' is not a value of f32"},
      {"f32:one", "'one' is not a value of f32"},
      {"u8:256", "'256' is not a value of u8"},
      {"u8:-1", "'-1' is not a value of u8"},
      {"i8:128", "'128' is not a value of i8"},
      {"i32:2147483648", "is not a value of i32"},
      {"i64:9223372036854775808", "is not a value of i64"},
      {"u64:18446744073709551616", "is not a value of u64"},
      {"bool:2", "is not a value of bool"},
      {"i32:1.5", "is not a value of i32"},
      {"f32[4]", "a buffer needs its contents"},
      {"f32[4", "neither"},
      {"f32[]=zeros", "not a number of elements"},
      {"f32[0]=zeros", "not a number of elements"},
      {"f32[-1]=zeros", "not a number of elements"},
      {"f32[99999999999999999999]=zeros", "not a number of elements"},
      {"f32[4]=twos", "not zeros, ones, iota, rand:SEED or @FILE.npy"},
      {"f32[4]=rand:x", "is not zeros"},
      {"f32[4]=@nothing.npy", "nothing.npy: No such file"},
      {"local:0", "not a number of bytes"},
  };
  for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
    EXPECT(2, "run %s --grid 1 --block 1 --arg '%s'", BENCH_CO("saxpy"), bad[i].spec);
    char flag[128];
    snprintf(flag, sizeof flag, "--arg %s: ", bad[i].spec);
    assert_contains(out, flag);
    assert_contains(out, bad[i].part);
  }
}

static void arguments_must_fit_the_kernel(void **state) {
  const char *co = BENCH_CO("saxpy");
  REFUSES("has 4 parameters, but 1 --arg", "run %s --grid 1 --block 64" GPU "--arg f32[64]=ones", co);
  assert_contains(out, "argument 2: a value of 4 bytes");
  REFUSES("argument 2 of kernel saxpy is a value of 4 bytes",
          "run %s --grid 1 --block 64" GPU "--arg f32[64]=ones --arg f32[64]=ones --arg f64:2 --arg u32:64", co);
  REFUSES("argument 0 of kernel saxpy is a buffer",
          "run %s --grid 1 --block 64" GPU "--arg f32:1 --arg f32[64]=ones --arg f32:2 --arg u32:64", co);
  REFUSES("--out 9=x.npy", "run %s --grid 1 --block 64 --arg f32[64]=ones --out 9=x.npy", co);
  REFUSES("--out 1=x.npy: argument 1 is not a buffer",
          "run %s --grid 1 --block 64 --arg f32[64]=ones --arg f32:1 --out 1=x.npy", co);
  REFUSES("--out x.npy", "run %s --grid 1 --block 64 --out x.npy", co);
}

static void files_that_cannot_be_run(void **state) {
  EXPECT(1, "run nothing.co --grid 1 --block 1" GPU);
  assert_contains(out, "nothing.co: No such file");
  EXPECT(1, "run " DATA_DIR "/ops/make.py --grid 1 --block 1" GPU);
  assert_contains(out, "make.py: ");
  EXPECT(1, "run %s --grid 1 --block 1 --kernel other" GPU, BENCH_CO("saxpy"));
  assert_contains(out, "other");
  EXPECT(1, "run %s --grid 1 --block 1 --dev NOSUCH", BENCH_CO("saxpy"));
  assert_contains(out, "--dev NOSUCH: unknown device 'NOSUCH'");
  EXPECT(1, "run %s --grid 1 --block 1 --dev EMU+AMD:gfx42", BENCH_CO("saxpy"));
}

/* ---- running ---- */

static void write_npy(const char *name, const char *header, const void *data, size_t n) {
  char path[128], text[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  int length = snprintf(text, sizeof text, "%-117s\n", header);
  unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)length, 0};
  fwrite(start, 1, 10, f);
  fwrite(text, 1, (size_t)length, f);
  fwrite(data, 1, n, f);
  fclose(f);
}

static size_t read_back(const char *name, void *to, size_t n, char *header, size_t cap) {
  char path[128];
  unsigned char start[10];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  assert_int_equal(fread(start, 1, 10, f), 10);
  assert_memory_equal(start, "\x93NUMPY\1\0", 8);
  size_t length = start[8] | (size_t)start[9] << 8;
  assert_int_equal((10 + length) % 64, 0);
  assert_true(length < cap);
  assert_int_equal(fread(header, 1, length, f), length);
  header[length] = 0;
  size_t got = fread(to, 1, n, f);
  assert_int_equal(fgetc(f), EOF);
  fclose(f);
  return got;
}

static void saxpy_with_files(void **state) {
  float x[100], y[100], got[100];
  char header[512];
  for (int i = 0; i < 100; i++) x[i] = (float)i, y[i] = (float)(i * i);
  write_npy("x.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (10, 10), }", x, sizeof x);
  write_npy("y.npy", "{'shape': (100,), 'fortran_order': False, 'descr': \"<f4\"}", y, sizeof y);
  EXPECT(0,
         "run %s --kernel saxpy --grid 2 --block=64" GPU
         "--arg f32[100]=@y.npy --arg f32[100]=@x.npy --arg f32:2.5 --arg u32:0x64 "
         "--out 0=z.npy --out 1=same.npy",
         BENCH_CO("saxpy"));
  assert_contains(out, "grid 2x1x1, block 64x1x1");
  assert_contains(out, "wave instructions");
  assert_int_equal(read_back("z.npy", got, sizeof got, header, sizeof header), sizeof got);
  assert_contains(header, "'descr': '<f4', 'fortran_order': False, 'shape': (100,)");
  for (int i = 0; i < 100; i++) assert_float_equal(got[i], 2.5f * x[i] + y[i], 0);
  assert_int_equal(read_back("same.npy", got, sizeof got, header, sizeof header), sizeof got);
  assert_contains(header, "(10, 10,)");
  assert_memory_equal(got, x, sizeof x);
}

static void repeats_and_json(void **state) {
  EXPECT(0,
         "run %s --grid 1 --block 64" GPU
         "--repeat 3 --json --arg f32[64]=zeros --arg f32[64]=iota --arg f32:1 --arg u32:64",
         BENCH_CO("saxpy"));
  json_t *json = json_out(), *args = json_object_get(json, "args");
  assert_int_equal(json_integer_value(json_object_get(json, "runs")), 3);
  assert_string_equal(json_string_value(json_object_get(json, "kernel")), "saxpy");
  assert_int_equal(json_array_size(json_object_get(json, "grid")), 3);
  assert_true(json_number_value(json_object_get(json_object_get(json, "time_ns"), "median")) > 0);
  assert_int_equal(json_array_size(args), 2);
  json_t *first = json_object_get(json_array_get(args, 0), "first");
  for (size_t i = 0; i < 4; i++) assert_float_equal(json_number_value(json_array_get(first, i)), 3.0 * (double)i, 0);
  json_decref(json);
  EXPECT(0,
         "run %s --grid 1 --block 64" GPU
         "--repeat 3 --arg f32[64]=zeros --arg f32[64]=rand:7 --arg f32:1 --arg u32:64",
         BENCH_CO("saxpy"));
  assert_contains(out, "median");
}

static void fills(void **state) {
  static const struct {
    const char *spec, *first;
  } fill[] = {{"f32[16]=iota", "[0, 1, 2, 3,"},   {"f32[16]=ones", "[1, 1, 1, 1,"}, {"f64[8]=iota", "[0, 1, 2, 3,"},
              {"u8[64]=iota", "[0, 1, 2, 3,"},    {"f16[32]=iota", "[0, 1, 2, 3,"}, {"bf16[32]=ones", "[1, 1, 1, 1,"},
              {"bool[64]=iota", "[false, true,"}, {"i64[8]=ones", "[1, 1, 1, 1,"},  {"i8[64]=rand:1", "["},
              {"u16[32]=zeros", "[0, 0, 0, 0,"}};
  for (unsigned i = 0; i < sizeof fill / sizeof *fill; i++) {
    EXPECT(0, "run %s --grid 1 --block 16 --json" GPU "--arg f32[16]=zeros --arg '%s' --arg f32:0 --arg u32:16",
           BENCH_CO("saxpy"), fill[i].spec);
    json_decref(json_out());
    assert_contains(out, fill[i].first);
  }
}

static void hostile_npy_files(void **state) {
  static const struct {
    const char *header, *part;
    size_t bytes;
  } bad[] = {
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", "5 elements of f32, not 4", 20},
      {"{'descr': '<i4', 'fortran_order': False, 'shape': (4,), }", "4 elements of i32, not 4 of f32", 16},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", "has 15 bytes of elements", 15},
      {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", "not supported: column-major", 16},
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (4,), }", "elements of type '>f4'", 16},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (4,), }", "elements of type '|O'", 16},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", "cannot be read", 16},
      {"{'descr': '<f4', 'shape': (4,), }", "has no descr", 16},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }", "cannot be read", 16},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }", "too large", 16},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "cannot be read", 16},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,)", "cannot be read", 16},
      {"import os", "not a dictionary", 16},
      {"", "not a dictionary", 16},
  };
  char data[64] = {0};
  for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
    write_npy("bad.npy", bad[i].header, data, bad[i].bytes);
    EXPECT(2, "run %s --grid 1 --block 1 --arg f32[4]=@bad.npy", BENCH_CO("saxpy"));
    assert_contains(out, "bad.npy");
    assert_contains(out, bad[i].part);
  }
  char path[128];
  snprintf(path, sizeof path, "%s/short.npy", dir);
  static const unsigned char good[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 255, 255, 255, 255, '{', '}'};
  for (size_t n = 0; n <= sizeof good; n++) {
    FILE *f = fopen(path, "wb");
    fwrite(good, 1, n, f);
    fclose(f);
    EXPECT(2, "run %s --grid 1 --block 1 --arg f32[4]=@short.npy", BENCH_CO("saxpy"));
    assert_contains(out, "short.npy: ");
  }
  EXPECT(2, "run %s --grid 1 --block 1 --arg f32[4]=@/dev/zero", BENCH_CO("saxpy"));
  assert_contains(out, "/dev/zero: not a regular file");
}

/* ---- faults, end to end: the process survives, reports the fault, and exits with 1 ---- */

static void an_unmapped_address_is_reported(void **state) {
  EXPECT(1, "run %s --grid 1 --block 64" GPU "--arg f32[64]=zeros --arg u64:0xdead0000 --arg f32:1 --arg u32:64",
         BENCH_CO("saxpy"));
  assert_contains(out, "doorbell run: ");
  assert_contains(out, "dead0000");
}

static void an_endless_kernel_times_out(void **state) {
  EXPECT(1, "run %s --grid 1 --block 32" GPU "--timeout 0.2 --arg u32[1]=zeros", TEST_CO("endless"));
  assert_contains(out, "did not reach");
  assert_contains(out, "within 0.200 s");
  assert_contains(out, "still running, at pc 0x"); /* also the instruction, workgroup and wave */
  assert_contains(out, "endless");
}

/* ---- cubins and PTX ---- */

#define CUBIN           BENCH_FOLDER "/saxpy.sm_90.cubin"
#define PTX             KERNELS_DIR "/bench/kernels/saxpy.ptx"
#define SAXPY_ARGUMENTS " --grid 4 --block 256 --arg f32[1024]=ones --arg f32[1024]=iota --arg f32:2 --arg u32:1000"

static void runs_cubins(void **state) {
  EXPECT(0, "run " CUBIN SAXPY_ARGUMENTS); /* the file type determines the vendor */
  assert_contains(out, "saxpy on EMU+NV:sm_90");
  assert_contains(out, "f32[1024] = 1 3 5 7 9 11 13 15 ...");
  EXPECT(0, "run " CUBIN SAXPY_ARGUMENTS " --dev EMU+NV:sm_90 --json");
  json_decref(json_out());
  REFUSES("kernel saxpy has 4 parameters, but 1 --arg were given", "run " CUBIN " --grid 1 --block 1 --arg u32:1");
  REFUSES("--arg u64:1: argument 3 (arg3) of kernel saxpy is a value of 4 bytes",
          "run " CUBIN " --grid 1 --block 1 --arg u64:0 --arg u64:0 --arg f32:1 --arg u64:1");
  EXPECT(1, "run " CUBIN SAXPY_ARGUMENTS GPU);
  EXPECT(1, "run " CUBIN " --grid 1 --block 32 --arg u64:0 --arg f32[32]=ones --arg f32:1 --arg u32:32");
  assert_contains(out, "memory access fault at 0x0");
}

/* Four workgroups of eight waves. Nine counters of the shaders take two launches. */
static void counts_launches(void **state) {
#define SAXPY_CO KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co"
  EXPECT(0, "run " SAXPY_CO SAXPY_ARGUMENTS GPU " --counters SQ_WAVES,SPI_CSN_NUM_THREADGROUPS");
  assert_contains(out, "SQ_WAVES                     32 waves (exact)");
  assert_contains(out, "SPI_CSN_NUM_THREADGROUPS     4 workgroups (exact)");
  EXPECT(0, "run " SAXPY_CO SAXPY_ARGUMENTS GPU
            " --json --counters SQ_WAVES,SQ_WAVES_32,SQ_WAVES_64,SQ_INSTS_VALU,SQ_INSTS_SALU,SQ_INSTS_SMEM,"
            "SQ_INSTS_LDS,SQC_LDS_BANK_CONFLICT,SQC_LDS_IDX_ACTIVE");
  json_t *report = json_out(), *counters = json_object_get(report, "counters");
  assert_int_equal(json_integer_value(json_object_get(report, "runs")), 2);
  assert_int_equal(json_integer_value(json_object_get(counters, "SQ_WAVES_32")), 32);
  assert_int_equal(json_integer_value(json_object_get(counters, "SQC_LDS_IDX_ACTIVE")), 0);
  assert_true(json_integer_value(json_object_get(counters, "SQ_INSTS_VALU")) >= 32);
  json_decref(report);
  EXPECT(0, "run " SAXPY_CO GPU " --counters list");
  assert_contains(out, "SQ_INSTS_VALU");
  EXPECT(1, "run " SAXPY_CO SAXPY_ARGUMENTS GPU " --counters SQ_WAVES,SQ_NO_SUCH");
  assert_contains(out, "the device has no counter SQ_NO_SUCH");
  EXPECT(1, "run " CUBIN SAXPY_ARGUMENTS " --counters SQ_WAVES");
  assert_contains(out, "the device has no counter SQ_WAVES");
}

static void runs_ptx(void **state) {
  EXPECT(1, "run " PTX SAXPY_ARGUMENTS GPU);
  assert_contains(out, "PTX needs an NVIDIA device, but EMU+AMD:gfx1100 is gfx1100");
  setenv("PTXAS", "/no/such/tool", 1);
  EXPECT(1, "run " PTX SAXPY_ARGUMENTS);
  assert_contains(out, "cannot run /no/such/tool: No such file or directory");
  unsetenv("PTXAS");
  if (!has_ptxas()) skip();
  EXPECT(0, "run " PTX SAXPY_ARGUMENTS);
  assert_contains(out, "f32[1024] = 1 3 5 7 9 11 13 15 ...");
  char path[96];
  snprintf(path, sizeof path, "%s/bad.ptx", dir);
  FILE *f = fopen(path, "w");
  fputs("/* not */ // much\n.version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k() { frobnicate; }\n", f);
  fclose(f);
  EXPECT(1, "run %s --grid 1 --block 1", path);
  assert_contains(out, "line 5");
}

/* Source files, compiled with the installed compilers. */
static void runs_source(void **state) {
  static const char args[] = "--grid 2 --block 32 --arg i32[64]=zeros";
  write_text(
      "ids.cl",
      "__kernel void ids(__global int *out) { out[get_global_id(0)] = get_global_id(0) + get_local_size(0); }\n");
  EXPECT(0, "run ids.cl %s" GPU, args);
  assert_contains(out, "i32[64] = 32 33 34 35");
  write_text("ids.ll", "target triple = \"amdgcn-amd-amdhsa\"\n"
                       "declare i32 @llvm.amdgcn.workitem.id.x()\n"
                       "define amdgpu_kernel void @ids(ptr addrspace(1) %out) {\n"
                       "  %i = call i32 @llvm.amdgcn.workitem.id.x()\n"
                       "  %at = getelementptr i32, ptr addrspace(1) %out, i32 %i\n"
                       "  store i32 %i, ptr addrspace(1) %at\n  ret void\n}\n");
  EXPECT(0, "run ids.ll %s" GPU, args);
  assert_contains(out, "i32[64] = 0 1 2 3");
  /* It assembles the assembly that clang prints for a kernel. */
  char command[512];
  snprintf(command, sizeof command,
           "cd %s && clang-19 -S -x cl -cl-std=CL2.0 --target=amdgcn-amd-amdhsa -mcpu=gfx1100 "
           "-nogpulib -O2 -include " DATA_DIR "/../../frontend/source/opencl.h ids.cl -o ids.s",
           dir);
  assert_int_equal(system(command), 0);
  EXPECT(0, "run ids.s %s" GPU, args);
  assert_contains(out, "i32[64] = 32 33 34 35");
  write_text("wrong.cl", "__kernel void k(__global int *out) { *out = nothing; }\n");
  EXPECT(1, "run wrong.cl %s" GPU, args);
  assert_contains(out, "wrong.cl:1:");
  assert_contains(out, "'nothing'");
  EXPECT(1, "run ids.cl %s --dev CPU", args);
  assert_contains(out, "not supported: OpenCL C for ");
  snprintf(command, sizeof command,
           "cd %s && CLANG=/nonexistent/clang " DOORBELL " run ids.cl %s" GPU " 2>&1 | grep -q /nonexistent/clang", dir,
           args);
  assert_int_equal(system(command), 0);
  if (!system("command -v nvcc >/dev/null || test -x /usr/local/cuda/bin/nvcc")) {
    write_text("ids.cu",
               "__global__ void ids(int *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x; }\n");
    EXPECT(0, "run ids.cu %s --dev EMU+NV:sm_90", args);
    assert_contains(out, "i32[64] = 0 1 2 3");
  }
}

/* Dynamic local memory, whose size is in neither a code object nor a cubin, and accesses outside of it. */
static void runs_with_dynamic_local_memory(void **state) {
  write_text("turned.ll", "target triple = \"amdgcn-amd-amdhsa\"\n"
                          "@s = external addrspace(3) global [0 x i32], align 16\n"
                          "declare i32 @llvm.amdgcn.workitem.id.x()\n"
                          "declare void @llvm.amdgcn.s.barrier()\n"
                          "define amdgpu_kernel void @turned(ptr addrspace(1) %out) {\n"
                          "  %i = call i32 @llvm.amdgcn.workitem.id.x()\n"
                          "  %to = getelementptr [0 x i32], ptr addrspace(3) @s, i32 0, i32 %i\n"
                          "  %x = mul i32 %i, 3\n"
                          "  store i32 %x, ptr addrspace(3) %to\n"
                          "  call void @llvm.amdgcn.s.barrier()\n"
                          "  %other = xor i32 %i, 63\n"
                          "  %from = getelementptr [0 x i32], ptr addrspace(3) @s, i32 0, i32 %other\n"
                          "  %y = load i32, ptr addrspace(3) %from\n"
                          "  %at = getelementptr i32, ptr addrspace(1) %out, i32 %i\n"
                          "  store i32 %y, ptr addrspace(1) %at\n  ret void\n}\n");
  static const char *const cases[] = {"turned.ll" GPU, DATA_DIR "/nv/dynamic.cubin"};
  static const char *const beyond[] = {"LDS access out of range", "at 0x400 of shared memory, which has 1024 bytes"};
  for (unsigned i = 0; i < 2; i++) {
    EXPECT(0, "run %s --grid 1 --block 64 --arg i32[64]=zeros --arg local:256", cases[i]);
    assert_contains(out, "i32[64] = 189 186 183");
    EXPECT(1, "run %s --grid 1 --block 64 --arg i32[64]=zeros", cases[i]);
    assert_contains(out, beyond[i]);
    EXPECT(1, "run %s --grid 1 --block 64 --arg i32[64]=zeros --arg local:300000", cases[i]);
    assert_contains(out, i ? "301024 bytes of shared memory" : "300000 bytes of local memory");
    REFUSES("has 1 parameters, but 2 --arg were given", "run %s --grid 1 --block 64 --arg i32[64]=zeros --arg i32:256",
            cases[i]);
  }
}

/* A second launch on the same buffers takes another path, so that the two passes cannot be compared. */
static void refuses_counts_of_different_work(void **state) {
  write_text("grows.ll", "target triple = \"amdgcn-amd-amdhsa\"\n"
                         "define amdgpu_kernel void @grows(ptr addrspace(1) %p) {\n"
                         "  %v = load volatile i32, ptr addrspace(1) %p\n"
                         "  store volatile i32 1, ptr addrspace(1) %p\n"
                         "  %once = icmp eq i32 %v, 0\n  br i1 %once, label %done, label %more\n"
                         "more:\n  %w = mul i32 %v, 77\n  store volatile i32 %w, ptr addrspace(1) %p\n"
                         "  br label %done\n"
                         "done:\n  ret void\n}\n");
  for (unsigned json = 0; json < 2; json++) {
    EXPECT(1,
           "run grows.ll --grid 1 --block 32 --arg i32[1]=zeros" GPU "%s --counters SQ_INSTS_VALU,SQ_WAVES_32,"
           "SQ_WAVES_64,SQ_INSTS_SALU,SQ_INSTS_SMEM,SQ_INSTS_LDS,SQC_LDS_BANK_CONFLICT,SQC_LDS_IDX_ACTIVE,SQ_WAVES",
           json ? " --json" : "");
    assert_contains(out, "--counters: ");
    assert_contains(out, "different work");
    assert_null(strstr(out, "{"));
  }
}

/* Runtime services that a kernel needs are reported before it runs. */
static void names_services_that_are_missing(void **state) {
#define USES(name, offset)                                                                                             \
  "define amdgpu_kernel void @" name "(ptr addrspace(1) %p) {\n"                                                       \
  "  %i = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()\n"                                                      \
  "  %q = getelementptr i8, ptr addrspace(4) %i, i64 " offset "\n"                                                     \
  "  %v = load i64, ptr addrspace(4) %q\n"                                                                             \
  "  store i64 %v, ptr addrspace(1) %p\n  ret void\n}\n"
  write_text("services.ll", "target triple = \"amdgcn-amd-amdhsa\"\n"
                            "declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()\n" USES("hostcall", "80")
                                USES("multigrid", "88") USES("heap", "96"));
#undef USES
  static const char *const cases[][2] = {
      {"hostcall", "it needs calls to the host"}, {"multigrid", "a cooperative launch"}, {"heap", "it needs a heap"}};
  for (unsigned i = 0; i < 3; i++) {
    EXPECT(1, "run services.ll --kernel %s --grid 1 --block 1 --arg i64[1]=zeros" GPU, cases[i][0]);
    assert_contains(out, "not supported");
    assert_contains(out, cases[i][1]);
  }
  /* Without optimization compilers declare all services for every kernel. */
  char command[512];
  write_text("plain.cl", "__kernel void plain(__global int *out) { *out = 7; }\n");
  snprintf(command, sizeof command,
           "cd %s && clang-19 -x cl -cl-std=CL2.0 --target=amdgcn-amd-amdhsa -mcpu=gfx1100 -nogpulib -O0 plain.cl "
           "-o plain.co",
           dir);
  assert_int_equal(system(command), 0);
  EXPECT(0, "run plain.co --grid 1 --block 1 --arg i32[1]=zeros" GPU);
  assert_contains(out, "i32[1] = 7");
}

/* ---- offload bundles ---- */

static size_t put_number(uint8_t *at, uint64_t v, unsigned bytes) {
  memcpy(at, &v, bytes);
  return bytes;
}
/* A bundle of empty host code, a code object of another GPU and perhaps one of gfx1100. */
static size_t make_bundle(uint8_t *to, const void *object, size_t size, bool ours) {
  static const char *const ids[] = {"host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--gfx1030:xnack-",
                                    "hipv4-amdgcn-amd-amdhsa--gfx1100"};
  unsigned n = ours ? 3 : 2;
  size_t at = 24, data = 4096;
  memset(to, 0, data);
  memcpy(to, "__CLANG_OFFLOAD_BUNDLE__", 24);
  at += put_number(to + at, n, 8);
  for (unsigned i = 0; i < n; i++) {
    size_t bytes = i ? size : 0;
    at += put_number(to + at, data, 8), at += put_number(to + at, bytes, 8),
        at += put_number(to + at, strlen(ids[i]), 8);
    memcpy(to + at, ids[i], strlen(ids[i])), at += strlen(ids[i]);
    memcpy(to + data, object, bytes), data += bytes;
  }
  return data;
}
static void write_bytes(const char *name, const void *bytes, size_t size) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_int_equal(fwrite(bytes, 1, size, f), size);
  fclose(f);
}
static void reads_offload_bundles(void **state) {
  enum { MOST = 1 << 20 };
  static const char args[] =
      "--grid 4 --block 256 --arg f32[1024]=ones --arg f32[1024]=iota --arg f32:2 --arg u32:1024";
  uint8_t *object = malloc(MOST), *bundle = malloc(4 * MOST), *packed = malloc(4 * MOST);
  FILE *f = fopen(BENCH_CO("saxpy"), "r");
  assert_non_null(f);
  size_t size = fread(object, 1, MOST, f), length = make_bundle(bundle, object, size, true);
  fclose(f);
  assert_in_range(size, 1000, MOST - 1);
  write_bytes("two.hipfb", bundle, length);
  EXPECT(0, "run two.hipfb %s" GPU, args);
  assert_contains(out, "f32[1024] = 1 3 5 7 9");
  EXPECT(0, "disasm --arch gfx1100 two.hipfb");
  assert_contains(out, "s_endpgm");
  EXPECT(1, "disasm two.hipfb");
  assert_contains(out, "2 code objects: gfx1030, gfx1100; --arch chooses one");
  /* zlib's, version 2: method 0, the file's size, the bundle's size, a hash */
  uLongf packed_size = 4 * MOST - 24;
  assert_int_equal(compress(packed + 24, &packed_size, bundle, length), Z_OK);
  memcpy(packed, "CCOB\2\0\0\0", 8);
  put_number(packed + 8, 24 + packed_size, 4), put_number(packed + 12, length, 4), put_number(packed + 16, 0, 8);
  write_bytes("packed.hipfb", packed, 24 + packed_size);
  EXPECT(0, "run packed.hipfb %s" GPU, args);
  assert_contains(out, "f32[1024] = 1 3 5 7 9");
  packed[24 + packed_size / 2] ^= 0x55;
  write_bytes("damaged.hipfb", packed, 24 + packed_size);
  EXPECT(1, "run damaged.hipfb %s" GPU, args);
  assert_contains(out, "damaged");
  packed[6] = 1;
  write_bytes("zstd.hipfb", packed, 24 + packed_size);
  EXPECT(1, "run zstd.hipfb %s" GPU, args);
  assert_contains(out, "not supported: an offload bundle compressed with zstd");
  for (size_t cut = 4; cut < 300; cut += 37) { /* also inside the table and before the code */
    write_bytes("cut.hipfb", bundle, cut);
    EXPECT(1, "run cut.hipfb %s" GPU, args);
  }
  assert_contains(out, "cut off in entry");
  length = make_bundle(bundle, object, size, false);
  write_bytes("other.hipfb", bundle, length);
  EXPECT(1, "run other.hipfb %s" GPU, args);
  assert_contains(out, "no code object for gfx1100; there is gfx1030");
  free(object), free(bundle), free(packed);
}

static void lists_sass_instructions(void **state) {
  EXPECT(0, "emu --isa sm_90");
  assert_contains(out, "\nIMAD           ");
  assert_contains(out, "approximate: ");
  REFUSES("--isa sm_35", "emu --isa sm_35");
  REFUSES("--gpu sm_90,gfx1100", "emu --gpu sm_90,gfx1100 -- true");
}

/* ---- devices and bench ---- */

static void lists_devices(void **state) {
  EXPECT(0, "devices");
  assert_contains(out, "CPU");
  assert_contains(out, "gfx1100");
  assert_contains(out, "EMU+NV:sm_90");
  EXPECT(0, "devices --json");
  json_t *json = json_out(), *device;
  size_t i;
  bool found = false;
  json_array_foreach(json_object_get(json, "devices"), i, device) {
    assert_true(json_is_boolean(json_object_get(device, "emulated")));
    assert_true(json_is_integer(json_object_get(device, "memory")));
    assert_true(json_is_string(json_object_get(device, "reason")));
    assert_true(json_is_integer(json_object_get(device, "clock_mhz")));
    assert_true(json_is_string(json_object_get(device, "pci")));
    if (strcmp(json_string_value(json_object_get(device, "name")), "CPU") != 0) continue;
    found = true;
    assert_true(json_is_true(json_object_get(device, "usable")));
  }
  assert_true(found);
  json_decref(json);
  EXPECT(0, "devices");
  assert_null(strstr(out, " units"));
  EXPECT(0, "devices -v");
  assert_contains(out, "96 units, clock 2482 MHz, memory clock 1249 MHz, PCI 0000:03:00.0, driver KFD 1.");
  assert_contains(out, "132 units, PCI 0000:41:00.0, driver NVIDIA ");
}

static void benches(void **state) {
  EXPECT(0, "bench --dev CPU --dev " EMULATED " --case dot --case variance --case cl:saxpy --json");
  json_t *json = json_out(), *result = json_array_get(json_object_get(json, "results"), 0);
  assert_string_equal(json_string_value(json_object_get(result, "kernel_names")), "r_2");
  assert_int_equal(json_integer_value(json_object_get(result, "kernels")), 1);
  assert_true(json_is_null(json_object_get(result, "emulated_instructions"))); /* the CPU is not emulated */
  assert_true(json_number_value(json_object_get(result, "seconds")) > 0);
  assert_true(json_is_true(json_object_get(result, "ok")));
  assert_int_equal(json_integer_value(json_object_get(json, "ran")), 5);
  assert_int_equal(json_integer_value(json_object_get(json, "failed")), 0);
  result = json_array_get(json_object_get(json, "results"), 4);
  assert_true(json_integer_value(json_object_get(result, "emulated_instructions")) > 0);
  json_decref(json);
  EXPECT(0, "bench --dev " EMULATED_NVIDIA " --case dot --case cuda:saxpy --json");
  json = json_out();
  assert_int_equal(json_integer_value(json_object_get(json, "ran")), has_ptxas() ? 2 : 1);
  assert_int_equal(json_integer_value(json_object_get(json, "failed")), 0);
  assert_int_equal(json_integer_value(json_object_get(json, "skipped")), has_ptxas() ? 0 : 1);
  json_decref(json);
  EXPECT(0, "bench --dev CPU --case dot --case variance");
  assert_contains(out, "2 of 2 ok");
  EXPECT(1, "bench --dev NOSUCH");
  assert_contains(out, "FAILED");
  assert_contains(out, "NOSUCH");
}

static void environment_is_checked(void **state) {
  setenv("DEBUG", "9", 1);
  EXPECT(1, "bench --dev CPU --case dot");
  assert_contains(out, "DEBUG=9: expected a number from 0 to 7");
  setenv("DEBUG", "2", 1);
  EXPECT(0, "bench --dev CPU --case dot");
  assert_contains(out, "*** CPU");
  assert_contains(out, "r_2");
  assert_contains(out, "GFLOPS");
  setenv("DEBUG", "7", 1);
  EXPECT(0, "bench --dev " EMULATED " --case dot");
  assert_contains(out, "schedule: 1 command");
  assert_contains(out, "as C");
  assert_contains(out, "s_endpgm");
  assert_contains(out, "kernel 0 (reduce a:2): r_2 = unroll a:2");
  setenv("DEBUG", "3", 1);
  setenv("PLAN", "r_2 = vector a:2", 1);
  EXPECT(0, "bench --dev CPU --case dot");
  assert_contains(out, "r_2 = vector a:2\n");
  setenv("PLAN", "upcast b:4", 1);
  EXPECT(0, "bench --dev CPU --case dot");
  assert_contains(out,
                  "PLAN is not possible: kernel r_2: plan: step 1 at column 1 of the plan, 'upcast b:4': the kernel "
                  "has no such axis");
  unsetenv("DEBUG");
  setenv("PLAN", "r_2 = unroll a:3", 1);
  EXPECT(1, "bench --dev CPU --case dot");
  assert_contains(out, "'unroll a:3': its size 2 is not a multiple of 3: pad it first");
  setenv("PLAN", "r_2 = pad a:3; unrol a:3", 1);
  EXPECT(1, "bench --dev CPU --case dot");
  assert_contains(out, "PLAN: line 1, column 10 of the plan, at 'unrol': not a step");
  setenv("PLAN", "=", 1);
  EXPECT(1, "bench --dev CPU --case dot");
  assert_contains(out, "PLAN: line 1, at '=': the name or number of a kernel is expected");
  setenv("PLAN", "r_3 = upcast a:3\nr_2 = \n99 = upcast a:2", 1);
  EXPECT(0, "bench --dev CPU --case dot");
  assert_contains(out, "PLAN: line 1, 'r_3': no kernel with this name was compiled");
  assert_contains(out, "PLAN: line 3, '99': no kernel with this number was compiled");
  assert_null(strstr(out, "PLAN: line 2"));
  setenv("PLAN", "@/no/such/file", 1);
  EXPECT(1, "bench --dev CPU --case dot");
  assert_contains(out, "PLAN=@/no/such/file: No such file or directory");
  unsetenv("PLAN");
  setenv("BEAM", "many", 1);
  EXPECT(1, "bench --dev CPU --case dot");
  assert_contains(out, "BEAM=many: expected a number from 0 to 64");
  setenv("BEAM", "65", 1);
  EXPECT(1, "bench --dev CPU --case dot");
  assert_contains(out, "BEAM=65: expected a number from 0 to 64");
  unsetenv("BEAM");
  setenv("TF32", "x", 1);
  EXPECT(1, "bench --dev CPU --case dot");
  assert_contains(out, "TF32=x: expected a number from 0 to 1");
  unsetenv("TF32");
  setenv("NOOPT", "1", 1);
  EXPECT(0, "bench --dev CPU --case dot --case perceptron");
  unsetenv("NOOPT");
  setenv("SPEC", "1", 1);
  EXPECT(0, "bench --dev CPU --dev " EMULATED " --case dot --case variance");
  setenv("SPEC", "2", 1);
  setenv("TRACK_MATCH_STATS", "2", 1);
  EXPECT(0, "bench --dev CPU --case variance");
  assert_contains(out, "attempts");
  assert_contains(out, "graph/rules/symbolic.rules:");
  assert_contains(out, "all of symbolic");
  unsetenv("TRACK_MATCH_STATS");
  unsetenv("SPEC");
  setenv("DEV", EMULATED, 1);
  EXPECT(0, "run %s --grid 1 --block 64 --arg f32[64]=zeros --arg f32[64]=ones --arg f32:1 --arg u32:64",
         BENCH_CO("saxpy"));
  assert_contains(out, EMULATED);
  unsetenv("DEV");
}

/* ---- show, cache, jit --run ---- */

static int twice_and_sum(void *ctx, db_tensor *const *in, db_tensor **of) {
  of[0] = db_mul(in[0], 2);
  of[1] = db_sum(in[0]);
  return 0;
}

/* Tensors and a captured program of one input and two outputs. */
static void write_files(void) {
  static const float v[] = {1, 2, 3, 4, 5, 6};
  char path[64];
  DB_SCOPED;
  db_tensor *t = db_from(v, DB_F32, NULL, 2, 3), *of[2];
  struct db_named named[] = {{"first", t}, {"second", db_cast(db_add(t, 1), DB_I64)}};
  static const char *const files[] = {"t.npy", "t.npz", "t.safetensors"};
  for (unsigned i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%s", dir, files[i]);
    assert_int_equal(db_save(path, named, i ? 2 : 1), 0);
  }
  db_jit *j = db_jit_new(twice_and_sum, NULL, 1, 2);
  for (int i = 0; i < 2; i++) assert_int_equal(db_jit_call(j, &t, of), 0);
  snprintf(path, sizeof path, "%s/t.dbj", dir);
  assert_int_equal(db_jit_save(j, path, NULL, 0), 0);
  db_jit_free(j);
}

static void shows_files(void **state) {
  write_files();
  EXPECT(0, "show t.npy");
  assert_contains(out, "f32     [2, 3]                             24");
  EXPECT(0, "show t.npz");
  assert_contains(out, "i64     [2, 3]                             48  second\n2 tensors, 72 bytes\n");
  EXPECT(0, "show --json t.safetensors");
  json_t *all = json_out(), *second = json_array_get(all, 1);
  assert_string_equal(json_string_value(json_object_get(second, "name")), "second");
  assert_int_equal(json_integer_value(json_array_get(json_object_get(second, "shape"), 1)), 3);
  json_decref(all);
  EXPECT(0, "show t.dbj");
  assert_contains(out, "output 0: f32 [2, 3]");
  EXPECT(0, "show %s", BENCH_CO("saxpy"));
  assert_contains(out, "gfx1100\n  saxpy: arguments 4, wave 32, local bytes 0, private bytes 0,");
  EXPECT(0, "show --json %s", BENCH_CO("reduce"));
  all = json_out();
  assert_string_equal(json_string_value(json_object_get(all, "arch")), "gfx1100");
  json_decref(all);
  EXPECT(1, "show %s/main.c", BENCH_FOLDER);
  assert_contains(out, "No such file");
  EXPECT(1, "show %s/saxpy.cl", BENCH_FOLDER);
  assert_contains(out, "saxpy.cl: not a file of tensors");
  EXPECT(1, "version && head -c 60 t.npz >cut.npz && " DOORBELL " show cut.npz");
  assert_contains(out, "cut.npz");
  REFUSES("no file", "show");
}

/* A trace of one wave with two instructions. */
static size_t write_trace(struct sqtt_writer *w) {
  sqtt_put_header(w, SQTT_LAYOUT_GFX11);
  SQTT_P(w, GFX11, WAVESTART, 1, SQTT_F(GFX11, WAVESTART, wave, 3));
  SQTT_P(w, GFX11, INST, 5, SQTT_F(GFX11, INST, wave, 3) | SQTT_F(GFX11, INST, op, SQTT_GFX11_OP_SMEM));
  SQTT_P(w, GFX11, ALUEXEC, 2, SQTT_F(GFX11, ALUEXEC, src, SQTT_ALU_SCALAR));
  SQTT_P(w, GFX11, WAVEEND, 7, SQTT_F(GFX11, WAVEEND, wave, 3));
  return sqtt_put_end(w);
}

static void shows_traces(void **state) {
  struct sqtt_writer w;
  char path[200];
  snprintf(path, sizeof path, "%s/t.sqtt", dir);
  size_t size = write_trace(&w);
  FILE *f = fopen(path, "wb");
  assert_int_equal(fwrite(w.bytes, 1, size, f), size);
  fclose(f);
  EXPECT(0, "show t.sqtt");
  assert_contains(out, "gfx11 thread trace: 32 bytes");
  assert_contains(out, "1 wave; 2 instructions of 1 wave on SIMD 0 of WGP 0 of shader array 0");
  EXPECT(0, "show t.sqtt --instructions");
  assert_contains(out, "6          5         2          -  scalar memory  SMEM");
  EXPECT(0, "show t.sqtt --packets");
  assert_contains(out, "ALUEXEC                         0x6e  src=0x1");
  EXPECT(0, "show t.sqtt --json");
  json_t *all = json_out(), *wave = json_array_get(json_object_get(all, "waves"), 0);
  assert_int_equal(json_integer_value(json_object_get(wave, "slot")), 3);
  assert_int_equal(json_array_size(json_object_get(wave, "instructions")), 2);
  json_decref(all);
  /* No instruction of this kernel agrees with the trace after its first. */
  EXPECT(0, "show t.sqtt --code %s", BENCH_CO("saxpy"));
  assert_contains(out, "do not agree with");
  EXPECT(1, "show t.sqtt --code %s --kernel nothing", BENCH_CO("saxpy"));
  assert_contains(out, "the code has no kernel 'nothing'");
  EXPECT(1, "version && head -c 13 t.sqtt >cut.sqtt && " DOORBELL " show cut.sqtt");
  assert_contains(out, "cut.sqtt: thread trace: the packet INST at nibble 24 (byte 0xc) needs 5 nibbles");
  REFUSES("need a thread trace (.sqtt)", "show t.npy --packets");
  REFUSES("--json has no packets", "show t.sqtt --json --packets");
  REFUSES("--kernel needs --code", "show t.sqtt --kernel saxpy");
}

/* A trace of a launch on the emulated GPU agrees with the kernel's code, and all of its waves are in it. */
static void traces_launches(void **state) {
  unsigned waves = 0;
  EXPECT(0,
         "run %s" GPU "--grid 100 --block 64 --arg f32[6400]=ones --arg f32[6400]=iota --arg f32:2 --arg u32:6400 "
         "--repeat 2 --thread-trace saxpy",
         BENCH_CO("saxpy"));
  assert_contains(out, "thread trace  saxpy.se0.sqtt to saxpy.se5.sqtt");
  for (unsigned engine = 0; engine < 6; engine++) {
    EXPECT(0, "show saxpy.se%u.sqtt --json --code %s", engine, BENCH_CO("saxpy"));
    json_t *all = json_out();
    assert_int_equal(json_integer_value(json_object_get(all, "out_of_step")), 0);
    assert_true(json_array_size(json_object_get(all, "code")) > 10);
    waves += (unsigned)json_array_size(json_object_get(all, "waves"));
    json_decref(all);
  }
  assert_int_equal(waves, 200);
  EXPECT(0, "show saxpy.se0.sqtt --code %s", BENCH_CO("saxpy"));
  assert_contains(out, "s_endpgm");
  assert_contains(out, "on average");
  assert_contains(out, "... 2 more; --waves prints them");
  EXPECT(0, "show saxpy.se0.sqtt --waves");
  assert_null(strstr(out, "more; --waves"));
  EXPECT(1,
         "run %s" GPU "--grid 1 --block 64 --arg f32[64]=ones --arg f32[64]=iota --arg f32:2 --arg u32:64 "
         "--thread-trace /nonexistent/x",
         BENCH_CO("saxpy"));
  assert_contains(out, "/nonexistent/x.se0.sqtt: No such file");
}

static void runs_captured_programs(void **state) {
  write_files();
  EXPECT(0, "jit t.dbj --run --in 0=t.npy --out 0=twice.npy");
  assert_contains(out, "out 0 f32[2, 3] = 2 4 6 8 10 12\nout 1 f32[] = 21\n");
  EXPECT(0, "jit t.dbj --run --in 0=twice.npy");
  assert_contains(out, "out 1 f32[] = 42\n");
  EXPECT(1, "jit t.dbj --run");
  assert_contains(out, "t.dbj has 1 inputs: --in 0=FILE is missing");
  EXPECT(1, "jit t.dbj --run --in 0=t.npz");
  assert_contains(out, "--in 0=t.npz: expected one tensor, found 2");
  EXPECT(1, "jit t.dbj --run --in 0=t.npy --out 2=x.npy");
  assert_contains(out, "--out 2: t.dbj has 2 outputs");
  EXPECT(1, "jit t.dbj --run --in 0=t.npy --dev " EMULATED);
  assert_contains(out, "t.dbj: device 0");
  REFUSES("--in, --out and --dev need --run", "jit t.dbj --in 0=t.npy");
  REFUSES("--disasm excludes --run and --json", "jit t.dbj --disasm --json");
  EXPECT(0, "jit t.dbj --run --json --in 0=t.npy");
  json_t *all = json_out(), *first = json_array_get(json_object_get(all, "outputs"), 0);
  assert_string_equal(json_string_value(json_object_get(first, "dtype")), "f32");
  assert_int_equal(json_integer_value(json_array_get(json_object_get(first, "shape"), 1)), 3);
  assert_int_equal(json_number_value(json_array_get(json_object_get(first, "first"), 5)), 12);
  assert_int_equal(json_array_size(json_object_get(all, "outputs")), 2);
  json_decref(all);
  static const char *const commands[] = {"jit", "show"};
  for (unsigned i = 0; i < 2; i++) {
    EXPECT(0, "%s t.dbj --json", commands[i]);
    all = json_out();
    assert_int_equal(json_array_size(json_object_get(all, "inputs")), 1);
    assert_true(json_array_size(json_object_get(all, "kernels")) > 0);
    json_decref(all);
  }
  REFUSES("--in 0: expected K=FILE", "jit t.dbj --run --in 0");
}

/* Uses a separate cache, into which one kernel is compiled. */
static void shows_the_cache(void **state) {
  write_files();
  EXPECT(0, "version && mkdir kept && XDG_CACHE_HOME=$PWD/kept " DOORBELL " bench --dev CPU --case saxpy >bench.txt && "
            "XDG_CACHE_HOME=$PWD/kept " DOORBELL " cache --list");
  assert_contains(out, " E_");
  EXPECT(0, "version >version.txt && XDG_CACHE_HOME=$PWD/kept " DOORBELL " cache --list --json");
  json_t *all = json_out();
  size_t kernels = json_array_size(all);
  assert_true(kernels > 0);
  assert_true(json_integer_value(json_object_get(json_array_get(all, 0), "bytes")) > 0);
  json_decref(all);
  EXPECT(0, "version >version.txt && echo broken >kept/doorbell/0.dbk && XDG_CACHE_HOME=$PWD/kept " DOORBELL
            " cache --clear --json");
  all = json_out();
  assert_int_equal(json_integer_value(json_object_get(all, "kernels")), kernels);
  json_decref(all);
  EXPECT(0, "version && XDG_CACHE_HOME=$PWD/kept " DOORBELL " cache");
  assert_contains(out, "kept/doorbell: 0 kernels, 0.0 MB");
  EXPECT(1, "version && XDG_CACHE_HOME=/dev/null " DOORBELL " cache");
  assert_contains(out, "/dev/null");
  REFUSES("--list and --clear exclude each other", "cache --list --clear");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help_everywhere),
      cmocka_unit_test(shows_files),
      cmocka_unit_test(shows_traces),
      cmocka_unit_test(traces_launches),
      cmocka_unit_test(runs_captured_programs),
      cmocka_unit_test(shows_the_cache),
      cmocka_unit_test(variables_are_listed),
      cmocka_unit_test(manual_pages),
      cmocka_unit_test(completions),
      cmocka_unit_test(every_bad_flag_names_itself),
      cmocka_unit_test(every_bad_spec_names_itself),
      cmocka_unit_test(arguments_must_fit_the_kernel),
      cmocka_unit_test(files_that_cannot_be_run),
      cmocka_unit_test(saxpy_with_files),
      cmocka_unit_test(repeats_and_json),
      cmocka_unit_test(fills),
      cmocka_unit_test(hostile_npy_files),
      cmocka_unit_test(an_unmapped_address_is_reported),
      cmocka_unit_test(an_endless_kernel_times_out),
      cmocka_unit_test(runs_cubins),
      cmocka_unit_test(counts_launches),
      cmocka_unit_test(refuses_counts_of_different_work),
      cmocka_unit_test(runs_ptx),
      cmocka_unit_test(runs_source),
      cmocka_unit_test(runs_with_dynamic_local_memory),
      cmocka_unit_test(names_services_that_are_missing),
      cmocka_unit_test(reads_offload_bundles),
      cmocka_unit_test(lists_sass_instructions),
      cmocka_unit_test(lists_devices),
      cmocka_unit_test(benches),
      cmocka_unit_test(environment_is_checked),
  };
  return cmocka_run_group_tests_name("command", tests, begin, finish);
}
