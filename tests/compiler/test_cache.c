/* The caches: the same kernel from memory and from disk, and every way in which a file can be wrong. */
#define _GNU_SOURCE /* asprintf */
#include "kernels.h"
#include "compiler/internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <llvm-c/TargetMachine.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char dir[64];

static int setup(void **state) {
  G = graph_new();
  make_cases();
  snprintf(dir, sizeof dir, "/tmp/test_cache.XXXXXX");
  return !mkdtemp(dir);
}
static unsigned each_file(void (*f)(const char *path)) {
  DIR *d = opendir(dir);
  unsigned n = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    n++;
    if (f) f(path);
  }
  if (d) closedir(d);
  return n;
}
static void delete(const char *path) { unlink(path); }
static int teardown(void **state) {
  each_file(delete);
  rmdir(dir);
  graph_free(G);
  return 0;
}

static struct compiler *fresh(void) { return compiler_new(&(struct compiler_options){.cache_dir = dir}); }

/* Compiles case 0 with a new compiler. */
static bool from_disk(const char *arch, void **image, size_t *size) {
  struct compiler *c = fresh();
  const struct kernel *k = must_compile(c, arch, cases[0].ast);
  bool hit = k->from_disk;
  assert_int_equal(hit, k->assemble_ns == 0);
  if (image) {
    *image = malloc(k->image_size);
    memcpy(*image, k->image, k->image_size);
    *size = k->image_size;
  }
  compiler_free(c);
  return hit;
}

static void second_compile_comes_from_disk(void **state) {
  static const char *const arches[] = {"gfx1100", HOST_ARCH};
  for (unsigned i = 0; i < 2; i++) {
    void *a, *b;
    size_t na, nb;
    assert_false(from_disk(arches[i], &a, &na));
    assert_int_equal(each_file(NULL), i + 1); /* no temporary file is left */
    assert_true(from_disk(arches[i], &b, &nb));
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    free(a), free(b);
  }
}

static int64_t cut;
static void truncate_file(const char *path) {
  struct stat st;
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(truncate(path, cut < 0 ? st.st_size + cut : cut), 0);
}
static void flip(const char *path) {
  FILE *f = fopen(path, "r+");
  struct stat st;
  stat(path, &st);
  long where = cut < 0 ? (long)st.st_size + (long)cut : (long)cut;
  fseek(f, where, SEEK_SET);
  int c = fgetc(f);
  fseek(f, where, SEEK_SET);
  fputc(c ^ 0x40, f);
  fclose(f);
}
static void longer(const char *path) {
  FILE *f = fopen(path, "a");
  fputc(0, f);
  fclose(f);
}

static void make_fifo(const char *path) {
  assert_int_equal(unlink(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0);
}

static void wrong_files_are_compiled_again(void **state) {
  each_file(delete);
  assert_false(from_disk("gfx1100", NULL, NULL));
  static const int64_t cuts[] = {0, 1, 31, 32, 100, -1, -100};
  for (unsigned i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    cut = cuts[i];
    each_file(truncate_file);
    assert_false(from_disk("gfx1100", NULL, NULL)); /* and writes it again */
    assert_true(from_disk("gfx1100", NULL, NULL));
  }
  static const int64_t flips[] = {0, 8, 16, 19, 24, 40, 500, -1, -700};
  for (unsigned i = 0; i < sizeof flips / sizeof *flips; i++) {
    cut = flips[i];
    each_file(flip);
    assert_false(from_disk("gfx1100", NULL, NULL));
    assert_true(from_disk("gfx1100", NULL, NULL));
  }
  each_file(longer);
  assert_false(from_disk("gfx1100", NULL, NULL));
  assert_true(from_disk("gfx1100", NULL, NULL));
  each_file(make_fifo);
  assert_false(from_disk("gfx1100", NULL, NULL));
  assert_true(from_disk("gfx1100", NULL, NULL));
}

static void an_unwritable_folder_is_not_an_error(void **state) {
  struct compiler *c = compiler_new(&(struct compiler_options){.cache_dir = "/proc/no/such/place"});
  assert_false(must_compile(c, "gfx1100", cases[0].ast)->from_disk);
  assert_string_equal(compiler_no_disk(c), "/proc/no/such/place: No such file or directory");
  compiler_free(c);
}

/* The kernel can be used, the reason is reported, and no file remains. Errors of a full disk and of a file size limit
 * are handled in the same way. */
static void a_full_disk_is_not_an_error(void **state) {
  char full[96], path[160], expected[160];
  struct rlimit old, small;
  snprintf(full, sizeof full, "%s/.full", dir);
  snprintf(expected, sizeof expected, "%s: %s", full, strerror(EFBIG));
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  small.rlim_cur = 512;
  struct compiler *c = compiler_new(&(struct compiler_options){.cache_dir = full});
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  const struct kernel *k = must_compile(c, "gfx1100", cases[0].ast);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);
  assert_true(k->image && !k->from_disk);
  assert_string_equal(compiler_no_disk(c), expected);
  compiler_free(c);
  assert_int_equal(rmdir(full), 0); /* it is empty */
  c = compiler_new(&(struct compiler_options){.cache_dir = full});
  assert_false(must_compile(c, "gfx1100", cases[0].ast)->from_disk);
  assert_null(compiler_no_disk(c));
  compiler_free(c);
  snprintf(path, sizeof path, "rm -r %s", full);
  assert_int_equal(system(path), 0);
}

