/* The structures of DLPack (dmlc/dlpack, include/dlpack/dlpack.h, version 0.8). */
#ifndef DOORBELL_FRONTEND_DLPACK_H
#define DOORBELL_FRONTEND_DLPACK_H
#include <stdint.h>

enum { DLPACK_CPU = 1, DLPACK_CUDA_HOST = 3, DLPACK_ROCM_HOST = 11 }; /* DLDeviceType: memory that the host addresses */
enum { DLPACK_INT = 0, DLPACK_UINT = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4, DLPACK_BOOL = 6 }; /* DLDataTypeCode */

typedef struct {
  int32_t device_type, device_id;
} DLDevice;
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides; /* strides in elements; NULL: row-major */
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
#endif
