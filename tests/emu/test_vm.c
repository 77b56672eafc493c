/* The emulated GPU's page table: mapping rules, translation caches, messages, and readers racing with a writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "emu/vm.h"

enum { PAGE = 4096 };

static void maps_and_translates(void **state) {
  struct vm *vm = vm_new();
  uint8_t *mem = malloc(8 * PAGE);
  assert_int_equal(vm_map(vm, 0x10000, 4 * PAGE, mem, VM_READ | VM_WRITE, 7), 0);
  assert_int_equal(vm_map(vm, 0x13000, PAGE, mem, VM_READ, 8), -EEXIST);
  assert_int_equal(vm_map(vm, 0xf000, 2 * PAGE, mem, VM_READ, 8), -EEXIST);
  assert_int_equal(vm_map(vm, 0x14001, PAGE, mem, VM_READ, 8), -EINVAL);
  assert_int_equal(vm_map(vm, 0x14000, 100, mem, VM_READ, 8), -EINVAL);
  assert_int_equal(vm_map(vm, 0x14000, 0, mem, VM_READ, 8), -EINVAL);

  struct vm_range cache = {0};
  assert_ptr_equal(vm_translate(vm, &cache, 0x10010, 16, VM_READ), mem + 0x10);
  assert_int_equal(cache.tag, 7);
  assert_ptr_equal(vm_translate(vm, &cache, 0x13fff, 1, VM_WRITE), mem + 4 * PAGE - 1);
  assert_null(vm_translate(vm, &cache, 0x13fff, 2, VM_READ));
  assert_null(vm_translate(vm, &cache, 0x10000, 4, VM_EXEC));
  assert_null(vm_translate(vm, &cache, 0xffff, 1, VM_READ));
  assert_null(vm_translate(vm, &cache, UINT64_MAX, 8, VM_READ));
  /* An adjacent mapping that continues in the same backing is merged; one with other rights is not. */
  assert_int_equal(vm_map(vm, 0x14000, PAGE, mem + 4 * PAGE, VM_READ | VM_WRITE, 9), 0);
  assert_int_equal(vm_map(vm, 0x15000, PAGE, mem + 5 * PAGE, VM_READ, 10), 0);
  assert_ptr_equal(vm_translate(vm, &cache, 0x13ffc, 8, VM_READ), mem + 4 * PAGE - 4);
  assert_null(vm_translate(vm, &cache, 0x14ffc, 8, VM_READ));
  vm_free(vm);
  free(mem);
}

static void unmaps_parts(void **state) {
  struct vm *vm = vm_new();
  uint8_t *mem = malloc(8 * PAGE);
  struct vm_range cache = {0};
  assert_int_equal(vm_map(vm, 0x10000, 8 * PAGE, mem, VM_READ, 1), 0);
  assert_non_null(vm_translate(vm, &cache, 0x12000, 1, VM_READ));
  uint64_t before = vm_generation(vm);
  assert_int_equal(vm_unmap(vm, 0x12000, 2 * PAGE), 0);
  assert_int_not_equal(vm_generation(vm), before);
  assert_null(vm_translate(vm, &cache, 0x12000, 1, VM_READ));
  assert_ptr_equal(vm_translate(vm, &cache, 0x11fff, 1, VM_READ), mem + 2 * PAGE - 1);
  assert_ptr_equal(vm_translate(vm, &cache, 0x14000, 1, VM_READ), mem + 4 * PAGE);
  assert_int_equal(vm_unmap(vm, 0x12000, PAGE), -EINVAL);
  assert_int_equal(vm_unmap(vm, 0x11000, 4 * PAGE), -EINVAL);
  assert_int_equal(vm_unmap(vm, 0x10000, 2 * PAGE), 0);
  assert_int_equal(vm_unmap(vm, 0x17000, PAGE), 0);
  assert_ptr_equal(vm_translate(vm, &cache, 0x16fff, 1, VM_READ), mem + 7 * PAGE - 1);
  assert_null(vm_translate(vm, &cache, 0x17000, 1, VM_READ));
  /* Two mappings at once. */
  assert_int_equal(vm_map(vm, 0x17000, PAGE, mem, VM_READ, 2), 0);
  assert_int_equal(vm_unmap(vm, 0x14000, 4 * PAGE), 0);
  assert_false(vm_find(vm, 0x14000, &cache));
  vm_free(vm);
  free(mem);
}

