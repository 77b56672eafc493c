/* The wire format of /dev/kfd: requests, structures and constants of the AMD compute kernel driver, interface version
 * 1.17.
 *
 * Source: linux/kfd_ioctl.h, the kernel's user interface, which is stable: later versions only append members, and the
 * kernel copies the smaller of both sizes and zero-fills the rest. It is repeated here because distributions ship
 * headers as old as 1.11; a test compares the layouts with the installed header. Driver and emulator both include this
 * file. */
#ifndef DOORBELL_HCQ_AMD_KFD_H
#define DOORBELL_HCQ_AMD_KFD_H
#include <stdint.h>
#include <sys/ioctl.h>

/* Padding is declared, so that initializers clear it. Undeclared padding would pass bytes of the stack to the kernel
 * and into recorded traces. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

#define KFD_DEVICE               "/dev/kfd"
#define KFD_TOPOLOGY             "/sys/devices/virtual/kfd/kfd/topology"
#define KFD_VERSION_MAJOR        1
#define KFD_VERSION_MINOR        17 /* the interface described here */
#define KFD_VERSION_MINOR_NEEDED 6

struct kfd_get_version {
  uint32_t major_version, minor_version; /* out */
};

enum kfd_queue_type {
  KFD_QUEUE_COMPUTE = 0, /* PM4 */
  KFD_QUEUE_SDMA = 1,
  KFD_QUEUE_COMPUTE_AQL = 2,
  KFD_QUEUE_SDMA_XGMI = 3,
  KFD_QUEUE_SDMA_BY_ENGINE = 4,
};
#define KFD_QUEUE_RING_MIN       1024u
#define KFD_QUEUE_PERCENTAGE_MAX 100u
#define KFD_QUEUE_PRIORITY_MAX   15u

struct kfd_create_queue {
  uint64_t ring_base_address, write_pointer_address, read_pointer_address; /* in */
  uint64_t doorbell_offset; /* out: offset for mmap of /dev/kfd, with the slot in the low bits */
  uint32_t ring_size, gpu_id, queue_type, queue_percentage, queue_priority;
  uint32_t queue_id; /* out */
  uint64_t eop_buffer_address, eop_buffer_size;
  uint64_t ctx_save_restore_address;
  uint32_t ctx_save_restore_size, ctl_stack_size;
  uint32_t sdma_engine_id, pad; /* since 1.17 */
};

struct kfd_destroy_queue {
  uint32_t queue_id, pad;
};

struct kfd_update_queue {
  uint64_t ring_base_address;
  uint32_t queue_id, ring_size, queue_percentage, queue_priority;
};

struct kfd_get_clock_counters {
  uint64_t gpu_clock_counter, cpu_clock_counter, system_clock_counter, system_clock_freq; /* out */
  uint32_t gpu_id, pad;
};

struct kfd_apertures {
  uint64_t lds_base, lds_limit, scratch_base, scratch_limit, gpuvm_base, gpuvm_limit;
  uint32_t gpu_id, pad;
};

struct kfd_get_process_apertures_new {
  uint64_t apertures_ptr; /* struct kfd_apertures[num_of_nodes] */
  uint32_t num_of_nodes;  /* in: capacity; out: number filled in, or the number available if the capacity was 0 */
  uint32_t pad;
};

struct kfd_set_memory_policy {
  uint64_t alternate_aperture_base, alternate_aperture_size;
  uint32_t gpu_id, default_policy, alternate_policy, pad;
};

enum kfd_event_type { KFD_EVENT_SIGNAL = 0, KFD_EVENT_HW_EXCEPTION = 3, KFD_EVENT_MEMORY = 8 };
#define KFD_EVENT_LIMIT      4096u
#define KFD_EVENT_PAGE_SIZE  (KFD_EVENT_LIMIT * 8u)
#define KFD_EVENT_UNSIGNALED UINT64_MAX /* an idle slot of the event page */

