/* The wire format of /dev/nvidia-uvm: commands and structures of NVIDIA's unified memory module.
 *
 * Source: NVIDIA open-gpu-kernel-modules, uvm_ioctl.h and uvm_types.h, branches 535 to 595. The request is the bare
 * command without a size: the module copies the size that it expects for the structure. The ioctl returns 0, and UVM's
 * result is the status in the structure, unless copying failed or the descriptor has no address space yet. */
#ifndef DOORBELL_HCQ_NV_UVM_WIRE_H
#define DOORBELL_HCQ_NV_UVM_WIRE_H
#include <stdint.h>

/* Padding is declared, so that initializers clear it. Undeclared padding would pass bytes of the stack to the kernel
 * and into recorded traces. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

enum uvm_command {
  UVM_INITIALIZE = 0x30000001,
  UVM_DEINITIALIZE = 0x30000002, /* no structure */
  UVM_REGISTER_GPU_VASPACE = 25,
  UVM_UNREGISTER_GPU_VASPACE = 26,
  UVM_REGISTER_CHANNEL = 27,
  UVM_UNREGISTER_CHANNEL = 28,
  UVM_ENABLE_PEER_ACCESS = 29,
  UVM_DISABLE_PEER_ACCESS = 30,
  UVM_MAP_EXTERNAL_ALLOCATION = 33,
  UVM_FREE = 34,
  UVM_REGISTER_GPU = 37,
  UVM_UNREGISTER_GPU = 38,
  UVM_PAGEABLE_MEM_ACCESS = 39,
  UVM_UNMAP_EXTERNAL = 66,
  UVM_PAGEABLE_MEM_ACCESS_ON_GPU = 70,
  UVM_VALIDATE_VA_RANGE = 72,
  UVM_CREATE_EXTERNAL_RANGE = 73,
  UVM_MAP_EXTERNAL_SPARSE = 74,
  UVM_MM_INITIALIZE = 75,
  UVM_IS_8_SUPPORTED = 2047,
};

struct uvm_uuid {
  uint8_t bytes[16];
};

struct uvm_initialize { /* UVM_INITIALIZE_PARAMS */
  uint64_t flags;
  uint32_t status;
  uint32_t pad;
};
enum { UVM_INIT_DISABLE_HMM = 1, UVM_INIT_MULTI_PROCESS = 2 };
struct uvm_mm_initialize { /* UVM_MM_INITIALIZE_PARAMS */
  int32_t uvm_fd;
  uint32_t status;
};
struct uvm_register_gpu { /* UVM_REGISTER_GPU_PARAMS */
  struct uvm_uuid uuid;
  uint8_t numa_enabled;
  uint8_t pad[3];
  int32_t numa_node_id, rm_ctrl_fd;
  uint32_t client, smc_part_ref, status;
};
struct uvm_unregister_gpu { /* UVM_UNREGISTER_GPU_PARAMS */
  struct uvm_uuid uuid;
  uint32_t status;
};
struct uvm_register_gpu_vaspace { /* UVM_REGISTER_GPU_VASPACE_PARAMS */
  struct uvm_uuid uuid;
  int32_t rm_ctrl_fd;
  uint32_t client, va_space, status;
};
struct uvm_unregister_gpu_vaspace { /* UVM_UNREGISTER_GPU_VASPACE_PARAMS */
  struct uvm_uuid uuid;
  uint32_t status;
};
struct uvm_register_channel { /* UVM_REGISTER_CHANNEL_PARAMS */
  struct uvm_uuid uuid;
  int32_t rm_ctrl_fd;
  uint32_t client, channel;
  uint32_t pad;
  uint64_t base, length;
  uint32_t status;
  uint32_t pad2;
};
struct uvm_unregister_channel { /* UVM_UNREGISTER_CHANNEL_PARAMS */
  struct uvm_uuid uuid;
  uint32_t client, channel, status;
};
struct uvm_unregister_channel_590 { /* since 590 */
  uint32_t client, channel, status;
};
struct uvm_create_external_range { /* UVM_CREATE_EXTERNAL_RANGE_PARAMS */
  uint64_t base, length;
  uint32_t status;
  uint32_t pad;
};
struct uvm_mapping { /* UvmGpuMappingAttributes */
  struct uvm_uuid uuid;
  uint32_t mapping, caching, format, element_bits, compression;
};
enum uvm_mapping_type {
  UVM_MAPPING_DEFAULT = 0,
  UVM_MAPPING_READ_WRITE_ATOMIC = 1,
  UVM_MAPPING_READ_WRITE = 2,
  UVM_MAPPING_READ_ONLY = 3
};
struct uvm_map_external_allocation { /* UVM_MAP_EXTERNAL_ALLOCATION_PARAMS */
  uint64_t base, length, offset;
  struct uvm_mapping gpus[256];
  uint64_t gpu_count;
  int32_t rm_ctrl_fd;
  uint32_t client, memory, status;
};
struct uvm_map_external_allocation_545 { /* the same up to 545 */
  uint64_t base, length, offset;
  struct uvm_mapping gpus[32];
  uint64_t gpu_count;
  int32_t rm_ctrl_fd;
  uint32_t client, memory, status;
};
struct uvm_unmap_external { /* UVM_UNMAP_EXTERNAL_PARAMS */
  uint64_t base, length;
  struct uvm_uuid uuid;
  uint32_t status;
  uint32_t pad;
};
struct uvm_map_external_sparse { /* UVM_MAP_EXTERNAL_SPARSE_PARAMS */
  uint64_t base, length;
  struct uvm_uuid uuid;
  uint32_t status;
  uint32_t pad;
};
struct uvm_free { /* UVM_FREE_PARAMS */
  uint64_t base, length;
  uint32_t status;
  uint32_t pad;
};
struct uvm_free_590 { /* since 590 */
  uint64_t base;
  uint32_t status;
  uint32_t pad;
};
struct uvm_peer_access { /* UVM_ENABLE_PEER_ACCESS_PARAMS */
  struct uvm_uuid uuid_a, uuid_b;
  uint32_t status;
};
struct uvm_pageable_mem_access { /* UVM_PAGEABLE_MEM_ACCESS_PARAMS */
  uint8_t pageable_mem_access;
  uint8_t pad[3];
  uint32_t status;
};
struct uvm_pageable_mem_access_on_gpu { /* UVM_PAGEABLE_MEM_ACCESS_ON_GPU_PARAMS */
  struct uvm_uuid uuid;
  uint8_t pageable_mem_access;
  uint8_t pad[3];
  uint32_t status;
};
struct uvm_validate_va_range { /* UVM_VALIDATE_VA_RANGE_PARAMS */
  uint64_t base, length;
  uint32_t status;
  uint32_t pad;
};
struct uvm_is_8_supported { /* UVM_IS_8_SUPPORTED_PARAMS */
  uint32_t supported, status;
};

#pragma GCC diagnostic pop
#endif
