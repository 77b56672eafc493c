/* The cubin loader: files of ptxas 12.4 and 13.0 and of nvlink (tests/data/nv/cubin) compared with the output of
 * cuobjdump and readelf, relocated code with nvdisasm, and malformed files, for each of which the message must name the
 * problem. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hcq/nv/cubin/cubin.h"

const char *db_error(void);

struct bytes {
  uint8_t *p;
  size_t n;
};
static struct bytes read_cubin(const char *name) {
  struct bytes b = {0};
  char path[512];
  snprintf(path, sizeof path, DATA_DIR "/nv/cubin/%s.cubin", name);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("cannot open %s", path);
  fseek(f, 0, SEEK_END);
  b.n = (size_t)ftell(f);
  rewind(f);
  b.p = malloc(b.n);
  assert_int_equal(fread(b.p, 1, b.n, f), b.n);
  fclose(f);
  return b;
}
static struct bytes open_ok(struct cubin *c, const char *name) {
  struct bytes b = read_cubin(name);
  if (cubin_open(c, b.p, b.n)) fail_msg("%s: %s", name, db_error());
  return b;
}
static const struct cubin_kernel *find(const struct cubin *c, const char *name) {
  const struct cubin_kernel *k = cubin_find(c, name);
  if (!k) fail_msg("%s", db_error());
  return k;
}

/* ---- metadata ---- */

struct expected {
  const char *name;
  uint32_t registers, barriers, shared, local, calls, max_threads, params[8]; /* offset, size, ... */
};
/* cuobjdump -elf: REGCOUNT, NUM_BARRIERS or the section's BAR, MIN_STACK_SIZE, KPARAM_INFO; readelf: .nv.shared.* */
static const struct expected sm_80_by_12[] = {
    {"saxpy", 10, 0, 0, 0, 0, 0, {0, 8, 8, 8, 16, 4, 20, 4}},
    {"structs", 12, 0, 0, 0, 0, 0, {0, 56, 56, 8, 64, 1, 66, 2}},
    {"shares", 16, 1, 1024, 0, 0, 128, {0, 8, 8, 4}},
    {"globals", 16, 0, 0, 0, 0, 0, {0, 8}},
    {"calls", 24, 0, 0, 0, 1, 0, {0, 8, 8, 4}},
    {"locals", 30, 0, 0, 256, 0, 0, {0, 8, 8, 4}},
    {"sizes", 22, 0, 0, 0, 0, 0, {0, 8}},
    {0},
};
static const struct expected sm_90_by_12[] = {
    {"saxpy", 10, 0, 1024, 0, 0, 0, {0, 8, 8, 8, 16, 4, 20, 4}},
    {"structs", 12, 0, 1024, 0, 0, 0, {0, 56, 56, 8, 64, 1, 66, 2}},
    {"shares", 18, 1, 2048, 0, 0, 128, {0, 8, 8, 4}},
    {"globals", 16, 0, 1024, 0, 0, 0, {0, 8}},
    {"calls", 24, 0, 1024, 0, 1, 0, {0, 8, 8, 4}},
    {"locals", 30, 0, 1024, 256, 0, 0, {0, 8, 8, 4}},
    {"sizes", 22, 0, 1024, 0, 0, 0, {0, 8}},
    {0},
};
static const struct expected sm_120_by_13[] = {
    {"saxpy", 10, 0, 1024, 0, 0, 0, {0, 8, 8, 8, 16, 4, 20, 4}},
    {"structs", 10, 0, 1024, 0, 0, 0, {0, 56, 56, 8, 64, 1, 66, 2}},
    {"shares", 17, 1, 2048, 0, 0, 128, {0, 8, 8, 4}},
    {"globals", 16, 0, 1024, 0, 0, 0, {0, 8}},
    {"calls", 30, 0, 1024, 0, 1, 0, {0, 8, 8, 4}},
    {"locals", 38, 0, 1024, 256, 0, 0, {0, 8, 8, 4}},
    {"sizes", 22, 0, 1024, 0, 0, 0, {0, 8}},
    {0},
};
static const struct expected linked_80[] = {{"linked", 24, 1, 16, 0, 1, 0, {0, 8, 8, 4}}, {0}};
static const struct expected linked_90[] = {{"linked", 24, 1, 1040, 0, 1, 0, {0, 8, 8, 4}}, {0}};
static const struct {
  const char *file;
  unsigned sm, param_base;
  const struct expected *kernels;
} files[] = {
    {"12.4.sm_80", 80, 0x160, sm_80_by_12},      {"12.4.sm_90", 90, 0x210, sm_90_by_12},
    {"13.0.sm_90", 90, 0x210, sm_90_by_12},      {"13.0.sm_120", 120, 0x380, sm_120_by_13},
    {"13.0.sm_80.linked", 80, 0x160, linked_80}, {"13.0.sm_90.linked", 90, 0x210, linked_90},
};

