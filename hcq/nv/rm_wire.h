/* The wire format of /dev/nvidiactl and /dev/nvidia0...: requests, structures and constants of NVIDIA's resource
 * manager (RM).
 *
 * Source: NVIDIA open-gpu-kernel-modules, driver branches 535 to 595 (nv-ioctl.h, nvos.h, nv_escape.h, alloc/ and
 * class/ headers); a comment gives NVIDIA's name of each structure. Structures are those of the newest branch;
 * rm_branch.h has the differences between branches. Controls are in rm_control_wire.h, UVM in uvm_wire.h. Driver and
 * emulator both include this file.
 *
 * An ioctl returns 0 if the request was recognized and its structure was copied; RM's result is the status in the
 * structure. It returns -EINVAL for a wrong size, an unknown number, or a request that this kind of descriptor does not
 * accept. */
#ifndef DOORBELL_HCQ_NV_RM_WIRE_H
#define DOORBELL_HCQ_NV_RM_WIRE_H
#include <stdint.h>
#include "counters.h"
#include "rm_branch.h"
#include "rm_control_wire.h"
#include "uvm_wire.h"

/* Padding is declared, so that initializers clear it. Undeclared padding would pass bytes of the stack to the kernel
 * and into recorded traces. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

#define RM_CTL_DEVICE "/dev/nvidiactl"
#define RM_GPU_DEVICE "/dev/nvidia%u" /* minor number */
#define RM_UVM_DEVICE "/dev/nvidia-uvm"
/* "NVRM version: ... Kernel Module for x86_64  580.82.07 ..." */
#define RM_PROC_VERSION "/proc/driver/nvidia/version"
/* The parameters of the kernel module: lines "RmProfilingAdminOnly: 1". */
#define RM_PROC_PARAMS "/proc/driver/nvidia/params"
/* Exists only in the emulated module: the last channel error in one line, "" if there was none; the real module writes
 * it to the kernel's log. PCI domain, bus, slot. */
#define RM_PROC_XID "/proc/driver/nvidia/gpus/%04x:%02x:%02x.0/xid"

/* ---- requests: the kernel uses only the number and the size ---- */

#define RM_IO(nr, size)     (0xc0000000u | (uint32_t)(size) << 16 | 0x4600u | (uint32_t)(nr))
#define RM_IO_NR(request)   ((uint32_t)(request) & 0xff)
#define RM_IO_SIZE(request) ((uint32_t)(request) >> 16 & 0x3fff)
#define RM_IO_TYPE(request) ((uint32_t)(request) >> 8 & 0xff)
enum { RM_IO_MAGIC = 'F' };

enum rm_nr {                                  /* structure; descriptor */
             RM_NR_ALLOC_MEMORY = 0x27,       /* rm_alloc_memory_fd; nvidiaN */
             RM_NR_FREE = 0x29,               /* rm_free; ctl, like all below unless stated otherwise */
             RM_NR_CONTROL = 0x2a,            /* rm_control */
             RM_NR_ALLOC = 0x2b,              /* rm_alloc or rm_alloc_short, distinguished by size */
             RM_NR_DUP_OBJECT = 0x34,         /* rm_dup_object */
             RM_NR_MAP_MEMORY = 0x4e,         /* rm_map_memory_fd; its fd is the one to be mapped */
             RM_NR_UNMAP_MEMORY = 0x4f,       /* rm_unmap_memory */
             RM_NR_GET_EVENT_DATA = 0x52,     /* rm_get_event_data; the event's descriptor */
             RM_NR_MAP_MEMORY_DMA = 0x57,     /* rm_map_memory_dma */
             RM_NR_UNMAP_MEMORY_DMA = 0x58,   /* rm_unmap_memory_dma */
             RM_NR_UPDATE_MAPPING = 0x5e,     /* rm_update_mapping */
             RM_NR_CARD_INFO = 0xc8,          /* rm_card_info[] */
             RM_NR_REGISTER_FD = 0xc9,        /* rm_register_fd; nvidiaN, once */
             RM_NR_ALLOC_OS_EVENT = 0xce,     /* rm_os_event; any */
             RM_NR_FREE_OS_EVENT = 0xcf,      /* rm_os_event; any */
             RM_NR_STATUS_CODE = 0xd1,        /* rm_status_code */
             RM_NR_VERSION = 0xd2,            /* rm_version */
             RM_NR_XFER = 0xd3,               /* rm_xfer; any */
             RM_NR_ATTACH_GPUS = 0xd4,        /* uint32_t gpu_id[] */
             RM_NR_SYS_PARAMS = 0xd6,         /* rm_sys_params */
             RM_NR_WAIT_OPEN_COMPLETE = 0xda, /* rm_wait_open_complete; nvidiaN, since 550 */
};

