/* Methods of the host engine: objects, semaphores, memory operations. Source: NVIDIA open-gpu-doc, clc56f.h;
 * open-gpu-kernel-modules, clc86f.h. */
#include "engines.h"
#include <inttypes.h>
#include <string.h>

#define FIELD(method, field) BITS_GET(NV_HOST_##method##_##field, value)

/* ---- objects ---- */

enum { SUBCHANNEL_COMPUTE = 1, SUBCHANNEL_INLINE = 2, SUBCHANNEL_COPY = 4 };

static bool is_allowed_class(struct nv_channel *ch, uint32_t class) {
  for (unsigned i = 0; i < NV_CLASSES_MAX; i++)
    if (class && atomic_load_explicit(&ch->allowed[i], memory_order_relaxed) == class) return true;
  return false;
}

/* On a graphics runlist, subchannels 0 to 3 belong to the graphics engine and 4 to its copy engine. A copy runlist has
 * only subchannel 4. */
static enum nv_status set_object(struct nv_channel *ch, uint32_t value) {
  uint32_t class = FIELD(SET_OBJECT, NVCLASS), subchannel = BITS_GET(NV_METHOD_SUBCHANNEL, ch->header);
  const struct {
    nv_action_fn *action;
    enum nv_client client;
    unsigned subchannel;
  } kinds[NV_OBJECTS] = {[NV_OBJECT_COMPUTE] = {nv_compute_action, NV_CLIENT_GRAPHICS, SUBCHANNEL_COMPUTE},
                         [NV_OBJECT_INLINE] = {nv_inline_action, NV_CLIENT_GRAPHICS, SUBCHANNEL_INLINE},
                         [NV_OBJECT_COPY] = {nv_copy_action, NV_CLIENT_COPY, SUBCHANNEL_COPY},
                         [NV_OBJECT_COUNTERS] = {nv_perf_action, NV_CLIENT_GRAPHICS, NV_SUBCHANNEL_COUNTERS}};
  static const enum nv_object_kind of_set[NV_SETS] = {
      [NV_SET_COMPUTE] = NV_OBJECT_COMPUTE, [NV_SET_COPY] = NV_OBJECT_COPY, [NV_SET_COUNTERS] = NV_OBJECT_COUNTERS};
  enum nv_method_set set;
  unsigned group;
  enum nv_object_kind kind = NV_OBJECT_HOST;
  if (FIELD(SET_OBJECT, ENGINE)) return nv_method_error(ch, "SET_OBJECT: engine %u", FIELD(SET_OBJECT, ENGINE));
  if (!is_allowed_class(ch, class))
    return nv_method_error(ch, "SET_OBJECT: the channel has no object of class 0x%x", class);
  if (class == NV_CLASS_INLINE_KEPLER || class == NV_CLASS_INLINE_BLACKWELL)
    kind = NV_OBJECT_INLINE;
  else if (nv_class_group(class, &set, &group))
    kind = of_set[set];
  if (kind == NV_OBJECT_HOST) return nv_method_error(ch, "not supported: SET_OBJECT of class 0x%x", class);
  bool fits = ch->d.kind == NV_ENGINE_COPY ? kind == NV_OBJECT_COPY && subchannel <= SUBCHANNEL_COPY
                                           : subchannel == kinds[kind].subchannel;
  if (!fits)
    return nv_method_error(ch, "SET_OBJECT: class 0x%x on subchannel %u of a %s channel", class, subchannel,
                           ch->d.kind == NV_ENGINE_COPY ? "copy" : "graphics");
  struct nv_object **o = &ch->object[kind];
  if (*o && (*o)->class != class)
    return nv_method_error(ch, "not supported: SET_OBJECT of class 0x%x where 0x%x was bound before", class,
                           (*o)->class);
  if (!*o) *o = nv_object_new(ch->e, class, kinds[kind].client, kinds[kind].action);
  if (!*o) return nv_method_error(ch, "SET_OBJECT: the emulator is out of memory");
  ch->bound[subchannel] = *o;
  return NV_DONE;
}

/* ---- semaphores ---- */