static void folders_are_made(void **state) {
  char deep[128], path[160];
  snprintf(deep, sizeof deep, "%s/.a/b/c", dir);
  struct compiler *c = compiler_new(&(struct compiler_options){.cache_dir = deep});
  must_compile(c, "gfx1100", cases[0].ast);
  compiler_free(c);
  c = compiler_new(&(struct compiler_options){.cache_dir = deep});
  assert_true(must_compile(c, "gfx1100", cases[0].ast)->from_disk);
  compiler_free(c);
  snprintf(path, sizeof path, "rm -r %s/.a", dir);
  assert_int_equal(system(path), 0);
}

/* Keys represent the structure: equal across graphs, different for every difference. */
static void keys(void **state) {
  size_t na, nb;
  uint64_t ha, hb;
  const struct target *t = target_find("gfx1100"), *h = target_find(HOST_ARCH);
  for (unsigned i = 0; i < ncases; i++) {
    struct graph *other = graph_new();
    for (int junk = 0; junk < 100; junk++) uop_index(other, junk + 1000);
    void *a = ast_key(cases[i].ast, t, "", &na, &ha), *b = ast_key(uop_import(other, cases[i].ast), t, "", &nb, &hb);
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    assert_int_equal(ha, hb);
    free(b);
    b = ast_key(cases[i].ast, h, "", &nb, &hb);
    assert_true(na != nb || memcmp(a, b, na));
    free(b);
    b = ast_key(cases[i].ast, t, "1 ", &nb, &hb); /* another plan */
    assert_true(na != nb || memcmp(a, b, na));
    free(b);
    for (unsigned j = 0; j < i; j++) {
      b = ast_key(cases[j].ast, t, "", &nb, &hb);
      assert_true(na != nb || memcmp(a, b, na));
      assert_true(ha != hb);
      free(b);
    }
    free(a);
    graph_free(other);
  }
}