/* ---- escapes ---- */

struct rm_version { /* nv_ioctl_rm_api_version_t */
  uint32_t cmd, reply;
  char string[64];
};
/* cmd: 0 compares strings and fails with -EINVAL if they differ, '1' compares up to the first dot, '2' returns the
 * module's version. reply becomes 1 if the request was understood. */
enum { RM_VERSION_STRICT = 0, RM_VERSION_RELAXED = '1', RM_VERSION_QUERY = '2' };

struct rm_pci_info { /* nv_pci_info_t */
  uint32_t domain;
  uint8_t bus, slot, function;
  uint8_t pad[1];
  uint16_t vendor_id, device_id;
};
struct rm_card_info { /* nv_ioctl_card_info_t */
  uint8_t valid;
  uint8_t pad[3];
  struct rm_pci_info pci_info;
  uint32_t gpu_id;
  uint16_t interrupt_line;
  uint8_t pad2[2];
  uint64_t reg_address, reg_size, fb_address, fb_size;
  uint32_t minor;
  uint8_t dev_name[10];
  uint8_t pad3[2];
};
enum { RM_CARDS_MAX = 32 }; /* maximum number of GPUs of a system; entries with valid 0 are padding */

struct rm_register_fd { /* nv_ioctl_register_fd_t */
  int32_t ctl_fd;
};
struct rm_os_event { /* nv_ioctl_alloc_os_event_t */
  uint32_t client, device, fd, status;
};
struct rm_xfer { /* nv_ioctl_xfer_t */
  uint32_t cmd, size;
  uint64_t ptr;
};
struct rm_sys_params { /* nv_ioctl_sys_params_t */
  uint64_t memblock_size;
};
struct rm_status_code { /* nv_ioctl_status_code_t */
  uint32_t domain;
  uint8_t bus, slot;
  uint8_t pad[2];
  uint32_t status;
};
struct rm_wait_open_complete { /* nv_ioctl_wait_open_complete_t */
  int32_t rc;
  uint32_t adapter_status;
};

/* ---- calls ---- */