enum nv_reduction nv_reduction_of_host(unsigned op) {
  static const uint8_t of[8] = {
      [NV_SEM_RED_IMIN] = NV_RED_MIN, [NV_SEM_RED_IMAX] = NV_RED_MAX, [NV_SEM_RED_IXOR] = NV_RED_XOR,
      [NV_SEM_RED_IAND] = NV_RED_AND, [NV_SEM_RED_IOR] = NV_RED_OR,   [NV_SEM_RED_IADD] = NV_RED_ADD,
      [NV_SEM_RED_INC] = NV_RED_INC,  [NV_SEM_RED_DEC] = NV_RED_DEC,
  };
  return (enum nv_reduction)of[op & 7];
}

static enum nv_status acquire(struct nv_channel *ch, const char *what, unsigned op, uint64_t va, uint64_t want,
                              bool wide) {
  const void *at = nv_memory(ch, what, va, wide ? 8 : 4, wide ? 8 : 4, VM_READ);
  if (!at) return NV_DEAD;
  uint64_t value = wide ? __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE)
                        : __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
  uint64_t mask = wide ? ~0ull : 0xffffffff;
  want &= mask;
  const bool met[] = {
      [NV_SEM_ACQUIRE] = value == want,
      [NV_SEM_ACQ_STRICT_GEQ] = value >= want,
      [NV_SEM_ACQ_CIRC_GEQ] = wide ? (int64_t)(value - want) >= 0 : (int32_t)(value - want) >= 0,
      [NV_SEM_ACQ_AND] = (value & want) != 0,
      [NV_SEM_ACQ_NOR] = (~(value | want) & mask) != 0,
  };
  if (!met[op]) return NV_BLOCKED;
  os_tsan_acquire(va);
  race_wait(ch->race, at, want);
  race_acquire(ch->race);
  return NV_DONE;
}

static enum nv_status sem_execute(struct nv_channel *ch, const struct nv_object *o, uint32_t value) {
  unsigned op = FIELD(SEM_EXECUTE, OPERATION);
  uint64_t va = nv_reg64(o, NV_HOST_SEM_ADDR_HI, NV_HOST_SEM_ADDR_LO),
           payload = nv_reg64(o, NV_HOST_SEM_PAYLOAD_HI, NV_HOST_SEM_PAYLOAD_LO);
  bool wide = FIELD(SEM_EXECUTE, PAYLOAD_SIZE), timestamp = FIELD(SEM_EXECUTE, RELEASE_TIMESTAMP);
  if (op <= NV_SEM_ACQ_NOR && op != NV_SEM_RELEASE) return acquire(ch, "SEM_EXECUTE", op, va, payload, wide);
  if (op > NV_SEM_REDUCTION) return nv_method_error(ch, "SEM_EXECUTE: operation %u", op);
  bool idle = FIELD(SEM_EXECUTE, RELEASE_WFI);
  struct nv_semaphore s = {"SEM_EXECUTE", va, payload, wide, timestamp, NV_RED_NONE, false, !idle};
  if (idle) nv_idle(ch);
  if (op == NV_SEM_REDUCTION) {
    if (timestamp) return nv_method_error(ch, "not supported: SEM_EXECUTE with a reduction and a timestamp");
    s.reduction = nv_reduction_of_host(FIELD(SEM_EXECUTE, REDUCTION));
    s.is_signed = !FIELD(SEM_EXECUTE, REDUCTION_FORMAT);
  }
  return nv_semaphore_release(ch, &s);
}

