/* Sizes and offsets of hcq/nv's wire structures, by driver branch. The numbers were measured by compiling the headers
 * of NVIDIA open-gpu-kernel-modules, releases 535.261.03 to 595.45.04, and comparing them. Sizes of RM's parameters
 * that differ between branches are in branch_sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "hcq/nv/rm_wire.h"

#define SIZE(type, bytes)       {"sizeof " #type, sizeof(struct type), bytes},
#define AT(type, field, offset) {#type "." #field, offsetof(struct type, field), offset},
static const struct {
  const char *what;
  size_t got, want;
} layouts[] = {
    // clang-format off
    SIZE(rm_version, 72) AT(rm_version, cmd, 0) AT(rm_version, reply, 4) AT(rm_version, string, 8)
    SIZE(rm_card_info, 72) AT(rm_card_info, valid, 0) AT(rm_card_info, pci_info, 4) AT(rm_card_info, gpu_id, 16)
    AT(rm_card_info, interrupt_line, 20) AT(rm_card_info, reg_address, 24) AT(rm_card_info, reg_size, 32)
    AT(rm_card_info, fb_address, 40) AT(rm_card_info, fb_size, 48) AT(rm_card_info, minor, 56)
    AT(rm_card_info, dev_name, 60)
    SIZE(rm_pci_info, 12) AT(rm_pci_info, domain, 0) AT(rm_pci_info, bus, 4) AT(rm_pci_info, slot, 5)
    AT(rm_pci_info, function, 6) AT(rm_pci_info, vendor_id, 8) AT(rm_pci_info, device_id, 10)
    SIZE(rm_register_fd, 4) AT(rm_register_fd, ctl_fd, 0)
    SIZE(rm_os_event, 16) AT(rm_os_event, client, 0) AT(rm_os_event, device, 4) AT(rm_os_event, fd, 8)
    AT(rm_os_event, status, 12)
    SIZE(rm_xfer, 16) AT(rm_xfer, cmd, 0) AT(rm_xfer, size, 4) AT(rm_xfer, ptr, 8)
    SIZE(rm_sys_params, 8) AT(rm_sys_params, memblock_size, 0)
    SIZE(rm_status_code, 12) AT(rm_status_code, domain, 0) AT(rm_status_code, bus, 4) AT(rm_status_code, slot, 5)
    AT(rm_status_code, status, 8)
    SIZE(rm_wait_open_complete, 8) AT(rm_wait_open_complete, rc, 0) AT(rm_wait_open_complete, adapter_status, 4)
    SIZE(rm_free, 16) AT(rm_free, root, 0) AT(rm_free, parent, 4) AT(rm_free, object, 8) AT(rm_free, status, 12)
    SIZE(rm_alloc_memory, 48) AT(rm_alloc_memory, root, 0) AT(rm_alloc_memory, parent, 4)
    AT(rm_alloc_memory, object, 8) AT(rm_alloc_memory, class, 12) AT(rm_alloc_memory, flags, 16)
    AT(rm_alloc_memory, memory, 24) AT(rm_alloc_memory, limit, 32) AT(rm_alloc_memory, status, 40)
    SIZE(rm_alloc_memory_fd, 56) AT(rm_alloc_memory_fd, params, 0) AT(rm_alloc_memory_fd, fd, 48)
    SIZE(rm_alloc_short, 32) AT(rm_alloc_short, root, 0) AT(rm_alloc_short, parent, 4) AT(rm_alloc_short, object, 8)
    AT(rm_alloc_short, class, 12) AT(rm_alloc_short, params, 16) AT(rm_alloc_short, params_size, 24)
    AT(rm_alloc_short, status, 28)
    SIZE(rm_alloc, 48) AT(rm_alloc, root, 0) AT(rm_alloc, parent, 4) AT(rm_alloc, object, 8) AT(rm_alloc, class, 12)
    AT(rm_alloc, params, 16) AT(rm_alloc, rights, 24) AT(rm_alloc, params_size, 32) AT(rm_alloc, flags, 36)
    AT(rm_alloc, status, 40)
    SIZE(rm_control, 32) AT(rm_control, client, 0) AT(rm_control, object, 4) AT(rm_control, cmd, 8)
    AT(rm_control, flags, 12) AT(rm_control, params, 16) AT(rm_control, params_size, 24) AT(rm_control, status, 28)
    SIZE(rm_map_memory, 48) AT(rm_map_memory, client, 0) AT(rm_map_memory, device, 4) AT(rm_map_memory, memory, 8)
    AT(rm_map_memory, offset, 16) AT(rm_map_memory, length, 24) AT(rm_map_memory, address, 32)
    AT(rm_map_memory, status, 40) AT(rm_map_memory, flags, 44)
    SIZE(rm_map_memory_fd, 56) AT(rm_map_memory_fd, params, 0) AT(rm_map_memory_fd, fd, 48)
    SIZE(rm_unmap_memory, 32) AT(rm_unmap_memory, client, 0) AT(rm_unmap_memory, device, 4)
    AT(rm_unmap_memory, memory, 8) AT(rm_unmap_memory, address, 16) AT(rm_unmap_memory, status, 24)
    AT(rm_unmap_memory, flags, 28)
    SIZE(rm_map_memory_dma, 64) AT(rm_map_memory_dma, client, 0) AT(rm_map_memory_dma, device, 4)
    AT(rm_map_memory_dma, dma, 8) AT(rm_map_memory_dma, memory, 12) AT(rm_map_memory_dma, offset, 16)
    AT(rm_map_memory_dma, length, 24) AT(rm_map_memory_dma, flags, 32) AT(rm_map_memory_dma, flags2, 36)
    AT(rm_map_memory_dma, kind_override, 40) AT(rm_map_memory_dma, dma_offset, 48) AT(rm_map_memory_dma, status, 56)
    SIZE(rm_unmap_memory_dma, 48) AT(rm_unmap_memory_dma, client, 0) AT(rm_unmap_memory_dma, device, 4)
    AT(rm_unmap_memory_dma, dma, 8) AT(rm_unmap_memory_dma, memory, 12) AT(rm_unmap_memory_dma, flags, 16)
    AT(rm_unmap_memory_dma, dma_offset, 24) AT(rm_unmap_memory_dma, size, 32) AT(rm_unmap_memory_dma, status, 40)
    SIZE(rm_dup_object, 28) AT(rm_dup_object, client, 0) AT(rm_dup_object, parent, 4) AT(rm_dup_object, object, 8)
    AT(rm_dup_object, client_src, 12) AT(rm_dup_object, object_src, 16) AT(rm_dup_object, flags, 20)
    AT(rm_dup_object, status, 24)
    SIZE(rm_get_event_data, 16) AT(rm_get_event_data, event, 0) AT(rm_get_event_data, more_events, 8)
    AT(rm_get_event_data, status, 12)
    SIZE(rm_update_mapping, 40) AT(rm_update_mapping, client, 0) AT(rm_update_mapping, device, 4)
    AT(rm_update_mapping, memory, 8) AT(rm_update_mapping, old_cpu_address, 16)
    AT(rm_update_mapping, new_cpu_address, 24) AT(rm_update_mapping, status, 32)
    SIZE(rm_event_alloc, 24) AT(rm_event_alloc, parent_client, 0) AT(rm_event_alloc, src_resource, 4)
    AT(rm_event_alloc, class, 8) AT(rm_event_alloc, notify_index, 12) AT(rm_event_alloc, data, 16)
    SIZE(rm_event, 16) AT(rm_event, object, 0) AT(rm_event, notify_index, 4) AT(rm_event, info32, 8)
    AT(rm_event, info16, 12)
    SIZE(rm_client_alloc, 120) AT(rm_client_alloc, client, 0) AT(rm_client_alloc, process_id, 4)
    AT(rm_client_alloc, process_name, 8) AT(rm_client_alloc, os_pid_info, 112)
    SIZE(rm_device_alloc, 56) AT(rm_device_alloc, device_id, 0) AT(rm_device_alloc, client_share, 4)
    AT(rm_device_alloc, target_client, 8) AT(rm_device_alloc, target_device, 12) AT(rm_device_alloc, flags, 16)
    AT(rm_device_alloc, va_space_size, 24) AT(rm_device_alloc, va_start_internal, 32)
    AT(rm_device_alloc, va_limit_internal, 40) AT(rm_device_alloc, va_mode, 48)
    SIZE(rm_subdevice_alloc, 4) AT(rm_subdevice_alloc, sub_device_id, 0)
    SIZE(rm_usermode_alloc, 2) AT(rm_usermode_alloc, bar1_mapping, 0) AT(rm_usermode_alloc, priv, 1)
    SIZE(rm_memory_virtual_alloc, 24) AT(rm_memory_virtual_alloc, offset, 0) AT(rm_memory_virtual_alloc, limit, 8)
    AT(rm_memory_virtual_alloc, va_space, 16)
    SIZE(rm_vaspace_alloc, 56) AT(rm_vaspace_alloc, index, 0) AT(rm_vaspace_alloc, flags, 4)
    AT(rm_vaspace_alloc, va_size, 8) AT(rm_vaspace_alloc, va_start_internal, 16)
    AT(rm_vaspace_alloc, va_limit_internal, 24) AT(rm_vaspace_alloc, big_page_size, 32)
    AT(rm_vaspace_alloc, va_base, 40) AT(rm_vaspace_alloc, pasid, 48)
    SIZE(rm_memory_alloc, 128) AT(rm_memory_alloc, owner, 0) AT(rm_memory_alloc, type, 4)
    AT(rm_memory_alloc, flags, 8) AT(rm_memory_alloc, width, 12) AT(rm_memory_alloc, height, 16)
    AT(rm_memory_alloc, pitch, 20) AT(rm_memory_alloc, attr, 24) AT(rm_memory_alloc, attr2, 28)
    AT(rm_memory_alloc, format, 32) AT(rm_memory_alloc, compr_covg, 36) AT(rm_memory_alloc, zcull_covg, 40)
    AT(rm_memory_alloc, range_lo, 48) AT(rm_memory_alloc, range_hi, 56) AT(rm_memory_alloc, size, 64)
    AT(rm_memory_alloc, alignment, 72) AT(rm_memory_alloc, offset, 80) AT(rm_memory_alloc, limit, 88)
    AT(rm_memory_alloc, address, 96) AT(rm_memory_alloc, ctag_offset, 104) AT(rm_memory_alloc, va_space, 108)
    AT(rm_memory_alloc, internal_flags, 112) AT(rm_memory_alloc, tag, 116) AT(rm_memory_alloc, numa_node, 120)
    SIZE(rm_channel_group_alloc, 20) AT(rm_channel_group_alloc, error_memory, 0)
    AT(rm_channel_group_alloc, ecc_error_memory, 4) AT(rm_channel_group_alloc, va_space, 8)
    AT(rm_channel_group_alloc, engine_type, 12) AT(rm_channel_group_alloc, vgpu_plugin, 16)
    SIZE(rm_ctxshare_alloc, 12) AT(rm_ctxshare_alloc, va_space, 0) AT(rm_ctxshare_alloc, flags, 4)
    AT(rm_ctxshare_alloc, subctx_id, 8)
    SIZE(rm_memory_desc, 24) AT(rm_memory_desc, base, 0) AT(rm_memory_desc, size, 8)
    AT(rm_memory_desc, address_space, 16) AT(rm_memory_desc, cache_attrib, 20)
    SIZE(rm_channel_alloc, 368) AT(rm_channel_alloc, error_memory, 0) AT(rm_channel_alloc, buffer, 4)
    AT(rm_channel_alloc, gpfifo_va, 8) AT(rm_channel_alloc, gpfifo_entries, 16) AT(rm_channel_alloc, flags, 20)
    AT(rm_channel_alloc, ctxshare, 24) AT(rm_channel_alloc, va_space, 28) AT(rm_channel_alloc, userd_memory, 32)
    AT(rm_channel_alloc, userd_offset, 64) AT(rm_channel_alloc, engine_type, 128) AT(rm_channel_alloc, cid, 132)
    AT(rm_channel_alloc, sub_device_id, 136) AT(rm_channel_alloc, ecc_error_memory, 140)
    AT(rm_channel_alloc, instance_mem, 144) AT(rm_channel_alloc, userd_mem, 168) AT(rm_channel_alloc, ramfc_mem, 192)
    AT(rm_channel_alloc, mthdbuf_mem, 216) AT(rm_channel_alloc, phys_channel_group, 240)
    AT(rm_channel_alloc, internal_flags, 244) AT(rm_channel_alloc, error_notifier_mem, 248)
    AT(rm_channel_alloc, ecc_error_notifier_mem, 272) AT(rm_channel_alloc, process_id, 296)
    AT(rm_channel_alloc, sub_process_id, 300) AT(rm_channel_alloc, encrypt_iv, 304)
    AT(rm_channel_alloc, decrypt_iv, 316) AT(rm_channel_alloc, hmac_nonce, 328)
    AT(rm_channel_alloc, tpc_config_id, 360)
    SIZE(rm_copy_alloc, 8) AT(rm_copy_alloc, version, 0) AT(rm_copy_alloc, engine_type, 4)
    SIZE(rm_gr_alloc, 16) AT(rm_gr_alloc, version, 0) AT(rm_gr_alloc, flags, 4) AT(rm_gr_alloc, size, 8)
    AT(rm_gr_alloc, caps, 12)
    SIZE(rm_debugger_alloc, 12) AT(rm_debugger_alloc, debugger_client, 0) AT(rm_debugger_alloc, app_client, 4)
    AT(rm_debugger_alloc, object, 8)
    SIZE(rm_gpfifo_schedule, 3) AT(rm_gpfifo_schedule, enable, 0) AT(rm_gpfifo_schedule, skip_submit, 1)
    AT(rm_gpfifo_schedule, skip_enable, 2)
    SIZE(rm_channel_bind, 4) AT(rm_channel_bind, engine_type, 0)
    SIZE(rm_stop_channel, 1) AT(rm_stop_channel, immediate, 0)
    SIZE(rm_timeslice, 8) AT(rm_timeslice, us, 0)
    SIZE(rm_preempt, 8) AT(rm_preempt, wait, 0) AT(rm_preempt, manual_timeout, 1) AT(rm_preempt, timeout_us, 4)
    SIZE(rm_group_info, 4) AT(rm_group_info, id, 0)
    SIZE(rm_work_submit_token, 4) AT(rm_work_submit_token, token, 0)
    SIZE(rm_token_notifier_index, 4) AT(rm_token_notifier_index, index, 0)
    SIZE(rm_class_engine, 16) AT(rm_class_engine, object, 0) AT(rm_class_engine, class_engine, 4)
    AT(rm_class_engine, class, 8) AT(rm_class_engine, engine, 12)
    SIZE(rm_build_version, 1032) AT(rm_build_version, driver_version, 0) AT(rm_build_version, version, 256)
    AT(rm_build_version, driver_branch, 512) AT(rm_build_version, title, 768)
    AT(rm_build_version, changelist_number, 1024) AT(rm_build_version, official_changelist_number, 1028)
    SIZE(rm_gpu_id_info, 32) AT(rm_gpu_id_info, gpu_id, 0) AT(rm_gpu_id_info, gpu_flags, 4)
    AT(rm_gpu_id_info, device_instance, 8) AT(rm_gpu_id_info, sub_device_instance, 12)
    AT(rm_gpu_id_info, sli_status, 16) AT(rm_gpu_id_info, board_id, 20) AT(rm_gpu_id_info, gpu_instance, 24)
    AT(rm_gpu_id_info, numa_id, 28)
    SIZE(rm_probed_ids, 384) AT(rm_probed_ids, gpu_ids, 0) AT(rm_probed_ids, excluded_gpu_ids, 128)
    AT(rm_probed_ids, gpu_flags, 256)
    SIZE(rm_attach_ids, 132) AT(rm_attach_ids, gpu_ids, 0) AT(rm_attach_ids, failed_id, 128)
    SIZE(rm_attached_ids, 128) AT(rm_attached_ids, gpu_ids, 0)
    SIZE(rm_gpu_pci_info, 12) AT(rm_gpu_pci_info, gpu_id, 0) AT(rm_gpu_pci_info, domain, 4)
    AT(rm_gpu_pci_info, bus, 8) AT(rm_gpu_pci_info, slot, 10)
    SIZE(rm_class_list, 16) AT(rm_class_list, count, 0) AT(rm_class_list, list, 8)
    SIZE(rm_class_list_v2, 804) AT(rm_class_list_v2, count, 0) AT(rm_class_list_v2, list, 4)
    SIZE(rm_gid_info, 268) AT(rm_gid_info, index, 0) AT(rm_gid_info, flags, 4) AT(rm_gid_info, length, 8)
    AT(rm_gid_info, data, 12)
    SIZE(rm_gpu_info_v2, 564) AT(rm_gpu_info_v2, count, 0) AT(rm_gpu_info_v2, list, 4)
    SIZE(rm_engines_v2, 340) AT(rm_engines_v2, count, 0) AT(rm_engines_v2, list, 4)
    SIZE(rm_info, 8) AT(rm_info, index, 0) AT(rm_info, data, 4)
    SIZE(rm_gr_route, 16) AT(rm_gr_route, flags, 0) AT(rm_gr_route, route, 8)
    SIZE(rm_gr_info, 32) AT(rm_gr_info, count, 0) AT(rm_gr_info, list, 8) AT(rm_gr_info, route, 16)
    SIZE(rm_gpc_mask, 24) AT(rm_gpc_mask, route, 0) AT(rm_gpc_mask, gpc_mask, 16)
    SIZE(rm_tpc_mask, 24) AT(rm_tpc_mask, route, 0) AT(rm_tpc_mask, gpc_id, 16) AT(rm_tpc_mask, tpc_mask, 20)
    SIZE(rm_ctx_buffer_size, 16) AT(rm_ctx_buffer_size, channel, 0) AT(rm_ctx_buffer_size, size, 8)
    SIZE(rm_fb_info_v2, 1028) AT(rm_fb_info_v2, count, 0) AT(rm_fb_info_v2, list, 4)
    SIZE(rm_arch_info, 16) AT(rm_arch_info, architecture, 0) AT(rm_arch_info, implementation, 4)
    AT(rm_arch_info, revision, 8) AT(rm_arch_info, sub_revision, 12)
    SIZE(rm_ce_caps, 136) AT(rm_ce_caps, caps, 0) AT(rm_ce_caps, present, 128)
    SIZE(rm_ce_pce_mask, 8) AT(rm_ce_pce_mask, engine_type, 0) AT(rm_ce_pce_mask, pce_mask, 4)
    SIZE(rm_ce_caps_v2, 8) AT(rm_ce_caps_v2, engine_type, 0) AT(rm_ce_caps_v2, caps, 4)
    SIZE(rm_perf_boost, 8) AT(rm_perf_boost, flags, 0) AT(rm_perf_boost, duration, 4)
    SIZE(rm_rated_tdp, 12) AT(rm_rated_tdp, client, 0) AT(rm_rated_tdp, action, 4) AT(rm_rated_tdp, state, 8)
    SIZE(rm_timer_time, 8) AT(rm_timer_time, ns, 0)
    SIZE(rm_time_correlation, 264) AT(rm_time_correlation, cpu_clock, 0) AT(rm_time_correlation, count, 1)
    AT(rm_time_correlation, samples, 8)
    SIZE(rm_time_sample, 16) AT(rm_time_sample, cpu_time, 0) AT(rm_time_sample, gpu_time, 8)
    SIZE(rm_timer_register, 4) AT(rm_timer_register, offset, 0)
    SIZE(rm_flush_gpu_cache, 4024) AT(rm_flush_gpu_cache, addresses, 0) AT(rm_flush_gpu_cache, count, 4000)
    AT(rm_flush_gpu_cache, address_align, 4004) AT(rm_flush_gpu_cache, block_size, 4008)
    AT(rm_flush_gpu_cache, flags, 4016)
    SIZE(rm_event_set_notification, 20) AT(rm_event_set_notification, event, 0)
    AT(rm_event_set_notification, action, 4) AT(rm_event_set_notification, notify_state, 8)
    AT(rm_event_set_notification, info32, 12) AT(rm_event_set_notification, info16, 16)
    SIZE(rm_p2p_caps_v2, 8348) AT(rm_p2p_caps_v2, gpu_ids, 0) AT(rm_p2p_caps_v2, gpu_count, 128)
    AT(rm_p2p_caps_v2, caps, 132) AT(rm_p2p_caps_v2, optimal_read_ces, 136) AT(rm_p2p_caps_v2, optimal_write_ces, 140)
    AT(rm_p2p_caps_v2, caps_status, 144) AT(rm_p2p_caps_v2, bus_peer_ids, 156)
    AT(rm_p2p_caps_v2, bus_egm_peer_ids, 4252)
    SIZE(rm_mmu_fault_info, 104) AT(rm_mmu_fault_info, addr_hi, 0) AT(rm_mmu_fault_info, addr_lo, 4)
    AT(rm_mmu_fault_info, fault_type, 8) AT(rm_mmu_fault_info, fault_string, 12)
    AT(rm_mmu_fault_info, shader_program_va, 48)
    SIZE(rm_sm_error_state, 48) AT(rm_sm_error_state, global_esr, 0) AT(rm_sm_error_state, warp_esr, 4)
    AT(rm_sm_error_state, warp_esr_pc, 8) AT(rm_sm_error_state, global_esr_mask, 12)
    AT(rm_sm_error_state, warp_esr_mask, 16) AT(rm_sm_error_state, esr_addr, 24)
    AT(rm_sm_error_state, warp_esr_pc64, 32) AT(rm_sm_error_state, cga_esr, 40)
    AT(rm_sm_error_state, cga_esr_mask, 44)
    SIZE(rm_sm_mmu_fault, 8) AT(rm_sm_mmu_fault, valid, 0) AT(rm_sm_mmu_fault, fault_info, 4)
    SIZE(rm_sm_error_states, 4824) AT(rm_sm_error_states, target_channel, 0) AT(rm_sm_error_states, num_sms, 4)
    AT(rm_sm_error_states, states, 8) AT(rm_sm_error_states, mmu_fault_info, 4808)
    AT(rm_sm_error_states, mmu_fault, 4812) AT(rm_sm_error_states, starting_sm, 4820)
    SIZE(rm_sm_error_one, 56) AT(rm_sm_error_one, target_channel, 0) AT(rm_sm_error_one, sm, 4)
    AT(rm_sm_error_one, state, 8)
    SIZE(rm_cc_capabilities, 6) AT(rm_cc_capabilities, cpu_capability, 0) AT(rm_cc_capabilities, gpus_capability, 1)
    AT(rm_cc_capabilities, environment, 2) AT(rm_cc_capabilities, cc_feature, 3)
    AT(rm_cc_capabilities, dev_tools_mode, 4) AT(rm_cc_capabilities, multi_gpu_mode, 5)
    SIZE(rm_debug_mmu_fault_entry, 16) AT(rm_debug_mmu_fault_entry, fault_address, 0)
    AT(rm_debug_mmu_fault_entry, fault_type, 8) AT(rm_debug_mmu_fault_entry, access_type, 12)
    SIZE(rm_debug_mmu_fault, 72) AT(rm_debug_mmu_fault, entries, 0) AT(rm_debug_mmu_fault, count, 64)
    SIZE(rm_reserve_hwpm, 1) SIZE(rm_pma_stream, 56) AT(rm_pma_stream, buffer, 0) AT(rm_pma_stream, buffer_offset, 8)
    AT(rm_pma_stream, buffer_size, 16) AT(rm_pma_stream, bytes, 24) AT(rm_pma_stream, bytes_offset, 32)
    AT(rm_pma_stream, per_context, 40) AT(rm_pma_stream, channel, 44) AT(rm_pma_stream, buffer_va, 48)
    SIZE(rm_pma_channel, 4) SIZE(rm_pma_get_put, 48) AT(rm_pma_get_put, consumed, 0) AT(rm_pma_get_put, update, 8)
    AT(rm_pma_get_put, wait, 9) AT(rm_pma_get_put, available, 16) AT(rm_pma_get_put, return_put, 24)
    AT(rm_pma_get_put, put, 32) AT(rm_pma_get_put, channel, 40) AT(rm_pma_get_put, overflow, 44)
    SIZE(rm_reg_op, 32) AT(rm_reg_op, op, 0) AT(rm_reg_op, type, 1) AT(rm_reg_op, status, 2) AT(rm_reg_op, offset, 12)
    AT(rm_reg_op, value, 20) AT(rm_reg_op, mask, 28)
    SIZE(rm_reg_ops, 3980) AT(rm_reg_ops, count, 0) AT(rm_reg_ops, mode, 4) AT(rm_reg_ops, passed, 8)
    AT(rm_reg_ops, direct, 9) AT(rm_reg_ops, ops, 12)
    SIZE(rm_hs_credits, 256) AT(rm_hs_credits, channel, 0) AT(rm_hs_credits, count, 1) AT(rm_hs_credits, status, 2)
    AT(rm_hs_credits, failed, 3) AT(rm_hs_credits, credit, 4) SIZE(rm_hs_credit, 4) AT(rm_hs_credit, credits, 2)
    SIZE(rm_power_request, 12) AT(rm_power_request, control, 4) SIZE(rm_power_release, 4)
    SIZE(uvm_initialize, 16) AT(uvm_initialize, flags, 0) AT(uvm_initialize, status, 8)
    SIZE(uvm_mm_initialize, 8) AT(uvm_mm_initialize, uvm_fd, 0) AT(uvm_mm_initialize, status, 4)
    SIZE(uvm_register_gpu, 40) AT(uvm_register_gpu, uuid, 0) AT(uvm_register_gpu, numa_enabled, 16)
    AT(uvm_register_gpu, numa_node_id, 20) AT(uvm_register_gpu, rm_ctrl_fd, 24) AT(uvm_register_gpu, client, 28)
    AT(uvm_register_gpu, smc_part_ref, 32) AT(uvm_register_gpu, status, 36)
    SIZE(uvm_unregister_gpu, 20) AT(uvm_unregister_gpu, uuid, 0) AT(uvm_unregister_gpu, status, 16)
    SIZE(uvm_register_gpu_vaspace, 32) AT(uvm_register_gpu_vaspace, uuid, 0)
    AT(uvm_register_gpu_vaspace, rm_ctrl_fd, 16) AT(uvm_register_gpu_vaspace, client, 20)
    AT(uvm_register_gpu_vaspace, va_space, 24) AT(uvm_register_gpu_vaspace, status, 28)
    SIZE(uvm_unregister_gpu_vaspace, 20) AT(uvm_unregister_gpu_vaspace, uuid, 0)
    AT(uvm_unregister_gpu_vaspace, status, 16)
    SIZE(uvm_register_channel, 56) AT(uvm_register_channel, uuid, 0) AT(uvm_register_channel, rm_ctrl_fd, 16)
    AT(uvm_register_channel, client, 20) AT(uvm_register_channel, channel, 24) AT(uvm_register_channel, base, 32)
    AT(uvm_register_channel, length, 40) AT(uvm_register_channel, status, 48)
    SIZE(uvm_unregister_channel, 28) AT(uvm_unregister_channel, uuid, 0) AT(uvm_unregister_channel, client, 16)
    AT(uvm_unregister_channel, channel, 20) AT(uvm_unregister_channel, status, 24)
    SIZE(uvm_create_external_range, 24) AT(uvm_create_external_range, base, 0)
    AT(uvm_create_external_range, length, 8) AT(uvm_create_external_range, status, 16)
    SIZE(uvm_mapping, 36) AT(uvm_mapping, uuid, 0) AT(uvm_mapping, mapping, 16) AT(uvm_mapping, caching, 20)
    AT(uvm_mapping, format, 24) AT(uvm_mapping, element_bits, 28) AT(uvm_mapping, compression, 32)
    SIZE(uvm_map_external_allocation, 9264) AT(uvm_map_external_allocation, base, 0)
    AT(uvm_map_external_allocation, length, 8) AT(uvm_map_external_allocation, offset, 16)
    AT(uvm_map_external_allocation, gpus, 24) AT(uvm_map_external_allocation, gpu_count, 9240)
    AT(uvm_map_external_allocation, rm_ctrl_fd, 9248) AT(uvm_map_external_allocation, client, 9252)
    AT(uvm_map_external_allocation, memory, 9256) AT(uvm_map_external_allocation, status, 9260)
    SIZE(uvm_unmap_external, 40) AT(uvm_unmap_external, base, 0) AT(uvm_unmap_external, length, 8)
    AT(uvm_unmap_external, uuid, 16) AT(uvm_unmap_external, status, 32)
    SIZE(uvm_free, 24) AT(uvm_free, base, 0) AT(uvm_free, length, 8) AT(uvm_free, status, 16)
    SIZE(uvm_peer_access, 36) AT(uvm_peer_access, uuid_a, 0) AT(uvm_peer_access, uuid_b, 16)
    AT(uvm_peer_access, status, 32)
    SIZE(uvm_pageable_mem_access, 8) AT(uvm_pageable_mem_access, pageable_mem_access, 0)
    AT(uvm_pageable_mem_access, status, 4)
    SIZE(uvm_pageable_mem_access_on_gpu, 24) AT(uvm_pageable_mem_access_on_gpu, uuid, 0)
    AT(uvm_pageable_mem_access_on_gpu, pageable_mem_access, 16) AT(uvm_pageable_mem_access_on_gpu, status, 20)
    SIZE(uvm_validate_va_range, 24) AT(uvm_validate_va_range, base, 0) AT(uvm_validate_va_range, length, 8)
    AT(uvm_validate_va_range, status, 16)
    SIZE(uvm_map_external_sparse, 40) AT(uvm_map_external_sparse, base, 0) AT(uvm_map_external_sparse, length, 8)
    AT(uvm_map_external_sparse, uuid, 16) AT(uvm_map_external_sparse, status, 32)
    SIZE(uvm_is_8_supported, 8) AT(uvm_is_8_supported, supported, 0) AT(uvm_is_8_supported, status, 4)
    /* different from the newest branch */
    SIZE(rm_map_memory_dma_575, 56) AT(rm_map_memory_dma_575, flags, 32) AT(rm_map_memory_dma_575, dma_offset, 40)
    AT(rm_map_memory_dma_575, status, 48)
    SIZE(rm_unmap_memory_dma_545, 40) AT(rm_unmap_memory_dma_545, dma_offset, 24)
    AT(rm_unmap_memory_dma_545, status, 32)
    SIZE(rm_build_version_555, 776) AT(rm_build_version_555, title, 512)
    AT(rm_build_version_555, changelist_number, 768)
    SIZE(rm_ce_caps_535, 68) AT(rm_ce_caps_535, present, 64)
    SIZE(uvm_map_external_allocation_545, 1200) AT(uvm_map_external_allocation_545, gpus, 24)
    AT(uvm_map_external_allocation_545, gpu_count, 1176) AT(uvm_map_external_allocation_545, rm_ctrl_fd, 1184)
    AT(uvm_map_external_allocation_545, client, 1188) AT(uvm_map_external_allocation_545, memory, 1192)
    AT(uvm_map_external_allocation_545, status, 1196)
    SIZE(uvm_unregister_channel_590, 12) AT(uvm_unregister_channel_590, channel, 4)
    AT(uvm_unregister_channel_590, status, 8)
    SIZE(uvm_free_590, 16) AT(uvm_free_590, status, 8)
    /* one layout for lists of variable length, and for structures without a size */
    AT(rm_gr_info_v2, count, 0) AT(rm_gr_info_v2, list, 4)
    SIZE(rm_name_string, 68) AT(rm_name_string, ascii, 4)
    SIZE(rm_fb_info, 16) AT(rm_fb_info, list, 8)
    /* memory shared by both sides of a channel */
    SIZE(rm_notification, 16) AT(rm_notification, time_lo, 0) AT(rm_notification, time_hi, 4)
    AT(rm_notification, info32, 8) AT(rm_notification, info16, 12) AT(rm_notification, status, 14)
    SIZE(rm_userd, 512) AT(rm_userd, gp_get, 136) AT(rm_userd, gp_put, 140)
    // clang-format on
};