struct rm_alloc { /* NVOS64_PARAMETERS */
  uint32_t root, parent, object, class;
  uint64_t params, rights;
  uint32_t params_size, flags, status;
  uint32_t pad;
};
struct rm_alloc_short { /* NVOS21_PARAMETERS */
  uint32_t root, parent, object, class;
  uint64_t params;
  uint32_t params_size, status;
};
struct rm_free { /* NVOS00_PARAMETERS */
  uint32_t root, parent, object, status;
};
struct rm_control { /* NVOS54_PARAMETERS */
  uint32_t client, object, cmd, flags;
  uint64_t params;
  uint32_t params_size, status;
};
struct rm_dup_object { /* NVOS55_PARAMETERS */
  uint32_t client, parent, object, client_src, object_src, flags, status;
};
struct rm_alloc_memory { /* NVOS02_PARAMETERS */
  uint32_t root, parent, object, class, flags;
  uint32_t pad;
  uint64_t memory, limit;
  uint32_t status;
  uint32_t pad2;
};
struct rm_alloc_memory_fd { /* nv_ioctl_nvos02_parameters_with_fd */
  struct rm_alloc_memory params;
  int32_t fd;
  uint32_t pad;
};
struct rm_map_memory { /* NVOS33_PARAMETERS */
  uint32_t client, device, memory;
  uint32_t pad;
  uint64_t offset, length, address;
  uint32_t status, flags;
};
struct rm_map_memory_fd { /* nv_ioctl_nvos33_parameters_with_fd */
  struct rm_map_memory params;
  int32_t fd;
  uint32_t pad;
};
struct rm_unmap_memory { /* NVOS34_PARAMETERS */
  uint32_t client, device, memory;
  uint32_t pad;
  uint64_t address;
  uint32_t status, flags;
};
struct rm_map_memory_dma { /* NVOS46_PARAMETERS */
  uint32_t client, device, dma, memory;
  uint64_t offset, length;
  uint32_t flags, flags2, kind_override;
  uint32_t pad;
  uint64_t dma_offset;
  uint32_t status;
  uint32_t pad2;
};
struct rm_map_memory_dma_575 { /* NVOS46_PARAMETERS up to 575 */
  uint32_t client, device, dma, memory;
  uint64_t offset, length;
  uint32_t flags;
  uint32_t pad;
  uint64_t dma_offset;
  uint32_t status;
  uint32_t pad2;
};
struct rm_unmap_memory_dma { /* NVOS47_PARAMETERS */
  uint32_t client, device, dma, memory, flags;
  uint32_t pad;
  uint64_t dma_offset, size;
  uint32_t status;
  uint32_t pad2;
};
struct rm_unmap_memory_dma_545 { /* NVOS47_PARAMETERS up to 545 */
  uint32_t client, device, dma, memory, flags;
  uint32_t pad;
  uint64_t dma_offset;
  uint32_t status;
  uint32_t pad2;
};
struct rm_get_event_data { /* NVOS41_PARAMETERS */
  uint64_t event;
  uint32_t more_events, status;
};
struct rm_update_mapping { /* NVOS56_PARAMETERS */
  uint32_t client, device, memory;
  uint32_t pad;
  uint64_t old_cpu_address, new_cpu_address;
  uint32_t status;
  uint32_t pad2;
};
struct rm_event { /* NvUnixEvent */
  uint32_t object, notify_index, info32;
  uint16_t info16;
  uint8_t pad[2];
};

/* Status codes (nvstatuscodes.h). */
#define RM_STATUSES(X)                                                                                                 \
  X(OK, 0x0)                                                                                                           \
  X(BUFFER_TOO_SMALL, 0x2)                                                                                             \
  X(GPU_IS_LOST, 0xf)                                                                                                  \
  X(IN_USE, 0x17)                                                                                                      \
  X(INSERT_DUPLICATE_NAME, 0x19)                                                                                       \
  X(INSUFFICIENT_RESOURCES, 0x1a)                                                                                      \
  X(INSUFFICIENT_PERMISSIONS, 0x1b)                                                                                    \
  X(INVALID_ADDRESS, 0x1e)                                                                                             \
  X(INVALID_ARGUMENT, 0x1f) /* a control's wrong size too */                                                           \
  X(INVALID_CLASS, 0x22)                                                                                               \
  X(INVALID_CLIENT, 0x23)                                                                                              \
  X(INVALID_COMMAND, 0x24)                                                                                             \
  X(INVALID_DEVICE, 0x26)                                                                                              \
  X(INVALID_FLAGS, 0x29)                                                                                               \
  X(INVALID_OBJECT, 0x31)                                                                                              \
  X(INVALID_OBJECT_HANDLE, 0x33)                                                                                       \
  X(INVALID_OBJECT_PARENT, 0x36)                                                                                       \
  X(INVALID_OFFSET, 0x37)                                                                                              \
  X(INVALID_PARAM_STRUCT, 0x3a)                                                                                        \
  X(INVALID_PARAMETER, 0x3b)                                                                                           \
  X(INVALID_STATE, 0x40)                                                                                               \
  X(NO_MEMORY, 0x51)                                                                                                   \
  X(NOT_READY, 0x55)                                                                                                   \
  X(NOT_SUPPORTED, 0x56)                                                                                               \
  X(OBJECT_NOT_FOUND, 0x57)                                                                                            \
  X(PAGE_TABLE_NOT_AVAIL, 0x5d)                                                                                        \
  X(RC_ERROR, 0x60)                                                                                                    \
  X(RESET_REQUIRED, 0x62)                                                                                              \
  X(STATE_IN_USE, 0x63)                                                                                                \
  X(TIMEOUT, 0x65)                                                                                                     \
  X(UVM_ADDRESS_IN_USE, 0x68)                                                                                          \
  X(LIB_RM_VERSION_MISMATCH, 0x6a)                                                                                     \
  X(FABRIC_MANAGER_NOT_PRESENT, 0x7a)                                                                                  \
  X(NVLINK_FABRIC_NOT_READY, 0x81)                                                                                     \
  X(GENERIC, 0xffff)                                                                                                   \
  X(WARN_NOTHING_TO_DO, 0x10006) /* treated like OK */
