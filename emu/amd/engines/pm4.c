/* The PM4 packet processor of a compute queue (MEC): one handler per packet, found by opcode. Wire format and sources:
 * hcq/amd/pm4_wire.h, registers.h. Packets that the table does not list, reserved bits, and field values without a
 * meaning on this engine are faults.
 *
 * Caches: the only emulated cache holds decoded instructions, and packets run one after the other. So cache maintenance
 * at most drops decoded code. Strict machines check that the maintenance is present (race.h). */
#include "gpu.h"
#include <inttypes.h>
#include <string.h>
#include "../../../hcq/amd/pm4_wire.h"

#define FIELD(packet, field)    BITS_GET(PM4_##packet##_##field, p[PM4_##packet##_##field##_DW])
#define ADDRESS(packet, lo, hi) ((uint64_t)p[PM4_##packet##_##hi##_DW] << 32 | p[PM4_##packet##_##lo##_DW])
#define BAD(...)                cp_fault(q, FAULT_PACKET, 0, VM_READ, __VA_ARGS__)
#define NAME(opcode)            pm4_packet_info(opcode).name

/* ---- registers ---- */

static enum cp_status write_register(struct amd_queue *q, const char *packet, uint32_t reg, uint32_t value) {
  const char *name = gfx11_register_name(reg);
  bool known = false;
  enum cp_status status = name ? CP_DONE : amd_perf_write(q, packet, reg, value, &known);
  if (known) return status;
  if (!name) return BAD("%s: no register at 0x%x", packet, reg);
  if (value & ~gfx11_register_bits(reg))
    return BAD("%s: %s = 0x%08x sets reserved bits 0x%08x", packet, name, value, value & ~gfx11_register_bits(reg));
  if (reg == GFX11_GRBM_GFX_INDEX) {
    atomic_store_explicit(&q->gpu->grbm_gfx_index, value, memory_order_relaxed);
    return CP_DONE;
  }
  if (amd_sqtt_has(reg)) return amd_sqtt_write(q, packet, reg, value);
  if (reg >= PM4_UCONFIG_BASE) return amd_perf_write(q, packet, reg, value, &known);
  if (reg == GFX11_COMPUTE_PIPELINESTAT_ENABLE && value)
    return BAD("not supported: %s: %s, the emulated GPU has no pipeline statistics", packet, name);
  q->sh[reg - PM4_SH_BASE] = value;
  amd_sqtt_sh_register(q, reg, value);
  return CP_DONE;
}

static enum cp_status read_register(struct amd_queue *q, const char *packet, uint64_t reg, uint32_t *value) {
  bool counter = false;
  enum cp_status status = reg >> 32 ? CP_DONE : amd_perf_result(q, (uint32_t)reg, value, &counter);
  if (counter) return status;
  if (reg == NBIO_GPU_HDP_FLUSH_REQ || reg == NBIO_GPU_HDP_FLUSH_DONE)
    *value = ~0u;
  else if (reg == GFX11_GRBM_GFX_INDEX)
    *value = (uint32_t)atomic_load_explicit(&q->gpu->grbm_gfx_index, memory_order_relaxed);
  else if (reg >> 32 || !gfx11_register_name((uint32_t)reg))
    return BAD("%s: no register at 0x%" PRIx64, packet, reg);
  else if (amd_sqtt_has((uint32_t)reg))
    return amd_sqtt_read(q, packet, (uint32_t)reg, value);
  else if (reg >= PM4_UCONFIG_BASE)
    *value = amd_perf_read(q, (uint32_t)reg);
  else
    *value = q->sh[reg - PM4_SH_BASE];
  return CP_DONE;
}