static void metadata(void **state) {
  for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
    struct cubin c;
    struct bytes b = open_ok(&c, files[f].file);
    assert_int_equal(c.sm, files[f].sm);
    unsigned n = 0;
    for (const struct expected *e = files[f].kernels; e->name; e++, n++) {
      const struct cubin_kernel *k = find(&c, e->name);
      if (k->registers != e->registers || k->barriers != e->barriers || k->shared_bytes != e->shared ||
          k->local_bytes != e->local || k->calls != e->calls || k->max_threads != e->max_threads)
        fail_msg("%s %s: %u registers, %u barriers, %u shared, %u local, calls %d, %u threads", files[f].file, e->name,
                 k->registers, k->barriers, k->shared_bytes, k->local_bytes, k->calls, k->max_threads);
      assert_int_equal(k->param_base, files[f].param_base);
      for (unsigned i = 0; i < 4; i++) {
        if (!e->params[2 * i + 1]) assert_int_equal(k->nparams, i);
        if (!e->params[2 * i + 1]) break;
        assert_true(k->nparams > i);
        assert_int_equal(k->params[i].offset, e->params[2 * i]);
        assert_int_equal(k->params[i].size, e->params[2 * i + 1]);
      }
      assert_null(k->missing);
      assert_int_equal(k->entry % 128, 0);
      assert_true(k->entry + k->code_bytes <= c.size);
      assert_int_equal(k->cluster[0] * k->cluster[1] * k->cluster[2], 1);
    }
    assert_int_equal(c.nkernels, n);
    cubin_close(&c);
    free(b.p);
  }
}

static void finds_kernels_by_name(void **state) {
  struct cubin c;
  struct bytes b = open_ok(&c, "13.0.sm_90");
  assert_null(cubin_find(&c, NULL));
  assert_non_null(strstr(db_error(), "7 kernels (calls, "));
  assert_null(cubin_find(&c, "nothing"));
  assert_non_null(strstr(db_error(), "no kernel nothing; it has: calls, globals"));
  cubin_close(&c);
  free(b.p);
  b = open_ok(&c, "13.0.sm_90.linked");
  assert_string_equal(find(&c, NULL)->name, "linked");
  cubin_close(&c);
  free(b.p);
}

/* Only the kernel that calls vprintf needs it. */
static void missing_functions(void **state) {
  struct cubin c;
  struct bytes b = open_ok(&c, "13.0.sm_90.printf");
  assert_string_equal(find(&c, "prints")->missing, "vprintf");
  assert_null(find(&c, "silent")->missing);
  assert_int_equal(find(&c, "prints")->local_bytes, 8);
  cubin_close(&c);
  free(b.p);
}

/* ---- the image ---- */

static uint64_t load64(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}
static uint32_t load32(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}

static uint8_t *load(const struct cubin *c, uint64_t address) {
  uint8_t *image = malloc(c->size);
  memset(image, 0xaa, c->size);
  if (cubin_load(c, image, address)) fail_msg("%s", db_error());
  return image;
}

/* Constant banks and global variables: bank 3 is the __constant__ table, bank 4 holds addresses of three globals, one
 * of which points into another. Offsets by readelf -r. */