enum rm_status {
#define RM_STATUS_ENUM(name, value) RM_##name = value,
  RM_STATUSES(RM_STATUS_ENUM)
#undef RM_STATUS_ENUM
};
static inline const char *rm_status_name(uint32_t status) {
  switch (status) {
#define RM_STATUS_CASE(name, value)                                                                                    \
  case value: return #name;
    RM_STATUSES(RM_STATUS_CASE)
#undef RM_STATUS_CASE
  default: return "unknown status";
  }
}

/* ---- classes ---- */

enum rm_class {                                  /* parent; parameters */
                RM_CLASS_ROOT = 0x0,             /* RM treats it like 0x41 */
                RM_CLASS_ROOT_NON_PRIV = 0x1,    /* the same */
                RM_CLASS_CLIENT = 0x41,          /* none; rm_client_alloc or none */
                RM_CLASS_DEVICE = 0x80,          /* client; rm_device_alloc */
                RM_CLASS_SUBDEVICE = 0x2080,     /* device; rm_subdevice_alloc */
                RM_CLASS_EVENT = 0x5,            /* NV01_EVENT */
                RM_CLASS_EVENT_OS = 0x79,        /* any; rm_event_alloc */
                RM_CLASS_MEMORY_SYSTEM = 0x3e,   /* device; rm_memory_alloc */
                RM_CLASS_MEMORY_LOCAL = 0x40,    /* device; rm_memory_alloc */
                RM_CLASS_MEMORY_VIRTUAL = 0x70,  /* device; rm_memory_virtual_alloc */
                RM_CLASS_OS_DESCRIPTOR = 0x71,   /* device; by RM_NR_ALLOC_MEMORY */
                RM_CLASS_MEMORY_VA = 0x50a0,     /* NV50_MEMORY_VIRTUAL: device; rm_memory_alloc */
                RM_CLASS_VASPACE = 0x90f1,       /* device; rm_vaspace_alloc */
                RM_CLASS_CHANNEL_GROUP = 0xa06c, /* device; rm_channel_group_alloc */
                RM_CLASS_CTXSHARE = 0x9067,      /* channel group; rm_ctxshare_alloc */
                RM_CLASS_DEBUGGER = 0x83de,      /* device; rm_debugger_alloc */
                RM_CLASS_P2P = 0x503b,
                RM_CLASS_PROFILER = 0xb2cc,             /* MAXWELL_PROFILER_DEVICE: subdevice; rm_profiler_alloc */
                RM_CLASS_COUNTERS = NV_CLASS_COUNTERS,  /* channel; none. Emulated GPUs only (counters.h) */
                RM_CLASS_CONFIDENTIAL_COMPUTE = 0xcb33, /* client; uint32_t client */
                RM_CLASS_INLINE_TO_MEMORY = 0xa140,
                RM_CLASS_SMC_PARTITION = 0xc637,
                /* Usermode register page; subdevice; rm_usermode_alloc or none. */
                RM_CLASS_USERMODE_VOLTA = 0xc361,
                RM_CLASS_USERMODE_TURING = 0xc461,
                RM_CLASS_USERMODE_AMPERE = 0xc561,
                RM_CLASS_USERMODE_HOPPER = 0xc661,
                RM_CLASS_USERMODE_BLACKWELL = 0xc761,
                /* Channels; channel group or device; rm_channel_alloc. */
                RM_CLASS_GPFIFO_VOLTA = 0xc36f,
                RM_CLASS_GPFIFO_TURING = 0xc46f,
                RM_CLASS_GPFIFO_AMPERE = 0xc56f,
                RM_CLASS_GPFIFO_HOPPER = 0xc86f,
                RM_CLASS_GPFIFO_BLACKWELL_A = 0xc96f,
                RM_CLASS_GPFIFO_BLACKWELL_B = 0xca6f,
                /* Compute; channel; rm_gr_alloc or none. */
                RM_CLASS_COMPUTE_AMPERE_A = 0xc6c0,
                RM_CLASS_COMPUTE_AMPERE_B = 0xc7c0,
                RM_CLASS_COMPUTE_ADA = 0xc9c0,
                RM_CLASS_COMPUTE_HOPPER = 0xcbc0,
                RM_CLASS_COMPUTE_BLACKWELL_A = 0xcdc0,
                RM_CLASS_COMPUTE_BLACKWELL_B = 0xcec0,
                /* Copy; channel; rm_copy_alloc or none. */
                RM_CLASS_COPY_AMPERE_A = 0xc6b5,
                RM_CLASS_COPY_AMPERE_B = 0xc7b5,
                RM_CLASS_COPY_HOPPER = 0xc8b5,
                RM_CLASS_COPY_BLACKWELL_A = 0xc9b5,
                RM_CLASS_COPY_BLACKWELL_B = 0xcab5,
};