static void layouts_are_the_drivers(void **state) {
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
    if (layouts[i].got != layouts[i].want)
      fail_msg("%s is %zu, not %zu", layouts[i].what, layouts[i].got, layouts[i].want);
}

static const struct {
  const char *name;
  size_t member;
  uint16_t sizes[RM_BRANCHES];
} branch_sizes[] = {
    {"map_memory_dma", offsetof(struct rm_branch, map_memory_dma), {56, 56, 56, 56, 56, 56, 56, 56, 64, 64, 64}},
    {"unmap_memory_dma", offsetof(struct rm_branch, unmap_memory_dma), {40, 40, 48, 48, 48, 48, 48, 48, 48, 48, 48}},
    {"client_alloc", offsetof(struct rm_branch, client_alloc), {108, 108, 108, 108, 108, 108, 120, 120, 120, 120, 120}},
    {"vaspace_alloc", offsetof(struct rm_branch, vaspace_alloc), {48, 48, 48, 48, 48, 48, 48, 48, 56, 56, 56}},
    {"memory_alloc", offsetof(struct rm_branch, memory_alloc), {120, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128}},
    {"channel_alloc",
     offsetof(struct rm_branch, channel_alloc),
     {360, 360, 360, 360, 360, 360, 368, 368, 368, 368, 368}},
    {"build_version",
     offsetof(struct rm_branch, build_version),
     {776, 776, 776, 776, 1032, 1032, 1032, 1032, 1032, 1032, 1032}},
    {"probed_ids", offsetof(struct rm_branch, probed_ids), {256, 256, 256, 256, 256, 256, 256, 256, 384, 384, 384}},
    {"p2p_caps_v2",
     offsetof(struct rm_branch, p2p_caps_v2),
     {4252, 4252, 8348, 8348, 8348, 8348, 8348, 8348, 8348, 8348, 8348}},
    {"class_list_v2",
     offsetof(struct rm_branch, class_list_v2),
     {644, 644, 700, 404, 404, 404, 404, 404, 804, 804, 804}},
    {"name_string", offsetof(struct rm_branch, name_string), {132, 132, 132, 132, 132, 132, 132, 132, 132, 132, 68}},
    {"gpu_info_v2", offsetof(struct rm_branch, gpu_info_v2), {516, 524, 524, 524, 524, 524, 524, 532, 564, 564, 564}},
    {"engines_v2", offsetof(struct rm_branch, engines_v2), {252, 256, 260, 260, 340, 340, 340, 340, 340, 340, 340}},
    {"gr_info_v2", offsetof(struct rm_branch, gr_info_v2), {448, 472, 472, 472, 472, 472, 488, 488, 488, 496, 496}},
    {"fb_info_v2", offsetof(struct rm_branch, fb_info_v2), {436, 444, 444, 444, 460, 460, 460, 460, 1028, 1028, 1028}},
    {"ce_caps", offsetof(struct rm_branch, ce_caps), {68, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136}},
    {"rated_tdp", offsetof(struct rm_branch, rated_tdp), {8, 8, 8, 8, 12, 12, 12, 12, 12, 12, 12}},
    {"gpfifo_schedule", offsetof(struct rm_branch, gpfifo_schedule), {2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3}},
    {"uvm_unregister_channel",
     offsetof(struct rm_branch, uvm_unregister_channel),
     {28, 28, 28, 28, 28, 28, 28, 28, 28, 12, 12}},
    {"uvm_map_external_allocation",
     offsetof(struct rm_branch, uvm_map_external_allocation),
     {1200, 1200, 9264, 9264, 9264, 9264, 9264, 9264, 9264, 9264, 9264}},
    {"uvm_free", offsetof(struct rm_branch, uvm_free), {24, 24, 24, 24, 24, 24, 24, 24, 24, 16, 16}},
    {"cc_capabilities", offsetof(struct rm_branch, cc_capabilities), {5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6}},
};