static enum cp_status set_registers(struct amd_queue *q, const uint32_t *p, uint32_t n, uint32_t base, uint32_t end) {
  const char *name = NAME(BITS_GET(PM4_HEADER_OPCODE, p[0]));
  uint32_t reg = base + (p[1] & 0xffff);
  if (reg + (n - 1) > end)
    return BAD("%s: registers 0x%x to 0x%x exceed the range that ends at 0x%x", name, reg, reg + n - 2, end);
  for (uint32_t i = 2; i <= n; i++)
    if (write_register(q, name, reg + i - 2, p[i]) != CP_DONE) return CP_DEAD;
  return CP_DONE;
}
static enum cp_status set_sh_reg(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  if (FIELD(SET_SH_REG, VMID_SHIFT) || FIELD(SET_SH_REG, INDEX))
    return BAD("not supported: SET_SH_REG with VMID_SHIFT or INDEX");
  return set_registers(q, p, n, PM4_SH_BASE, PM4_SH_END);
}
/* INDEX 3 requests that the queue's CU mask is applied. The mask includes all CUs here. */
static enum cp_status set_sh_reg_index(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  if (FIELD(SET_SH_REG_INDEX, INDEX) != 0 && FIELD(SET_SH_REG_INDEX, INDEX) != 3)
    return BAD("SET_SH_REG_INDEX: index %u", FIELD(SET_SH_REG_INDEX, INDEX));
  return set_registers(q, p, n, PM4_SH_BASE, PM4_SH_END);
}
static enum cp_status set_uconfig_reg(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  return set_registers(q, p, n, PM4_UCONFIG_BASE, PM4_UCONFIG_END);
}

/* ---- caches, ends of pipe ---- */

static enum cp_status acquire_mem(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  bool near = FIELD(ACQUIRE_MEM, GLV_INV) && FIELD(ACQUIRE_MEM, GL1_INV) && FIELD(ACQUIRE_MEM, GLK_INV);
  if (FIELD(ACQUIRE_MEM, GLI_INV)) code_cache_invalidate(q->code);
  if (FIELD(ACQUIRE_MEM, GL2_WB)) race_write_back(q->race, true);
  race_acquire_by(q->race, (near ? RACE_NEAR : 0u) | (FIELD(ACQUIRE_MEM, GL2_INV) ? RACE_FAR : 0u) |
                               (FIELD(ACQUIRE_MEM, GLI_INV) ? RACE_CODE : 0u));
  atomic_thread_fence(memory_order_acquire);
  return CP_DONE;
}

static bool event_known(unsigned type) {
#define EVENT_BIT(name, number) | 1ull << (number)
  return (0 PM4_EVENTS(EVENT_BIT)) >> type & 1;
#undef EVENT_BIT
}

static enum cp_status release_mem(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  unsigned event = FIELD(RELEASE_MEM, EVENT_TYPE), index = FIELD(RELEASE_MEM, EVENT_INDEX);
  unsigned data = FIELD(RELEASE_MEM, DATA_SEL), interrupt = FIELD(RELEASE_MEM, INT_SEL);
  uint64_t va = ADDRESS(RELEASE_MEM, ADDR_LO, ADDR_HI), value = ADDRESS(RELEASE_MEM, DATA_LO, DATA_HI);
  if (!event_known(event)) return BAD("RELEASE_MEM: event type %u", event);
  if (index != PM4_EVENT_INDEX_END_OF_PIPE && index != PM4_EVENT_INDEX_SHADER_DONE)
    return BAD("RELEASE_MEM: event index %u", index);
  if (FIELD(RELEASE_MEM, DST_SEL) > PM4_RELEASE_TO_L2)
    return BAD("RELEASE_MEM: DST_SEL %u", FIELD(RELEASE_MEM, DST_SEL));
  if (data > PM4_DATA_SYSTEM_CLOCK) return BAD("not supported: RELEASE_MEM with DATA_SEL %u", data);
  if (interrupt > 4) return BAD("not supported: RELEASE_MEM with INT_SEL %u", interrupt);
  if (FIELD(RELEASE_MEM, GL2_WB)) race_write_back(q->race, false);
  if (data != PM4_DATA_NONE) {
    unsigned bytes = data == PM4_DATA_32 ? 4 : 8;
    void *at = cp_memory(q, "RELEASE_MEM", va, bytes, bytes, VM_WRITE);
    if (!at) return CP_DEAD;
    if (cp_release(q, va, at, value, false) != CP_DONE) return CP_DEAD;
    if (data == PM4_DATA_GPU_CLOCK || data == PM4_DATA_SYSTEM_CLOCK) value = amd_clock();
    if (bytes == 4)
      __atomic_store_n((uint32_t *)at, (uint32_t)value, __ATOMIC_RELEASE);
    else
      __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
    amd_wake_queues(q->gpu->shared);
  }
  if (interrupt == PM4_INT_ONLY || interrupt == PM4_INT_AFTER_WRITE || interrupt == 4) {
    race_interrupt(q->race);
    q->gpu->shared->interrupt(q->gpu, FIELD(RELEASE_MEM, INT_CTXID), 32);
  }
  return CP_DONE;
}