/* NV2080_ENGINE_TYPE. */
enum rm_engine { RM_ENGINE_GR0 = 1, RM_ENGINE_COPY0 = 9, RM_ENGINE_COPY9 = 0x12, RM_ENGINE_COPY10 = 0x34 };
static inline uint32_t rm_engine_copy(unsigned i) {
  return i < 10 ? (uint32_t)RM_ENGINE_COPY0 + i : (uint32_t)RM_ENGINE_COPY10 + i - 10;
}

/* ---- allocation parameters: RM copies the size that it expects for the class, and so reads past the end of a shorter
 * buffer; it ignores params_size ---- */

enum { RM_ALLOC_PARAMS_MIN = 512 }; /* bytes to pass, zeroed, so a newer module reads zeros */

struct rm_client_alloc { /* NV0000_ALLOC_PARAMETERS */
  uint32_t client, process_id;
  char process_name[100];
  uint32_t pad;
  uint64_t os_pid_info;
};
struct rm_device_alloc { /* NV0080_ALLOC_PARAMETERS */
  uint32_t device_id, client_share, target_client, target_device, flags;
  uint32_t pad;
  uint64_t va_space_size, va_start_internal, va_limit_internal;
  uint32_t va_mode;
  uint32_t pad2;
};
struct rm_subdevice_alloc { /* NV2080_ALLOC_PARAMETERS */
  uint32_t sub_device_id;
};
struct rm_usermode_alloc { /* NV_HOPPER_USERMODE_A_PARAMS */
  uint8_t bar1_mapping, priv;
};
struct rm_event_alloc { /* NV0005_ALLOC_PARAMETERS */
  uint32_t parent_client, src_resource, class, notify_index;
  uint64_t data;
};
/* Event of a subdevice (ctrl/ctrl2080/ctrl2080event.h, NV2080_NOTIFIERS_RC_ERROR): a channel of the GPU had an error,
 * which may belong to another process. */
