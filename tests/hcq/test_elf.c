/* ELF images: code from LLVM's C API is laid out, relocated and, if it is for the host, executed; AArch64 relocations
 * are read back with LLVM's disassembler. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include "hcq/elf/elf.h"
#include "llvm_emit.h"
#include <llvm-c/Disassembler.h>

const char *db_error(void);

struct loaded {
  struct elf elf;
  struct elf_image image;
  uint8_t *memory; /* of the image, at the address that it is linked for */
  void *object;
};

static int external_data = 1000;
static float external_function(float x, int k) { return x * 2 + (float)k; }
static uint64_t resolve(void *ctx, const char *name) {
  if (!strcmp(name, "external_data")) return (uintptr_t)&external_data;
  if (!strcmp(name, "external_function")) return (uintptr_t)external_function;
  return 0;
}

static void lay_out(struct loaded *l, const char *triple, const char *ir, LLVMRelocMode reloc, LLVMCodeModel model) {
  size_t size;
  *l = (struct loaded){.object = llvm_emit(triple, "", ir, reloc, model, &size)};
  if (elf_open(&l->elf, l->object, size)) fail_msg("%s", db_error());
  if (elf_image_layout(&l->image, &l->elf, 4096)) fail_msg("%s", db_error());
}
static void drop(struct loaded *l) {
  if (l->memory) munmap(l->memory, l->image.size);
  elf_image_free(&l->image);
  elf_close(&l->elf);
  free(l->object);
}
static uint64_t offset_of(const struct loaded *l, const char *name) {
  int symbol = elf_find_symbol(&l->elf, name);
  uint64_t offset = 0;
  if (symbol <= 0) fail_msg("no symbol %s", name);
  if (elf_image_symbol(&l->image, (unsigned)symbol, &offset)) fail_msg("%s", db_error());
  return offset;
}

/* Constants, a jump table, mutable data, and far functions and data. */
static const char program[] =
    "@table = internal constant [4 x float] [float 1.0, float 2.0, float 4.0, float 8.0], align 16\n"
    "@state = global i32 5, align 4\n"
    "@zeros = internal global [100 x i32] zeroinitializer, align 4\n"
    "@self = global ptr @state, align 8\n"
    "@external_data = external global i32\n"
    "declare float @external_function(float, i32)\n"
    "define float @run(i32 %i) {\n"
    "entry:\n"
    "  %p = getelementptr [4 x float], ptr @table, i32 0, i32 %i\n"
    "  %t = load float, ptr %p\n"
    "  %e = load i32, ptr @external_data\n"
    "  switch i32 %i, label %d [ i32 0, label %a  i32 1, label %b  i32 2, label %c  i32 3, label %f ]\n"
    "a: %ra = call float @external_function(float %t, i32 %e)\n  br label %out\n"
    "b: store volatile i32 %e, ptr @state\n  br label %out\n"
    "c: %rc = fneg float %t\n  br label %out\n"
    "f: %q = load ptr, ptr @self\n  %s = load volatile i32, ptr %q\n"
    "  %z = getelementptr [100 x i32], ptr @zeros, i32 0, i32 %i\n  store volatile i32 %s, ptr %z\n"
    "  %zv = load volatile i32, ptr %z\n  %rf = sitofp i32 %zv to float\n  br label %out\n"
    "d: unreachable\n"
    "out:\n"
    "  %r = phi float [ %ra, %a ], [ %t, %b ], [ %rc, %c ], [ %rf, %f ]\n"
    "  ret float %r\n"
    "}\n";

#if defined(__x86_64__)
static const char host[] = "x86_64-linux-gnu";
#elif defined(__aarch64__)
static const char host[] = "aarch64-linux-gnu";
#else
static const char host[] = "";
#endif