static enum cp_status event_write(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  unsigned type = FIELD(EVENT_WRITE, EVENT_TYPE), index = FIELD(EVENT_WRITE, EVENT_INDEX);
  if (!event_known(type)) return BAD("EVENT_WRITE: event type %u", type);
  if (type == PM4_EVENT_CS_PARTIAL_FLUSH ? index != PM4_EVENT_INDEX_CS_FLUSH : index != PM4_EVENT_INDEX_OTHER)
    return BAD("EVENT_WRITE: event type %u with index %u", type, index);
  if (type >= PM4_EVENT_PERFCOUNTER_START && type <= PM4_EVENT_PERFCOUNTER_SAMPLE)
    return BAD("not supported: EVENT_WRITE of type %u, the emulated GPU samples no counters", type);
  if (type == PM4_EVENT_THREAD_TRACE_START || type == PM4_EVENT_THREAD_TRACE_STOP ||
      type == PM4_EVENT_THREAD_TRACE_DRAW)
    return BAD("not supported: EVENT_WRITE of type %u, which is for graphics queues", type);
  if (type == PM4_EVENT_CS_PARTIAL_FLUSH) race_finish(q->race);
  return amd_sqtt_event(q, type);
}

/* ---- waits ---- */

static enum cp_status wait_common(struct amd_queue *q, const char *name, unsigned function, unsigned space,
                                  unsigned operation, uint64_t at, uint64_t reference, uint64_t mask, unsigned bytes) {
  uint64_t value;
  if (function > PM4_WAIT_GT) return BAD("%s: function %u", name, function);
  if (operation == PM4_WAIT_WRITE_THEN_POLL) {
    /* A flush is complete immediately. */
    uint32_t req = (uint32_t)at, done = (uint32_t)(at >> 32);
    if (space != PM4_WAIT_REGISTER || req != NBIO_GPU_HDP_FLUSH_REQ || done != NBIO_GPU_HDP_FLUSH_DONE)
      return BAD("%s: writes register 0x%x and polls 0x%x, which do not belong together", name, req, done);
    if (q->race) race_flush_window(q->race, q->gpu->mmio_page);
    value = reference;
  } else if (operation != PM4_WAIT_POLL && operation != PM4_WAIT_POLL_PREEMPTIBLE) {
    return BAD("%s: operation %u", name, operation);
  } else if (space == PM4_WAIT_REGISTER) {
    uint32_t reg = 0;
    if (read_register(q, name, at, &reg) != CP_DONE) return CP_DEAD;
    value = reg;
  } else if (space == PM4_WAIT_MEMORY) {
    const void *p = cp_memory(q, name, at, bytes, bytes, VM_READ);
    if (!p) return CP_DEAD;
    value = bytes == 8 ? __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE)
                       : __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE);
    if (cp_compare(function, value, reference, mask)) {
      os_tsan_acquire(at);
      race_wait(q->race, p, reference);
    }
  } else
    return BAD("%s: memory space %u", name, space);
  return cp_compare(function, value, reference, mask) ? CP_DONE : CP_BLOCKED;
}