enum { RM_EVENT_RC_ERROR = 37, RM_EVENT_REPEAT = 2 /* rm_event_set_notification.action */ };
struct rm_memory_virtual_alloc { /* NV_MEMORY_VIRTUAL_ALLOCATION_PARAMS */
  uint64_t offset, limit;
  uint32_t va_space;
  uint32_t pad;
};
struct rm_vaspace_alloc { /* NV_VASPACE_ALLOCATION_PARAMETERS */
  uint32_t index, flags;
  uint64_t va_size, va_start_internal, va_limit_internal;
  uint32_t big_page_size;
  uint32_t pad;
  uint64_t va_base;
  uint32_t pasid;
  uint32_t pad2;
};
enum { RM_VASPACE_EXTERNALLY_OWNED = 1u << 3, RM_VASPACE_PAGE_FAULTING = 1u << 6 };
struct rm_memory_alloc { /* NV_MEMORY_ALLOCATION_PARAMS */
  uint32_t owner, type, flags, width, height;
  int32_t pitch;
  uint32_t attr, attr2, format, compr_covg, zcull_covg;
  uint32_t pad;
  uint64_t range_lo, range_hi, size, alignment, offset, limit, address;
  uint32_t ctag_offset, va_space, internal_flags, tag;
  int32_t numa_node;
  uint32_t pad2;
};
enum rm_memory_type { RM_MEMORY_TYPE_IMAGE = 0, RM_MEMORY_TYPE_NOTIFIER = 13 };
enum rm_memory_flags {
  RM_MEMORY_IGNORE_BANK_PLACEMENT = 0x1,
  RM_MEMORY_FIXED_ADDRESS = 0x10,
  RM_MEMORY_ALIGNMENT_FORCE = 0x100,
  RM_MEMORY_HANDLE_PROVIDED = 0x4000,
  RM_MEMORY_MAP_NOT_REQUIRED = 0x8000,
  RM_MEMORY_PERSISTENT_VIDMEM = 0x10000,
  RM_MEMORY_IS_VIRTUAL = 0x80000,
  RM_MEMORY_SPARSE = 0x4000000,
};
/* attr */
#define RM_ATTR_PAGE_SIZE(v)   ((uint32_t)(v) << 23) /* rm_page_size */
#define RM_ATTR_LOCATION(v)    ((uint32_t)(v) << 25)
#define RM_ATTR_PHYSICALITY(v) ((uint32_t)(v) << 27)
#define RM_ATTR_COHERENCY(v)   ((uint32_t)(v) << 29)
enum rm_page_size { RM_PAGE_DEFAULT = 0, RM_PAGE_4K = 1, RM_PAGE_BIG = 2, RM_PAGE_HUGE = 3 };
enum rm_location { RM_LOCATION_VIDMEM = 0, RM_LOCATION_PCI = 1, RM_LOCATION_ANY = 3 };
enum rm_physicality {
  RM_PHYS_DEFAULT = 0,
  RM_PHYS_NONCONTIGUOUS = 1,
  RM_PHYS_CONTIGUOUS = 2,
  RM_PHYS_ALLOW_NONCONTIGUOUS = 3
};
enum rm_coherency { RM_UNCACHED = 0, RM_CACHED = 1, RM_WRITE_COMBINE = 2, RM_WRITE_BACK = 5 };
/* attr2 */
#define RM_ATTR2_ZBC(v)                ((uint32_t)(v) << 0)  /* 1: prefer none */
#define RM_ATTR2_GPU_CACHEABLE(v)      ((uint32_t)(v) << 2)  /* 1 yes, 2 no */
#define RM_ATTR2_HUGE_SIZE(v)          ((uint32_t)(v) << 20) /* 1: 2 MiB */
#define RM_ATTR2_READ_ONLY_FOR_USER(v) ((uint32_t)(v) << 22)

/* flags of rm_alloc_memory */
#define RM_OS02_PHYSICALITY(v) ((uint32_t)(v) << 4)  /* 0 contiguous, 1 not */
#define RM_OS02_LOCATION(v)    ((uint32_t)(v) << 8)  /* 0 PCI, 2 vidmem */
#define RM_OS02_COHERENCY(v)   ((uint32_t)(v) << 12) /* rm_coherency */
#define RM_OS02_MAPPING(v)     ((uint32_t)(v) << 30) /* 1: none for the kernel */
/* flags of rm_map_memory_dma */
enum { RM_DMA_CACHE_SNOOP = 1u << 4, RM_DMA_OFFSET_FIXED = 1u << 15 };

