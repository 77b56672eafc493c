/* OpenCL C library functions for AMD GPUs, for code objects built without a device library (clang -nogpulib).
 *
 * clang declares the functions of the OpenCL C specification by itself; this header defines the common ones on top of
 * the compiler's builtins. A function that it does not define is an undefined symbol when the code object is linked.
 * `doorbell run FILE.cl` includes it before every file, and `make install` puts it beside Doorbell's own headers.
 *
 * Work-group geometry comes from the implicit kernel arguments of code object version 5 (LLVM AMDGPUUsage, "Code Object
 * V5 Metadata": block counts at byte 0, group sizes at 12, remainders at 18, global offsets at 40, grid dimensions at
 * 64). */
#ifndef DOORBELL_OPENCL_H
#define DOORBELL_OPENCL_H
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable

#define OCL_DEF   __attribute__((overloadable, always_inline)) inline
#define OCL_CONST __attribute__((overloadable, always_inline, const)) inline

/* ---- work-items ---- */
#define ocl_implicit ((__constant char *)__builtin_amdgcn_implicitarg_ptr())

OCL_CONST uint get_work_dim(void) { return *(__constant ushort *)(ocl_implicit + 64); }
OCL_CONST size_t get_local_id(uint d) {
  switch (d) {
  case 0: return __builtin_amdgcn_workitem_id_x();
  case 1: return __builtin_amdgcn_workitem_id_y();
  case 2: return __builtin_amdgcn_workitem_id_z();
  default: return 0;
  }
}
OCL_CONST size_t get_group_id(uint d) {
  switch (d) {
  case 0: return __builtin_amdgcn_workgroup_id_x();
  case 1: return __builtin_amdgcn_workgroup_id_y();
  case 2: return __builtin_amdgcn_workgroup_id_z();
  default: return 0;
  }
}
OCL_CONST size_t get_enqueued_local_size(uint d) {
  return d < 3 ? *(__constant ushort *)(ocl_implicit + 12 + 2 * d) : 1;
}
/* If the group size does not divide the grid, the last group is smaller: after the full groups the size is the
 * remainder. */
OCL_CONST size_t get_local_size(uint d) {
  if (d >= 3) return 1;
  bool whole = get_group_id(d) < *(__constant uint *)(ocl_implicit + 4 * d);
  return *(__constant ushort *)(ocl_implicit + (whole ? 12 : 18) + 2 * d);
}
OCL_CONST size_t get_num_groups(uint d) {
  return d < 3 ? *(__constant uint *)(ocl_implicit + 4 * d) + (*(__constant ushort *)(ocl_implicit + 18 + 2 * d) != 0)
               : 1;
}
OCL_CONST size_t get_global_offset(uint d) { return d < 3 ? *(__constant ulong *)(ocl_implicit + 40 + 8 * d) : 0; }
OCL_CONST size_t get_global_size(uint d) {
  if (d >= 3) return 1;
  return (size_t)*(__constant uint *)(ocl_implicit + 4 * d) * *(__constant ushort *)(ocl_implicit + 12 + 2 * d) +
         *(__constant ushort *)(ocl_implicit + 18 + 2 * d);
}
OCL_CONST size_t get_global_id(uint d) {
  return (uint)get_group_id(d) * (uint)get_enqueued_local_size(d) + (uint)get_local_id(d) + get_global_offset(d);
}
OCL_CONST size_t get_local_linear_id(void) {
  return ((uint)get_local_id(2) * (uint)get_local_size(1) + (uint)get_local_id(1)) * (uint)get_local_size(0) +
         (uint)get_local_id(0);
}

/* ---- barriers ---- */
__attribute__((overloadable, convergent, always_inline)) inline void barrier(cl_mem_fence_flags flags) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__attribute__((overloadable, convergent, always_inline)) inline void work_group_barrier(cl_mem_fence_flags flags) {
  barrier(flags);
}
OCL_DEF void mem_fence(cl_mem_fence_flags flags) { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }

/* ---- math: functions for which the machine has an instruction or the compiler an expansion ---- */
#define OCL_MATH1(name, builtin, type)                                                                                 \
  OCL_CONST type name(type x) { return builtin(x); }
#define OCL_MATH2(name, builtin, type)                                                                                 \
  OCL_CONST type name(type x, type y) { return builtin(x, y); }