static enum cp_status wait_reg_mem(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  if (FIELD(WAIT_REG_MEM, ENGINE)) return BAD("WAIT_REG_MEM: engine %u", FIELD(WAIT_REG_MEM, ENGINE));
  return wait_common(q, "WAIT_REG_MEM", FIELD(WAIT_REG_MEM, FUNCTION), FIELD(WAIT_REG_MEM, MEM_SPACE),
                     FIELD(WAIT_REG_MEM, OPERATION), ADDRESS(WAIT_REG_MEM, ADDR_LO, ADDR_HI),
                     FIELD(WAIT_REG_MEM, REFERENCE), FIELD(WAIT_REG_MEM, MASK), 4);
}
static enum cp_status wait_reg_mem64(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  return wait_common(q, "WAIT_REG_MEM64", FIELD(WAIT_REG_MEM64, FUNCTION), FIELD(WAIT_REG_MEM64, MEM_SPACE),
                     FIELD(WAIT_REG_MEM64, OPERATION), ADDRESS(WAIT_REG_MEM64, ADDR_LO, ADDR_HI),
                     ADDRESS(WAIT_REG_MEM64, REFERENCE_LO, REFERENCE_HI), ADDRESS(WAIT_REG_MEM64, MASK_LO, MASK_HI), 8);
}

/* ---- data ---- */

static enum cp_status copy_data(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  unsigned src = FIELD(COPY_DATA, SRC_SEL), dst = FIELD(COPY_DATA, DST_SEL),
           bytes = FIELD(COPY_DATA, COUNT_SEL) ? 8 : 4;
  uint64_t from = ADDRESS(COPY_DATA, SRC_LO, SRC_HI), to = ADDRESS(COPY_DATA, DST_LO, DST_HI), value = 0;
  switch (src) {
  case PM4_COPY_REGISTER:
  case PM4_COPY_PERF: {
    uint32_t reg = 0;
    if (bytes != 4) return BAD("COPY_DATA: a register of %u bytes at 0x%" PRIx64, bytes, from);
    if (read_register(q, "COPY_DATA", from, &reg) != CP_DONE) return CP_DEAD;
    value = reg;
    break;
  }
  case PM4_COPY_MEMORY: {
    const void *at = cp_memory(q, "COPY_DATA", from, bytes, bytes, VM_READ);
    if (!at) return CP_DEAD;
    cp_record_read(q, at, bytes);
    value = bytes == 8 ? __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE)
                       : __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
    break;
  }
  case PM4_COPY_IMMEDIATE: value = from; break;
  case PM4_COPY_GPU_CLOCK:
  case PM4_COPY_SYSTEM_CLOCK: value = amd_clock(); break;
  default: return BAD("not supported: COPY_DATA from SRC_SEL %u", src);
  }
  if (dst == PM4_COPY_REGISTER) {
    if (bytes != 4 || to >> 32) return BAD("COPY_DATA: no %u-byte register at 0x%" PRIx64, bytes, to);
    return write_register(q, "COPY_DATA", (uint32_t)to, (uint32_t)value);
  }
  if (dst != PM4_COPY_MEMORY) return BAD("not supported: COPY_DATA to DST_SEL %u", dst);
  void *at = cp_memory(q, "COPY_DATA", to, bytes, bytes, VM_WRITE);
  if (!at) return CP_DEAD;
  if (cp_release(q, to, at, value, true) != CP_DONE) return CP_DEAD;
  if (bytes == 8)
    __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
  else
    __atomic_store_n((uint32_t *)at, (uint32_t)value, __ATOMIC_RELEASE);
  amd_wake_queues(q->gpu->shared);
  return CP_DONE;
}