static void branches_have_their_sizes(void **state) {
  static const unsigned majors[] = {535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595};
  assert_int_equal(RM_BRANCHES, sizeof majors / sizeof *majors);
  /* every member is checked */
  size_t members = 0;
#define COUNT(name, ...) members++;
  RM_BRANCH_SIZES(COUNT)
#undef COUNT
  assert_int_equal(sizeof branch_sizes / sizeof *branch_sizes, members);
  for (unsigned b = 0; b < RM_BRANCHES; b++) {
    struct rm_branch branch = rm_branch_find(majors[b]);
    assert_int_equal(branch.major, majors[b]);
    for (size_t i = 0; i < sizeof branch_sizes / sizeof *branch_sizes; i++) {
      uint16_t size;
      memcpy(&size, (const char *)&branch + branch_sizes[i].member, sizeof size);
      if (size != branch_sizes[i].sizes[b])
        fail_msg("%s is %u bytes in %u, not %u", branch_sizes[i].name, size, majors[b], branch_sizes[i].sizes[b]);
    }
  }
}

static void other_branches_are_unknown(void **state) {
  static const unsigned majors[] = {0, 470, 525, 534, 536, 581, 596, 610};
  for (size_t i = 0; i < sizeof majors / sizeof *majors; i++) assert_int_equal(rm_branch_find(majors[i]).major, 0);
}

