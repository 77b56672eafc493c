/* The packet processor of an SDMA queue: one handler per packet, found by operation and sub-operation. Wire format and
 * source: hcq/amd/sdma_wire.h. Packets that the table does not list, reserved bits and unsupported fields are
 * faults. */
#include "gpu.h"
#include <inttypes.h>
#include <string.h>
#include "../../../hcq/amd/pm4_wire.h"
#include "../../../hcq/amd/registers.h"
#include "../../../hcq/amd/sdma_wire.h"

#define FIELD(packet, field)    BITS_GET(SDMA_##packet##_##field, p[SDMA_##packet##_##field##_DW])
#define ADDRESS(packet, lo, hi) ((uint64_t)p[SDMA_##packet##_##hi##_DW] << 32 | p[SDMA_##packet##_##lo##_DW])
#define BAD(...)                cp_fault(q, FAULT_PACKET, 0, VM_READ, __VA_ARGS__)

/* The engine bypasses all caches except its GPU's memory-side cache. */
enum { ENGINE_CACHES = RACE_CODE | RACE_NEAR };

/* A copy can overlap with later packets. NOP and FENCE wait for it (Mesa, ac_cmdbuf_sdma.c). */
static void wait_for_copies(struct amd_queue *q) {
  race_finish(q->race);
  race_acquire_by(q->race, ENGINE_CACHES);
}

static enum cp_status nop(struct amd_queue *q, const uint32_t *p, uint32_t n) {
  wait_for_copies(q);
  return CP_DONE;
}

/* Returns the host pointer of va and limits *n to the bytes in one mapping. On an error it raises the fault and returns
 * NULL. */
static void *map_span(struct amd_queue *q, struct vm_range *range, const char *what, uint64_t va, uint64_t *n,
                      unsigned access) {
  uint64_t off = va - range->va;
  if (range->generation != vm_generation(q->gpu->vm) || off >= range->end - range->va) vm_find(q->gpu->vm, va, range);
  if (va < range->va || va >= range->end || access & ~range->access) {
    char near[160];
    vm_describe(q->gpu->vm, va, near, sizeof near);
    cp_fault(q, FAULT_PAGE, va, access, "page fault: %s %s 0x%" PRIx64 ", %s", what,
             access & VM_WRITE ? "writes" : "reads", va, near);
    return NULL;
  }
  if (*n > range->end - va) *n = range->end - va;
  return (void *)(va + range->delta);
}

static enum cp_status copy_linear(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  uint64_t src = ADDRESS(COPY_LINEAR, SRC_LO, SRC_HI), dst = ADDRESS(COPY_LINEAR, DST_LO, DST_HI);
  uint64_t left = (uint64_t)FIELD(COPY_LINEAR, COUNT) + 1;
  /* Destroying the queue stops a copy between two parts. One host core copies a part of this size in about a
   * millisecond. */
  const uint64_t part_max = 8 << 20;
  struct vm_range from = {0}, to = {0};
  if (FIELD(COPY_LINEAR, ENCRYPT) || FIELD(COPY_LINEAR, TMZ) || FIELD(COPY_LINEAR, CPV) ||
      FIELD(COPY_LINEAR, BROADCAST))
    return BAD("not supported: COPY_LINEAR with ENCRYPT, TMZ, CPV or BROADCAST");
  if (FIELD(COPY_LINEAR, SRC_SWAP) || FIELD(COPY_LINEAR, DST_SWAP))
    return BAD("not supported: COPY_LINEAR that swaps bytes");
  while (left) {
    uint64_t n = left < part_max ? left : part_max;
    const void *in = map_span(q, &from, "COPY_LINEAR", src, &n, VM_READ);
    void *out = in ? map_span(q, &to, "COPY_LINEAR", dst, &n, VM_WRITE) : NULL;
    if (!out || atomic_load_explicit(&q->quit, memory_order_relaxed)) return CP_DEAD;
    race_touch(in, n, VM_READ);
    race_touch(out, n, VM_WRITE);
    memmove(out, in, n);
    src += n;
    dst += n;
    left -= n;
  }
  return CP_DONE;
}