static enum cp_status write_data(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  unsigned dst = FIELD(WRITE_DATA, DST_SEL);
  uint64_t to = ADDRESS(WRITE_DATA, ADDR_LO, ADDR_HI);
  uint32_t step = FIELD(WRITE_DATA, ADDR_INCR_DISABLE) ? 0 : 1;
  if (FIELD(WRITE_DATA, ENGINE_SEL)) return BAD("WRITE_DATA: engine %u", FIELD(WRITE_DATA, ENGINE_SEL));
  if (dst != PM4_WRITE_REGISTER && dst != PM4_WRITE_L2 && dst != PM4_WRITE_MEMORY)
    return BAD("not supported: WRITE_DATA to DST_SEL %u", dst);
  for (uint32_t i = 4; i <= n; i++) {
    uint64_t index = (i - 4) * step;
    if (dst == PM4_WRITE_REGISTER) {
      if ((to + index) >> 32) return BAD("WRITE_DATA: no register at 0x%" PRIx64, to + index);
      if (write_register(q, "WRITE_DATA", (uint32_t)(to + index), p[i]) != CP_DONE) return CP_DEAD;
      continue;
    }
    void *at = cp_memory(q, "WRITE_DATA", to + index * 4, 4, 4, VM_WRITE);
    if (!at) return CP_DEAD;
    if (cp_release(q, to + index * 4, at, p[i], true) != CP_DONE) return CP_DEAD;
    __atomic_store_n((uint32_t *)at, p[i], __ATOMIC_RELEASE);
  }
  amd_wake_queues(q->gpu->shared);
  return CP_DONE;
}

static enum cp_status atomic_mem(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  enum { SINGLE_PASS, LOOP_UNTIL_COMPARED };
  unsigned op = FIELD(ATOMIC_MEM, ATOMIC), command = FIELD(ATOMIC_MEM, COMMAND), bytes;
  uint64_t va = ADDRESS(ATOMIC_MEM, ADDR_LO, ADDR_HI), cmp = ADDRESS(ATOMIC_MEM, CMP_LO, CMP_HI), old;
  if (!cp_atomic_bytes(op, &bytes)) return BAD("not supported: ATOMIC_MEM operation 0x%x", op);
  if (command > 3) return BAD("ATOMIC_MEM: command %u", command);
  void *at = cp_memory(q, "ATOMIC_MEM", va, bytes, bytes, VM_READ | VM_WRITE);
  if (!at) return CP_DEAD;
  if (cp_release(q, va, at, 0, true) != CP_DONE) return CP_DEAD; /* the new value is not known */
  cp_atomic(at, op, ADDRESS(ATOMIC_MEM, SRC_LO, SRC_HI), cmp, &old);
  if (command == LOOP_UNTIL_COMPARED && old != (bytes == 8 ? cmp : (uint32_t)cmp)) return CP_BLOCKED;
  amd_wake_queues(q->gpu->shared);
  return CP_DONE;
}

/* ---- control flow ---- */

static enum cp_status nop(struct amd_queue *q, const uint32_t *p, uint32_t n) { return CP_DONE; }

static enum cp_status cond_exec(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  const struct cp_level *l = &q->levels[q->level];
  const void *at = cp_memory(q, "COND_EXEC", ADDRESS(COND_EXEC, ADDR_LO, ADDR_HI), 4, 4, VM_READ);
  uint64_t count = FIELD(COND_EXEC, EXEC_COUNT);
  if (!at) return CP_DEAD;
  if (count > l->end - l->pos)
    return BAD("COND_EXEC: %" PRIu64 " dwords reach beyond the %" PRIu64 " that follow", count, l->end - l->pos);
  cp_record_read(q, at, 4);
  if (!__atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE)) cp_advance(q, count);
  return CP_DONE;
}

static enum cp_status pred_exec(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  return BAD("PRED_EXEC: this GPU has one XCC; the packet is for gfx942");
}

static enum cp_status indirect_buffer(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  if (!FIELD(INDIRECT_BUFFER, VALID)) return BAD("INDIRECT_BUFFER: VALID is not set");
  if (FIELD(INDIRECT_BUFFER, VMID) || FIELD(INDIRECT_BUFFER, PRIV))
    return BAD("INDIRECT_BUFFER: VMID and PRIV belong to the kernel");
  return cp_call_indirect(q, "INDIRECT_BUFFER", ADDRESS(INDIRECT_BUFFER, BASE_LO, BASE_HI),
                          FIELD(INDIRECT_BUFFER, SIZE), FIELD(INDIRECT_BUFFER, CHAIN));
}

static enum cp_status dispatch_direct(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  return amd_dispatch(q, &p[PM4_DISPATCH_DIRECT_DIM_X_DW], FIELD(DISPATCH_DIRECT, INITIATOR));
}