/* A structure of the header is at least as long as the branch's, and exactly as long where the layout changed. */
static void structures_fit_their_branches(void **state) {
  for (unsigned i = 0; i < RM_BRANCHES; i++) {
    struct rm_branch b = rm_branch_at(i);
    assert_int_equal(b.map_memory_dma,
                     b.major >= 580 ? sizeof(struct rm_map_memory_dma) : sizeof(struct rm_map_memory_dma_575));
    assert_int_equal(b.unmap_memory_dma,
                     b.major >= 550 ? sizeof(struct rm_unmap_memory_dma) : sizeof(struct rm_unmap_memory_dma_545));
    assert_int_equal(b.build_version,
                     b.major >= 560 ? sizeof(struct rm_build_version) : sizeof(struct rm_build_version_555));
    assert_int_equal(b.rated_tdp, b.major >= 560 ? sizeof(struct rm_rated_tdp) : offsetof(struct rm_rated_tdp, state));
    assert_int_equal(b.ce_caps, b.major >= 545 ? sizeof(struct rm_ce_caps) : sizeof(struct rm_ce_caps_535));
    assert_int_equal(b.uvm_map_external_allocation, rm_branch_uvm_many_gpus(&b)
                                                        ? sizeof(struct uvm_map_external_allocation)
                                                        : sizeof(struct uvm_map_external_allocation_545));
    assert_int_equal(b.uvm_free, rm_branch_uvm_short(&b) ? sizeof(struct uvm_free_590) : sizeof(struct uvm_free));
    assert_int_equal(b.uvm_unregister_channel, rm_branch_uvm_short(&b) ? sizeof(struct uvm_unregister_channel_590)
                                                                       : sizeof(struct uvm_unregister_channel));
    assert_true(b.client_alloc <= sizeof(struct rm_client_alloc));
    assert_true(b.vaspace_alloc <= sizeof(struct rm_vaspace_alloc));
    assert_true(b.memory_alloc <= sizeof(struct rm_memory_alloc));
    assert_true(b.channel_alloc <= sizeof(struct rm_channel_alloc));
    assert_true(b.channel_alloc <= RM_ALLOC_PARAMS_MIN);
    assert_true(b.probed_ids <= sizeof(struct rm_probed_ids));
    assert_true(b.p2p_caps_v2 <= sizeof(struct rm_p2p_caps_v2));
    assert_true(b.cc_capabilities <= sizeof(struct rm_cc_capabilities));
    assert_true(b.class_list_v2 <= sizeof(struct rm_class_list_v2));
    assert_true(b.gpu_info_v2 <= sizeof(struct rm_gpu_info_v2));
    assert_true(b.engines_v2 <= sizeof(struct rm_engines_v2));
    assert_true(b.fb_info_v2 <= sizeof(struct rm_fb_info_v2));
    assert_true(b.gpfifo_schedule <= sizeof(struct rm_gpfifo_schedule));
    assert_true(b.name_string >= sizeof(struct rm_name_string));
  }
}