/* The semaphore method from before Volta: payloads have 32 bits, and one bit selects the operation. */
static enum nv_status semaphore_d(struct nv_channel *ch, const struct nv_object *o, uint32_t value) {
  unsigned op = FIELD(SEMAPHORED, OPERATION);
  uint64_t va = nv_reg64(o, NV_HOST_SEMAPHOREA, NV_HOST_SEMAPHOREB);
  struct nv_semaphore s = {"SEMAPHORED", va, nv_reg(o, NV_HOST_SEMAPHOREC), false, false, NV_RED_NONE, false, false};
  switch (op) {
  case NV_SEMD_ACQUIRE: return acquire(ch, "SEMAPHORED", NV_SEM_ACQUIRE, va, s.payload, false);
  case NV_SEMD_ACQ_GEQ: return acquire(ch, "SEMAPHORED", NV_SEM_ACQ_CIRC_GEQ, va, s.payload, false);
  case NV_SEMD_ACQ_AND: return acquire(ch, "SEMAPHORED", NV_SEM_ACQ_AND, va, s.payload, false);
  case NV_SEMD_RELEASE: s.timestamp = !FIELD(SEMAPHORED, RELEASE_SIZE); break;
  case NV_SEMD_REDUCTION:
    s.reduction = nv_reduction_of_host(FIELD(SEMAPHORED, REDUCTION));
    s.is_signed = !FIELD(SEMAPHORED, FORMAT);
    break;
  default: return nv_method_error(ch, "SEMAPHORED: operation 0x%x", op);
  }
  return nv_semaphore_release(ch, &s);
}

/* ---- other methods ---- */

/* The host orders memory accesses and keeps caches coherent. All earlier work is done when a method starts, so these
 * are no-ops. */
static enum nv_status mem_op(struct nv_channel *ch, const struct nv_object *o, uint32_t value) {
  unsigned op = FIELD(MEM_OP_D, OPERATION);
  switch (op) {
  case NV_MEM_OP_MEMBAR:
    if (BITS_GET(NV_HOST_MEM_OP_C_MEMBAR_TYPE, nv_reg(o, NV_HOST_MEM_OP_C)) > NV_MEMBAR_GPU)
      return nv_method_error(ch, "MEM_OP: membar type %u",
                             BITS_GET(NV_HOST_MEM_OP_C_MEMBAR_TYPE, nv_reg(o, NV_HOST_MEM_OP_C)));
    break;
  case NV_MEM_OP_L2_PEERMEM_INVALIDATE:
  case NV_MEM_OP_L2_SYSMEM_INVALIDATE:
  case NV_MEM_OP_L2_CLEAN_COMPTAGS:
  case NV_MEM_OP_L2_FLUSH_DIRTY:
  case NV_MEM_OP_L2_WAIT_FOR_SYS_PENDING_READS: break;
  case NV_MEM_OP_L2_SYSMEM_NCOH_INVALIDATE:
  case NV_MEM_OP_L2_SYSMEM_COH_INVALIDATE:
    if (o->class >= 0xc96f) break;
    return nv_method_error(ch, "MEM_OP: unknown operation 0x%x", op);
  case NV_MEM_OP_MMU_TLB_INVALIDATE:
  case NV_MEM_OP_MMU_TLB_INVALIDATE_TARGETED:
  case NV_MEM_OP_MMU_OPERATION:
  case NV_MEM_OP_ACCESS_COUNTER_CLR:
    return nv_method_error(ch, "MEM_OP: operation 0x%x needs a privileged channel", op);
  default: return nv_method_error(ch, "MEM_OP: unknown operation 0x%x", op);
  }
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return NV_DONE;
}

enum nv_status nv_host_action(struct nv_channel *ch, struct nv_object *o, uint32_t method, uint32_t value) {
  switch (method) {
  case NV_HOST_SET_OBJECT: return set_object(ch, value);
  case NV_HOST_WFI: return nv_idle(ch), NV_DONE;
  case NV_HOST_ILLEGAL: return nv_method_error(ch, "the method ILLEGAL");
  case NV_HOST_SEMAPHORED: return semaphore_d(ch, o, value);
  case NV_HOST_SEM_EXECUTE: return sem_execute(ch, o, value);
  case NV_HOST_MEM_OP_D: return mem_op(ch, o, value);
  case NV_HOST_SET_REFERENCE:
    __atomic_store_n(&ch->d.userd[NV_USERD_REFERENCE / 4], value, __ATOMIC_RELEASE);
    return NV_DONE;
  case NV_HOST_YIELD:
    if (value != NV_YIELD_NOP && value != NV_YIELD_TSG) return nv_method_error(ch, "YIELD: operation %u", value);
    return NV_DONE;
  case NV_HOST_CLEAR_FAULTED: return nv_method_error(ch, "CLEAR_FAULTED needs a privileged channel");
  default: return NV_DONE;
  }
}