static void relocates_data(void **state) {
  static const char *const names[] = {"12.4.sm_80", "12.4.sm_90", "13.0.sm_90", "13.0.sm_120"};
  for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
    struct cubin c;
    struct bytes b = open_ok(&c, names[f]);
    uint64_t address = 0x7f1234567000;
    uint8_t *image = load(&c, address);
    const struct cubin_kernel *k = find(&c, "globals");
    assert_int_equal(k->bank[3].size, 16);
    assert_int_equal(k->bank[4].size, 24);
    assert_int_equal(k->bank[2].size, 0);
    assert_int_equal(find(&c, "calls")->bank[2].size, 24); /* offsets of its functions */
    for (int i = 0; i < 4; i++) assert_int_equal(load32(image + k->bank[3].offset + 4 * i), 10 * (i + 1));
    const uint8_t *bank4 = image + k->bank[4].offset;
    uint64_t counter = load64(bank4) - address, values = load64(bank4 + 8) - address,
             third = load64(bank4 + 16) - address;
    assert_true(counter + 4 <= c.size && values + 16 <= c.size && third + 8 <= c.size);
    assert_int_equal(load32(image + counter), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(load32(image + values + 4 * i), i + 1);
    assert_true(load64(image + third) == address + values + 8);
    for (unsigned i = 0; i < c.nkernels; i++)
      for (unsigned j = 0; j < CUBIN_BANKS; j++) assert_int_equal(c.kernels[i].bank[j].offset % 256, 0);
    free(image);
    cubin_close(&c);
    free(b.p);
  }
}

/* Offset in the image of the function that a relocated instruction refers to: an entry of the linked files' function
 * table. Functions are 128-byte aligned. */
static uint64_t target_of(const uint8_t *image, uint64_t at, bool split) {
  uint64_t lo = load64(image + at), hi = load64(image + at + 8), field = lo >> 34 | (hi & 0x1ffff) << 30;
  return split ? field << 10 | (lo >> 16 & 0xff) << 2 : field << 2;
}

/* Code relocations at the offsets that readelf -r lists: MOV pairs (R_CUDA_ABS32_LO_32, _HI_32) and calls
 * (R_CUDA_ABS47_34 on sm_80, R_CUDA_ABS55_16_34 on sm_90), at an address that uses all of their bits. */
static void relocates_code(void **state) {
  static const struct {
    const char *file;
    uint32_t lo, hi, call, global_lo, global_hi, return_lo, return_to;
  } want[] = {
      {"13.0.sm_80.linked", 0x80, 0xa0, 0xf0, 0x100, 0x110, 0xd0, 0x100},
      {"13.0.sm_90.linked", 0x90, 0xb0, 0x110, 0x120, 0x130, 0xf0, 0x120},
  };
  for (size_t f = 0; f < 2; f++) {
    struct cubin c;
    struct bytes b = open_ok(&c, want[f].file);
    uint64_t address = 0x00fedcba98765400, first;
    uint8_t *image = load(&c, address);
    const struct cubin_kernel *k = find(&c, NULL);
    const uint8_t *text = image + k->entry;
    first = load32(text + want[f].lo + 4) | (uint64_t)load32(text + want[f].hi + 4) << 32;
    assert_true(first >= address && first < address + c.size && first % 128 == 0 && first != address + k->entry);
    uint64_t target = target_of(image, k->entry + want[f].call, f == 1);
    if (f == 0) target |= first & (0xffull << 49); /* 47 bits of dwords reach 49 bits of address */
    assert_true(target == first);
    uint64_t global = load32(text + want[f].global_lo + 4) | (uint64_t)load32(text + want[f].global_hi + 4) << 32;
    assert_int_equal(load32(image + (global - address)), 5);
    assert_true(load32(text + want[f].return_lo + 4) == (uint32_t)(address + k->entry + want[f].return_to));
    free(image);
    cubin_close(&c);
    free(b.p);
  }
}

