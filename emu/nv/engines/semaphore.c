/* Semaphore releases of the host engine, the compute class, QMDs and the copy class.
 *
 * All earlier work is done when a release stores its payload, with release order. The timestamp is stored after the
 * payload in memory but before it in time. Both pair with an acquire load of the payload: a thread that sees the
 * payload sees the timestamp and the earlier work. */
#include "engines.h"
#include <string.h>

static uint64_t reduce(const struct nv_semaphore *s, uint64_t old) {
  uint64_t mask = s->wide ? ~0ull : 0xffffffff, value = s->payload & mask;
  int64_t a = s->wide ? (int64_t)old : (int32_t)old, b = s->wide ? (int64_t)value : (int32_t)value;
  bool less = s->is_signed ? a < b : old < value;
  switch (s->reduction) {
  case NV_RED_NONE: return value;
  case NV_RED_ADD: return (old + value) & mask;
  case NV_RED_MIN: return less ? old : value;
  case NV_RED_MAX: return less ? value : old;
  case NV_RED_INC: return old >= value ? 0 : old + 1;
  case NV_RED_DEC: return old == 0 || old > value ? value : old - 1;
  case NV_RED_AND: return old & value;
  case NV_RED_OR: return old | value;
  case NV_RED_XOR: return old ^ value;
  }
  return value;
}

static void reduce32(uint32_t *at, const struct nv_semaphore *s) {
  uint32_t old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(at, &old, (uint32_t)reduce(s, old), true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {}
}

static void reduce64(uint64_t *at, const struct nv_semaphore *s) {
  uint64_t old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(at, &old, reduce(s, old), true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {}
}

enum nv_status nv_semaphore_release(struct nv_channel *ch, const struct nv_semaphore *s) {
  uint64_t size = s->timestamp ? 16 : s->wide ? 8 : 4;
  uint64_t *at = nv_memory(ch, s->what, s->va, size, size, s->reduction ? VM_READ | VM_WRITE : VM_WRITE);
  if (!at) return NV_DEAD;
  char text[400];
  if (!race_release(ch->race, at, s->reduction ? 0 : s->payload, s->early, text, sizeof text))
    return nv_method_error(ch, "%s", text);
  os_tsan_release(s->va);
  if (s->timestamp) __atomic_store_n(at + 1, nv_engines_time(ch->e), __ATOMIC_RELAXED);
  if (s->reduction)
    s->wide ? reduce64(at, s) : reduce32((uint32_t *)(void *)at, s);
  else if (s->wide)
    __atomic_store_n(at, s->payload, __ATOMIC_RELEASE);
  else if (s->timestamp)
    __atomic_store_n(at, s->payload & 0xffffffff, __ATOMIC_RELEASE);
  else
    __atomic_store_n((uint32_t *)(void *)at, (uint32_t)s->payload, __ATOMIC_RELEASE);
  nv_semaphore_released();
  return NV_DONE;
}