/* Whole request codes of branch 580 (nv-ioctl-numbers.h, nv_escape.h). */
static void requests(void **state) {
  static const struct {
    uint32_t got, want;
  } all[] = {
      {RM_IO(RM_NR_ALLOC_MEMORY, sizeof(struct rm_alloc_memory_fd)), 0xc0384627},
      {RM_IO(RM_NR_FREE, sizeof(struct rm_free)), 0xc0104629},
      {RM_IO(RM_NR_CONTROL, sizeof(struct rm_control)), 0xc020462a},
      {RM_IO(RM_NR_ALLOC, sizeof(struct rm_alloc)), 0xc030462b},
      {RM_IO(RM_NR_ALLOC, sizeof(struct rm_alloc_short)), 0xc020462b},
      {RM_IO(RM_NR_DUP_OBJECT, sizeof(struct rm_dup_object)), 0xc01c4634},
      {RM_IO(RM_NR_MAP_MEMORY, sizeof(struct rm_map_memory_fd)), 0xc038464e},
      {RM_IO(RM_NR_UNMAP_MEMORY, sizeof(struct rm_unmap_memory)), 0xc020464f},
      {RM_IO(RM_NR_GET_EVENT_DATA, sizeof(struct rm_get_event_data)), 0xc0104652},
      {RM_IO(RM_NR_MAP_MEMORY_DMA, sizeof(struct rm_map_memory_dma)), 0xc0404657},
      {RM_IO(RM_NR_UNMAP_MEMORY_DMA, sizeof(struct rm_unmap_memory_dma)), 0xc0304658},
      {RM_IO(RM_NR_UPDATE_MAPPING, sizeof(struct rm_update_mapping)), 0xc028465e},
      {RM_IO(RM_NR_CARD_INFO, 32 * sizeof(struct rm_card_info)), 0xc90046c8},
      {RM_IO(RM_NR_REGISTER_FD, sizeof(struct rm_register_fd)), 0xc00446c9},
      {RM_IO(RM_NR_ALLOC_OS_EVENT, sizeof(struct rm_os_event)), 0xc01046ce},
      {RM_IO(RM_NR_STATUS_CODE, sizeof(struct rm_status_code)), 0xc00c46d1},
      {RM_IO(RM_NR_VERSION, sizeof(struct rm_version)), 0xc04846d2},
      {RM_IO(RM_NR_XFER, sizeof(struct rm_xfer)), 0xc01046d3},
      {RM_IO(RM_NR_SYS_PARAMS, sizeof(struct rm_sys_params)), 0xc00846d6},
      {RM_IO(RM_NR_WAIT_OPEN_COMPLETE, sizeof(struct rm_wait_open_complete)), 0xc00846da},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    assert_int_equal(all[i].got, all[i].want);
    assert_int_equal(RM_IO_TYPE(all[i].got), RM_IO_MAGIC);
    assert_int_equal(RM_IO(RM_IO_NR(all[i].got), RM_IO_SIZE(all[i].got)), all[i].want);
  }
}

