/* The result of `make install`: the READMEs' programs compile with it and run, and so does the installed command. */
#include "support.h"
#include "tests/sanitizers.h"
#include <sys/wait.h>
#include <unistd.h>

#define ROOT DATA_DIR "/../.."

static char out[1 << 16], dir[] = "/tmp/doorbell-install-XXXXXX";

/* Runs a shell command in dir, where P is the prefix, with both output streams in out. Returns the exit status. */
__attribute__((format(printf, 1, 2))) static int shell(const char *format, ...) {
  char command[8192], line[16384];
  va_list args;
  va_start(args, format);
  vsnprintf(command, sizeof command, format, args);
  va_end(args);
  snprintf(
      line, sizeof line,
      "exec 2>&1; cd %s && P=%s/prefix && export P && PKG_CONFIG_PATH=$P/lib/pkgconfig && export PKG_CONFIG_PATH\n%s",
      dir, dir, command);
  FILE *p = popen(line, "r");
  assert_non_null(p);
  size_t n = fread(out, 1, sizeof out - 1, p);
  out[n] = 0;
  int status = pclose(p);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
#define DONE(...)                                                                                                      \
  do {                                                                                                                 \
    int status_ = shell(__VA_ARGS__);                                                                                  \
    if (status_) fail_msg("exit status %d: %s", status_, out);                                                         \
  } while (0)

/* ---- the READMEs' fences ---- */

static char readme[1 << 17];

/* A copy of the fenced text in a language that contains `part`. */
static char *fenced(const char *language, const char *part) {
  char fence[32];
  size_t n = (size_t)snprintf(fence, sizeof fence, "\n```%s\n", language);
  for (const char *at = strstr(readme, fence); at; at = strstr(at, fence)) {
    const char *text = at + n, *end = strstr(text - 1, "\n```"), *found = strstr(text, part);
    if (end && found && found < end) return strndup(text, (size_t)(end + 1 - text));
    at = text;
  }
  fail_msg("no README has a fence of %s with %s in it", language, part);
  return NULL;
}

/* Writes a file with a fence of C code between two texts. */
static void write_program(const char *name, const char *before, const char *part, const char *after) {
  char path[256], *code = fenced("c", part), *text = code;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fputs(before, f);
  /* The READMEs write (...) for the head of a loop. */
  for (char *dots; (dots = strstr(text, "(...)")); text = dots + 5)
    fprintf(f, "%.*s(int turn = 0; turn < 3; turn++)", (int)(dots - text), text);
  fputs(text, f);
  fputs(after, f);
  fclose(f);
  free(code);
}

/* The command of a shell fence that begins with `words`, with the lines that continue it after a backslash. */
static char *command_of(const char *words) {
  char *text = fenced("sh", words), *at = strstr(text, words);
  size_t n = strcspn(at, "\n");
  while (n && at[n - 1] == '\\' && at[n]) n += 1 + strcspn(at + n + 1, "\n");
  char *line = strndup(at, n);
  free(text);
  return line;
}

/* ---- tests ---- */

static void no_sanitizers(void) {
#ifdef SANITIZED
  print_message("programs without the sanitizers cannot be linked with this library\n");
  skip();
#endif
}

/* The example, built by the README's own line, on the CPU and on an emulated GPU. */
static void the_example_runs(void **state) {
  no_sanitizers();
  char *build = command_of("cc example.c ");
  write_program("example.c", "", "int main(void)", "");
  DONE("%s", build);
  free(build);
  DONE("env -u LD_LIBRARY_PATH ./example");
  assert_string_equal(out, "0.0474259 0.952574\n0.000911051 0.999089\n");
  DONE("DEV=%s ./example", EMULATED);
  assert_string_equal(out, "0.0474259 0.952574\n0.000911051 0.999089\n");
}

#define HEAD "#include <doorbell/doorbell.h>\n#include <doorbell/hcq.h>\n#include <doorbell/nn.h>\n#include <stdio.h>\n"
#define END  "  return *db_error() ? fprintf(stderr, \"%s\\n\", db_error()), 1 : 0;\n}\n"

/* Each piece of C code in the READMEs compiles inside a program that declares what it uses, and runs without an error
 */
static void pieces_compile_and_run(void **state) {
  static const struct {
    const char *part, *before, *after;
  } pieces[] = {
      {"db_params_new(NULL, 42)",
       HEAD "int main(void) {\n"
            "db_tensor *x = db_keep(db_rand(DB_F32, NULL, 8, 784)), *labels = db_keep(db_zeros(DB_I32, NULL, 8));\n",
       END},
      {"db_group(devices, n)",
       HEAD "int main(void) {\n"
            "db_device *devices[] = {db_open(\"CPU\"), db_open(\"" EMULATED "\")};\n"
            "unsigned n = 2;\nstatic float weights[784 * 128];\n"
            "db_tensor *batch = db_rand(DB_F32, devices[0], 8, 784);\n",
       "  double value;\n  db_item(loss, &value);\n" END},
      {"db_jit_new(step",
       HEAD
       "int step(void *model, db_tensor *const *in, db_tensor **out) {\n"
       "  return *out = db_mean(db_square(db_sub(in[0], in[1]))), 0;\n}\n"
       "int main(void) {\n"
       "float model = 0;\ndb_tensor *x = db_keep(db_rand(DB_F32, NULL, 8)), *y = db_keep(db_ones(DB_F32, NULL, 8)), "
       "*loss;\n",
       END},
      {"db_world_mean_grads",
       HEAD "int main(void) {\n"
            "db_params *p = db_params_new(NULL, 42);\n"
            "db_linear layer = db_linear_new(p, \"layer\", 4, 2, true);\n"
            "unsigned n;\ndb_tensor *const *weights = db_params_trained(p, &n);\n"
            "db_optim *adam = db_adam(weights, n, .lr = 1e-3);\n"
            "db_tensor *loss = db_mean(db_apply(&layer, db_rand(DB_F32, NULL, 3, 4)));\n",
       END},
  };
  no_sanitizers();
  for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
    write_program("piece.c", pieces[i].before, pieces[i].part, pieces[i].after);
    DONE("cc -Wall -Werror piece.c $(pkg-config --cflags --libs doorbell) -o piece && ./piece");
  }
}

