/* The wire format of RM's controls (RM_NR_CONTROL): commands and their parameters.
 *
 * Source: NVIDIA open-gpu-kernel-modules, ctrl/ headers, branches 535 to 595. A control fails with INVALID_ARGUMENT if
 * params_size differs from the module's size; rm_branch.h has the sizes that differ between branches. */
#ifndef DOORBELL_HCQ_NV_RM_CONTROL_WIRE_H
#define DOORBELL_HCQ_NV_RM_CONTROL_WIRE_H
#include <stdint.h>

/* Padding is declared, so that initializers clear it. Undeclared padding would pass bytes of the stack to the kernel
 * and into recorded traces. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

/* X(name, command, parameters): controls whose parameters have the same size in every branch. */
#define RM_CONTROLS(X)                                                                                                 \
  /* of the client */                                                                                                  \
  X(ATTACHED_IDS, 0x201, struct rm_attached_ids)                                                                       \
  X(GPU_ID_INFO, 0x205, struct rm_gpu_id_info)                                                                         \
  X(ATTACH_IDS, 0x215, struct rm_attach_ids)                                                                           \
  X(GPU_PCI_INFO, 0x21b, struct rm_gpu_pci_info)                                                                       \
  /* of the device */                                                                                                  \
  X(CLASS_LIST, 0x800201, struct rm_class_list)                                                                        \
  /* of the subdevice */                                                                                               \
  X(GID_INFO, 0x2080014a, struct rm_gid_info)                                                                          \
  X(RECOVERY_ACTION, 0x208001b2, struct rm_recovery_action)                                                            \
  X(EVENT_SET_NOTIFICATION, 0x20800301, struct rm_event_set_notification)                                              \
  X(TIMER_TIME, 0x20800403, struct rm_timer_time)                                                                      \
  X(TIMER_REGISTER, 0x20800404, struct rm_timer_register)                                                              \
  X(TIME_CORRELATION, 0x20800406, struct rm_time_correlation)                                                          \
  X(GR_INFO, 0x20801201, struct rm_gr_info)                                                                            \
  X(CTX_BUFFER_SIZE, 0x20801218, struct rm_ctx_buffer_size)                                                            \
  X(GPC_MASK, 0x2080122a, struct rm_gpc_mask)                                                                          \
  X(TPC_MASK, 0x2080122b, struct rm_tpc_mask)                                                                          \
  X(FB_INFO, 0x20801301, struct rm_fb_info)                                                                            \
  X(FLUSH_GPU_CACHE, 0x2080130e, struct rm_flush_gpu_cache)                                                            \
  X(ARCH_INFO, 0x20801701, struct rm_arch_info)                                                                        \
  X(PERF_BOOST, 0x2080200a, struct rm_perf_boost)                                                                      \
  X(CE_PCE_MASK, 0x20802a02, struct rm_ce_pce_mask)                                                                    \
  X(CE_CAPS_V2, 0x20802a03, struct rm_ce_caps_v2)                                                                      \
  /* of a channel */                                                                                                   \
  X(CLASS_ENGINE, 0x906f0101, struct rm_class_engine)                                                                  \
  X(MMU_FAULT_INFO, 0x906f0106, struct rm_mmu_fault_info)                                                              \
  X(CHANNEL_BIND, 0xa06f0104, struct rm_channel_bind)                                                                  \
  X(STOP_CHANNEL, 0xa06f0112, struct rm_stop_channel)                                                                  \
  X(WORK_SUBMIT_TOKEN, 0xc36f0108, struct rm_work_submit_token)                                                        \
  X(TOKEN_NOTIFIER_INDEX, 0xc36f010a, struct rm_token_notifier_index)                                                  \
  /* of a channel group */                                                                                             \
  X(GROUP_TIMESLICE, 0xa06c0103, struct rm_timeslice)                                                                  \
  X(GROUP_PREEMPT, 0xa06c0105, struct rm_preempt)                                                                      \
  X(GROUP_INFO, 0xa06c0106, struct rm_group_info)                                                                      \
  /* of a debugger object */                                                                                           \
  X(SM_ERROR_ONE, 0x83de030b, struct rm_sm_error_one)                                                                  \
  X(SM_ERROR_STATES, 0x83de030c, struct rm_sm_error_states)                                                            \
  X(DEBUG_MMU_FAULT, 0x83de0328, struct rm_debug_mmu_fault)                                                            \
  /* of a profiler */                                                                                                  \
  X(RESERVE_HWPM_LEGACY, 0xb0cc0101, struct rm_reserve_hwpm)                                                           \
  X(ALLOC_PMA_STREAM, 0xb0cc0105, struct rm_pma_stream)                                                                \
  X(FREE_PMA_STREAM, 0xb0cc0106, struct rm_pma_channel)                                                                \
  X(PMA_GET_PUT, 0xb0cc0109, struct rm_pma_get_put)                                                                    \
  X(EXEC_REG_OPS, 0xb0cc010a, struct rm_reg_ops)                                                                       \
  X(SET_HS_CREDITS, 0xb0cc010e, struct rm_hs_credits)                                                                  \
  X(POWER_REQUEST, 0xb0cc0301, struct rm_power_request)                                                                \
  X(POWER_RELEASE, 0xb0cc0302, struct rm_power_release)
