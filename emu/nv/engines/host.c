/* The host engine of a channel: GP entries, pushbuffer headers, methods. Its own methods are in host_methods.c. Source:
 * NVIDIA open-gpu-doc, clc56f.h; open-gpu-kernel-modules, clc86f.h (GP entries, method headers).
 *
 * Ordering: the client stores the pushbuffer, then the GP entry, GPPut and the doorbell. The engine loads the doorbell
 * and then GPPut with acquire, so it sees the GP entry and the pushbuffer. */
#include "engines.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "../../guard.h"

/* ---- errors ---- */

void nv_position(const struct nv_channel *ch, char *buf, size_t cap) {
  uint32_t entry = ch->get ? ch->get - 1 : ch->d.gpfifo_entries - 1;
  int n = snprintf(buf, cap, "channel %u, GP entry %u", ch->d.id, entry);
  if (ch->segment_dwords && n > 0 && (size_t)n < cap)
    n += snprintf(buf + n, cap - (size_t)n, ", pushbuffer 0x%" PRIx64 " dword %u", ch->segment_va, ch->segment_at);
  if (!ch->executing || n < 0 || (size_t)n >= cap) return;
  const struct nv_method *m = ch->executing->methods[ch->method / 4];
  unsigned subchannel = BITS_GET(NV_METHOD_SUBCHANNEL, ch->header);
  if (m)
    snprintf(buf + n, cap - (size_t)n, ", subchannel %u %s = 0x%x", subchannel, m->name, ch->value);
  else
    snprintf(buf + n, cap - (size_t)n, ", subchannel %u method 0x%x = 0x%x", subchannel, ch->method, ch->value);
}

/* ROBUST_CHANNEL_CEn_ERROR of nverror.h: 39 .. 41, 70 .. 72, 75 .. 77, 85, then from 126 on. */
static uint32_t copy_xid(unsigned engine) {
  static const uint8_t xid[] = {39, 40, 41, 70, 71, 72, 75, 76, 77, 85};
  return engine < sizeof xid ? xid[engine] : 126 + engine - (unsigned)sizeof xid;
}

static enum nv_status fail_channel(struct nv_channel *ch, uint32_t xid, enum fault_kind kind, uint64_t address,
                                   unsigned access, const char *format, va_list args) {
  struct nv_channel_error e = {.xid = xid, .fault = {.kind = kind, .address = address, .access = access, .lane = -1}};
  char where[200], what[300];
  vsnprintf(what, sizeof what, format, args);
  nv_position(ch, where, sizeof where);
  snprintf(e.fault.text, sizeof e.fault.text, "%s: %s", where, what);
  return nv_channel_fail(ch, &e);
}

enum nv_status nv_method_error(struct nv_channel *ch, const char *format, ...) {
  const uint32_t xid[] = {[NV_CLIENT_HOST] = NV_XID_PBDMA,
                          [NV_CLIENT_GRAPHICS] = NV_XID_GR_CLASS,
                          [NV_CLIENT_COPY] = copy_xid(ch->d.engine)};
  va_list args;
  va_start(args, format);
  fail_channel(ch, xid[ch->executing ? ch->executing->client : NV_CLIENT_HOST], FAULT_PACKET,
               ch->segment_va + 4ull * ch->segment_at, VM_READ, format, args);
  va_end(args);
  return NV_DEAD;
}