struct rm_channel_group_alloc { /* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS */
  uint32_t error_memory, ecc_error_memory, va_space, engine_type;
  uint8_t vgpu_plugin;
  uint8_t pad[3];
};
struct rm_ctxshare_alloc { /* NV_CTXSHARE_ALLOCATION_PARAMETERS */
  uint32_t va_space, flags, subctx_id;
};
enum { RM_CTXSHARE_ASYNC = 1 };
struct rm_memory_desc { /* NV_MEMORY_DESC_PARAMS */
  uint64_t base, size;
  uint32_t address_space, cache_attrib;
};
struct rm_channel_alloc { /* NV_CHANNEL_ALLOC_PARAMS */
  uint32_t error_memory, buffer;
  uint64_t gpfifo_va;
  uint32_t gpfifo_entries, flags, ctxshare, va_space, userd_memory[8];
  uint64_t userd_offset[8];
  uint32_t engine_type, cid, sub_device_id, ecc_error_memory;
  struct rm_memory_desc instance_mem, userd_mem, ramfc_mem, mthdbuf_mem;
  uint32_t phys_channel_group, internal_flags;
  struct rm_memory_desc error_notifier_mem, ecc_error_notifier_mem;
  uint32_t process_id, sub_process_id, encrypt_iv[3], decrypt_iv[3], hmac_nonce[8], tpc_config_id;
  uint32_t pad;
};
struct rm_copy_alloc { /* NVB0B5_ALLOCATION_PARAMETERS */
  uint32_t version, engine_type;
};
enum { RM_COPY_ALLOC_INSTANCE = 0, RM_COPY_ALLOC_ENGINE = 1 }; /* version: what engine_type holds */
struct rm_gr_alloc {                                           /* NV_GR_ALLOCATION_PARAMETERS */
  uint32_t version, flags, size, caps;
};
struct rm_profiler_alloc {                /* NVB2CC_ALLOC_PARAMETERS */
  uint32_t client_target, context_target; /* 0, 0: no commands that concern a context */
};
struct rm_debugger_alloc { /* NV83DE_ALLOC_PARAMETERS */
  uint32_t debugger_client, app_client, object;
};

/* ---- memory that host and device share for a channel ---- */

struct rm_userd { /* Nvc86fControl, 512 bytes; only these two fields are used */
  uint32_t ignored0[34];
  uint32_t gp_get; /* number of entries that the host engine has fetched, modulo the ring's size */
  uint32_t gp_put; /* index of the next free entry */
  uint32_t ignored1[92];
};
struct rm_notification {     /* NvNotification; entry 0 of a channel's error memory reports errors */
  uint32_t time_lo, time_hi; /* ns */
  uint32_t info32;           /* error code, ROBUST_CHANNEL_*: the number that the kernel's log calls Xid */
  uint16_t info16;           /* NV2080 engine type */
  uint16_t status;           /* 0 before, 0xffff after an error */
};
enum { RM_NOTIFIER_ERROR = 0, RM_NOTIFIER_TOKEN = 1, RM_NOTIFIERS = 3, RM_NOTIFICATION_ERROR = 0xffff };

/* Usermode register page. */
enum { RM_USERMODE_SIZE = 0x10000, RM_USERMODE_TIME_0 = 0x80, RM_USERMODE_TIME_1 = 0x84, RM_USERMODE_DOORBELL = 0x90 };
/* Work submit token, written to the doorbell: channel id in bits 11:0, runlist in 22:16. */
#define RM_TOKEN_CHANNEL(token)    ((token) & 0xfff)
#define RM_TOKEN_RUNLIST(token)    ((token) >> 16 & 0x7f)
#define RM_TOKEN(channel, runlist) ((uint32_t)(channel) | (uint32_t)(runlist) << 16)

/* Xid numbers (nverror.h). */
enum rm_xid {
  RM_XID_GR_EXCEPTION = 13,
  RM_XID_MMU_FAULT = 31,
  RM_XID_PBDMA = 32,
  RM_XID_CE0 = 39,
  RM_XID_CE3 = 70,
  RM_XID_RESET_CHANNEL = 43,
  RM_XID_PREEMPTIVE_REMOVAL = 45,
  RM_XID_ECC_DBE = 48,
  RM_XID_GR_CLASS = 69,
  RM_XID_OFF_THE_BUS = 79,
  RM_XID_CONTAINED = 94,
  RM_XID_UNCONTAINED = 95,
  RM_XID_CTXSW_TIMEOUT = 109,
};

#pragma GCC diagnostic pop
#endif
