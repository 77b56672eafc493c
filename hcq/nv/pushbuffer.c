/* Writes pushbuffers. */
#include "pushbuffer.h"
#include <string.h>

uint32_t *push_methods(struct words *b, unsigned subchannel, uint32_t method, unsigned n) {
  uint32_t *p = words_packet(b, 1 + (size_t)n);
  if (!p) return NULL;
  *p = NV_METHOD_HEADER(NV_OPCODE_INC, subchannel, method, n);
  return p + 1;
}

void push_immediate(struct words *b, unsigned subchannel, uint32_t method, uint32_t data) {
  uint32_t *p = words_packet(b, 1);
  if (p) *p = NV_METHOD_HEADER(NV_OPCODE_IMMD, subchannel, method, data);
}

void push_method(struct words *b, unsigned subchannel, uint32_t method, uint32_t data) {
  uint32_t *p = push_methods(b, subchannel, method, 1);
  if (p) *p = data;
}

void push_pair(struct words *b, unsigned subchannel, uint32_t method, uint64_t value) {
  uint32_t *p = push_methods(b, subchannel, method, 2);
  if (!p) return;
  p[0] = (uint32_t)(value >> 32);
  p[1] = (uint32_t)value;
}

void push_set_object(struct words *b, unsigned subchannel, uint32_t object_class) {
  push_method(b, subchannel, NV_HOST_SET_OBJECT, object_class);
}

/* ---- host ---- */

static void semaphore(struct words *b, uint64_t address, uint64_t value, uint32_t execute) {
  uint32_t *p = push_methods(b, 0, NV_HOST_SEM_ADDR_LO, 5);
  if (!p) return;
  p[0] = (uint32_t)address;
  p[1] = (uint32_t)(address >> 32);
  p[2] = (uint32_t)value;
  p[3] = (uint32_t)(value >> 32);
  p[4] = execute | BITS(NV_HOST_SEM_EXECUTE_PAYLOAD_SIZE, 1);
}

void push_acquire(struct words *b, uint64_t address, uint64_t value) {
  semaphore(b, address, value,
            BITS(NV_HOST_SEM_EXECUTE_OPERATION, NV_SEM_ACQ_CIRC_GEQ) | BITS(NV_HOST_SEM_EXECUTE_ACQUIRE_SWITCH_TSG, 1));
}

void push_release(struct words *b, uint64_t address, uint64_t value) {
  semaphore(b, address, value,
            BITS(NV_HOST_SEM_EXECUTE_OPERATION, NV_SEM_RELEASE) | BITS(NV_HOST_SEM_EXECUTE_RELEASE_WFI, 1));
}

void push_release_stamped(struct words *b, uint64_t address, uint64_t value) {
  semaphore(b, address, value,
            BITS(NV_HOST_SEM_EXECUTE_OPERATION, NV_SEM_RELEASE) | BITS(NV_HOST_SEM_EXECUTE_RELEASE_WFI, 1) |
                BITS(NV_HOST_SEM_EXECUTE_RELEASE_TIMESTAMP, 1));
}

void push_wait_for_idle(struct words *b) { push_immediate(b, 0, NV_HOST_WFI, 0); }

/* ---- compute ---- */

void push_shader_windows(struct words *b, uint64_t shared, uint64_t local) {
  push_pair(b, NV_SUBCHANNEL_COMPUTE, NV_COMPUTE_SET_SHADER_SHARED_MEMORY_WINDOW_A, shared);
  push_pair(b, NV_SUBCHANNEL_COMPUTE, NV_COMPUTE_SET_SHADER_LOCAL_MEMORY_WINDOW_A, local);
}

void push_local_memory(struct words *b, uint64_t address, uint64_t bytes_per_tpc) {
  push_pair(b, NV_SUBCHANNEL_COMPUTE, NV_COMPUTE_SET_SHADER_LOCAL_MEMORY_A, address);
  uint32_t *p = push_methods(b, NV_SUBCHANNEL_COMPUTE, NV_COMPUTE_SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, 3);
  if (!p) return;
  p[0] = (uint32_t)(bytes_per_tpc >> 32);
  p[1] = (uint32_t)bytes_per_tpc;
  p[2] = BITS(NV_COMPUTE_SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C_MAX_SM_COUNT, 0xff); /* no limit */
}