static enum cp_status dispatch_indirect(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  const void *at = cp_memory(q, "DISPATCH_INDIRECT", ADDRESS(DISPATCH_INDIRECT, ADDR_LO, ADDR_HI), 12, 4, VM_READ);
  uint32_t dims[3];
  if (!at) return CP_DEAD;
  cp_record_read(q, at, sizeof dims);
  memcpy(dims, at, sizeof dims);
  return amd_dispatch(q, dims, FIELD(DISPATCH_INDIRECT, INITIATOR));
}

static enum cp_status set_base(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  return BAD("not supported: SET_BASE, compute queues take DISPATCH_INDIRECT's address from the packet");
}

static const cp_handler handlers[256] = {
    [PM4_NOP] = nop,
    [PM4_SET_BASE] = set_base,
    [PM4_DISPATCH_DIRECT] = dispatch_direct,
    [PM4_DISPATCH_INDIRECT] = dispatch_indirect,
    [PM4_ATOMIC_MEM] = atomic_mem,
    [PM4_COND_EXEC] = cond_exec,
    [PM4_PRED_EXEC] = pred_exec,
    [PM4_WRITE_DATA] = write_data,
    [PM4_WAIT_REG_MEM] = wait_reg_mem,
    [PM4_INDIRECT_BUFFER] = indirect_buffer,
    [PM4_COPY_DATA] = copy_data,
    [PM4_EVENT_WRITE] = event_write,
    [PM4_RELEASE_MEM] = release_mem,
    [PM4_ACQUIRE_MEM] = acquire_mem,
    [PM4_SET_SH_REG] = set_sh_reg,
    [PM4_SET_UCONFIG_REG] = set_uconfig_reg,
    [PM4_WAIT_REG_MEM64] = wait_reg_mem64,
    [PM4_SET_SH_REG_INDEX] = set_sh_reg_index,
};

/* Number of dwords that can have fields, and therefore reserved bits. */
enum { FIELD_DWORDS = 8 };

enum cp_status pm4_packet(struct amd_queue *q, uint64_t left) {
  uint32_t *p = q->packet;
  if (cp_fetch(q, 0, p, 1) != CP_DONE) return CP_DEAD;
  uint32_t header = p[0], opcode = BITS_GET(PM4_HEADER_OPCODE, header), n = BITS_GET(PM4_HEADER_COUNT, header) + 1;
  if (header == PM4_TYPE2_FILLER || header == PM4_NOP_ONE_DWORD) {
    cp_advance(q, 1);
    return CP_DONE;
  }
  if (BITS_GET(PM4_HEADER_TYPE, header) != 3)
    return BAD("packet header 0x%08x is of type %u", header, BITS_GET(PM4_HEADER_TYPE, header));
  struct pm4_packet_info info = pm4_packet_info(opcode);
  if (!info.name || !handlers[opcode]) return BAD("unknown packet, opcode 0x%02x, header 0x%08x", opcode, header);
  if (header & 0xfc || BITS_GET(PM4_HEADER_PREDICATE, header))
    return BAD("%s: header 0x%08x has reserved bits or the predicate set", info.name, header);
  if (n < info.least || n > info.most)
    return BAD("%s: %u payload dwords, expected %u to %u", info.name, n, info.least, info.most);
  if (n >= left)
    return BAD("%s: %u payload dwords reach beyond the %" PRIu64 " that were submitted", info.name, n, left - 1);
  if (opcode != PM4_NOP && cp_fetch(q, 1, p + 1, n) != CP_DONE) return CP_DEAD;
  if (opcode != PM4_NOP)
    for (uint32_t dw = 1; dw <= n && dw <= FIELD_DWORDS; dw++) {
      uint32_t reserved = p[dw] & ~pm4_packet_bits(opcode, dw);
      if (reserved) return BAD("%s: dword %u = 0x%08x sets reserved bits 0x%08x", info.name, dw, p[dw], reserved);
    }
  return cp_handle_packet(q, handlers[opcode], p, n);
}