enum rm_control_command {
#define RM_CONTROL_ENUM(name, command, type) RM_CTRL_##name = (int)(command),
  RM_CONTROLS(RM_CONTROL_ENUM)
#undef RM_CONTROL_ENUM
  /* Of a profiler; without parameters. */
  RM_CTRL_RELEASE_HWPM_LEGACY = (int)0xb0cc0102,
  RM_CTRL_BIND_PM_RESOURCES = (int)0xb0cc0107,
  RM_CTRL_UNBIND_PM_RESOURCES = (int)0xb0cc0108,
  RM_CTRL_RESERVE_PC_SAMPLER = (int)0xb0cc010b,
  RM_CTRL_RELEASE_PC_SAMPLER = (int)0xb0cc010c,
  /* Sizes in rm_branch.h. */
  RM_CTRL_P2P_CAPS_V2 = 0x12b,
  RM_CTRL_BUILD_VERSION = 0x13e,
  RM_CTRL_PROBED_IDS = 0x214,
  RM_CTRL_CLASS_LIST_V2 = 0x800292,
  RM_CTRL_GPU_INFO_V2 = 0x20800102,
  RM_CTRL_NAME_STRING = 0x20800110,
  RM_CTRL_ENGINES_V2 = 0x20800170,
  RM_CTRL_GR_INFO_V2 = 0x20801228,
  RM_CTRL_FB_INFO_V2 = 0x20801303,
  RM_CTRL_RATED_TDP_GET = 0x2080206e,
  RM_CTRL_RATED_TDP_SET = 0x2080206f,
  RM_CTRL_CE_CAPS = 0x20802a0a,
  RM_CTRL_GROUP_SCHEDULE = (int)0xa06c0101,
  RM_CTRL_CHANNEL_SCHEDULE = (int)0xa06f0103,
  RM_CTRL_CC_CAPABILITIES = (int)0xcb330101,
};

/* ---- of the client ---- */

struct rm_build_version { /* NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS */
  char driver_version[256], version[256], driver_branch[256], title[256];
  uint32_t changelist_number, official_changelist_number;
};
struct rm_build_version_555 { /* the same up to 555 */
  char driver_version[256], version[256], title[256];
  uint32_t changelist_number, official_changelist_number;
};
struct rm_gpu_id_info { /* NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS */
  uint32_t gpu_id, gpu_flags, device_instance, sub_device_instance, sli_status, board_id, gpu_instance;
  int32_t numa_id;
};
struct rm_probed_ids { /* NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS */
  uint32_t gpu_ids[32], excluded_gpu_ids[32], gpu_flags[32];
};
struct rm_attach_ids { /* NV0000_CTRL_GPU_ATTACH_IDS_PARAMS */
  uint32_t gpu_ids[32], failed_id;
};
struct rm_attached_ids { /* NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS */
  uint32_t gpu_ids[32];
};
struct rm_gpu_pci_info { /* NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS */
  uint32_t gpu_id, domain;
  uint16_t bus, slot;
};
struct rm_p2p_caps_v2 { /* NV0000_CTRL_SYSTEM_GET_P2P_CAPS_V2_PARAMS */
  uint32_t gpu_ids[32], gpu_count, caps, optimal_read_ces, optimal_write_ces;
  uint8_t caps_status[9];
  uint8_t pad[3];
  uint32_t bus_peer_ids[1024], bus_egm_peer_ids[1024];
};
enum { RM_P2P_WRITES = 1, RM_P2P_READS = 2 }; /* bits of caps */
enum { RM_INVALID_GPU_ID = -1 };              /* terminates a list of ids */
struct rm_cc_capabilities {                   /* NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_CAPABILITIES_PARAMS */
  uint8_t cpu_capability, gpus_capability, environment, cc_feature, dev_tools_mode, multi_gpu_mode;
};
enum { RM_CC_FEATURE_DISABLED = 0, RM_CC_FEATURE_APM = 1, RM_CC_FEATURE_HCC = 2 };