void push_invalidate_shader_caches(struct words *b) {
  push_immediate(b, NV_SUBCHANNEL_COMPUTE, NV_COMPUTE_INVALIDATE_SHADER_CACHES_NO_WFI,
                 BITS(NV_COMPUTE_INVALIDATE_SHADER_CACHES_NO_WFI_INSTRUCTION, 1) |
                     BITS(NV_COMPUTE_INVALIDATE_SHADER_CACHES_NO_WFI_GLOBAL_DATA, 1) |
                     BITS(NV_COMPUTE_INVALIDATE_SHADER_CACHES_NO_WFI_CONSTANT, 1));
}

void push_launch(struct words *b, uint64_t qmd) {
  push_method(b, NV_SUBCHANNEL_COMPUTE, NV_COMPUTE_SEND_PCAS_A, (uint32_t)(qmd >> NV_PCAS_ADDRESS_SHIFT));
  push_immediate(b, NV_SUBCHANNEL_COMPUTE, NV_COMPUTE_SEND_SIGNALING_PCAS2_B,
                 BITS(NV_COMPUTE_SEND_SIGNALING_PCAS2_B_PCAS_ACTION, NV_PCAS_PREFETCH_SCHEDULE));
}

void push_launch_inline(struct words *b, uint64_t address, const uint32_t *qmd, unsigned n) {
  uint32_t *p = push_methods(b, NV_SUBCHANNEL_COMPUTE, NV_COMPUTE_SET_INLINE_QMD_ADDRESS_A, 2 + n);
  if (!p) return;
  /* Classes that have only QMDs of 256 bytes do not have INLINE_SIZE. */
  p[0] = BITS(NV_COMPUTE_SET_INLINE_QMD_ADDRESS_A_QMD_ADDRESS_SHIFTED8_UPPER, address >> 40) |
         BITS(NV_COMPUTE_SET_INLINE_QMD_ADDRESS_A_INLINE_SIZE, n == 96 ? NV_INLINE_QMD_384 : NV_INLINE_QMD_256);
  p[1] = (uint32_t)(address >> NV_PCAS_ADDRESS_SHIFT);
  memcpy(p + 2, qmd, n * 4ul); /* the last dword launches it */
}

/* ---- copy ---- */

void push_copy(struct words *b, uint64_t dst, uint64_t src, uint64_t n) {
  for (uint64_t at = 0; at < n; at += PUSH_COPY_MAX) {
    uint32_t piece = n - at < PUSH_COPY_MAX ? (uint32_t)(n - at) : PUSH_COPY_MAX;
    uint32_t *p = push_methods(b, NV_SUBCHANNEL_COPY, NV_COPY_OFFSET_IN_UPPER, 4);
    if (!p) return;
    p[0] = (uint32_t)((src + at) >> 32);
    p[1] = (uint32_t)(src + at);
    p[2] = (uint32_t)((dst + at) >> 32);
    p[3] = (uint32_t)(dst + at);
    push_method(b, NV_SUBCHANNEL_COPY, NV_COPY_LINE_LENGTH_IN, piece);
    /* Pieces of one copy do not depend on each other. The flush makes the written data visible before a later semaphore
     * release. */
    push_method(b, NV_SUBCHANNEL_COPY, NV_COPY_LAUNCH_DMA,
                BITS(NV_COPY_LAUNCH_DMA_DATA_TRANSFER_TYPE, at ? NV_COPY_PIPELINED : NV_COPY_NON_PIPELINED) |
                    BITS(NV_COPY_LAUNCH_DMA_FLUSH_ENABLE, 1) |
                    BITS(NV_COPY_LAUNCH_DMA_SRC_MEMORY_LAYOUT, NV_LAYOUT_PITCH) |
                    BITS(NV_COPY_LAUNCH_DMA_DST_MEMORY_LAYOUT, NV_LAYOUT_PITCH));
  }
}

uint64_t push_gp_entry(uint64_t address, uint32_t dwords) {
  return BITS(NV_GP_ENTRY0_GET, address >> 2) |
         (uint64_t)(BITS(NV_GP_ENTRY1_GET_HI, address >> 32) | BITS(NV_GP_ENTRY1_LENGTH, dwords)) << 32;
}
