/* Runs OpenCL C kernels, compiled by stock clang, on the shader machine, and compares with the same computation in C on
 * the host; also checks a fault's message. */
#include "kernel_table.h"

/* A buffer that is one element too short: the message names the lane that accesses past its end, the address and the
 * nearest buffer. */
static void page_fault(void **state) {
  struct run r;
  run_open(&r, "tests/kernels/saxpy", "saxpy");
  run_buffer(&r, NULL, 4 * 256);
  run_buffer(&r, NULL, 4 * 240);
  run_f32(&r, 2);
  run_u32(&r, 256);
  assert_int_equal(run_launch(&r, 2, 1, 1, 128, 1, 1), -EFAULT);
  assert_int_equal(r.fault.kind, FAULT_PAGE);
  assert_int_equal(r.fault.address, r.buf[1].va + 4 * 240);
  assert_int_equal(r.fault.access, VM_READ);
  assert_int_equal(r.fault.lane, 16);
  assert_int_equal(r.fault.wave, 3);
  assert_int_equal(r.fault.workgroup[0], 1);
  assert_non_null(strstr(r.fault.text, "global_load_b32"));
  run_close(&r);
  /* Writing to memory that is only readable. */
  run_open(&r, "tests/kernels/saxpy", "saxpy");
  run_buffer(&r, NULL, 4 * 32);
  uint64_t va = r.buf[0].va & ~4095ull;
  vm_unmap(r.vm, va, 4096);
  vm_map(r.vm, va, 4096, r.buf[0].pages, VM_READ, 1);
  run_buffer(&r, NULL, 4 * 32);
  run_f32(&r, 2);
  run_u32(&r, 32);
  assert_int_equal(run_launch(&r, 1, 1, 1, 32, 1, 1), -EFAULT);
  assert_int_equal(r.fault.kind, FAULT_PAGE);
  assert_int_equal(r.fault.access, VM_WRITE);
  assert_int_equal(r.fault.address, r.buf[0].va);
  assert_int_equal(r.fault.lane, 0);
  run_close(&r);
}

int main(void) {
#define X(name) cmocka_unit_test(name),
  const struct CMUnitTest tests[] = {KERNEL_CASES(X) cmocka_unit_test(page_fault)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
