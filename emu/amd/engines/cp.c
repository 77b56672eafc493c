/* Shared by the PM4 and SDMA processors: reading packets from the ring and its indirect buffers, faults, comparisons
 * and atomics.
 *
 * Ordering: the client stores packets and then the doorbell. The processor loads the doorbell with acquire, so it sees
 * the packets. A store that a packet requests uses release order, after all earlier work is done; it pairs with the
 * load of a client that polls a signal. */
#include "gpu.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "../../../hcq/amd/pm4_wire.h"
#include "../../guard.h"

uint64_t amd_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (uint64_t)t.tv_sec * 100000000u + (uint64_t)t.tv_nsec / 10;
}

static const char *queue_kind(const struct amd_queue *q) { return q->sdma ? "SDMA" : "compute"; }

/* Position in a level in dwords, excluding the packet that a handler is processing. */
static uint64_t packet_position(const struct amd_queue *q, unsigned level) {
  return q->levels[level].pos - (level == q->packet_level ? q->packet_dwords : 0);
}

/* Writes the position of the packet, such as "compute queue 0, ring dword 12, indirect buffer 0x7f0000 dword 3". */
static int describe_position(const struct amd_queue *q, char *buf, size_t cap) {
  int n = snprintf(buf, cap, "%s queue %u, ring dword %" PRIu64, queue_kind(q), q->id,
                   packet_position(q, 0) % q->ring_dwords);
  for (unsigned l = 1; l <= q->level && n > 0 && (size_t)n < cap; l++)
    n += snprintf(buf + n, cap - (size_t)n, ", indirect buffer 0x%" PRIx64 " dword %" PRIu64, q->levels[l].va,
                  packet_position(q, l));
  return n;
}

enum cp_status cp_fault(struct amd_queue *q, enum fault_kind kind, uint64_t address, unsigned access,
                        const char *format, ...) {
  struct fault f = {.kind = kind, .address = address, .access = access, .lane = -1};
  uint64_t at = packet_position(q, q->level);
  if (kind == FAULT_PACKET && !address)
    f.address = q->level ? q->levels[q->level].va + at * 4 : q->ring_va + at % q->ring_dwords * 4;
  char where[160], what[340];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  describe_position(q, where, sizeof where);
  snprintf(f.text, sizeof f.text, "%s (%s)", what, where);
  q->gpu->shared->fault(q->gpu, &f);
  return CP_DEAD;
}

void *cp_memory(struct amd_queue *q, const char *what, uint64_t va, uint64_t size, uint64_t align, unsigned access) {
  if (va % align) {
    cp_fault(q, FAULT_PACKET, va, access, "%s: address 0x%" PRIx64 " is not %" PRIu64 "-byte aligned", what, va, align);
    return NULL;
  }
  void *p = vm_translate(q->gpu->vm, &q->data, va, size, access);
  if (!p) {
    char near[160];
    vm_describe(q->gpu->vm, va, near, sizeof near);
    cp_fault(q, FAULT_PAGE, va, access, "page fault: %s %s 0x%" PRIx64 ", %s", what,
             access & VM_WRITE ? "writes" : "reads", va, near);
  }
  return p;
}

enum cp_status cp_task_end(struct amd_queue *q, struct race_task *t) {
  char text[340];
  return race_end(t, text, sizeof text) ? CP_DONE : cp_fault(q, FAULT_PACKET, 0, VM_READ, "%s", text);
}

enum cp_status cp_release(struct amd_queue *q, uint64_t va, const void *at, uint64_t value, bool at_once) {
  char text[340];
  os_tsan_release(va);
  return race_release(q->race, at, value, at_once, text, sizeof text)
             ? CP_DONE
             : cp_fault(q, FAULT_PACKET, 0, VM_READ, "%s", text);
}

void cp_record_read(struct amd_queue *q, const void *p, uint64_t n) {
  struct race_task *front = race_front(q->race);
  if (front) race_touched(front, p, n, VM_READ);
}