struct kfd_create_event {
  /* in: handle of the event page for the first event on a discrete GPU, otherwise 0; out: offset for mmap of
   * /dev/kfd. */
  uint64_t event_page_offset;
  uint32_t event_trigger_data, event_type, auto_reset, node_id;
  uint32_t event_id, event_slot_index; /* out */
};

/* DESTROY_EVENT, SET_EVENT and RESET_EVENT. */
struct kfd_event_ref {
  uint32_t event_id, pad;
};

struct kfd_memory_exception {
  uint32_t not_present, read_only, no_execute, imprecise;
  uint64_t va;
  uint32_t gpu_id, error_type;
};
enum kfd_memory_error {
  KFD_MEMORY_ERROR_NONE,
  KFD_MEMORY_ERROR_SRAM_ECC,
  KFD_MEMORY_ERROR_POISON,
  KFD_MEMORY_ERROR_HANG
};

struct kfd_hw_exception {
  uint32_t reset_type;  /* 0 the whole GPU, 1 one engine */
  uint32_t reset_cause; /* 0 hang, 1 ECC */
  uint32_t memory_lost, gpu_id;
};

struct kfd_event_state { /* kfd_event_data of the kernel's header */
  union {
    struct kfd_memory_exception memory;
    struct kfd_hw_exception hw;
    uint64_t last_event_age; /* SIGNAL, since 1.13 */
  };
  uint64_t ext;
  uint32_t event_id, pad;
};

enum kfd_wait_result { KFD_WAIT_COMPLETE, KFD_WAIT_TIMEOUT, KFD_WAIT_FAIL };
struct kfd_wait_events {
  uint64_t events_ptr; /* struct kfd_event_state[num_events] */
  uint32_t num_events, wait_for_all;
  uint32_t timeout; /* ms; UINT32_MAX waits forever */
  uint32_t wait_result;
};

struct kfd_acquire_vm {
  uint32_t drm_fd, gpu_id;
};

enum {
  KFD_MEM_VRAM = 1u << 0,
  KFD_MEM_GTT = 1u << 1,
  KFD_MEM_USERPTR = 1u << 2,
  KFD_MEM_DOORBELL = 1u << 3,
  KFD_MEM_MMIO_REMAP = 1u << 4,
  KFD_MEM_EXT_COHERENT = 1u << 24,
  KFD_MEM_UNCACHED = 1u << 25,
  KFD_MEM_COHERENT = 1u << 26,
  KFD_MEM_AQL_QUEUE = 1u << 27,
  KFD_MEM_NO_SUBSTITUTE = 1u << 28,
  KFD_MEM_PUBLIC = 1u << 29,
  KFD_MEM_EXECUTABLE = 1u << 30,
};
#define KFD_MEM_WRITABLE (1u << 31)

struct kfd_alloc_memory {
  uint64_t va_addr, size;
  uint64_t handle;      /* out */
  uint64_t mmap_offset; /* in: host address for USERPTR; out: offset for mmap of the render node */
  uint32_t gpu_id, flags;
};

struct kfd_free_memory {
  uint64_t handle;
};

struct kfd_map_memory { /* MAP and UNMAP */
  uint64_t handle;
  uint64_t device_ids_array_ptr; /* uint32_t gpu_id[n_devices] */
  uint32_t n_devices, n_success;
};

struct kfd_set_xnack_mode {
  int32_t xnack_enabled;
};

struct kfd_available_memory {
  uint64_t available; /* out */
  uint32_t gpu_id, pad;
};

struct kfd_runtime_enable {
  uint64_t r_debug;
  uint32_t mode_mask, capabilities_mask;
};