/* ---- of the device and subdevice ---- */

struct rm_class_list { /* NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS */
  uint32_t count;
  uint32_t pad;
  uint64_t list;
};
struct rm_class_list_v2 { /* NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS */
  uint32_t count, list[200];
};
struct rm_gid_info { /* NV2080_CTRL_GPU_GET_GID_INFO_PARAMS */
  uint32_t index, flags, length;
  uint8_t data[256];
};
enum { RM_GID_BINARY_SHA1 = 2 }; /* flags: 16 bytes */
struct rm_name_string {          /* NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS */
  uint32_t flags;                /* 0: ASCII */
  char ascii[64];                /* up to 590 in a union with uint16_t[64] */
};
struct rm_recovery_action { /* NV2080_CTRL_GPU_GET_RECOVERY_ACTION_PARAMS */
  uint32_t action;          /* 0: none */
};
struct rm_info { /* NV2080_CTRL_GR_INFO */
  uint32_t index, data;
};
struct rm_gpu_info_v2 { /* NV2080_CTRL_GPU_GET_INFO_V2_PARAMS */
  uint32_t count;
  struct rm_info list[70];
};
enum { RM_GPU_SMC_MODE = 0x2a }; /* index: whether the GPU is divided (MIG), or will be after the next reset */
enum {
  RM_SMC_MODE_UNSUPPORTED,
  RM_SMC_MODE_ENABLED,
  RM_SMC_MODE_DISABLED,
  RM_SMC_MODE_ENABLE_PENDING,
  RM_SMC_MODE_DISABLE_PENDING
};
struct rm_engines_v2 { /* NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS */
  uint32_t count, list[84];
};
struct rm_gr_route { /* NV2080_CTRL_GR_ROUTE_INFO */
  uint32_t flags;
  uint32_t pad;
  uint64_t route;
};
struct rm_gr_info { /* NV2080_CTRL_GR_GET_INFO_PARAMS */
  uint32_t count;
  uint32_t pad;
  uint64_t list;
  struct rm_gr_route route;
};
struct rm_gr_info_v2 { /* NV2080_CTRL_GR_GET_INFO_V2_PARAMS: the route follows the list, whose length varies */
  uint32_t count;
  struct rm_info list[]; /* then padding to a multiple of 8 and struct rm_gr_route */
};
enum rm_gr_index {
  RM_GR_SM_VERSION = 0xc, /* major << 8 | minor; 0xa04 and 0xc00 both name sm_120 */
  RM_GR_MAX_WARPS_PER_SM = 0xd,
  RM_GR_MAX_THREADS_PER_WARP = 0xe,
  RM_GR_GPCS = 0x14, /* before floor-sweeping, as are the next ones */
  RM_GR_FBPS = 0x15,
  RM_GR_TPCS_PER_GPC = 0x17,
  RM_GR_GPU_CORE_COUNT = 0x1d,
  RM_GR_SMS_PER_TPC = 0x20,
  RM_GR_TENSOR_CORE_COUNT = 0x23,
  RM_GR_MAX_SUBCONTEXTS = 0x2c,
};
struct rm_gpc_mask { /* NV2080_CTRL_GR_GET_GPC_MASK_PARAMS */
  struct rm_gr_route route;
  uint32_t gpc_mask;
  uint32_t pad;
};
struct rm_tpc_mask { /* NV2080_CTRL_GR_GET_TPC_MASK_PARAMS */
  struct rm_gr_route route;
  uint32_t gpc_id, tpc_mask;
};
struct rm_ctx_buffer_size { /* NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS */
  uint32_t channel;
  uint32_t pad;
  uint64_t size;
};
struct rm_fb_info { /* NV2080_CTRL_FB_GET_INFO_PARAMS */
  uint32_t count;
  uint32_t pad;
  uint64_t list; /* struct rm_info[count] */
};
struct rm_fb_info_v2 { /* NV2080_CTRL_FB_GET_INFO_V2_PARAMS */
  uint32_t count;
  struct rm_info list[128];
};
enum rm_fb_index { /* KiB; the L2 cache in bytes */
                   RM_FB_BAR1_SIZE = 0x5,
                   RM_FB_RAM_SIZE = 0x7,
                   RM_FB_TOTAL_RAM_SIZE = 0x8,
                   RM_FB_HEAP_SIZE = 0x9,
                   RM_FB_BUS_WIDTH = 0xb,
                   RM_FB_HEAP_FREE = 0x16,
                   RM_FB_L2_SIZE = 0x1b,
                   RM_FB_BAR1_AVAILABLE = 0x1d,
                   RM_FB_USABLE_RAM_SIZE = 0x20,
};
struct rm_arch_info { /* NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS */
  uint32_t architecture, implementation, revision;
  uint8_t sub_revision;
  uint8_t pad[3];
};
enum rm_architecture {
  RM_ARCH_GA100 = 0x170,
  RM_ARCH_GH100 = 0x180,
  RM_ARCH_AD100 = 0x190,
  RM_ARCH_GB100 = 0x1a0,
  RM_ARCH_GB200 = 0x1b0
};
struct rm_ce_caps { /* NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS */
  uint8_t caps[64][2];
  uint64_t present;
};
struct rm_ce_caps_535 { /* the same in 535 */
  uint8_t caps[32][2];
  uint32_t present;
};
enum {
  RM_CE_GRCE = 0x1,
  RM_CE_SHARED = 0x2,
  RM_CE_SYSMEM_READ = 0x4,
  RM_CE_SYSMEM_WRITE = 0x8,
  RM_CE_SYSMEM = 0x20,
  RM_CE_P2P = 0x40
}; /* first byte */
struct rm_ce_pce_mask { /* NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS */
  uint32_t engine_type, pce_mask;
};
struct rm_ce_caps_v2 { /* NV2080_CTRL_CE_GET_CAPS_V2_PARAMS */
  uint32_t engine_type;
  uint8_t caps[2];
  uint8_t pad[2];
};
struct rm_perf_boost { /* NV2080_CTRL_PERF_BOOST_PARAMS */
  uint32_t flags, duration;
};
/* Clocks: RM obeys the first client in this order whose action is not DEFAULT. Only RM itself sets its action. */
struct rm_rated_tdp { /* NV2080_CTRL_PERF_RATED_TDP_CONTROL_PARAMS; up to 555 without the state */
  uint32_t client, action, state;
};
enum { RM_CLOCKS_RM, RM_CLOCKS_WORKAROUND, RM_CLOCKS_GLOBAL, RM_CLOCKS_OS, RM_CLOCKS_PROFILE, RM_CLOCK_CLIENTS };
enum { RM_CLOCKS_DEFAULT, RM_CLOCKS_EXCEED, RM_CLOCKS_LIMIT, RM_CLOCKS_LOCK, RM_CLOCKS_FLOOR, RM_CLOCK_ACTIONS };
enum { RM_CLOCKS_AT_RATED_TDP, RM_CLOCKS_AT_BOOST, RM_CLOCK_STATES };
struct rm_timer_time { /* NV2080_CTRL_TIMER_GET_TIME_PARAMS */
  uint64_t ns;
};
struct rm_time_sample { /* NV2080_CTRL_TIMER_GPU_CPU_TIME_SAMPLE */
  uint64_t cpu_time, gpu_time;
};
struct rm_time_correlation { /* NV2080_CTRL_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO_PARAMS */
  uint8_t cpu_clock, count;
  uint8_t pad[6];
  struct rm_time_sample samples[16];
};
struct rm_timer_register { /* NV2080_CTRL_TIMER_GET_REGISTER_OFFSET_PARAMS */
  uint32_t offset;
};
struct rm_flush_gpu_cache { /* NV2080_CTRL_FB_FLUSH_GPU_CACHE_PARAMS */
  uint64_t addresses[500];
  uint32_t count, address_align;
  uint64_t block_size;
  uint32_t flags;
  uint32_t pad;
};
struct rm_event_set_notification { /* NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS */
  uint32_t event, action;
  uint8_t notify_state;
  uint8_t pad[3];
  uint32_t info32;
  uint16_t info16;
  uint8_t pad2[2];
};

