/* doorbell disasm compared with llvm-objdump, line by line, and its errors; the table of doorbell emu --isa. */
#include "support.h"
#include <glob.h>
#include <sys/wait.h>
#include <unistd.h>

static char ours[1 << 22], theirs[1 << 22], dir[] = "/tmp/doorbell-disasm-XXXXXX";

__attribute__((format(printf, 2, 3))) static int output(char *out, const char *fmt, ...) {
  char line[2048];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  FILE *p = popen(line, "r");
  assert_non_null(p);
  size_t n = fread(out, 1, sizeof ours - 1, p);
  out[n] = 0;
  int status = pclose(p);
  if (!WIFEXITED(status)) fail_msg("%s: ended by a signal", line);
  return WEXITSTATUS(status);
}
#define OBJDUMP "llvm-objdump-19 -d -z "

static void same_lines(const char *what) {
  const char *a = ours, *b = theirs;
  for (unsigned line = 1; *a || *b; line++) {
    size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
    if (n != m || memcmp(a, b, n)) fail_msg("%s, line %u: '%.*s', LLVM '%.*s'", what, line, (int)n, a, (int)m, b);
    a += n + (a[n] != 0), b += m + (b[m] != 0);
  }
}

static void code_objects(void **state) {
  glob_t g;
  assert_int_equal(glob(KERNELS_DIR "/*/kernels/*.gfx1100.co", 0, NULL, &g), 0);
  unsigned wave64 = 0;
  for (size_t i = 0; i < g.gl_pathc; i++) {
    const char *file = g.gl_pathv[i];
    bool wide = strstr(file, "wave64") != NULL;
    wave64 += wide;
    if (output(theirs, OBJDUMP "%s %s", wide ? "--mattr=+wavefrontsize64,-wavefrontsize32" : "", file)) skip();
    assert_int_equal(output(ours, DOORBELL " disasm --arch gfx1100 %s", file), 0);
    same_lines(file);
  }
  assert_true(g.gl_pathc > 20 && wave64);
  globfree(&g);
}

static void write_words(const char *path, const uint32_t *dw, size_t bytes) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(dw, 1, bytes, f), bytes);
  fclose(f);
}

/* v_cmp_lt_f32, s_branch back to it, an invalid instruction, half a v_add3_u32, two bytes. */
static void raw_words(void **state) {
  static const uint32_t words[] = {0x7c220501, 0xbfa0fffe, 0xffffffff, 0xd6550000, 0x0201};
  char path[256];
  snprintf(path, sizeof path, "%s/raw", dir);
  write_words(path, words, 18);
  assert_int_equal(output(ours, DOORBELL " disasm --raw %s", path), 0);
  assert_contains(ours, "\tv_cmp_lt_f32_e32 vcc_lo, v1, v2                            // 000000000000: 7C220501\n");
  assert_contains(ours, "\ts_branch 65534                                             // 000000000004: BFA0FFFE\n");
  assert_contains(ours, "\t.long 0xffffffff                                           // 000000000008: FFFFFFFF\n");
  assert_contains(ours, "\t.long 0xd6550000                                           // 00000000000C: D6550000\n");
  assert_contains(ours, "\t.byte 0x01, 0x02                                           // 000000000010: 01 02\n");
  assert_int_equal(output(ours, DOORBELL " disasm --raw --wave64 %s", path), 0);
  assert_contains(ours, "\tv_cmp_lt_f32_e32 vcc, v1, v2 ");
}

/* An assembler's output: unlinked, without kernels. */
static void unlinked(void **state) {
  char source[256], object[256];
  snprintf(source, sizeof source, "%s/a.s", dir);
  snprintf(object, sizeof object, "%s/a.o", dir);
  FILE *f = fopen(source, "w");
  assert_non_null(f);
  fputs(".text\nfirst:\nv_add_nc_u32 v0, 1, v1\ns_cbranch_vccz second\nsecond:\ns_call_b64 s[4:5], first\ns_endpgm\n"
        ".section .more,\"ax\"\nthird:\ns_branch third\n",
        f);
  fclose(f);
  if (output(theirs, "clang-19 -target amdgcn-amd-amdhsa -mcpu=gfx1100 -c %s -o %s 2>&1", source, object)) skip();
  assert_int_equal(output(theirs, OBJDUMP "%s", object), 0);
  assert_int_equal(output(ours, DOORBELL " disasm %s", object), 0);
  same_lines(object);
  assert_contains(ours, "<third>");
}

static void fidelity(void **state) {
  assert_int_equal(output(ours, DOORBELL " emu --isa gfx1100"), 0);
  assert_contains(ours, "\nVOP2    v_add_f32                          exact\n");
  assert_contains(ours, "\nVOP1    v_sin_f32                          approximate, within 0.51 ulp");
  assert_contains(ours, " 0 missing\nother: ");
  assert_int_equal(output(ours, DOORBELL " emu --isa gfx906 2>&1"), 2);
  assert_contains(ours, "not supported: --isa gfx906");
}

static void refusals(void **state) {
  static const struct {
    const char *args, *says;
    int status;
  } cases[] = {
      {"", "no file", 2},
      {"a b", "one file", 2},
      {"--arch gfx90a a", "not supported: --arch gfx90a", 2},
      {"--wave32 --wave64 a", "exclude", 2},
      {"/nonexistent", "No such file", 1},
      {DOORBELL, "not supported: code for ELF machine", 1},
      {"--arch gfx1101 " KERNELS_DIR "/bench/kernels/saxpy.gfx1100.co", "is for gfx1100", 1},
      {"/dev/null", "ELF", 1},
      {DATA_DIR "/../../bench/kernels/saxpy.cl", "not an ELF file", 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int status = output(ours, DOORBELL " disasm %s 2>&1", cases[i].args);
    if (status != cases[i].status) fail_msg("disasm %s: exit status %d: %s", cases[i].args, status, ours);
    assert_contains(ours, cases[i].says);
  }
}

int main(void) {
  if (!mkdtemp(dir)) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(code_objects), cmocka_unit_test(raw_words), cmocka_unit_test(unlinked),
      cmocka_unit_test(fidelity),     cmocka_unit_test(refusals),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  char line[300];
  snprintf(line, sizeof line, "rm -rf %s", dir);
  return failed | (system(line) != 0);
}