_Static_assert(sizeof(struct kfd_get_version) == 8, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_create_queue) == 96, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_update_queue) == 24, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_get_clock_counters) == 40, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_apertures) == 56, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_get_process_apertures_new) == 16, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_set_memory_policy) == 32, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_create_event) == 32, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_event_state) == 48, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_wait_events) == 24, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_alloc_memory) == 40, "kfd_ioctl.h");
_Static_assert(sizeof(struct kfd_map_memory) == 24, "kfd_ioctl.h");

/* Request codes. The kernel selects the handler only by the number (KFD_NR). */
#define KFD_IOR(nr, type)  _IOR('K', nr, type)
#define KFD_IOW(nr, type)  _IOW('K', nr, type)
#define KFD_IOWR(nr, type) _IOWR('K', nr, type)
#define KFD_NR(request)    ((request) & 0xff)

#define KFD_GET_VERSION               KFD_IOR(0x01, struct kfd_get_version)
#define KFD_CREATE_QUEUE              KFD_IOWR(0x02, struct kfd_create_queue)
#define KFD_DESTROY_QUEUE             KFD_IOWR(0x03, struct kfd_destroy_queue)
#define KFD_SET_MEMORY_POLICY         KFD_IOW(0x04, struct kfd_set_memory_policy)
#define KFD_GET_CLOCK_COUNTERS        KFD_IOWR(0x05, struct kfd_get_clock_counters)
#define KFD_UPDATE_QUEUE              KFD_IOW(0x07, struct kfd_update_queue)
#define KFD_CREATE_EVENT              KFD_IOWR(0x08, struct kfd_create_event)
#define KFD_DESTROY_EVENT             KFD_IOW(0x09, struct kfd_event_ref)
#define KFD_SET_EVENT                 KFD_IOW(0x0a, struct kfd_event_ref)
#define KFD_RESET_EVENT               KFD_IOW(0x0b, struct kfd_event_ref)
#define KFD_WAIT_EVENTS               KFD_IOWR(0x0c, struct kfd_wait_events)
#define KFD_GET_PROCESS_APERTURES_NEW KFD_IOWR(0x14, struct kfd_get_process_apertures_new)
#define KFD_ACQUIRE_VM                KFD_IOW(0x15, struct kfd_acquire_vm)
#define KFD_ALLOC_MEMORY              KFD_IOWR(0x16, struct kfd_alloc_memory)
#define KFD_FREE_MEMORY               KFD_IOW(0x17, struct kfd_free_memory)
#define KFD_MAP_MEMORY                KFD_IOWR(0x18, struct kfd_map_memory)
#define KFD_UNMAP_MEMORY              KFD_IOWR(0x19, struct kfd_map_memory)
#define KFD_SET_XNACK_MODE            KFD_IOWR(0x21, struct kfd_set_xnack_mode)
#define KFD_AVAILABLE_MEMORY          KFD_IOWR(0x23, struct kfd_available_memory)
#define KFD_RUNTIME_ENABLE            KFD_IOWR(0x25, struct kfd_runtime_enable)

/* Doorbells: bits 63:62 of an mmap offset on /dev/kfd select the kind of mapping, bits 61:46 are the gpu_id. The
 * process's doorbells on one GPU are one mapping of exactly this size, 1024 slots of 8 bytes (amdkfd,
 * kfd_doorbell.c). */
#define KFD_DOORBELL_MAP_SIZE   8192u
#define KFD_MMAP_TYPE(offset)   ((unsigned)((uint64_t)(offset) >> 62))
#define KFD_MMAP_GPU_ID(offset) ((unsigned)((uint64_t)(offset) >> 46) & 0xffff)
/* Byte offset in the page of remapped registers: a store there flushes the host's writes to the GPU's memory. */
enum { KFD_MMIO_HDP_FLUSH = 0 };
enum kfd_mmap_type { KFD_MMAP_MMIO = 0, KFD_MMAP_RESERVED_MEM = 1, KFD_MMAP_EVENTS = 2, KFD_MMAP_DOORBELL = 3 };

#pragma GCC diagnostic pop
#endif