/* Links with the static archive and its libraries. */
static void links_with_the_archive(void **state) {
  no_sanitizers();
  write_program("example.c", "", "int main(void)", "");
  DONE("cc example.c $(pkg-config --cflags doorbell) -o archived $P/lib/libdoorbell.a "
       "$(pkg-config --static --libs doorbell | sed 's/-ldoorbell//') && ! readelf -d archived | grep -q libdoorbell "
       "&& ./archived");
}

/* Programs in other languages load the library when they run. */
static void the_library_loads_at_run_time(void **state) {
  no_sanitizers();
  DONE("cat >late.c <<'END'\n"
       "#include <dlfcn.h>\n#include <stdio.h>\n"
       "int main(int n, char **path) {\n"
       "  void *lib = dlopen(path[1], RTLD_NOW);\n"
       "  if (!lib) return fprintf(stderr, \"%%s\\n\", dlerror()), 1;\n"
       "  void *(*open)(const char *) = (void *(*)(const char *))dlsym(lib, \"db_open\");\n"
       "  return !open(\"%s\");\n"
       "}\nEND\n"
       "cc late.c -o late && ./late $P/lib/libdoorbell.so && EMU_STRICT=1 ./late $P/lib/libdoorbell.so",
       EMULATED);
}

/* MPI is only loaded by processes that mpirun starts; the command finds the emulator beside it. */
static void the_command_runs(void **state) {
  no_sanitizers();
  DONE("! readelf -d $P/bin/doorbell $P/lib/libdoorbell.so | grep -i 'NEEDED.*mpi'");
  DONE("$P/bin/doorbell emu -- $P/bin/doorbell devices");
  assert_contains(out, "AMD                  gfx1100");
  DONE("test -s $P/share/man/man1/doorbell.1 -a -s $P/share/man/man1/doorbell-run.1");
  DONE("cd $P/share/man/man3 && cat db_add.3 $(sed -n 's|.so man3/||p' db_add.3)");
  assert_contains(out, "db_add(a, b)");
  DONE("test -s $P/share/man/man3/db_queue_submit.3 -a -s $P/share/man/man3/db_jit_call.3");
  DONE("test -s $P/share/bash-completion/completions/doorbell");
}

/* Compiles an OpenCL C kernel with the README's clang line, and with the command alone, which contains the header. */
static void opencl_compiles(void **state) {
  no_sanitizers();
  char *build = command_of("clang-19 -x cl");
  static const char run[] = "--grid 2 --block 32 --arg f32[64]=ones --arg f32[64]=iota --arg f32:2 --arg u32:64";
  DONE("sed '/#include/d' %s/bench/kernels/saxpy.cl >saxpy.cl && %s", ROOT, build);
  free(build);
  DONE("$P/bin/doorbell run saxpy.co --dev %s %s", EMULATED, run);
  assert_contains(out, "f32[64] = 1 3 5 7");
  DONE("$P/bin/doorbell run saxpy.cl --dev %s %s", EMULATED, run);
  assert_contains(out, "f32[64] = 1 3 5 7");
}

/* DESTDIR, the variables for folders, and uninstall, which leaves no files. */
static void installs_into_the_given_folders(void **state) {
  const char *where = "DESTDIR=$P/staged PREFIX=/opt/x LIBDIR=/opt/x/lib/multi MANDIR=/opt/man";
  DONE("make -s -C %s B=$(dirname %s) install-files %s", ROOT, DOORBELL, where);
  DONE("cd $P/staged/opt && test -x x/bin/doorbell && test -L x/lib/multi/libdoorbell.so && test -s "
       "man/man1/doorbell.1 && "
       "grep -qx 'libdir=/opt/x/lib/multi' x/lib/multi/pkgconfig/doorbell.pc");
  DONE("make -s -C %s B=$(dirname %s) uninstall %s && find $P/staged ! -type d", ROOT, DOORBELL, where);
  assert_string_equal(out, "");
}

static int install(void **state) {
  static const char *const files[] = {ROOT "/README.md", ROOT "/frontend/README.md", ROOT "/hcq/README.md"};
  size_t n = 0;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    FILE *f = fopen(files[i], "r");
    if (!f) return -1;
    n += fread(readme + n, 1, sizeof readme - 1 - n, f);
    fclose(f);
  }
  readme[n] = 0;
  if (!mkdtemp(dir)) return -1;
  unsetenv("MAKEFLAGS"); /* set by the make that runs the suites */
  unsetenv("MFLAGS");
  int status = shell("make -s -C %s B=$(dirname %s) install-files PREFIX=$P", ROOT, DOORBELL);
  if (status) print_message("%s\n", out);
  return status;
}
static int clean(void **state) { return shell("rm -rf %s", dir); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_example_runs),
      cmocka_unit_test(pieces_compile_and_run),
      cmocka_unit_test(links_with_the_archive),
      cmocka_unit_test(the_library_loads_at_run_time),
      cmocka_unit_test(the_command_runs),
      cmocka_unit_test(opencl_compiles),
      cmocka_unit_test(installs_into_the_given_folders),
  };
  return cmocka_run_group_tests(tests, install, clean);
}
