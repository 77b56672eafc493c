/* Compares hcq/amd/kfd.h with the installed kernel header at compile time; see test_kfd_layout.c. The installed header
 * may be older than hcq/amd/kfd.h, so only what it declares is compared. */
#include "hcq/amd/kfd.h"
#include <linux/kfd_ioctl.h>
#include <stddef.h>

#define SAME(ours, our_member, theirs, their_member)                                                                   \
  _Static_assert(offsetof(struct ours, our_member) == offsetof(struct theirs, their_member) &&                         \
                     sizeof(((struct ours *)0)->our_member) == sizeof(((struct theirs *)0)->their_member),             \
                 #ours "." #our_member)
#define EQUAL(ours, theirs) _Static_assert((unsigned long)(ours) == (unsigned long)(theirs), #ours)

SAME(kfd_get_version, minor_version, kfd_ioctl_get_version_args, minor_version);
#define M(m) SAME(kfd_create_queue, m, kfd_ioctl_create_queue_args, m)
M(ring_base_address);
M(write_pointer_address);
M(read_pointer_address);
M(doorbell_offset);
M(ring_size);
M(gpu_id);
M(queue_type);
M(queue_percentage);
M(queue_priority);
M(queue_id);
M(eop_buffer_address);
M(eop_buffer_size);
M(ctx_save_restore_address);
M(ctx_save_restore_size);
M(ctl_stack_size);
#undef M
SAME(kfd_destroy_queue, queue_id, kfd_ioctl_destroy_queue_args, queue_id);
#define M(m) SAME(kfd_update_queue, m, kfd_ioctl_update_queue_args, m)
M(ring_base_address);
M(queue_id);
M(ring_size);
M(queue_percentage);
M(queue_priority);
#undef M
#define M(m) SAME(kfd_get_clock_counters, m, kfd_ioctl_get_clock_counters_args, m)
M(gpu_clock_counter);
M(cpu_clock_counter);
M(system_clock_counter);
M(system_clock_freq);
M(gpu_id);
#undef M
#define M(m) SAME(kfd_apertures, m, kfd_process_device_apertures, m)
M(lds_base);
M(lds_limit);
M(scratch_base);
M(scratch_limit);
M(gpuvm_base);
M(gpuvm_limit);
M(gpu_id);
#undef M
SAME(kfd_get_process_apertures_new, apertures_ptr, kfd_ioctl_get_process_apertures_new_args,
     kfd_process_device_apertures_ptr);
SAME(kfd_get_process_apertures_new, num_of_nodes, kfd_ioctl_get_process_apertures_new_args, num_of_nodes);
#define M(m) SAME(kfd_set_memory_policy, m, kfd_ioctl_set_memory_policy_args, m)
M(alternate_aperture_base);
M(alternate_aperture_size);
M(gpu_id);
M(default_policy);
M(alternate_policy);
#undef M
#define M(m) SAME(kfd_create_event, m, kfd_ioctl_create_event_args, m)
M(event_page_offset);
M(event_trigger_data);
M(event_type);
M(auto_reset);
M(node_id);
M(event_id);
M(event_slot_index);
#undef M
SAME(kfd_event_ref, event_id, kfd_ioctl_destroy_event_args, event_id);
SAME(kfd_event_ref, event_id, kfd_ioctl_set_event_args, event_id);
SAME(kfd_event_ref, event_id, kfd_ioctl_reset_event_args, event_id);
SAME(kfd_memory_exception, not_present, kfd_hsa_memory_exception_data, failure.NotPresent);
SAME(kfd_memory_exception, read_only, kfd_hsa_memory_exception_data, failure.ReadOnly);
SAME(kfd_memory_exception, no_execute, kfd_hsa_memory_exception_data, failure.NoExecute);
SAME(kfd_memory_exception, imprecise, kfd_hsa_memory_exception_data, failure.imprecise);
SAME(kfd_memory_exception, va, kfd_hsa_memory_exception_data, va);
SAME(kfd_memory_exception, gpu_id, kfd_hsa_memory_exception_data, gpu_id);
SAME(kfd_memory_exception, error_type, kfd_hsa_memory_exception_data, ErrorType);
#define M(m) SAME(kfd_hw_exception, m, kfd_hsa_hw_exception_data, m)
M(reset_type);
M(reset_cause);
M(memory_lost);
M(gpu_id);
#undef M
SAME(kfd_event_state, memory, kfd_event_data, memory_exception_data);
SAME(kfd_event_state, hw, kfd_event_data, hw_exception_data);
SAME(kfd_event_state, ext, kfd_event_data, kfd_event_data_ext);
SAME(kfd_event_state, event_id, kfd_event_data, event_id);
#define M(m) SAME(kfd_wait_events, m, kfd_ioctl_wait_events_args, m)
M(events_ptr);
M(num_events);
M(wait_for_all);
M(timeout);
M(wait_result);
#undef M
SAME(kfd_acquire_vm, drm_fd, kfd_ioctl_acquire_vm_args, drm_fd);
SAME(kfd_acquire_vm, gpu_id, kfd_ioctl_acquire_vm_args, gpu_id);
#define M(m) SAME(kfd_alloc_memory, m, kfd_ioctl_alloc_memory_of_gpu_args, m)
M(va_addr);
M(size);
M(handle);
M(mmap_offset);
M(gpu_id);
M(flags);
#undef M
SAME(kfd_free_memory, handle, kfd_ioctl_free_memory_of_gpu_args, handle);
#define M(m)                                                                                                           \
  SAME(kfd_map_memory, m, kfd_ioctl_map_memory_to_gpu_args, m);                                                        \
  SAME(kfd_map_memory, m, kfd_ioctl_unmap_memory_from_gpu_args, m)
M(handle);
M(device_ids_array_ptr);
M(n_devices);
M(n_success);
#undef M

EQUAL(KFD_GET_VERSION, AMDKFD_IOC_GET_VERSION);
EQUAL(KFD_NR(KFD_CREATE_QUEUE), KFD_NR(AMDKFD_IOC_CREATE_QUEUE)); /* grew by 8 bytes in 1.17 */
EQUAL(KFD_DESTROY_QUEUE, AMDKFD_IOC_DESTROY_QUEUE);
EQUAL(KFD_SET_MEMORY_POLICY, AMDKFD_IOC_SET_MEMORY_POLICY);
EQUAL(KFD_GET_CLOCK_COUNTERS, AMDKFD_IOC_GET_CLOCK_COUNTERS);
EQUAL(KFD_UPDATE_QUEUE, AMDKFD_IOC_UPDATE_QUEUE);
EQUAL(KFD_CREATE_EVENT, AMDKFD_IOC_CREATE_EVENT);
EQUAL(KFD_DESTROY_EVENT, AMDKFD_IOC_DESTROY_EVENT);
EQUAL(KFD_SET_EVENT, AMDKFD_IOC_SET_EVENT);
EQUAL(KFD_RESET_EVENT, AMDKFD_IOC_RESET_EVENT);
EQUAL(KFD_WAIT_EVENTS, AMDKFD_IOC_WAIT_EVENTS);
EQUAL(KFD_GET_PROCESS_APERTURES_NEW, AMDKFD_IOC_GET_PROCESS_APERTURES_NEW);
EQUAL(KFD_ACQUIRE_VM, AMDKFD_IOC_ACQUIRE_VM);
EQUAL(KFD_ALLOC_MEMORY, AMDKFD_IOC_ALLOC_MEMORY_OF_GPU);
EQUAL(KFD_FREE_MEMORY, AMDKFD_IOC_FREE_MEMORY_OF_GPU);
EQUAL(KFD_MAP_MEMORY, AMDKFD_IOC_MAP_MEMORY_TO_GPU);
EQUAL(KFD_UNMAP_MEMORY, AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU);
EQUAL(KFD_SET_XNACK_MODE, AMDKFD_IOC_SET_XNACK_MODE);
#ifdef AMDKFD_IOC_AVAILABLE_MEMORY
EQUAL(KFD_AVAILABLE_MEMORY, AMDKFD_IOC_AVAILABLE_MEMORY);
#endif
#ifdef AMDKFD_IOC_RUNTIME_ENABLE
EQUAL(KFD_RUNTIME_ENABLE, AMDKFD_IOC_RUNTIME_ENABLE);
#endif

EQUAL(KFD_VERSION_MAJOR, KFD_IOCTL_MAJOR_VERSION);
EQUAL(KFD_QUEUE_COMPUTE, KFD_IOC_QUEUE_TYPE_COMPUTE);
EQUAL(KFD_QUEUE_SDMA, KFD_IOC_QUEUE_TYPE_SDMA);
EQUAL(KFD_QUEUE_COMPUTE_AQL, KFD_IOC_QUEUE_TYPE_COMPUTE_AQL);
EQUAL(KFD_QUEUE_RING_MIN, KFD_MIN_QUEUE_RING_SIZE);
EQUAL(KFD_QUEUE_PERCENTAGE_MAX, KFD_MAX_QUEUE_PERCENTAGE);
EQUAL(KFD_EVENT_SIGNAL, KFD_IOC_EVENT_SIGNAL);
EQUAL(KFD_EVENT_HW_EXCEPTION, KFD_IOC_EVENT_HW_EXCEPTION);
EQUAL(KFD_EVENT_MEMORY, KFD_IOC_EVENT_MEMORY);
EQUAL(KFD_EVENT_LIMIT, KFD_SIGNAL_EVENT_LIMIT);
EQUAL(KFD_WAIT_COMPLETE, KFD_IOC_WAIT_RESULT_COMPLETE);
EQUAL(KFD_WAIT_TIMEOUT, KFD_IOC_WAIT_RESULT_TIMEOUT);
EQUAL(KFD_WAIT_FAIL, KFD_IOC_WAIT_RESULT_FAIL);
EQUAL(KFD_MEMORY_ERROR_HANG, KFD_MEM_ERR_GPU_HANG);
EQUAL(KFD_MEMORY_ERROR_POISON, KFD_MEM_ERR_POISON_CONSUMED);
EQUAL(KFD_MEM_VRAM, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_VRAM);
EQUAL(KFD_MEM_GTT, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_GTT);
EQUAL(KFD_MEM_USERPTR, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_USERPTR);
EQUAL(KFD_MEM_DOORBELL, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL);
EQUAL(KFD_MEM_MMIO_REMAP, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP);
EQUAL(KFD_MEM_WRITABLE, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE);
EQUAL(KFD_MEM_EXECUTABLE, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE);
EQUAL(KFD_MEM_PUBLIC, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC);
EQUAL(KFD_MEM_NO_SUBSTITUTE, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE);
EQUAL(KFD_MEM_AQL_QUEUE, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM);
EQUAL(KFD_MEM_COHERENT, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_COHERENT);
EQUAL(KFD_MEM_UNCACHED, (uint32_t)KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED);

#ifdef EXPECT_FAILURE
SAME(kfd_create_queue, queue_percentage, kfd_ioctl_create_queue_args, queue_priority);
#endif
