/* AMD GPU code objects (HSA ABI, versions 3 to 6): ELF files with kernel descriptors and MessagePack metadata. Both
 * linked files (clang's output) and unlinked files (from LLVM's code generator through its C API) are accepted.
 * Sources: LLVM's AMDGPUUsage (code object, kernel descriptor, metadata, implicit kernel arguments). */
#ifndef DOORBELL_HCQ_AMD_CODE_OBJECT_H
#define DOORBELL_HCQ_AMD_CODE_OBJECT_H
#include "../bits.h"
#include "../elf/elf.h"

/* The 64 bytes at symbol NAME.kd, as stored in the file. */
struct kernel_descriptor {
  uint32_t group_segment_fixed_size, private_segment_fixed_size, kernarg_size, reserved0;
  int64_t kernel_code_entry_byte_offset; /* relative to the descriptor's address */
  uint8_t reserved1[20];
  uint32_t compute_pgm_rsrc3, compute_pgm_rsrc1, compute_pgm_rsrc2;
  uint16_t kernel_code_properties, kernarg_preload;
  uint8_t reserved2[4];
};
_Static_assert(sizeof(struct kernel_descriptor) == 64, "a kernel descriptor is 64 bytes");

/* KERNEL_CODE_PROPERTIES: the user SGPRs that the kernel expects, in this order, from s0; and its wave size. */
enum {
  BITS_ENUM(KERNEL_CODE_PRIVATE_SEGMENT_BUFFER, 0, 0) BITS_ENUM(KERNEL_CODE_DISPATCH_PTR, 1, 1)
      BITS_ENUM(KERNEL_CODE_QUEUE_PTR, 2, 2) BITS_ENUM(KERNEL_CODE_KERNARG_SEGMENT_PTR, 3, 3)
          BITS_ENUM(KERNEL_CODE_DISPATCH_ID, 4, 4) BITS_ENUM(KERNEL_CODE_FLAT_SCRATCH_INIT, 5, 5)
              BITS_ENUM(KERNEL_CODE_PRIVATE_SEGMENT_SIZE, 6, 6) BITS_ENUM(KERNEL_CODE_WAVEFRONT_SIZE32, 10, 10)
                  BITS_ENUM(KERNEL_CODE_USES_DYNAMIC_STACK, 11, 11)
};

/* Values of .value_kind: K(enumerator, name, size in bytes or 0 if the kind does not determine it). The driver fills in
 * hidden arguments. */
/* clang-format off */
#define CODE_OBJECT_VALUE_KINDS(K) \
  K(BY_VALUE, "by_value", 0) \
  K(GLOBAL_BUFFER, "global_buffer", 8) \
  K(DYNAMIC_SHARED_POINTER, "dynamic_shared_pointer", 4) \
  K(SAMPLER, "sampler", 0) \
  K(IMAGE, "image", 0) \
  K(PIPE, "pipe", 0) \
  K(QUEUE, "queue", 0) \
  K(HIDDEN_GLOBAL_OFFSET_X, "hidden_global_offset_x", 8) \
  K(HIDDEN_GLOBAL_OFFSET_Y, "hidden_global_offset_y", 8) \
  K(HIDDEN_GLOBAL_OFFSET_Z, "hidden_global_offset_z", 8) \
  K(HIDDEN_NONE, "hidden_none", 0) \
  K(HIDDEN_PRINTF_BUFFER, "hidden_printf_buffer", 8) \
  K(HIDDEN_HOSTCALL_BUFFER, "hidden_hostcall_buffer", 8) \
  K(HIDDEN_DEFAULT_QUEUE, "hidden_default_queue", 8) \
  K(HIDDEN_COMPLETION_ACTION, "hidden_completion_action", 8) \
  K(HIDDEN_MULTIGRID_SYNC_ARG, "hidden_multigrid_sync_arg", 8) \
  K(HIDDEN_BLOCK_COUNT_X, "hidden_block_count_x", 4) \
  K(HIDDEN_BLOCK_COUNT_Y, "hidden_block_count_y", 4) \
  K(HIDDEN_BLOCK_COUNT_Z, "hidden_block_count_z", 4) \
  K(HIDDEN_GROUP_SIZE_X, "hidden_group_size_x", 2) \
  K(HIDDEN_GROUP_SIZE_Y, "hidden_group_size_y", 2) \
  K(HIDDEN_GROUP_SIZE_Z, "hidden_group_size_z", 2) \
  K(HIDDEN_REMAINDER_X, "hidden_remainder_x", 2) \
  K(HIDDEN_REMAINDER_Y, "hidden_remainder_y", 2) \
  K(HIDDEN_REMAINDER_Z, "hidden_remainder_z", 2) \
  K(HIDDEN_GRID_DIMS, "hidden_grid_dims", 2) \
  K(HIDDEN_HEAP_V1, "hidden_heap_v1", 8) \
  K(HIDDEN_DYNAMIC_LDS_SIZE, "hidden_dynamic_lds_size", 4) \
  K(HIDDEN_PRIVATE_BASE, "hidden_private_base", 4) \
  K(HIDDEN_SHARED_BASE, "hidden_shared_base", 4) \
  K(HIDDEN_QUEUE_PTR, "hidden_queue_ptr", 8)
/* clang-format on */
#define CODE_OBJECT_KIND_ENUM(enumerator, name, bytes) CODE_OBJECT_##enumerator,
enum code_object_kind { CODE_OBJECT_VALUE_KINDS(CODE_OBJECT_KIND_ENUM) CODE_OBJECT_KINDS };
static inline bool code_object_is_hidden(enum code_object_kind kind) {
  return kind >= CODE_OBJECT_HIDDEN_GLOBAL_OFFSET_X;
}

struct code_object_arg {
  const char *name; /* "" if the compiler omitted it */
  uint32_t offset, size;
  enum code_object_kind kind;
};

struct code_object_kernel {
  const char *name; /* as called: "saxpy" */
  struct code_object_arg *args;
  unsigned nargs; /* explicit and hidden arguments, in ascending order of offset, all within kernarg_size */
  uint32_t kernarg_size, kernarg_align;
  uint32_t group_bytes;   /* static local memory per workgroup */
  uint32_t private_bytes; /* scratch per work-item */
  uint32_t wavefront_size;
  uint32_t max_flat_workgroup_size;    /* 1024 if the file does not specify it */
  uint32_t reqd_workgroup_size[3];     /* 0, 0, 0 if any size is allowed */
  bool dynamic_stack;                  /* private_bytes is a lower bound */
  uint64_t descriptor_offset;          /* in the image */
  uint64_t entry_offset;               /* first instruction, in the image */
  struct kernel_descriptor descriptor; /* relocated */
};

struct code_object {
  struct elf elf;
  struct elf_image image;
  unsigned version; /* 3 to 6; from version 5 on hidden arguments differ, and the kernels list them */
  char arch[24];    /* "gfx1100" */
  struct code_object_kernel *kernels;
  unsigned nkernels;
  void *metadata; /* holds the strings */
};

/* Reads a code object that must run on arch (NULL for any). data must stay valid until code_object_close. */
int code_object_open(struct code_object *co, const void *data, size_t size, const char *arch);
void code_object_close(struct code_object *co);
/* Finds a kernel by name; NULL finds the only kernel. On failure returns NULL, and the message lists the kernels. */
const struct code_object_kernel *code_object_find(const struct code_object *co, const char *name);
/* Writes the image (image.size bytes), relocated to run at address, which is a multiple of image.align. */
int code_object_load(const struct code_object *co, void *dst, uint64_t address);

#endif