#define OCL_MATH_FD(m, name, base) m(name, __builtin_##base##f, float) m(name, __builtin_##base, double)
OCL_MATH_FD(OCL_MATH1, sqrt, sqrt)
OCL_MATH_FD(OCL_MATH1, fabs, fabs)
OCL_MATH_FD(OCL_MATH1, floor, floor)
OCL_MATH_FD(OCL_MATH1, ceil, ceil)
OCL_MATH_FD(OCL_MATH1, trunc, trunc)
OCL_MATH_FD(OCL_MATH1, rint, rint)
OCL_MATH_FD(OCL_MATH2, fmin, fmin)
OCL_MATH_FD(OCL_MATH2, fmax, fmax)
OCL_MATH_FD(OCL_MATH2, copysign, copysign)
OCL_CONST float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
OCL_CONST double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
OCL_CONST half fma(half a, half b, half c) { return __builtin_fmaf16(a, b, c); }
OCL_CONST float mad(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
OCL_CONST float exp2(float x) { return __builtin_exp2f(x); }
OCL_CONST float log2(float x) { return __builtin_log2f(x); }
OCL_CONST float native_exp2(float x) { return __builtin_amdgcn_exp2f(x); }
OCL_CONST float native_log2(float x) { return __builtin_amdgcn_logf(x); }
OCL_CONST float native_recip(float x) { return __builtin_amdgcn_rcpf(x); }
OCL_CONST float native_rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
/* The machine's sine and cosine take revolutions, not radians. */
OCL_CONST float native_sin(float x) { return __builtin_amdgcn_sinf(x * 0x1.45f306p-3f); }
OCL_CONST float native_cos(float x) { return __builtin_amdgcn_cosf(x * 0x1.45f306p-3f); }

OCL_CONST float native_sqrt(float x) { return __builtin_amdgcn_sqrtf(x); }
OCL_CONST float native_divide(float x, float y) { return x * __builtin_amdgcn_rcpf(y); }
OCL_CONST float exp(float x) { return __builtin_expf(x); }
OCL_CONST float exp10(float x) { return __builtin_exp10f(x); }
OCL_CONST float log(float x) { return __builtin_logf(x); }
OCL_CONST float log10(float x) { return __builtin_log10f(x); }
OCL_CONST float native_exp(float x) { return __builtin_amdgcn_exp2f(x * 0x1.715476p+0f); }
OCL_CONST float native_log(float x) { return __builtin_amdgcn_logf(x) * 0x1.62e43p-1f; }
OCL_CONST float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
OCL_CONST float mix(float x, float y, float a) { return x + (y - x) * a; }
OCL_CONST float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
OCL_CONST int isnan(float x) { return __builtin_isnan(x); }
OCL_CONST int isinf(float x) { return __builtin_isinf(x); }

/* ---- vectors: products, loads and stores ---- */
#define OCL_DOT(type)                                                                                                  \
  OCL_CONST type dot(type x, type y) { return x * y; }                                                                 \
  OCL_CONST type dot(type##2 x, type##2 y) { return fma(x.y, y.y, x.x * y.x); }                                        \
  OCL_CONST type dot(type##3 x, type##3 y) { return fma(x.z, y.z, dot(x.xy, y.xy)); }                                  \
  OCL_CONST type dot(type##4 x, type##4 y) { return fma(x.w, y.w, dot(x.xyz, y.xyz)); }
OCL_DOT(float)
OCL_DOT(double)
OCL_CONST float length(float x) { return __builtin_fabsf(x); }
OCL_CONST float length(float2 x) { return __builtin_sqrtf(dot(x, x)); }
OCL_CONST float length(float3 x) { return __builtin_sqrtf(dot(x, x)); }
OCL_CONST float length(float4 x) { return __builtin_sqrtf(dot(x, x)); }
/* Vectors in memory with the alignment of their elements. */
#define OCL_VECTOR(type, n, space)                                                                                     \
  OCL_DEF type##n vload##n(size_t i, const space type *p) {                                                            \
    type##n v;                                                                                                         \
    for (int k = 0; k < n; k++) v[k] = p[i * n + k];                                                                   \
    return v;                                                                                                          \
  }
#define OCL_VECTOR_STORE(type, n, space)                                                                               \
  OCL_DEF void vstore##n(type##n v, size_t i, space type *p) {                                                         \
    for (int k = 0; k < n; k++) p[i * n + k] = v[k];                                                                   \
  }
#define OCL_VECTORS(type)                                                                                              \
  OCL_VECTOR_SIZES(OCL_VECTOR, type, __global)                                                                         \
  OCL_VECTOR_SIZES(OCL_VECTOR, type, __local)                                                                          \
  OCL_VECTOR_SIZES(OCL_VECTOR_STORE, type, __global)                                                                   \
  OCL_VECTOR_SIZES(OCL_VECTOR_STORE, type, __local)
#define OCL_VECTOR_SIZES(m, type, space)                                                                               \
  m(type, 2, space) m(type, 3, space) m(type, 4, space) m(type, 8, space) m(type, 16, space)
OCL_VECTORS(char)
OCL_VECTORS(uchar)
OCL_VECTORS(short)
OCL_VECTORS(ushort)
OCL_VECTORS(int)
OCL_VECTORS(uint)
OCL_VECTORS(long)
OCL_VECTORS(ulong)
OCL_VECTORS(half)
OCL_VECTORS(float)
OCL_VECTORS(double)

/* ---- conversions between scalars; clang's builtin converts vectors ---- */
// clang-format off
#define OCL_CONVERT_TO(to)                                                                                             \
  OCL_CONVERT(to, char) OCL_CONVERT(to, uchar) OCL_CONVERT(to, short) OCL_CONVERT(to, ushort) OCL_CONVERT(to, int)     \
  OCL_CONVERT(to, uint) OCL_CONVERT(to, long) OCL_CONVERT(to, ulong) OCL_CONVERT(to, half) OCL_CONVERT(to, float)      \
  OCL_CONVERT(to, double)
// clang-format on
#define OCL_CONVERT(to, from)                                                                                          \
  OCL_CONST to convert_##to(from x) { return (to)x; }                                                                  \
  OCL_CONST to##2 convert_##to##2(from##2 x) { return __builtin_convertvector(x, to##2); }                             \
  OCL_CONST to##4 convert_##to##4(from##4 x) { return __builtin_convertvector(x, to##4); }
OCL_CONVERT_TO(char)
OCL_CONVERT_TO(uchar)
OCL_CONVERT_TO(short)
OCL_CONVERT_TO(ushort)
OCL_CONVERT_TO(int)
OCL_CONVERT_TO(uint)
OCL_CONVERT_TO(long)
OCL_CONVERT_TO(ulong)
OCL_CONVERT_TO(half)
OCL_CONVERT_TO(float)
OCL_CONVERT_TO(double)

/* ---- integers and bits ---- */
#define OCL_MINMAX(type)                                                                                               \
  OCL_CONST type min(type a, type b) { return a < b ? a : b; }                                                         \
  OCL_CONST type max(type a, type b) { return a > b ? a : b; }                                                         \
  OCL_CONST type clamp(type x, type lo, type hi) { return min(max(x, lo), hi); }
OCL_MINMAX(int)
OCL_MINMAX(uint)
OCL_MINMAX(short)
OCL_MINMAX(ushort)
OCL_MINMAX(uchar)
OCL_MINMAX(long)
OCL_MINMAX(ulong)
OCL_MINMAX(float)
OCL_MINMAX(double)
OCL_CONST uint abs(int x) { return x < 0 ? 0u - (uint)x : (uint)x; }
OCL_CONST ulong abs(long x) { return x < 0 ? 0ul - (ulong)x : (ulong)x; }
OCL_CONST int mad24(int a, int b, int c) { return a * b + c; }
OCL_CONST uint mad24(uint a, uint b, uint c) { return a * b + c; }
OCL_CONST int mul24(int a, int b) { return a * b; }
OCL_CONST uint mul24(uint a, uint b) { return a * b; }
OCL_CONST uint mul_hi(uint a, uint b) { return ((ulong)a * b) >> 32; }
OCL_CONST int mul_hi(int a, int b) { return ((long)a * b) >> 32; }
OCL_CONST uint rotate(uint x, uint n) { return __builtin_rotateleft32(x, n); }
OCL_CONST uint popcount(uint x) { return __builtin_popcount(x); }
OCL_CONST uint clz(uint x) { return x ? __builtin_clz(x) : 32; }
/* clang's saturating builtins promote types narrower than int. */
OCL_CONST uchar add_sat(uchar a, uchar b) { return a + b > 255 ? 255 : a + b; }
OCL_CONST uchar sub_sat(uchar a, uchar b) { return a < b ? 0 : a - b; }
OCL_CONST int add_sat(int a, int b) { return __builtin_elementwise_add_sat(a, b); }

/* ---- OpenCL 1.x atomics on 32-bit integers ---- */
#define OCL_ATOMIC_RMW(name, op, space, type)                                                                          \
  OCL_DEF type name(volatile space type *p, type v) {                                                                  \
    return __scoped_atomic_##op(p, v, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);                                        \
  }
#define OCL_ATOMICS(space, type)                                                                                       \
  OCL_ATOMIC_RMW(atomic_add, fetch_add, space, type)                                                                   \
  OCL_ATOMIC_RMW(atomic_sub, fetch_sub, space, type)                                                                   \
  OCL_ATOMIC_RMW(atomic_and, fetch_and, space, type)                                                                   \
  OCL_ATOMIC_RMW(atomic_or, fetch_or, space, type)                                                                     \
  OCL_ATOMIC_RMW(atomic_xor, fetch_xor, space, type)                                                                   \
  OCL_ATOMIC_RMW(atomic_min, fetch_min, space, type)                                                                   \
  OCL_ATOMIC_RMW(atomic_max, fetch_max, space, type)                                                                   \
  OCL_ATOMIC_RMW(atomic_xchg, exchange_n, space, type)                                                                 \
  OCL_DEF type atomic_inc(volatile space type *p) { return atomic_add(p, (type)1); }                                   \
  OCL_DEF type atomic_dec(volatile space type *p) { return atomic_sub(p, (type)1); }                                   \
  OCL_DEF type atomic_cmpxchg(volatile space type *p, type expected, type desired) {                                   \
    __scoped_atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED,               \
                                       __MEMORY_SCOPE_DEVICE);                                                         \
    return expected;                                                                                                   \
  }
OCL_ATOMICS(__global, int)
OCL_ATOMICS(__global, uint)
OCL_ATOMICS(__local, int)
OCL_ATOMICS(__local, uint)
#endif