/* ---- of channels and groups ---- */

struct rm_gpfifo_schedule { /* NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS */
  uint8_t enable, skip_submit, skip_enable;
};
struct rm_channel_bind { /* NVA06F_CTRL_BIND_PARAMS */
  uint32_t engine_type;
};
struct rm_stop_channel { /* NVA06F_CTRL_STOP_CHANNEL_PARAMS */
  uint8_t immediate;
};
struct rm_timeslice { /* NVA06C_CTRL_TIMESLICE_PARAMS */
  uint64_t us;
};
struct rm_preempt { /* NVA06C_CTRL_PREEMPT_PARAMS */
  uint8_t wait, manual_timeout;
  uint8_t pad[2];
  uint32_t timeout_us;
};
struct rm_group_info { /* NVA06C_CTRL_GET_INFO_PARAMS */
  uint32_t id;
};
struct rm_work_submit_token { /* NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS */
  uint32_t token;
};
struct rm_token_notifier_index { /* NVC36F_CTRL_GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX_PARAMS */
  uint32_t index;
};
struct rm_class_engine { /* NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS */
  uint32_t object, class_engine, class, engine;
};
struct rm_mmu_fault_info { /* NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS */
  uint32_t addr_hi, addr_lo, fault_type;
  char fault_string[32];
  uint32_t pad;
  uint64_t shader_program_va[7];
};

