/* The caches: the same kernel from memory and from disk, and every way a file can be wrong. */
#include "kernels.h"
#include "compiler/internal.h"
#include <dirent.h>
#include <sys/stat.h>
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
    assert_int_equal(each_file(NULL), i + 1); /* nothing temporary is left */
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

static void wrong_files_are_compiled_again(void **state) {
  each_file(delete);
  assert_false(from_disk("gfx1100", NULL, NULL));
  static const int64_t cuts[] = {0, 1, 31, 32, 100, -1, -100};
  for (unsigned i = 0; i < sizeof cuts / sizeof *cuts; i++) {
    cut = cuts[i];
    each_file(truncate_file);
    assert_false(from_disk("gfx1100", NULL, NULL)); /* and writes it anew */
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
}

static void a_folder_that_cannot_be_written_is_no_error(void **state) {
  struct compiler *c = compiler_new(&(struct compiler_options){.cache_dir = "/proc/no/such/place"});
  assert_false(must_compile(c, "gfx1100", cases[0].ast)->from_disk);
  compiler_free(c);
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

/* Keys are the structure: equal across graphs, different for whatever differs. */
static void keys(void **state) {
  size_t na, nb;
  uint64_t ha, hb;
  const struct target *t = target_find("gfx1100"), *h = target_find(HOST_ARCH);
  for (unsigned i = 0; i < ncases; i++) {
    struct graph *other = graph_new();
    for (int junk = 0; junk < 100; junk++) uop_index(other, junk + 1000);
    void *a = ast_key(cases[i].ast, t, &na, &ha), *b = ast_key(uop_import(other, cases[i].ast), t, &nb, &hb);
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    assert_int_equal(ha, hb);
    free(b);
    b = ast_key(cases[i].ast, h, &nb, &hb);
    assert_true(na != nb || memcmp(a, b, na));
    free(b);
    for (unsigned j = 0; j < i; j++) {
      b = ast_key(cases[j].ast, t, &nb, &hb);
      assert_true(na != nb || memcmp(a, b, na));
      assert_true(ha != hb);
      free(b);
    }
    free(a);
    graph_free(other);
  }
}

static void options_and_targets_do_not_mix(void **state) {
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
      cmocka_unit_test(a_folder_that_cannot_be_written_is_no_error),
      cmocka_unit_test(folders_are_made),
      cmocka_unit_test(keys),
      cmocka_unit_test(options_and_targets_do_not_mix),
      cmocka_unit_test(deterministic),
  };
  return cmocka_run_group_tests_name("compiler/cache", tests, setup, teardown);
}