enum cp_status cp_fetch(struct amd_queue *q, uint64_t skip, uint32_t *out, uint64_t n) {
  const struct cp_level *l = &q->levels[q->level];
  uint64_t at = l->pos + skip;
  if (q->level == 0) {
    uint64_t first = at % q->ring_dwords, part = q->ring_dwords - first < n ? q->ring_dwords - first : n;
    memcpy(out, q->ring + first, part * 4);
    memcpy(out + part, q->ring, (n - part) * 4);
    return CP_DONE;
  }
  const void *p = vm_translate(q->gpu->vm, &q->fetch, l->va + at * 4, n * 4, VM_READ);
  if (p) {
    cp_record_read(q, p, n * 4);
    memcpy(out, p, n * 4);
    return CP_DONE;
  }
  uint64_t bad = 0;
  race_task = race_front(q->race);
  bool read = vm_read(q->gpu->vm, l->va + at * 4, out, n * 4, &bad);
  race_task = NULL;
  if (read) return CP_DONE;
  char near[160];
  vm_describe(q->gpu->vm, bad, near, sizeof near);
  return cp_fault(q, FAULT_PAGE, bad, VM_READ, "page fault: the packet processor fetches 0x%" PRIx64 ", %s", bad, near);
}

enum cp_status cp_handle_packet(struct amd_queue *q, cp_handler handler, const uint32_t *p, uint32_t n) {
  /* Advance past the packet first: an indirect buffer or a conditional skip continues from that position. */
  unsigned level = q->packet_level = q->level;
  q->packet_dwords = n + 1;
  q->levels[level].pos += n + 1;
  enum cp_status status = handler(q, p, n);
  if (status == CP_BLOCKED) q->levels[level].pos -= n + 1;
  q->packet_dwords = 0;
  return status;
}

enum cp_status cp_call_indirect(struct amd_queue *q, const char *what, uint64_t va, uint64_t dwords, bool chain) {
  if (!dwords) return cp_fault(q, FAULT_PACKET, va, VM_READ, "%s: empty indirect buffer", what);
  if (chain && q->level == 0)
    return cp_fault(q, FAULT_PACKET, va, VM_READ, "%s: only an indirect buffer can chain", what);
  if (!chain && q->level + 1 == CP_LEVELS)
    return cp_fault(q, FAULT_PACKET, va, VM_READ, "%s: indirect buffers nest more than %d deep", what, CP_LEVELS - 1);
  if (!chain) q->level++;
  q->levels[q->level] = (struct cp_level){.va = va, .end = dwords};
  return CP_DONE;
}

bool cp_compare(unsigned function, uint64_t value, uint64_t reference, uint64_t mask) {
  value &= mask;
  const bool result[8] = {
      [PM4_WAIT_ALWAYS] = true,           [PM4_WAIT_LT] = value < reference,  [PM4_WAIT_LE] = value <= reference,
      [PM4_WAIT_EQ] = value == reference, [PM4_WAIT_NE] = value != reference, [PM4_WAIT_GE] = value >= reference,
      [PM4_WAIT_GT] = value > reference,
  };
  return result[function & 7];
}

/* TC atomic operations by their low five bits. Bit 5 selects 64 bits, bit 6 means that the old value is not returned.
 * Source: the Linux amdgpu driver's gfx11 enumerations (GL2_OP_ATOMIC_*). */
enum {
  OP_SWAP = 0x07,
  OP_CMPSWAP,
  OP_ADD = 0x0f,
  OP_SUB,
  OP_SMIN,
  OP_UMIN,
  OP_SMAX,
  OP_UMAX,
  OP_AND,
  OP_OR,
  OP_XOR,
  OP_INC,
  OP_DEC,
  OP_64 = 0x20,
};

static bool atomic_value(unsigned op, bool wide, uint64_t old, uint64_t src, uint64_t cmp, uint64_t *out) {
  int64_t sold = wide ? (int64_t)old : (int32_t)old, ssrc = wide ? (int64_t)src : (int32_t)src;
  switch (op & 0x1f) {
  case OP_SWAP: *out = src; return true;
  case OP_CMPSWAP: *out = old == cmp ? src : old; return true;
  case OP_ADD: *out = old + src; return true;
  case OP_SUB: *out = old - src; return true;
  case OP_SMIN: *out = sold < ssrc ? old : src; return true;
  case OP_UMIN: *out = old < src ? old : src; return true;
  case OP_SMAX: *out = sold > ssrc ? old : src; return true;
  case OP_UMAX: *out = old > src ? old : src; return true;
  case OP_AND: *out = old & src; return true;
  case OP_OR: *out = old | src; return true;
  case OP_XOR: *out = old ^ src; return true;
  case OP_INC: *out = old >= src ? 0 : old + 1; return true;
  case OP_DEC: *out = old == 0 || old > src ? src : old - 1; return true;
  default: return false;
  }
}

bool cp_atomic_bytes(unsigned op, unsigned *bytes) {
  uint64_t unused;
  *bytes = op & OP_64 ? 8 : 4;
  return atomic_value(op, false, 0, 0, 0, &unused);
}

