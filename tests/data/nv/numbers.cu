// Operations that compilers expand: divisions, roots, wide products, conversions. One thread per pair of operands; the
// test computes the same on the host.
#pragma nv_diag_suppress 550
#define N_OF(name, expr)                                                                                               \
  extern "C" __global__ void name(unsigned long long *out, const unsigned long long *in_a,                             \
                                  const unsigned long long *in_b) {                                                    \
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                                                \
    unsigned long long a = in_a[i], b = in_b[i];                                                                       \
    long long sa = (long long)a, sb = (long long)b;                                                                    \
    unsigned ua = (unsigned)a, ub = (unsigned)b;                                                                       \
    int ia = (int)ua, ib = (int)ub;                                                                                    \
    float fa = __uint_as_float(ua), fb = __uint_as_float(ub);                                                          \
    double da = __longlong_as_double(sa), db = __longlong_as_double(sb);                                               \
    out[i] = (unsigned long long)(expr);                                                                               \
    (void)sa, (void)sb, (void)ia, (void)ib, (void)fa, (void)fb, (void)da, (void)db, (void)b;                           \
  }
#define F(x) __float_as_uint(x)
#define D(x) __double_as_longlong(x)
N_OF(udiv64, b ? a / b : 0)
N_OF(umod64, b ? a % b : 0)
N_OF(sdiv64, b && sb != -1 ? sa / sb : 0)
N_OF(smod64, b && sb != -1 ? sa % sb : 0)
N_OF(udiv32, ub ? ua / ub : 0)
N_OF(sdiv32, ib && ib != -1 ? (unsigned)(ia / ib) : 0)
N_OF(smod32, ib && ib != -1 ? (unsigned)(ia % ib) : 0)
N_OF(mulhi64, __umul64hi(a, b))
N_OF(smulhi64, __mul64hi(sa, sb))
N_OF(mul64, a *b)
N_OF(shift64, (a << (ub & 63)) ^ (a >> (b >> 8 & 63)) ^ (unsigned long long)(sa >> (b >> 16 & 63)))
N_OF(bits64, __popcll(a) | __clzll(sa) << 8 | __ffsll(sa) << 16 | (unsigned long long)__brev(ub) << 32)
N_OF(compare64, (a < b) | (sa < sb) << 1 | (a <= b) << 2 | (sa >= sb) << 3 | (a == b) << 4 | (sa > sb) << 5)
N_OF(minmax64, (a < b ? a : b) ^ (unsigned long long)(sa > sb ? sa : sb))
N_OF(div32, F(__fdiv_rn(fa, fb)))
N_OF(div32_rz, F(__fdiv_rz(fa, fb)))
N_OF(div32_ru, F(__fdiv_ru(fa, fb)))
N_OF(div32_rd, F(__fdiv_rd(fa, fb)))
N_OF(sqrt32, F(__fsqrt_rn(fabsf(fa))))
N_OF(sqrt32_ru, F(__fsqrt_ru(fabsf(fa))))
N_OF(sqrt32_rd, F(__fsqrt_rd(fabsf(fa))))
N_OF(rcp32, F(__frcp_rn(fa)))
N_OF(rcp32_rz, F(__frcp_rz(fa)))
N_OF(div64, D(__ddiv_rn(da, db)))
N_OF(div64_ru, D(__ddiv_ru(da, db)))
N_OF(div64_rd, D(__ddiv_rd(da, db)))
N_OF(sqrt64, D(__dsqrt_rn(fabs(da))))
N_OF(sqrt64_rz, D(__dsqrt_rz(fabs(da))))
N_OF(rcp64, D(__drcp_rn(da)))
N_OF(fmod32, F(fmodf(fa, fb)))
N_OF(remainder64, D(fmod(da, db)))
N_OF(to_s64, __double2ll_rn(da))
N_OF(to_u64, __double2ull_rz(da))
N_OF(to_s32, (unsigned)__float2int_rn(fa))
N_OF(to_u32, __float2uint_ru(fa))
N_OF(from_s64, D(__ll2double_rn(sa)))
N_OF(from_u64_f32, F(__ull2float_rd(a)))
N_OF(narrow, F(__double2float_rn(da)) | (unsigned long long)F(__double2float_ru(da)) << 32)
N_OF(exp32, F(expf(fa)))
N_OF(log32, F(logf(fabsf(fa))))
N_OF(sin32, F(sinf(fa)))
N_OF(exp64, D(exp(da)))
N_OF(log64, D(log(fabs(da))))
N_OF(cos64, D(cos(da)))
N_OF(pow64, D(pow(fabs(da), db)))
N_OF(tanh64, D(tanh(da)))
N_OF(cbrt64, D(cbrt(da)))