/* An image is found only with the recipe that made it. */
static void recipes_do_not_mix(void **state) {
  const struct target *gpu = target_find("gfx1100"), *cpu = target_find(HOST_ARCH);
  struct target t[6] = {*gpu, *gpu, *gpu, *gpu, *gpu, *cpu};
  struct code_options o[6];
  for (unsigned i = 0; i < 6; i++) o[i] = *code_options_of(i == 5 ? cpu : gpu);
  t[1].arch = "gfx1101", t[2].cpu = "gfx1101", t[3].features = "+wavefrontsize64", t[4].triple = "amdgcn-mesa-mesa3d";
  o[0].passes = "function(sroa)";
  o[1].level++, o[2].relocation++, o[3].model++;
  char *recipe[16];
  unsigned n = 0;
  recipe[n++] = code_recipe(gpu, code_options_of(gpu), "", "");
  recipe[n++] = code_recipe(gpu, code_options_of(gpu), "ptxas 1", "");
  for (unsigned i = 1; i < 6; i++) recipe[n++] = code_recipe(&t[i], code_options_of(i == 5 ? cpu : gpu), "", "");
  for (unsigned i = 0; i < 4; i++) recipe[n++] = code_recipe(gpu, &o[i], "", "");
  recipe[n++] = code_recipe(gpu, code_options_of(gpu), "", "upcast a:4");
  for (unsigned i = 0; i < n; i++) {
    void *image;
    size_t size;
    for (unsigned k = i; k < n; k++) assert_false(disk_cache_get(dir, recipe[k], "text", &image, &size));
    disk_cache_put(dir, recipe[i], "text", &i, sizeof i);
    for (unsigned k = 0; k <= i; k++) {
      assert_true(disk_cache_get(dir, recipe[k], "text", &image, &size));
      assert_memory_equal(image, &k, sizeof k);
      free(image);
    }
  }
  /* kernels for a GPU do not depend on the host: the processor is only part of the recipe of host kernels */
  char *processor = LLVMGetHostCPUName(), *wanted;
  assert_true(asprintf(&wanted, "cpu %s\n", processor) > 0);
  assert_null(strstr(recipe[0], wanted));
  assert_non_null(strstr(recipe[6], wanted));
  LLVMDisposeMessage(processor);
  free(wanted);
  for (unsigned i = 0; i < n; i++) free(recipe[i]);
  each_file(delete);
}

/* A name collision is a miss: a file with the name of another recipe's file. */
static char other_name[400];
static void rename_to_other(const char *path) {
  if (!other_name[0])
    snprintf(other_name, sizeof other_name, "%s", path);
  else
    assert_int_equal(rename(path, other_name), 0);
}
static void names_may_collide(void **state) {
  void *image;
  size_t size;
  other_name[0] = 0;
  disk_cache_put(dir, "recipe 1", "text", "first", 5);
  each_file(rename_to_other);
  disk_cache_put(dir, "recipe 2", "text", "other", 5);
  char kept[400];
  snprintf(kept, sizeof kept, "%s", other_name);
  DIR *d = opendir(dir);
  for (struct dirent *e; (e = readdir(d));) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    if (e->d_name[0] != '.' && strcmp(path, kept)) assert_int_equal(rename(path, kept), 0);
  }
  closedir(d);
  assert_false(disk_cache_get(dir, "recipe 1", "text", &image, &size));
  each_file(delete);
}

static void age(const char *path) {
  struct timespec old[2] = {{.tv_sec = time(NULL) - 3600}, {.tv_sec = time(NULL) - 3600}};
  assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
}

/* Writing a kernel removes the temporary file of a killed writer; the file of a live writer and other files remain. */
static void killed_writers_are_swept(void **state) {
  static const char *const names[] = {"0123.dbk.abc123", "4567.dbk.live00", "89ab.dbk", "notes.dbk.tomorrow", "notes"};
  char path[5][400];
  for (unsigned i = 0; i < 5; i++) {
    snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
    fclose(fopen(path[i], "w"));
  }
  char young[400];
  snprintf(young, sizeof young, "%s/cdef.dbk.young0", dir);
  each_file(age);
  fclose(fopen(young, "w"));
  int go[2];
  assert_int_equal(pipe(go), 0);
  pid_t child = fork();
  if (!child) {
    char c = 1;
    int fd = open(path[1], O_RDWR);
    if (flock(fd, LOCK_EX) || write(go[1], &c, 1) != 1) _exit(1);
    pause();
  }
  char c;
  assert_int_equal(read(go[0], &c, 1), 1);
  assert_false(from_disk("gfx1100", NULL, NULL));
  assert_int_equal(access(path[0], F_OK), -1);
  for (unsigned i = 1; i < 5; i++) assert_int_equal(access(path[i], F_OK), 0);
  assert_int_equal(access(young, F_OK), 0);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  disk_cache_sweep(dir);
  assert_int_equal(access(path[1], F_OK), -1);
  close(go[0]), close(go[1]);
  each_file(delete);
}