static enum cp_status write_linear(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  uint64_t dst = ADDRESS(WRITE_LINEAR, DST_LO, DST_HI), left = (uint64_t)dwords - 3;
  struct vm_range to = {0};
  const uint32_t *data = p + SDMA_WRITE_LINEAR_DATA_DW;
  if (FIELD(WRITE_LINEAR, ENCRYPT) || FIELD(WRITE_LINEAR, TMZ) || FIELD(WRITE_LINEAR, CPV) || FIELD(WRITE_LINEAR, SWAP))
    return BAD("not supported: WRITE_LINEAR with ENCRYPT, TMZ, CPV or SWAP");
  if (dst % 4) return BAD("WRITE_LINEAR: address 0x%" PRIx64 " is not 4-byte aligned", dst);
  while (left) {
    uint64_t n = left * 4;
    void *out = map_span(q, &to, "WRITE_LINEAR", dst, &n, VM_WRITE);
    if (!out) return CP_DEAD;
    race_touch(out, n, VM_WRITE);
    memcpy(out, data, n);
    data += n / 4;
    dst += n;
    left -= n / 4;
  }
  amd_wake_queues(q->gpu->shared);
  return CP_DONE;
}

static enum cp_status constant_fill(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  uint64_t dst = ADDRESS(CONSTANT_FILL, DST_LO, DST_HI), left = (uint64_t)FIELD(CONSTANT_FILL, COUNT) + 1;
  unsigned size = FIELD(CONSTANT_FILL, FILL_SIZE), unit = 1u << size;
  uint32_t data = FIELD(CONSTANT_FILL, DATA);
  struct vm_range to = {0};
  if (FIELD(CONSTANT_FILL, CPV) || FIELD(CONSTANT_FILL, SWAP))
    return BAD("not supported: CONSTANT_FILL with CPV or SWAP");
  if (size == 3) return BAD("CONSTANT_FILL: FILL_SIZE 3");
  if (dst % unit || left % unit)
    return BAD("CONSTANT_FILL: address 0x%" PRIx64 " and %" PRIu64 " bytes are not whole units of %u", dst, left, unit);
  while (left) {
    uint64_t n = left;
    uint8_t *out = map_span(q, &to, "CONSTANT_FILL", dst, &n, VM_WRITE);
    if (!out) return CP_DEAD;
    race_touch(out, n, VM_WRITE);
    /* Most fills repeat one byte, and memset is much faster than a loop. */
    if (unit == 1 || data == (data & 0xff) * 0x01010101u) {
      memset(out, (int)(data & 0xff), n);
    } else
      for (uint64_t i = 0; i < n; i += unit) memcpy(out + i, &data, unit);
    dst += n;
    left -= n;
  }
  return CP_DONE;
}

static enum cp_status fence(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  if (FIELD(FENCE, GPA) || FIELD(FENCE, CPV)) return BAD("not supported: FENCE with GPA or CPV");
  uint64_t va = ADDRESS(FENCE, ADDR_LO, ADDR_HI);
  uint32_t *at = cp_memory(q, "FENCE", va, 4, 4, VM_WRITE);
  if (!at) return CP_DEAD;
  wait_for_copies(q);
  if (cp_release(q, va, at, FIELD(FENCE, DATA), false) != CP_DONE) return CP_DEAD;
  __atomic_store_n(at, FIELD(FENCE, DATA), __ATOMIC_RELEASE);
  amd_wake_queues(q->gpu->shared);
  return CP_DONE;
}

static enum cp_status trap(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  race_interrupt(q->race);
  q->gpu->shared->interrupt(q->gpu, FIELD(TRAP, INT_CONTEXT), SDMA_TRAP_INT_CONTEXT_WIDTH);
  return CP_DONE;
}

/* As sdma_v6_0_ring_emit_hdp_flush in Linux: the byte addresses of the two registers, done before request. */
static enum cp_status hdp_flush(struct amd_queue *q, const uint32_t *p) {
  uint32_t done = p[SDMA_POLL_REGMEM_ADDR_LO_DW], request = p[SDMA_POLL_REGMEM_ADDR_HI_DW];
  if (FIELD(POLL_REGMEM, MEM_POLL) || done != NBIO_GPU_HDP_FLUSH_DONE << 2 || request != NBIO_GPU_HDP_FLUSH_REQ << 2)
    return BAD("POLL_REGMEM with HDP_FLUSH: writes register 0x%x and polls 0x%x, which do not belong together",
               request >> 2, done >> 2);
  if (q->race) race_flush_window(q->race, q->gpu->mmio_page);
  return CP_DONE;
}