bool cp_atomic(void *p, unsigned op, uint64_t src, uint64_t cmp, uint64_t *old) {
  uint64_t next;
  if (op & OP_64) {
    uint64_t was = __atomic_load_n((uint64_t *)p, __ATOMIC_RELAXED);
    do {
      if (!atomic_value(op, true, was, src, cmp, &next)) return false;
    } while (!__atomic_compare_exchange_n((uint64_t *)p, &was, next, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    *old = was;
    return true;
  }
  uint32_t was = __atomic_load_n((uint32_t *)p, __ATOMIC_RELAXED);
  do {
    if (!atomic_value(op, false, was, (uint32_t)src, (uint32_t)cmp, &next)) return false;
  } while (!__atomic_compare_exchange_n((uint32_t *)p, &was, (uint32_t)next, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  *old = was;
  return true;
}

/* Publishes the ring position up to which the client may reuse entries. It advances only when an indirect buffer that
 * was called from there is done. The release store pairs with the client's load of the read pointer. */
static void publish_rptr(struct amd_queue *q) {
  uint64_t pos = q->levels[0].pos;
  if (q->sdma)
    __atomic_store_n((uint64_t *)q->rptr, pos * 4, __ATOMIC_RELEASE);
  else
    __atomic_store_n((uint32_t *)q->rptr, (uint32_t)(pos % q->ring_dwords), __ATOMIC_RELEASE);
}

/* Takes a new write pointer from the doorbell: PM4 counts dwords, SDMA counts bytes, neither wraps. The acquire load
 * pairs with the client's doorbell store. */
static enum cp_status ring_doorbell(struct amd_queue *q) {
  uint64_t value = q->race ? race_doorbell(q->race) : atomic_load_explicit(q->doorbell, memory_order_acquire);
  struct cp_level *ring = &q->levels[0];
  if (value == q->doorbell_seen) return CP_IDLE;
  os_tsan_acquire(q->ring_va);
  if (q->sdma && value % 4)
    return cp_fault(q, FAULT_PACKET, q->ring_va, VM_READ, "doorbell 0x%" PRIx64 " is not in whole dwords", value);
  uint64_t end = q->sdma ? value / 4 : value;
  if (end < ring->end)
    return cp_fault(q, FAULT_PACKET, q->ring_va, VM_READ, "doorbell moved back from dword %" PRIu64 " to %" PRIu64,
                    ring->end, end);
  if (end - ring->pos > q->ring_dwords)
    return cp_fault(q, FAULT_PACKET, q->ring_va, VM_READ, "doorbell %" PRIu64 " dwords ahead in a ring of %u",
                    end - ring->pos, q->ring_dwords);
  q->doorbell_seen = value;
  if (q->sdma) race_acquire_by(q->race, RACE_CODE | RACE_NEAR); /* a compute queue's packets do this themselves */
  ring->end = end;
  return CP_DONE;
}

static enum cp_status run(struct amd_queue *q, uint64_t budget) {
  while (budget--) {
    if (atomic_load_explicit(&q->quit, memory_order_relaxed) ||
        atomic_load_explicit(&q->gpu->faulted, memory_order_relaxed))
      return CP_DEAD;
    struct cp_level *l = &q->levels[q->level];
    if (l->pos >= l->end) {
      if (q->level) {
        q->level--;
        if (!q->level) publish_rptr(q);
        continue;
      }
      enum cp_status more = ring_doorbell(q);
      if (more != CP_DONE) return more;
    }
    enum cp_status status = q->sdma ? sdma_packet(q, l->end - l->pos) : pm4_packet(q, l->end - l->pos);
    if (status != CP_DONE) return status;
    q->packets++;
    if (!q->level) publish_rptr(q);
  }
  return CP_DONE;
}

enum cp_status cp_run(struct amd_queue *q, uint64_t budget) {
  struct guard guard, **slot = guard_slot(), *const outer = *slot;
  if (sigsetjmp(guard.jump, 0)) {
    *slot = outer;
    return cp_fault(q, FAULT_PAGE, guard.address, guard.access,
                    "page fault: the packet processor %s 0x%" PRIx64 ", host memory that is no longer mapped",
                    guard.access & VM_WRITE ? "writes" : "reads", guard.address);
  }
  *slot = &guard;
  char text[340];
  enum cp_status status =
      race_clean(q->race, text, sizeof text) ? run(q, budget) : cp_fault(q, FAULT_PACKET, 0, VM_READ, "%s", text);
  if (status == CP_BLOCKED) race_blocked(q->race);
  if (status == CP_DEAD) race_stop(q->race);
  *slot = outer;
  return status;
}
