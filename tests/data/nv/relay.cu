/* Kernels for queues that run at the same time. */

/* Sets a flag when it runs, and ends when another kernel has set its flag. */
extern "C" __global__ void relay(unsigned *wait_for, unsigned *set, unsigned value) {
  if (threadIdx.x || blockIdx.x) return;
  atomicExch(set, value);
  while (atomicAdd(wait_for, 0) < value) {}
}

/* A private array indexed by data, so that it lives in local memory. */
extern "C" __global__ void scratch(unsigned *out, const unsigned *in, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned a[64];
  for (unsigned k = 0; k < 64; k++) a[k] = in[i] * (k + 1);
  for (unsigned k = 0; k < 64; k++) a[(a[k] >> 7) % 64] += a[(a[k] >> 3) % 64] ^ k;
  unsigned h = 0;
  for (unsigned k = 0; k < 64; k++) h = h * 31 + a[k];
  out[i] = h;
}