/* nvdisasm prints the call's target. */
static void code_as_nvdisasm_prints_it(void **state) {
  const char *nvdisasm = getenv("NVDISASM") ?: "nvdisasm";
  char command[700], line[256], path[] = "/tmp/doorbell-cubin-XXXXXX";
  snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", nvdisasm);
  if (system(command)) skip();
  for (int f = 0; f < 2; f++) {
    struct cubin c;
    struct bytes b = open_ok(&c, f ? "13.0.sm_90.linked" : "13.0.sm_80.linked");
    uint64_t address = 0x123456789a00;
    uint8_t *image = load(&c, address);
    const struct cubin_kernel *k = find(&c, NULL);
    strcpy(path + sizeof path - 7, "XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *raw = fdopen(fd, "wb");
    assert_int_equal(fwrite(image + k->entry, 1, k->code_bytes, raw), k->code_bytes);
    fclose(raw);
    snprintf(command, sizeof command, "%s -b SM%u %s", nvdisasm, c.sm, path);
    FILE *p = popen(command, "r");
    unsigned long long target = 0;
    while (fgets(line, sizeof line, p)) {
      const char *call = strstr(line, "CALL.ABS.NOINC 0x");
      if (call) target = strtoull(call + strlen("CALL.ABS.NOINC "), NULL, 16);
    }
    pclose(p);
    remove(path);
    uint64_t want =
        load32(image + k->entry + (f ? 0x94 : 0x84)) | (uint64_t)load32(image + k->entry + (f ? 0xb4 : 0xa4)) << 32;
    assert_true(target == want);
    free(image);
    cubin_close(&c);
    free(b.p);
  }
}

/* ---- malformed files ---- */

static void expect_failure(const struct bytes b, const char *message) {
  struct cubin c;
  if (!cubin_open(&c, b.p, b.n)) fail_msg("a file with %s was opened", message);
  if (!strstr(db_error(), message)) fail_msg("%s, expected %s", db_error(), message);
}
static Elf64_Shdr *section(struct bytes b, const char *name) {
  Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)b.p;
  Elf64_Shdr *s = (Elf64_Shdr *)(void *)(b.p + h->e_shoff);
  for (unsigned i = 0; i < h->e_shnum; i++)
    if (!strcmp((char *)b.p + s[h->e_shstrndx].sh_offset + s[i].sh_name, name)) return &s[i];
  fail_msg("no section %s", name);
  return NULL;
}
/* The value of the attribute's first record. */
static uint8_t *attribute(struct bytes b, const char *name, uint8_t attr) {
  Elf64_Shdr *s = section(b, name);
  for (uint8_t *p = b.p + s->sh_offset; p < b.p + s->sh_offset + s->sh_size;) {
    if (p[1] == attr) return p[0] == 4 ? p + 4 : p + 2;
    p += 4 + (p[0] == 4 ? p[2] | p[3] << 8 : 0);
  }
  fail_msg("no attribute 0x%x in %s", attr, name);
  return NULL;
}

static void refuses_malformed_files(void **state) {
#define DAMAGE(message, ...)                                                                                           \
  do {                                                                                                                 \
    struct bytes b = read_cubin("13.0.sm_90");                                                                         \
    Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)b.p;                                                                         \
    (void)h;                                                                                                           \
    __VA_ARGS__;                                                                                                       \
    expect_failure(b, message);                                                                                        \
    free(b.p);                                                                                                         \
  } while (0)
  DAMAGE("the program is for x86_64, not for an NVIDIA GPU", h->e_machine = 62, h->e_type = 3);
  DAMAGE("unlinked cubin", h->e_type = 1);
  DAMAGE("ABI version 9", h->e_ident[8] = 9);
  DAMAGE("with flags 0x0", h->e_flags = 0);
  DAMAGE("runs past the end of the file", section(b, ".text.saxpy")->sh_size = 1 << 20);
  DAMAGE("runs past the end of .nv.info.saxpy", attribute(b, ".nv.info.saxpy", 0x17)[-1] = 0x7f);
  DAMAGE("a record of format 0", attribute(b, ".nv.info.saxpy", 0x17)[-4] = 0);
  DAMAGE("ends inside a record", section(b, ".nv.info.saxpy")->sh_size -= 6);
  DAMAGE("attribute 0x17 has 4 bytes", attribute(b, ".nv.info.saxpy", 0x17)[-2] = 4);
  DAMAGE("parameter 3 is listed twice", attribute(b, ".nv.info.saxpy", 0x17)[12 + 4 + 4] = 3);
  DAMAGE("parameter 3 has no size", memset(attribute(b, ".nv.info.saxpy", 0x17) + 8, 0, 4));
  DAMAGE("does not describe parameter", attribute(b, ".nv.info.saxpy", 0x17)[4] = 9);
  DAMAGE("parameter 3, 4 bytes at 32, exceeds the 24", attribute(b, ".nv.info.saxpy", 0x17)[6] = 32);
  DAMAGE("uses 0 registers", memset(attribute(b, ".nv.info", 0x2f) + 4, 0, 4));
  DAMAGE("uses 511 registers", memset(attribute(b, ".nv.info", 0x2f) + 4, 0xff, 1);
         attribute(b, ".nv.info", 0x2f)[5] = 1);
  DAMAGE("uses 17 barriers", attribute(b, ".nv.info.shares", 0x4c)[0] = 17);
  DAMAGE("of shared and", section(b, ".nv.shared.saxpy")->sh_size = 1 << 30);
  DAMAGE("has alignment 0x180", section(b, ".text.saxpy")->sh_addralign = 0x180);
  DAMAGE("more than 1 GiB", section(b, ".nv.global")->sh_size = 1ull << 40);
  DAMAGE("bytes at 0x7f, is not inside its section", Elf64_Shdr *s = section(b, ".symtab");
         for (Elf64_Sym *y = (Elf64_Sym *)(void *)(b.p + s->sh_offset), *end = y + s->sh_size / 24; y < end;
              y++) if (y->st_other == 0x10) y->st_value = 0x7f);
  DAMAGE("the file has no kernel", Elf64_Shdr *s = section(b, ".symtab");
         for (Elf64_Sym *y = (Elf64_Sym *)(void *)(b.p + s->sh_offset), *end = y + s->sh_size / 24; y < end; y++)
             y->st_other = 0);