/* A matmul compiled in five ways into one folder, each twice: the second time each finds its own image. */
static void options_and_targets_do_not_mix(void **state) {
  static const struct {
    bool noopt;
    const char *plan;
  } ways[] = {{.noopt = true}, {.noopt = false}, {.plan = "upcast a:4"}, {.plan = "upcast a:8"}, {.plan = "E_1 ="}};
  enum { WAYS = sizeof ways / sizeof *ways };
  void *image[WAYS];
  size_t size[WAYS];
  char *plan[WAYS];
  each_file(delete);
  for (unsigned i = 0; i < 2 * WAYS; i++) {
    unsigned w = i % WAYS;
    struct compiler *both =
        compiler_new(&(struct compiler_options){.cache_dir = dir, .noopt = ways[w].noopt, .plan = ways[w].plan});
    const struct kernel *k = must_compile(both, HOST_ARCH, case_named("matmul 64")->ast);
    assert_int_equal(k->from_disk, i >= WAYS - 1); /* the last plan is for another kernel, so the optimizer chooses */
    float a[64 * 64], b[64 * 64], out[64 * 64] = {0};
    for (int e = 0; e < 64 * 64; e++) a[e] = (float)(e % 64 == e / 64), b[e] = (float)e;
    run_host(k, (void *[]){out, a, b}, 0);
    assert_memory_equal(out, b, sizeof b);
    if (i < WAYS) {
      image[w] = malloc(size[w] = k->image_size);
      memcpy(image[w], k->image, size[w]);
      plan[w] = strdup(k->plan);
    }
    assert_int_equal(size[w], k->image_size);
    assert_memory_equal(image[w], k->image, size[w]);
    assert_string_equal(plan[w], k->plan);
    for (unsigned j = 0; j < w && w < WAYS - 1; j++)
      assert_true(size[j] != size[w] || memcmp(image[j], image[w], size[w]));
    compiler_free(both);
  }
  assert_int_equal(each_file(NULL), WAYS - 1);
  assert_string_equal(plan[2], "upcast a:4");
  assert_string_equal(plan[4], plan[1]);
  for (unsigned w = 0; w < WAYS; w++) free(image[w]), free(plan[w]);
  struct compiler *c = fresh();
  const struct kernel *gpu = must_compile(c, "gfx1100", cases[0].ast), *host = must_compile(c, HOST_ARCH, cases[0].ast);
  assert_ptr_not_equal(gpu, host);
  assert_ptr_equal(must_compile(c, "gfx1100", cases[0].ast), gpu);
  compiler_free(c);
}

/* The same ast compiles to the same bytes, text for text. */
static void deterministic(void **state) {
  for (unsigned i = 0; i < ncases; i += 3) {
    struct compiler *a = compiler_new(&(struct compiler_options){.debug = 6}),
                    *b = compiler_new(&(struct compiler_options){.debug = 6});
    struct graph *other = graph_new();
    for (int junk = 0; junk < 77; junk++) uop_index(other, junk + 1000);
    const struct kernel *x = must_compile(a, "gfx1100", cases[i].ast),
                        *y = must_compile(b, "gfx1100", uop_import(other, cases[i].ast));
    assert_string_equal(x->c_text, y->c_text);
    assert_string_equal(x->linear_text, y->linear_text);
    assert_int_equal(x->image_size, y->image_size);
    assert_memory_equal(x->image, y->image, x->image_size);
    graph_free(other);
    compiler_free(a);
    compiler_free(b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(second_compile_comes_from_disk),
      cmocka_unit_test(wrong_files_are_compiled_again),
      cmocka_unit_test(an_unwritable_folder_is_not_an_error),
      cmocka_unit_test(a_full_disk_is_not_an_error),
      cmocka_unit_test(folders_are_made),
      cmocka_unit_test(keys),
      cmocka_unit_test(recipes_do_not_mix),
      cmocka_unit_test(names_may_collide),
      cmocka_unit_test(killed_writers_are_swept),
      cmocka_unit_test(options_and_targets_do_not_mix),
      cmocka_unit_test(deterministic),
  };
  return cmocka_run_group_tests_name("compiler/cache", tests, setup, teardown);
}