static void copies_across_mappings(void **state) {
  struct vm *vm = vm_new();
  uint8_t *a = calloc(1, PAGE), *b = calloc(1, PAGE), in[64], out[64];
  uint64_t fault = 0;
  for (int i = 0; i < 64; i++) in[i] = (uint8_t)(i + 1);
  assert_int_equal(vm_map(vm, 0x10000, PAGE, a, VM_READ | VM_WRITE, 1), 0);
  assert_int_equal(vm_map(vm, 0x11000, PAGE, b, VM_READ, 2), 0);
  assert_false(vm_write(vm, 0x10fe0, in, 64, &fault));
  assert_int_equal(fault, 0x11000);
  memcpy(b, in + 32, 32);
  assert_true(vm_read(vm, 0x10fe0, out, 64, &fault));
  assert_memory_equal(in, out, 64);
  assert_false(vm_read(vm, 0x11fff, out, 2, &fault));
  assert_int_equal(fault, 0x12000);
  vm_free(vm);
  free(a);
  free(b);
}

static void describes_nearest(void **state) {
  struct vm *vm = vm_new();
  static uint8_t mem[2 * PAGE];
  char text[200];
  vm_describe(vm, 0x1000, text, sizeof text);
  assert_string_equal(text, "nothing is mapped");
  assert_int_equal(vm_map(vm, 0x10000, PAGE, mem, VM_READ | VM_WRITE, 1), 0);
  assert_int_equal(vm_map(vm, 0x20000, 2 * PAGE, mem, VM_READ | VM_EXEC, 1), 0);
  vm_describe(vm, 0x11040, text, sizeof text);
  assert_string_equal(text, "0x40 bytes after the 4096-byte allocation at 0x10000 (rw-)");
  vm_describe(vm, 0x1ff00, text, sizeof text);
  assert_string_equal(text, "0x100 bytes before the 8192-byte allocation at 0x20000 (r-x)");
  vm_describe(vm, 0x20008, text, sizeof text);
  assert_string_equal(text, "0x8 bytes into the 8192-byte allocation at 0x20000 (r-x)");
  vm_free(vm);
}

/* One page remains mapped while others are mapped and unmapped: a reader always sees the right translation of that
 * page. */
struct race {
  struct vm *vm;
  uint8_t *mem;
  atomic_bool done;
  atomic_int wrong;
};
static void *race_reader(void *arg) {
  struct race *r = arg;
  struct vm_range cache = {0};
  while (!atomic_load(&r->done)) {
    if (vm_translate(r->vm, &cache, 0x800010, 4, VM_READ) != r->mem + 0x10) atomic_fetch_add(&r->wrong, 1);
    void *other = vm_translate(r->vm, &cache, 0x400000, 4, VM_READ);
    if (other && other != r->mem) atomic_fetch_add(&r->wrong, 1);
  }
  return NULL;
}
static void readers_race_with_a_writer(void **state) {
  struct race r = {.vm = vm_new(), .mem = malloc(PAGE)};
  pthread_t threads[3];
  assert_int_equal(vm_map(r.vm, 0x800000, PAGE, r.mem, VM_READ, 1), 0);
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, race_reader, &r);
  for (int round = 0; round < 30; round++) {
    for (uint64_t i = 0; i < 300; i++)
      assert_int_equal(vm_map(r.vm, 0x400000 + i * 2 * PAGE, PAGE, r.mem, VM_READ, i), 0);
    for (uint64_t i = 0; i < 300; i++) assert_int_equal(vm_unmap(r.vm, 0x400000 + i * 2 * PAGE, PAGE), 0);
  }
  atomic_store(&r.done, true);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&r.wrong), 0);
  vm_free(r.vm);
  free(r.mem);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(maps_and_translates),        cmocka_unit_test(unmaps_parts),
      cmocka_unit_test(copies_across_mappings),     cmocka_unit_test(describes_nearest),
      cmocka_unit_test(readers_race_with_a_writer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