static enum cp_status poll_regmem(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  unsigned function = FIELD(POLL_REGMEM, FUNC);
  if (FIELD(POLL_REGMEM, CPV)) return BAD("not supported: POLL_REGMEM with CPV");
  if (FIELD(POLL_REGMEM, HDP_FLUSH)) return hdp_flush(q, p);
  if (!FIELD(POLL_REGMEM, MEM_POLL)) return BAD("not supported: POLL_REGMEM of a register");
  if (function > PM4_WAIT_GT) return BAD("POLL_REGMEM: function %u", function);
  uint64_t va = ADDRESS(POLL_REGMEM, ADDR_LO, ADDR_HI);
  const uint32_t *at = cp_memory(q, "POLL_REGMEM", va, 4, 4, VM_READ);
  if (!at) return CP_DEAD;
  uint32_t value = __atomic_load_n(at, __ATOMIC_ACQUIRE);
  if (!cp_compare(function, value, FIELD(POLL_REGMEM, VALUE), FIELD(POLL_REGMEM, MASK))) return CP_BLOCKED;
  os_tsan_acquire(va);
  race_wait(q->race, at, FIELD(POLL_REGMEM, VALUE));
  race_acquire_by(q->race, ENGINE_CACHES);
  return CP_DONE;
}

static enum cp_status cond_exe(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  const struct cp_level *l = &q->levels[q->level];
  uint64_t count = FIELD(COND_EXE, EXEC_COUNT);
  if (FIELD(COND_EXE, CPV)) return BAD("not supported: COND_EXE with CPV");
  const uint32_t *at = cp_memory(q, "COND_EXE", ADDRESS(COND_EXE, ADDR_LO, ADDR_HI), 4, 4, VM_READ);
  if (!at) return CP_DEAD;
  if (count > l->end - l->pos)
    return BAD("COND_EXE: %" PRIu64 " dwords reach beyond the %" PRIu64 " that follow", count, l->end - l->pos);
  cp_record_read(q, at, 4);
  if (__atomic_load_n(at, __ATOMIC_ACQUIRE) != FIELD(COND_EXE, REFERENCE)) cp_advance(q, count);
  return CP_DONE;
}

static enum cp_status atomic(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  unsigned op = FIELD(ATOMIC, ATOMIC_OP), bytes;
  uint64_t va = ADDRESS(ATOMIC, ADDR_LO, ADDR_HI), cmp = ADDRESS(ATOMIC, CMP_LO, CMP_HI), old;
  if (FIELD(ATOMIC, TMZ) || FIELD(ATOMIC, CPV)) return BAD("not supported: ATOMIC with TMZ or CPV");
  if (!cp_atomic_bytes(op, &bytes)) return BAD("not supported: ATOMIC operation 0x%x", op);
  void *at = cp_memory(q, "ATOMIC", va, bytes, bytes, VM_READ | VM_WRITE);
  if (!at) return CP_DEAD;
  if (cp_release(q, va, at, 0, true) != CP_DONE) return CP_DEAD; /* the new value is not known */
  cp_atomic(at, op, ADDRESS(ATOMIC, SRC_LO, SRC_HI), cmp, &old);
  if (FIELD(ATOMIC, LOOP) && old != (bytes == 8 ? cmp : (uint32_t)cmp)) return CP_BLOCKED;
  amd_wake_queues(q->gpu->shared);
  return CP_DONE;
}

static enum cp_status timestamp(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  if (FIELD(TIMESTAMP_GLOBAL, CPV)) return BAD("not supported: TIMESTAMP with CPV");
  uint64_t va = ADDRESS(TIMESTAMP_GLOBAL, ADDR_LO, ADDR_HI), *at = cp_memory(q, "TIMESTAMP", va, 8, 8, VM_WRITE);
  if (!at || cp_release(q, va, at, 0, true) != CP_DONE) return CP_DEAD;
  __atomic_store_n(at, amd_clock(), __ATOMIC_RELEASE);
  return CP_DONE;
}

static enum cp_status gcr_req(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  uint32_t control = FIELD(GCR_REQ, CONTROL_LO) | FIELD(GCR_REQ, CONTROL_HI) << 16; /* as ACQUIRE_MEM's GCR_CNTL */
  if (FIELD(GCR_REQ, VMID)) return BAD("GCR_REQ: VMID belongs to the kernel");
  if (BITS_GET(PM4_ACQUIRE_MEM_GL2_WB, control)) race_write_back(q->race, true);
  if (BITS_GET(PM4_ACQUIRE_MEM_GL2_INV, control)) race_acquire_by(q->race, RACE_FAR);
  return CP_DONE;
}