#undef DAMAGE
  expect_failure((struct bytes){(uint8_t *)"", 0}, "the file has 0 bytes");
}

/* Errors that only loading detects. */
static void malformed_relocations(void **state) {
  static const struct {
    const char *message;
    size_t offset; /* in the first Elf64_Rela of .rela.nv.constant4 */
    uint64_t value;
  } damages[] = {
      {"relocates 0x100, outside of its section", 0, 0x100},
      {"relocation of type 2 at 0x14 is outside", 0, 0x14},
      {"relocation type 5", 8, 9ull << 32 | 5},
      {"symbol 4096 of a table", 8, 4096ull << 32 | 2},
      {"relocation of type 1 at 0x0 cannot hold the address", 8, 9ull << 32 | 1},
  };
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
    struct bytes b = read_cubin("13.0.sm_90");
    Elf64_Rela *r = (Elf64_Rela *)(void *)(b.p + section(b, ".rela.nv.constant4")->sh_offset);
    r->r_offset = 0;
    memcpy((uint8_t *)r + damages[i].offset, &damages[i].value, 8);
    struct cubin c;
    assert_int_equal(cubin_open(&c, b.p, b.n), 0);
    uint8_t *image = malloc(c.size);
    assert_true(cubin_load(&c, image, 0x7f0000000000) < 0);
    if (!strstr(db_error(), damages[i].message)) fail_msg("%s, expected %s", db_error(), damages[i].message);
    free(image);
    cubin_close(&c);
    free(b.p);
  }
}

/* Every prefix of a file, and files with any byte of the tables changed, are accepted or rejected without harm. */
static void survives_damaged_files(void **state) {
  struct bytes b = read_cubin("13.0.sm_90.linked");
  for (size_t n = 0; n < b.n; n += 13) {
    uint8_t *prefix = malloc(n ? n : 1); /* so that a sanitizer detects reads past its end */
    memcpy(prefix, b.p, n);
    struct cubin c;
    if (!cubin_open(&c, prefix, n)) cubin_close(&c);
    free(prefix);
  }
  unsigned seed = 1, opened = 0;
  for (int i = 0; i < 3000; i++) {
    size_t at = (seed = seed * 1103515245 + 12345) / 65536 % b.n;
    uint8_t old = b.p[at];
    b.p[at] ^= (uint8_t)(1 + seed % 255);
    struct cubin c;
    if (!cubin_open(&c, b.p, b.n)) {
      uint8_t *image = c.size < 1 << 22 ? malloc(c.size) : NULL;
      if (image) cubin_load(&c, image, 0x100000000);
      free(image);
      cubin_close(&c);
      opened++;
    }
    b.p[at] = old;
  }
  assert_true(opened > 100 && opened < 3000);
  free(b.p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(metadata),
      cmocka_unit_test(finds_kernels_by_name),
      cmocka_unit_test(missing_functions),
      cmocka_unit_test(relocates_data),
      cmocka_unit_test(relocates_code),
      cmocka_unit_test(code_as_nvdisasm_prints_it),
      cmocka_unit_test(refuses_malformed_files),
      cmocka_unit_test(malformed_relocations),
      cmocka_unit_test(survives_damaged_files),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
