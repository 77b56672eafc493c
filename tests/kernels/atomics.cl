/* Global atomics: integer and float, 32 and 64 bits, compare-and-swap loops, returned values. */
#include "../../frontend/source/opencl.h"

__kernel void atomics(__global uint *u, __global int *s, __global float *f, __global ulong *w, __global uint *tickets,
                      uint n) {
  uint i = get_global_id(0);
  if (i >= n) return;
  atomic_add(&u[0], i);
  atomic_sub(&u[1], i & 7);
  atomic_xor(&u[2], i * 2654435761u);
  atomic_or(&u[3], 1u << (i & 31));
  atomic_and(&u[4], ~(1u << (i & 15)));
  atomic_max(&u[5], i * 7 % 1009);
  atomic_min(&s[0], (int)(i * 37 % 2003) - 1000);
  atomic_max(&s[1], (int)(i * 41 % 3001) - 1500);
  tickets[atomic_inc(&u[6])] = i;
  /* Sums of small integers are exact in any order. */
  uint old, want;
  do {
    old = u[7];
    want = as_uint(as_float(old) + (float)(i & 3));
  } while (atomic_cmpxchg(&u[7], old, want) != old);
  __opencl_atomic_fetch_add((__global atomic_float *)&f[0], (float)(i & 15), memory_order_relaxed, memory_scope_device);
  __scoped_atomic_fetch_add(&w[0], (ulong)i << 20, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  __scoped_atomic_fetch_max(&w[1], (ulong)i * 0x123456789ul, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
  ulong expected = w[2];
  while (!__scoped_atomic_compare_exchange_n(&w[2], &expected, expected + i, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                             __MEMORY_SCOPE_DEVICE));
  __opencl_atomic_fetch_min((__global atomic_uint *)&u[8], n - i, memory_order_seq_cst, memory_scope_all_svm_devices);
}
