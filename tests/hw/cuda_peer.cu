// Times the CUDA runtime on the same card, for the quantities that steps measures: launch latency, copies, replay of a
// graph.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

static double now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    cudaError_t e_ = (call);                                                                                           \
    if (e_ != cudaSuccess) {                                                                                           \
      printf("CUDA runtime: %s: %s\n", #call, cudaGetErrorString(e_));                                                 \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

__global__ void empty(unsigned *out, unsigned n) {}

int main() {
  enum { REPEAT = 200, KERNELS = 100, BYTES = 64 << 20 };
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  double whole[REPEAT], host[REPEAT];
  for (int i = 0; i < REPEAT; i++) {
    double t = now();
    empty<<<1, 1, 0, stream>>>(nullptr, 0);
    host[i] = now() - t;
    CHECK(cudaStreamSynchronize(stream));
    whole[i] = now() - t;
  }
  std::sort(whole, whole + REPEAT), std::sort(host, host + REPEAT);
  printf("CUDA launch and wait %.2f us (median; least %.2f); of it launching %.2f us\n", whole[REPEAT / 2], whole[0],
         host[REPEAT / 2]);
  double t = now();
  for (int i = 0; i < 10000; i++) empty<<<1, 1, 0, stream>>>(nullptr, 0);
  double submitted = now() - t;
  CHECK(cudaStreamSynchronize(stream));
  printf("CUDA launches back to back %.2f us each on the host, %.2f us until done\n", submitted / 10000,
         (now() - t) / 10000);

  void *pinned, *device;
  CHECK(cudaMallocHost(&pinned, BYTES));
  CHECK(cudaMalloc(&device, BYTES));
  for (int back = 0; back < 2; back++) {
    double start = now();
    for (int i = 0; i < 8; i++)
      CHECK(cudaMemcpyAsync(back ? pinned : device, back ? device : pinned, BYTES,
                            back ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("CUDA %s %.2f GB/s\n", back ? "device to host" : "host to device", 8.0 * BYTES / (now() - start) * 1e-3);
  }

  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < KERNELS; i++) empty<<<1, 1, 0, stream>>>(nullptr, 0);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  /* First unchanged, then with a different argument of its first kernel each time. */
  cudaGraphNode_t first;
  size_t n = 1;
  CHECK(cudaGraphGetRootNodes(graph, &first, &n));
  unsigned *out = nullptr, value = 0;
  void *args[] = {&out, &value};
  cudaKernelNodeParams params = {};
  params.func = (void *)empty;
  params.gridDim = params.blockDim = dim3(1, 1, 1);
  params.kernelParams = args;
  for (int patched = 0; patched < 2; patched++) {
    for (int i = 0; i < REPEAT; i++) {
      double start = now();
      value = i;
      if (patched) CHECK(cudaGraphExecKernelNodeSetParams(exec, first, &params));
      CHECK(cudaGraphLaunch(exec, stream));
      host[i] = now() - start;
      CHECK(cudaStreamSynchronize(stream));
      whole[i] = now() - start;
    }
    std::sort(whole, whole + REPEAT), std::sort(host, host + REPEAT);
    printf("CUDA graph of %d kernels%s: %.3f us a kernel, of it %.3f us launching (least %.3f)\n", (int)KERNELS,
           patched ? ", an argument changed" : "", whole[REPEAT / 2] / KERNELS, host[REPEAT / 2] / KERNELS,
           host[0] / KERNELS);
  }
}