static enum cp_status indirect(struct amd_queue *q, const uint32_t *p, uint32_t dwords) {
  uint64_t va = (uint64_t)FIELD(INDIRECT, BASE_LO) << SDMA_INDIRECT_BASE_LO_SHIFT | (uint64_t)FIELD(INDIRECT, BASE_HI)
                                                                                        << 32;
  uint32_t size = FIELD(INDIRECT, SIZE);
  if (FIELD(INDIRECT, VMID) || FIELD(INDIRECT, PRIV)) return BAD("INDIRECT: VMID and PRIV belong to the kernel");
  /* The fetcher reads blocks of 8 dwords: the packet must end a block, and the buffer must consist of whole blocks. */
  if (q->levels[q->level].pos % 8) return BAD("INDIRECT: the packet must end on a multiple of 8 dwords");
  if (size % 8) return BAD("INDIRECT: %u dwords are not a multiple of 8", size);
  return cp_call_indirect(q, "INDIRECT", va, size, false);
}

static const struct {
  uint32_t header;
  cp_handler handler;
} packets[] = {
    {SDMA_NOP, nop},
    {SDMA_COPY_LINEAR, copy_linear},
    {SDMA_WRITE_LINEAR, write_linear},
    {SDMA_INDIRECT, indirect},
    {SDMA_FENCE, fence},
    {SDMA_TRAP, trap},
    {SDMA_POLL_REGMEM, poll_regmem},
    {SDMA_COND_EXE, cond_exe},
    {SDMA_ATOMIC, atomic},
    {SDMA_CONSTANT_FILL, constant_fill},
    {SDMA_TIMESTAMP_GLOBAL, timestamp},
    {SDMA_GCR_REQ, gcr_req},
};

/* Returns the length of the packet at p, of which left dwords are submitted. */
static uint64_t packet_length(const uint32_t *p, uint32_t least, uint64_t left) {
  uint32_t header = p[0] & 0xffff;
  if (header == SDMA_NOP) return 1 + (uint64_t)FIELD(NOP, COUNT);
  if (header == SDMA_WRITE_LINEAR && left > SDMA_WRITE_LINEAR_COUNT_DW)
    return (uint64_t)SDMA_WRITE_LINEAR_DATA_DW + FIELD(WRITE_LINEAR, COUNT) + 1;
  return least;
}

/* Handles a packet. A packet that moves data is a task. */
static enum cp_status handle_as_task(struct amd_queue *q, const char *name, cp_handler handler, const uint32_t *p,
                                     uint32_t n) {
  bool moves = handler == copy_linear || handler == write_linear || handler == constant_fill;
  if (!q->race || !moves) return cp_handle_packet(q, handler, p, n);
  struct race_task *t = race_task = race_begin(q->race, name);
  enum cp_status status = cp_handle_packet(q, handler, p, n);
  race_task = NULL;
  enum cp_status raced = cp_task_end(q, t);
  return status == CP_DONE ? raced : status;
}

enum cp_status sdma_packet(struct amd_queue *q, uint64_t left) {
  uint32_t *p = q->packet;
  cp_handler handler = NULL;
  if (cp_fetch(q, 0, p, left < SDMA_WRITE_LINEAR_DATA_DW ? left : SDMA_WRITE_LINEAR_DATA_DW) != CP_DONE) return CP_DEAD;
  struct sdma_packet_info info = sdma_packet_info(p[0]);
  for (size_t i = 0; i < sizeof packets / sizeof packets[0] && !handler; i++)
    if (packets[i].header == (p[0] & 0xffff)) handler = packets[i].handler;
  if (!info.name || !handler)
    return BAD("unknown packet, operation %u sub-operation %u, header 0x%08x", p[0] & 0xff, p[0] >> 8 & 0xff, p[0]);
  uint64_t n = packet_length(p, info.dwords, left);
  if (n > left)
    return BAD("%s: %" PRIu64 " dwords reach beyond the %" PRIu64 " that were submitted", info.name, n, left);
  if (n > CP_PACKET_MAX && handler != nop) return BAD("not supported: %s of %" PRIu64 " dwords", info.name, n);
  if (q->level == 0 && q->levels[0].pos % q->ring_dwords + n > q->ring_dwords)
    return BAD("%s: the packet wraps around the end of the ring", info.name);
  if (handler != nop && cp_fetch(q, 0, p, n) != CP_DONE) return CP_DEAD;
  for (uint32_t dw = 0; dw < info.dwords; dw++) {
    uint32_t reserved = p[dw] & ~sdma_packet_bits(p[0], dw);
    if (reserved) return BAD("%s: dword %u = 0x%08x sets reserved bits 0x%08x", info.name, dw, p[dw], reserved);
  }
  return handle_as_task(q, info.name, handler, p, (uint32_t)n - 1);
}