static void flags(void **state) {
  /* Host pages: not contiguous, cached, no kernel mapping. */
  assert_int_equal(RM_OS02_PHYSICALITY(1) | RM_OS02_COHERENCY(RM_CACHED) | RM_OS02_MAPPING(1), 0x40001010);
  assert_int_equal(RM_ATTR_PAGE_SIZE(RM_PAGE_HUGE), 3u << 23);
  assert_int_equal(RM_ATTR_LOCATION(RM_LOCATION_PCI), 1u << 25);
  assert_int_equal(RM_ATTR_PHYSICALITY(RM_PHYS_CONTIGUOUS), 2u << 27);
  assert_int_equal(RM_ATTR_COHERENCY(RM_CACHED), 1u << 29);
  assert_int_equal(RM_ATTR2_ZBC(1) | RM_ATTR2_GPU_CACHEABLE(1) | RM_ATTR2_HUGE_SIZE(1), 0x100005);
  assert_int_equal(RM_TOKEN(0x123, 0x45), 0x450123);
  assert_int_equal(RM_TOKEN_CHANNEL(0x450123), 0x123);
  assert_int_equal(RM_TOKEN_RUNLIST(0x450123), 0x45);
  assert_int_equal(rm_engine_copy(0), 9);
  assert_int_equal(rm_engine_copy(9), 0x12);
  assert_int_equal(rm_engine_copy(10), 0x34);
  assert_string_equal(rm_status_name(RM_INVALID_OBJECT_PARENT), "INVALID_OBJECT_PARENT");
  assert_string_equal(rm_status_name(0x7777), "unknown status");
}

int main(void) {
#define T(name) cmocka_unit_test(name)
  const struct CMUnitTest tests[] = {T(layouts_are_the_drivers),
                                     T(branches_have_their_sizes),
                                     T(other_branches_are_unknown),
                                     T(structures_fit_their_branches),
                                     T(requests),
                                     T(flags)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