/* ---- of debuggers ---- */

struct rm_sm_error_state { /* NV83DE_SM_ERROR_STATE_REGISTERS */
  uint32_t global_esr, warp_esr, warp_esr_pc, global_esr_mask, warp_esr_mask;
  uint32_t pad;
  uint64_t esr_addr, warp_esr_pc64;
  uint32_t cga_esr, cga_esr_mask;
};
struct rm_sm_error_one { /* NV83DE_CTRL_DEBUG_READ_SINGLE_SM_ERROR_STATE_PARAMS */
  uint32_t target_channel, sm;
  struct rm_sm_error_state state;
};
struct rm_sm_mmu_fault { /* NV83DE_MMU_FAULT_INFO */
  uint8_t valid;
  uint8_t pad[3];
  uint32_t fault_info;
};
struct rm_sm_error_states { /* NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS */
  uint32_t target_channel, num_sms;
  struct rm_sm_error_state states[100];
  uint32_t mmu_fault_info;
  struct rm_sm_mmu_fault mmu_fault;
  uint32_t starting_sm;
};
struct rm_debug_mmu_fault_entry { /* NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_ENTRY */
  uint64_t fault_address;
  uint32_t fault_type, access_type;
};
struct rm_debug_mmu_fault { /* NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS */
  struct rm_debug_mmu_fault_entry entries[4];
  uint32_t count;
  uint32_t pad;
};

/* ---- of a profiler: reservations, the stream of records (PMA), registers. pma/pma_wire.h has the records ---- */