static enum nv_status fail_page(struct nv_channel *ch, uint64_t va, unsigned access, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static enum nv_status fail_page(struct nv_channel *ch, uint64_t va, unsigned access, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fail_channel(ch, NV_XID_MMU_FAULT, FAULT_PAGE, va, access, format, args);
  va_end(args);
  return NV_DEAD;
}

enum nv_status nv_page_fault(struct nv_channel *ch, const char *what, uint64_t va, unsigned access) {
  char near[160];
  vm_describe(ch->d.vm, va, near, sizeof near);
  return fail_page(ch, va, access, "MMU fault: %s %s 0x%" PRIx64 ", %s", what, access & VM_WRITE ? "writes" : "reads",
                   va, near);
}

/* ---- memory ---- */

void *nv_memory(struct nv_channel *ch, const char *what, uint64_t va, uint64_t size, uint64_t align, unsigned access) {
  if (va % align) {
    nv_method_error(ch, "%s: address 0x%" PRIx64 " is not %" PRIu64 "-byte aligned", what, va, align);
    return NULL;
  }
  void *p = vm_translate(ch->d.vm, &ch->data, va, size, access);
  if (!p) nv_page_fault(ch, what, va, access);
  return p;
}

void *nv_span(struct nv_channel *ch, struct vm_range *range, const char *what, uint64_t va, uint64_t *n,
              unsigned access) {
  uint64_t off = va - range->va;
  if (range->generation != vm_generation(ch->d.vm) || off >= range->end - range->va) vm_find(ch->d.vm, va, range);
  if (va < range->va || va >= range->end || access & ~range->access) {
    nv_page_fault(ch, what, va, access);
    return NULL;
  }
  if (*n > range->end - va) *n = range->end - va;
  return (void *)(va + range->delta);
}

/* ---- GP entries ---- */

static enum nv_status gp_opcode(struct nv_channel *ch, uint32_t low, uint32_t high) {
  uint32_t opcode = BITS_GET(NV_GP_ENTRY1_OPCODE, high);
  if (high & ~BITS_MASK(NV_GP_ENTRY1_OPCODE))
    return nv_method_error(ch, "GP entry 0x%08x%08x: has length 0 and sets fields beside the opcode", high, low);
  switch (opcode) {
  case NV_GP_OPCODE_NOP: return NV_DONE;
  case NV_GP_OPCODE_SET_PB_SEGMENT_EXTENDED_BASE:
    if (ch->d.gpfifo_class < 0xc86f)
      return nv_method_error(ch, "GP entry 0x%08x%08x: class 0x%x has no extended base", high, low, ch->d.gpfifo_class);
    if (low & ~BITS_MASK(NV_GP_ENTRY0_EXTENDED_BASE))
      return nv_method_error(ch, "GP entry 0x%08x%08x sets reserved bits", high, low);
    ch->extended_base = (uint64_t)BITS_GET(NV_GP_ENTRY0_EXTENDED_BASE, low) << NV_GP_ADDRESS_BITS;
    return NV_DONE;
  case NV_GP_OPCODE_GP_CRC:
  case NV_GP_OPCODE_PB_CRC: return nv_method_error(ch, "not supported: GP entry 0x%08x%08x, a CRC check", high, low);
  default: return nv_method_error(ch, "GP entry 0x%08x%08x: illegal opcode %u", high, low, opcode);
  }
}

/* Makes the segment of the next GP entry the current one. */
static enum nv_status next_entry(struct nv_channel *ch) {
  if (ch->race && ch->get == ch->put_taken) {
    if (atomic_load_explicit(&ch->put, memory_order_acquire) == ch->get) {
      race_idle(ch->race);
      return NV_IDLE;
    }
    ch->put_taken = (uint32_t)race_doorbell(ch->race);
    race_acquire(ch->race);
  }
  uint32_t put = ch->race ? ch->put_taken : atomic_load_explicit(&ch->put, memory_order_acquire);
  if (put == ch->get) return NV_IDLE;
  os_tsan_acquire(ch->d.gpfifo_va);
  if (put >= ch->d.gpfifo_entries)
    return nv_method_error(ch, "GPPut %u of a GPFIFO with %u entries", put, ch->d.gpfifo_entries);
  uint64_t va = ch->d.gpfifo_va + (uint64_t)NV_GP_ENTRY_BYTES * ch->get;
  const uint32_t *entry = vm_translate(ch->d.vm, &ch->fetch, va, NV_GP_ENTRY_BYTES, VM_READ);
  ch->segment_dwords = ch->segment_at = 0;
  if (!entry) return nv_page_fault(ch, "the host engine's fetch of a GP entry", va, VM_READ);
  uint32_t low = entry[0], high = entry[1], length = BITS_GET(NV_GP_ENTRY1_LENGTH, high);
  ch->get = ch->get + 1 == ch->d.gpfifo_entries ? 0 : ch->get + 1;
  ch->executed++;
  __atomic_store_n(&ch->d.userd[NV_USERD_GP_GET / 4], ch->get, __ATOMIC_RELEASE);
  if (!length) return gp_opcode(ch, low, high);
  if (BITS_GET(NV_GP_ENTRY0_FETCH, low))
    return nv_method_error(ch, "not supported: GP entry 0x%08x%08x with a conditional fetch", high, low);
  if (low & 2 || high & 0x100) return nv_method_error(ch, "GP entry 0x%08x%08x sets reserved bits", high, low);
  ch->segment_va = ch->extended_base | (uint64_t)BITS_GET(NV_GP_ENTRY1_GET_HI, high) << 32 | low;
  ch->segment_dwords = length;
  return NV_DONE;
}

/* ---- headers and methods ---- */

static enum nv_status execute_method(struct nv_channel *ch, struct nv_object *o, uint32_t method, uint32_t value) {
  const struct nv_method *m = o->methods[method / 4];
  if (!m) return nv_method_error(ch, "class 0x%x has no method 0x%x", o->class, method);
  uint32_t reserved = value & ~m->bits[o->group];
  if (reserved) return nv_method_error(ch, "%s sets reserved bits 0x%x", m->name, reserved);
  o->r[method / 4] = value;
  return o->action(ch, o, method, value);
}

static enum nv_status deliver_method(struct nv_channel *ch, uint32_t value) {
  unsigned subchannel = BITS_GET(NV_METHOD_SUBCHANNEL, ch->header);
  struct nv_object *o = ch->method < NV_HOST_METHODS_END ? ch->object[NV_OBJECT_HOST] : ch->bound[subchannel];
  ch->value = value;
  if (!o)
    return nv_method_error(ch, "method 0x%x of subchannel %u, to which no object is bound (SET_OBJECT comes first)",
                           ch->method, subchannel);
  ch->executing = o;
  enum nv_status status = execute_method(ch, o, ch->method, value);
  ch->executing = NULL;
  ch->executed += status == NV_DONE;
  return status;
}

/* Decodes the header in ch->header, which was just read. */
static enum nv_status decode_header(struct nv_channel *ch) {
  uint32_t h = ch->header, op = BITS_GET(NV_METHOD_OPCODE, h);
  ch->method = BITS_GET(NV_METHOD_ADDRESS, h) << 2;
  if (!h) return NV_DONE; /* NOP */
  if (op == NV_OPCODE_GRP0 || op == NV_OPCODE_GRP2)
    return nv_method_error(ch, "not supported: method header 0x%08x, with a tertiary operation", h);
  if (op == NV_OPCODE_END_PB_SEGMENT) {
    ch->segment_at = ch->segment_dwords;
    return NV_DONE;
  }
  if (BITS_GET(NV_METHOD_RESERVED, h)) return nv_method_error(ch, "method header 0x%08x sets reserved bits", h);
  if (op == NV_OPCODE_IMMD) return deliver_method(ch, BITS_GET(NV_METHOD_COUNT, h));
  if (op != NV_OPCODE_INC && op != NV_OPCODE_NON_INC && op != NV_OPCODE_ONE_INC)
    return nv_method_error(ch, "invalid method header 0x%08x", h);
  ch->left = BITS_GET(NV_METHOD_COUNT, h);
  return NV_DONE;
}

/* Processes one dword of the pushbuffer, or the next GP entry. */
static enum nv_status step_dword(struct nv_channel *ch) {
  if (ch->segment_at == ch->segment_dwords) {
    if (ch->left)
      return nv_method_error(ch, "the pushbuffer segment ends with %u dwords of method 0x%x missing", ch->left,
                             ch->method);
    return next_entry(ch);
  }
  uint64_t va = ch->segment_va + 4ull * ch->segment_at;
  const uint32_t *at = vm_translate(ch->d.vm, &ch->fetch, va, 4, VM_READ);
  if (!at) return nv_page_fault(ch, "the host engine's fetch of a pushbuffer", va, VM_READ);
  struct race_task *front = race_front(ch->race);
  if (front) race_touched(front, at, 4, VM_READ);
  uint32_t word = __atomic_load_n(at, __ATOMIC_RELAXED);
  enum nv_status status;
  if (!ch->left) {
    ch->header = word;
    status = decode_header(ch);
  } else {
    uint32_t op = BITS_GET(NV_METHOD_OPCODE, ch->header);
    bool first = ch->left == BITS_GET(NV_METHOD_COUNT, ch->header);
    status = deliver_method(ch, word);
    if (status == NV_DONE) {
      ch->left--;
      if (op == NV_OPCODE_INC || (op == NV_OPCODE_ONE_INC && first)) ch->method = (ch->method + 4) % (4 * NV_METHODS);
    }
  }
  if (status == NV_DONE && ch->segment_at < ch->segment_dwords) ch->segment_at++;
  return status;
}

static enum nv_status run_dwords(struct nv_channel *ch, uint64_t budget) {
  enum nv_status status = NV_DONE;
  while (budget-- && status == NV_DONE) {
    if (nv_channel_stopped(ch)) return NV_DEAD;
    if (!atomic_load_explicit(&ch->group->scheduled, memory_order_relaxed)) return NV_IDLE;
    status = step_dword(ch);
  }
  return status;
}

enum nv_status nv_host_run(struct nv_channel *ch, uint64_t budget) {
  struct guard guard, **slot = guard_slot(), *const outer = *slot;
  if (sigsetjmp(guard.jump, 0)) {
    *slot = outer;
    return fail_page(ch, guard.address, guard.access,
                     "MMU fault: the %s host memory 0x%" PRIx64 " that is no longer mapped",
                     guard.access & VM_WRITE ? "channel writes" : "channel reads", guard.address);
  }
  *slot = &guard;
  char text[400];
  enum nv_status status =
      race_clean(ch->race, text, sizeof text) ? run_dwords(ch, budget) : nv_method_error(ch, "%s", text);
  if (status == NV_BLOCKED) race_blocked(ch->race);
  *slot = outer;
  return status;
}