static void run_on_host(LLVMRelocMode reloc, LLVMCodeModel model, int map_flags) {
  if (!host[0]) skip();
  struct loaded l;
  lay_out(&l, host, program, reloc, model);
  l.memory = mmap(NULL, l.image.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | map_flags, -1, 0);
  assert_ptr_not_equal(l.memory, MAP_FAILED);
  if (elf_image_load(&l.image, l.memory, 0, l.image.size, (uintptr_t)l.memory, resolve, NULL))
    fail_msg("%s", db_error());
  unsigned all = 0;
  for (unsigned i = 0; i < l.image.nranges; i++) {
    const struct elf_range *r = &l.image.ranges[i];
    all |= r->access;
    assert_int_equal(mprotect(l.memory + r->offset, r->size,
                              (r->access & ELF_READ ? PROT_READ : 0) | (r->access & ELF_WRITE ? PROT_WRITE : 0) |
                                  (r->access & ELF_EXEC ? PROT_EXEC : 0)),
                     0);
  }
  assert_int_equal(all, ELF_READ | ELF_WRITE | ELF_EXEC);
  __builtin___clear_cache((char *)l.memory, (char *)l.memory + l.image.size);
  float (*run)(int) = (float (*)(int))(uintptr_t)(l.memory + offset_of(&l, "run"));
  assert_true(run(0) == 1002.0f); /* external_function(1, 1000) */
  assert_true(run(3) == 5.0f);    /* unchanged state */
  external_data = 77;
  assert_true(run(1) == 2.0f);
  assert_true(run(3) == 77.0f);
  assert_true(run(2) == -4.0f);
  external_data = 1000;
  drop(&l);
}
static void host_position_independent(void **state) { run_on_host(LLVMRelocPIC, LLVMCodeModelDefault, 0); }
#ifdef __x86_64__
/* Absolute 32-bit addresses reach the low 2 GiB only. The far data then needs the GOT, so it stays out of this
 * program. */