struct rm_reserve_hwpm { /* NVB0CC_CTRL_RESERVE_HWPM_LEGACY_PARAMS */
  uint8_t per_context;   /* the hardware's state is switched with the context */
};
struct rm_pma_stream { /* NVB0CC_CTRL_ALLOC_PMA_STREAM_PARAMS */
  uint32_t buffer;     /* memory for the records */
  uint32_t pad;
  uint64_t buffer_offset, buffer_size;
  uint32_t bytes; /* memory that the process may only read, for the number of bytes that are available */
  uint32_t pad2;
  uint64_t bytes_offset;
  uint8_t per_context;
  uint8_t pad3[3];
  uint32_t channel;   /* out */
  uint64_t buffer_va; /* out */
};
#define RM_PMA_BUFFER_MAX 0xffe00000u
enum { RM_PMA_BYTES_SIZE = 0x1000 };
struct rm_pma_channel { /* NVB0CC_CTRL_FREE_PMA_STREAM_PARAMS */
  uint32_t channel;
};
struct rm_pma_get_put { /* NVB0CC_CTRL_PMA_STREAM_UPDATE_GET_PUT_PARAMS */
  uint64_t consumed;    /* bytes that the process has read since the last call */
  uint8_t update, wait; /* with both, available is set */
  uint8_t pad[6];
  uint64_t available;
  uint8_t return_put;
  uint8_t pad2[7];
  uint64_t put;
  uint32_t channel;
  uint8_t overflow; /* out: records were lost because the buffer was full */
  uint8_t pad3[3];
};
struct rm_reg_op { /* NV2080_CTRL_GPU_REG_OP: new value = old value & ~mask | value */
  uint8_t op, type, status, quad;
  uint32_t group_mask, subgroup_mask, offset, value_hi, value, mask_hi, mask;
};
enum { RM_REG_READ_32, RM_REG_WRITE_32 };     /* op */
enum { RM_REG_GLOBAL, RM_REG_CONTEXT };       /* type: of the GPU, or of the context that is profiled */
enum { RM_REG_ALL_OR_NONE, RM_REG_CONTINUE }; /* mode */
enum rm_reg_status {                          /* bits */
                     RM_REG_INVALID_OP = 1,
                     RM_REG_INVALID_TYPE = 2,
                     RM_REG_INVALID_OFFSET = 4,
                     RM_REG_UNSUPPORTED_OP = 8,
                     RM_REG_INVALID_MASK = 0x10,
                     RM_REG_NO_ACCESS = 0x20,
};
enum { RM_REG_OPS_MAX = 124 };
struct rm_reg_ops { /* NVB0CC_CTRL_EXEC_REG_OPS_PARAMS */
  uint32_t count, mode;
  uint8_t passed, direct;
  uint8_t pad[2];
  struct rm_reg_op ops[RM_REG_OPS_MAX];
};
enum { RM_CHIPLET_FBP = 1, RM_CHIPLET_GPC, RM_CHIPLET_SYS };
struct rm_hs_credit { /* NVB0CC_CTRL_PMA_STREAM_HS_CREDITS_INFO */
  uint8_t chiplet, index;
  uint16_t credits;
};
enum { RM_CREDITS_OK, RM_CREDITS_INVALID, RM_CREDITS_INVALID_CHIPLET }; /* status */
enum { RM_HS_CREDITS_MAX = 63 };
struct rm_hs_credits { /* NVB0CC_CTRL_HS_CREDITS_PARAMS */
  uint8_t channel, count;
  uint8_t status, failed; /* out; failed: an index */
  struct rm_hs_credit credit[RM_HS_CREDITS_MAX];
};
struct rm_power_request { /* NVB0CC_CTRL_POWER_REQUEST_FEATURES_PARAMS */
  uint32_t global_status, control, status;
};
struct rm_power_release { /* NVB0CC_CTRL_POWER_RELEASE_FEATURES_PARAMS */
  uint32_t control;
};
/* control: two bits per feature */
enum {
  RM_POWER_ELCG = 0,
  RM_POWER_BLCG = 2,
  RM_POWER_SLCG = 4,
  RM_POWER_ELPG = 6,
  RM_POWER_IDLE_SLOWDOWN = 8,
  RM_POWER_VAT = 10,
  RM_POWER_END = 12,
};
enum { RM_POWER_IGNORE, RM_POWER_DISABLE, RM_POWER_ENABLE, RM_POWER_RELEASED };

#pragma GCC diagnostic pop
#endif