static void host_static_in_low_memory(void **state) {
  static const char ir[] = "@table = internal constant [4 x i32] [i32 11, i32 22, i32 33, i32 44], align 16\n"
                           "@a = global i32 9\n"
                           "declare float @external_function(float, i32)\n"
                           "define i32 @run(i32 %i) {\n"
                           "  %p = getelementptr [4 x i32], ptr @table, i32 0, i32 %i\n"
                           "  %t = load i32, ptr %p\n"
                           "  %u = ptrtoint ptr @a to i32\n"
                           "  %v = load i32, ptr @a\n"
                           "  %f = call float @external_function(float 1.0, i32 %t)\n"
                           "  %g = fptosi float %f to i32\n"
                           "  %x = add i32 %v, %g\n"
                           "  ret i32 %x\n"
                           "}\n";
  struct loaded l;
  lay_out(&l, host, ir, LLVMRelocStatic, LLVMCodeModelDefault);
  l.memory = mmap(NULL, l.image.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  assert_ptr_not_equal(l.memory, MAP_FAILED);
  if (elf_image_load(&l.image, l.memory, 0, l.image.size, (uintptr_t)l.memory, resolve, NULL))
    fail_msg("%s", db_error());
  assert_int_equal(mprotect(l.memory, l.image.size, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  int (*run)(int) = (int (*)(int))(uintptr_t)(l.memory + offset_of(&l, "run"));
  assert_int_equal(run(2), 9 + 35);
  /* Above 2 GiB the same file cannot be relocated. */
  uint8_t *copy = malloc(l.image.size);
  assert_int_equal(elf_image_load(&l.image, copy, 0, l.image.size, 0x7f0000000000, resolve, NULL), -ERANGE);
  assert_non_null(strstr(db_error(), "does not fit"));
  free(copy);
  drop(&l);
}
static void host_large_code_model(void **state) { run_on_host(LLVMRelocStatic, LLVMCodeModelLarge, 0); }
#endif

static void undefined_symbols(void **state) {
  struct loaded l;
  lay_out(&l, "x86_64-linux-gnu", program, LLVMRelocPIC, LLVMCodeModelDefault);
  uint8_t *copy = malloc(l.image.size);
  assert_int_equal(elf_image_load(&l.image, copy, 0, l.image.size, 0x10000, NULL, NULL), -ENOENT);
  assert_non_null(strstr(db_error(), "external_"));
  assert_true(elf_image_load(&l.image, copy, 0, l.image.size, 0x10010, resolve, NULL) < 0);
  assert_non_null(strstr(db_error(), "aligned"));
  uint64_t offset;
  assert_true(elf_image_symbol(&l.image, (unsigned)l.elf.symbols.count, &offset) < 0);
  assert_int_equal(elf_find_symbol(&l.elf, "external_data"), -ENOENT);
  drop(&l);
  lay_out(&l, "x86_64-linux-gnu",
          "declare extern_weak void @maybe()\n"
          "@p = global ptr @maybe\n",
          LLVMRelocPIC, LLVMCodeModelDefault);
  copy = realloc(copy, l.image.size);
  assert_int_equal(elf_image_load(&l.image, copy, 0, l.image.size, 0x10000, NULL, NULL), 0);
  uint64_t p = 1;
  memcpy(&p, copy + offset_of(&l, "p"), 8);
  assert_int_equal(p, 0);
  free(copy);
  drop(&l);
}

/* Any window of an image that does not cut a relocated word has the same bytes as the whole image. */
static void any_window_equals_the_image(void **state) {
  struct loaded l;
  lay_out(&l, "x86_64-linux-gnu", program, LLVMRelocPIC, LLVMCodeModelDefault);
  uint64_t size = l.image.size, address = (uintptr_t)&external_data & ~0xfffull;
  uint8_t *whole = malloc(size), *part = malloc(size);
  assert_int_equal(elf_image_load(&l.image, whole, 0, size, address, resolve, NULL), 0);
  unsigned good = 0;
  for (uint64_t first = 0; first < size; first += 61)
    for (uint64_t n = 0; n <= 256 && first + n <= size; n += 64) {
      memset(part, 0x55, size);
      if (elf_image_load(&l.image, part, first, n, address, resolve, NULL)) {
        assert_non_null(strstr(db_error(), "run past"));
        continue;
      }
      good++;
      assert_memory_equal(part, whole + first, n);
      for (uint64_t i = n; i < n + 64 && i < size; i++) assert_int_equal(part[i], 0x55);
    }
  assert_true(good > 100);
  assert_true(elf_image_load(&l.image, part, size, 1, address, resolve, NULL) < 0);
  assert_true(elf_image_load(&l.image, part, ~0ull, 2, address, resolve, NULL) < 0);
  free(whole);
  free(part);
  drop(&l);
}

/* One instruction per relocation; far is 0x4d0 bytes into the data section, near is in another code section. */
static const char aarch64_asm[] = "target triple = \"aarch64-linux-gnu\"\n"
                                  "module asm \".section .text.near,\\22ax\\22,%progbits\"\n"
                                  "module asm \".globl near\"\n"
                                  "module asm \"near: ret\"\n"
                                  "module asm \".text\"\n"
                                  "module asm \".globl start\"\n"
                                  "module asm \"start:\"\n"
                                  "module asm \"adrp x0, far\"\n"
                                  "module asm \"add x0, x0, :lo12:far\"\n"
                                  "module asm \"ldrb w1, [x0, :lo12:far]\"\n"
                                  "module asm \"ldrh w1, [x0, :lo12:far]\"\n"
                                  "module asm \"ldr w1, [x0, :lo12:far]\"\n"
                                  "module asm \"ldr x1, [x0, :lo12:far]\"\n"
                                  "module asm \"ldr q1, [x0, :lo12:far]\"\n"
                                  "module asm \"movk x2, #:abs_g3:far\"\n"
                                  "module asm \"movk x2, #:abs_g2_nc:far\"\n"
                                  "module asm \"movk x2, #:abs_g1_nc:far\"\n"
                                  "module asm \"movk x2, #:abs_g0_nc:far\"\n"
                                  "module asm \"bl external_function\"\n"
                                  "module asm \"bl near\"\n"
                                  "module asm \"b near\"\n"
                                  "module asm \"cbz x3, near\"\n"
                                  "module asm \"tbz x3, #5, near\"\n"
                                  "module asm \"adr x3, near\"\n"
                                  "module asm \"ldr x4, near\"\n"
                                  "module asm \"adrp x5, :got:external_data\"\n"
                                  "module asm \"ldr x5, [x5, :got_lo12:external_data]\"\n"
                                  "module asm \".data\"\n"
                                  "module asm \".balign 16\"\n"
                                  "module asm \"words: .xword far + 8\"\n"
                                  "module asm \".word far - .\"\n"
                                  "module asm \".skip 0x4c4\"\n"
                                  "module asm \".globl far\"\n"
                                  "module asm \"far: .xword 1\"\n";

static LLVMDisasmContextRef disasm;
static void expect_text(const struct loaded *l, const uint8_t *memory, unsigned index, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void expect_text(const struct loaded *l, const uint8_t *memory, unsigned index, const char *format, ...) {
  char want[96], got[96];
  va_list args;
  va_start(args, format);
  vsnprintf(want, sizeof want, format, args);
  va_end(args);
  uint64_t at = offset_of(l, "start") + 4 * index;
  assert_int_equal(LLVMDisasmInstruction(disasm, (uint8_t *)memory + at, 4, 0, got, sizeof got), 4);
  for (char *c = got; *c; c++)
    if (*c == '\t') *c = ' ';
  assert_string_equal(got + 1, want);
}

static void aarch64_relocations(void **state) {
  struct loaded l;
  lay_out(&l, "aarch64-linux-gnu", aarch64_asm, LLVMRelocStatic, LLVMCodeModelDefault);
  LLVMInitializeAllDisassemblers();
  disasm = LLVMCreateDisasm("aarch64-linux-gnu", NULL, 0, NULL, NULL);
  assert_non_null(disasm);
  uint8_t *m = malloc(l.image.size);
  uint64_t base = 0x123456789000;
  if (elf_image_load(&l.image, m, 0, l.image.size, base, resolve, NULL)) fail_msg("%s", db_error());
  uint64_t start = base + offset_of(&l, "start"), far = base + offset_of(&l, "far"),
           near = base + offset_of(&l, "near");
  assert_int_equal(far & 0xfff, 0x4d0);
#define TEXT(i, ...) expect_text(&l, m, i, __VA_ARGS__)
#define DELTA(i)     ((long long)(near - (start + 4 * (i))))
  TEXT(0, "adrp x0, #%lld", (long long)((far & ~0xfffull) - (start & ~0xfffull)));
  TEXT(1, "add x0, x0, #%d", 0x4d0);
  TEXT(2, "ldrb w1, [x0, #%d]", 0x4d0);
  TEXT(3, "ldrh w1, [x0, #%d]", 0x4d0);
  TEXT(4, "ldr w1, [x0, #%d]", 0x4d0);
  TEXT(5, "ldr x1, [x0, #%d]", 0x4d0);
  TEXT(6, "ldr q1, [x0, #%d]", 0x4d0);
  TEXT(7, "movk x2, #%llu, lsl #48", (unsigned long long)(far >> 48));
  TEXT(8, "movk x2, #%llu, lsl #32", (unsigned long long)(far >> 32 & 0xffff));
  TEXT(9, "movk x2, #%llu, lsl #16", (unsigned long long)(far >> 16 & 0xffff));
  TEXT(10, "movk x2, #%llu", (unsigned long long)(far & 0xffff));
  TEXT(12, "bl #%lld", DELTA(12));
  TEXT(13, "b #%lld", DELTA(13));
  TEXT(14, "cbz x3, #%lld", DELTA(14));
  TEXT(15, "tbz w3, #5, #%lld", DELTA(15));
  TEXT(16, "adr x3, #%lld", DELTA(16));
  TEXT(17, "ldr x4, #%lld", DELTA(17));
  /* The far call jumps to an entry of the table of far calls, which loads the address after it and jumps to that. */
  uint32_t bl;
  memcpy(&bl, m + (start - base) + 44, 4);
  assert_int_equal(bl >> 26, 0x25);
  uint64_t stub = start + 44 + (uint64_t)((int64_t)((uint64_t)bl << 38) >> 36) - base;
  assert_in_range(stub, 0, l.image.size - 16);
  char text[64];
  LLVMDisasmInstruction(disasm, m + stub, 4, 0, text, sizeof text);
  assert_string_equal(text, "\tldr\tx16, #8");
  LLVMDisasmInstruction(disasm, m + stub + 4, 4, 0, text, sizeof text);
  assert_string_equal(text, "\tbr\tx16");
  assert_memory_equal(m + stub + 8, &(uint64_t){(uintptr_t)external_function}, 8);
  /* The GOT pair leads to a word with the address. */
  long long page = 0;
  unsigned long long low = 0;
  LLVMDisasmInstruction(disasm, m + (start - base) + 72, 4, 0, text, sizeof text);
  assert_int_equal(sscanf(text, "\tadrp\tx5, #%lld", &page), 1);
  LLVMDisasmInstruction(disasm, m + (start - base) + 76, 4, 0, text, sizeof text);
  assert_int_equal(sscanf(text, "\tldr\tx5, [x5, #%llu]", &low), 1);
  uint64_t got = (start & ~0xfffull) + (uint64_t)page + low - base;
  assert_in_range(got, 0, l.image.size - 8);
  assert_memory_equal(m + got, &(uint64_t){(uintptr_t)&external_data}, 8);
  /* Data words. */
  uint64_t words = (far - base) - 0x4d0;
  assert_memory_equal(m + words, &(uint64_t){far + 8}, 8);
  assert_memory_equal(m + words + 8, &(uint32_t){0x4c8}, 4);
  LLVMDisasmDispose(disasm);
  free(m);
  drop(&l);
}

static void aarch64_branch_out_of_range(void **state) {
  struct loaded l;
  lay_out(&l, "aarch64-linux-gnu",
          "target triple = \"aarch64-linux-gnu\"\n"
          "module asm \"tbz x0, #1, far\"\n"
          "module asm \".skip 0x10000\"\n"
          "module asm \".globl far\"\n"
          "module asm \"far: ret\"\n",
          LLVMRelocStatic, LLVMCodeModelDefault);
  uint8_t *m = malloc(l.image.size);
  assert_int_equal(elf_image_load(&l.image, m, 0, l.image.size, 0, NULL, NULL), -ERANGE);
  assert_non_null(strstr(db_error(), "R_AARCH64_TSTBR14"));
  assert_non_null(strstr(db_error(), "'far'"));
  free(m);
  drop(&l);
}

static void thread_local_data(void **state) {
  size_t size;
  void *object =
      llvm_emit("x86_64-linux-gnu", "", "@t = thread_local global i32 1\n", LLVMRelocPIC, LLVMCodeModelDefault, &size);
  struct elf e;
  struct elf_image image;
  assert_int_equal(elf_open(&e, object, size), 0);
  assert_int_equal(elf_image_layout(&image, &e, 4096), -ENOTSUP);
  assert_non_null(strstr(db_error(), "thread-local"));
  elf_close(&e);
  free(object);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(host_position_independent),
#ifdef __x86_64__
      cmocka_unit_test(host_static_in_low_memory), cmocka_unit_test(host_large_code_model),
#endif
      cmocka_unit_test(undefined_symbols),         cmocka_unit_test(any_window_equals_the_image),
      cmocka_unit_test(aarch64_relocations),       cmocka_unit_test(aarch64_branch_out_of_range),
      cmocka_unit_test(thread_local_data),
  };
  return cmocka_run_group_tests_name("elf", tests, NULL, NULL);
}
