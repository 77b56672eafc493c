/* Methods of the compute class that do more than setting state. Source: NVIDIA open-gpu-doc, clcbc0.h.
 *
 * Launches run to completion one after the other, so waiting for idle is a no-op. Hardware may overlap launches; a
 * program that is correct there is correct here. */
#include "engines.h"
#include <inttypes.h>
#include <string.h>

#define FIELD(method, field) BITS_GET(NV_COMPUTE_##method##_##field, value)

static enum nv_status report_semaphore(struct nv_channel *ch, const struct nv_object *o, uint32_t value) {
  if (FIELD(SET_REPORT_SEMAPHORE_D, OPERATION) != NV_REPORT_RELEASE || FIELD(SET_REPORT_SEMAPHORE_D, CONDITIONAL_TRAP))
    return nv_method_error(ch, "not supported: SET_REPORT_SEMAPHORE_D that is not a release");
  if (FIELD(SET_REPORT_SEMAPHORE_D, REDUCTION_FORMAT) > 1)
    return nv_method_error(ch, "SET_REPORT_SEMAPHORE_D: reduction format %u",
                           FIELD(SET_REPORT_SEMAPHORE_D, REDUCTION_FORMAT));
  struct nv_semaphore s = {
      .what = "SET_REPORT_SEMAPHORE_D",
      .va = nv_reg64(o, NV_COMPUTE_SET_REPORT_SEMAPHORE_A, NV_COMPUTE_SET_REPORT_SEMAPHORE_B),
      .payload = nv_reg(o, NV_COMPUTE_SET_REPORT_SEMAPHORE_C),
      .timestamp = FIELD(SET_REPORT_SEMAPHORE_D, STRUCTURE_SIZE) == NV_REPORT_FOUR_WORDS,
      .is_signed = FIELD(SET_REPORT_SEMAPHORE_D, REDUCTION_FORMAT),
  };
  if (FIELD(SET_REPORT_SEMAPHORE_D, REDUCTION_ENABLE))
    s.reduction = nv_reduction_of_qmd(FIELD(SET_REPORT_SEMAPHORE_D, REDUCTION_OP));
  return nv_semaphore_release(ch, &s);
}

static enum nv_status report_semaphore_execute(struct nv_channel *ch, const struct nv_object *o, uint32_t value) {
  unsigned size = FIELD(REPORT_SEMAPHORE_EXECUTE, STRUCTURE_SIZE);
  bool wide = FIELD(REPORT_SEMAPHORE_EXECUTE, PAYLOAD_SIZE64);
  if (FIELD(REPORT_SEMAPHORE_EXECUTE, OPERATION) != NV_REPORT_RELEASE || FIELD(REPORT_SEMAPHORE_EXECUTE, TRAP_TYPE))
    return nv_method_error(ch, "not supported: REPORT_SEMAPHORE_EXECUTE that is not a release");
  if (size > NV_REPORT_TWO_WORDS || (size == NV_REPORT_ONE_WORD && wide) || (size == NV_REPORT_TWO_WORDS && !wide) ||
      FIELD(REPORT_SEMAPHORE_EXECUTE, REDUCTION_FORMAT) > 1)
    return nv_method_error(ch,
                           "REPORT_SEMAPHORE_EXECUTE: structure size %u with a payload of %u bits, reduction format %u",
                           size, wide ? 64 : 32, FIELD(REPORT_SEMAPHORE_EXECUTE, REDUCTION_FORMAT));
  struct nv_semaphore s = {
      .what = "REPORT_SEMAPHORE_EXECUTE",
      .va = nv_reg64(o, NV_COMPUTE_SET_REPORT_SEMAPHORE_ADDRESS_UPPER, NV_COMPUTE_SET_REPORT_SEMAPHORE_ADDRESS_LOWER),
      .payload =
          nv_reg64(o, NV_COMPUTE_SET_REPORT_SEMAPHORE_PAYLOAD_UPPER, NV_COMPUTE_SET_REPORT_SEMAPHORE_PAYLOAD_LOWER),
      .wide = wide,
      .timestamp = size == NV_REPORT_FOUR_WORDS,
      .is_signed = FIELD(REPORT_SEMAPHORE_EXECUTE, REDUCTION_FORMAT),
  };
  if (FIELD(REPORT_SEMAPHORE_EXECUTE, REDUCTION_ENABLE))
    s.reduction = nv_reduction_of_qmd(FIELD(REPORT_SEMAPHORE_EXECUTE, REDUCTION_OP));
  return nv_semaphore_release(ch, &s);
}

/* Returns the address of the QMD in memory; the method holds it shifted. */
static uint64_t pcas_address(const struct nv_object *o) {
  return (uint64_t)nv_reg(o, NV_COMPUTE_SEND_PCAS_A) << NV_PCAS_ADDRESS_SHIFT;
}

/* Called with the last word of an inline QMD: copies the QMD to the memory that the methods name, and runs it from
 * there. */
static enum nv_status inline_qmd_complete(struct nv_channel *ch, struct nv_object *o) {
  uint32_t a = nv_reg(o, NV_COMPUTE_SET_INLINE_QMD_ADDRESS_A);
  uint64_t upper = o->group >= 2 ? BITS_GET(NV_COMPUTE_SET_INLINE_QMD_ADDRESS_A_QMD_ADDRESS_SHIFTED8_UPPER, a) : a;
  uint64_t va = (upper << 32 | nv_reg(o, NV_COMPUTE_SET_INLINE_QMD_ADDRESS_B)) << NV_PCAS_ADDRESS_SHIFT, bad = va;
  race_task = race_front(ch->race);
  bool written = vm_write(ch->d.vm, va, ch->inline_qmd, 4 * qmd_words(nv_qmd_version(o)), &bad);
  race_task = NULL;
  if (!written) return nv_page_fault(ch, "LOAD_INLINE_QMD_DATA", bad, VM_WRITE);
  return nv_qmd_schedule(ch, o, va);
}

static enum nv_status inline_qmd_data(struct nv_channel *ch, struct nv_object *o, unsigned i, uint32_t value) {
  unsigned words = qmd_words(nv_qmd_version(o));
  uint32_t a = nv_reg(o, NV_COMPUTE_SET_INLINE_QMD_ADDRESS_A);
  if (o->group >= 2 && BITS_GET(NV_COMPUTE_SET_INLINE_QMD_ADDRESS_A_INLINE_SIZE, a) != NV_INLINE_QMD_384)
    return nv_method_error(ch, "LOAD_INLINE_QMD_DATA: INLINE_SIZE is 256 bytes, the class's QMD has %u", 4 * words);
  if (i >= words) return nv_method_error(ch, "LOAD_INLINE_QMD_DATA: dword %u of a QMD with %u", i, words);
  ch->inline_qmd[i] = value;
  return i + 1 == words ? inline_qmd_complete(ch, o) : NV_DONE;
}

/* Drops decoded code, so that changes of the code in memory become visible. */
static enum nv_status invalidate_caches(struct nv_channel *ch, bool instructions) {
  if (instructions) code_cache_invalidate(ch->space->code);
  return NV_DONE;
}

enum nv_status nv_compute_action(struct nv_channel *ch, struct nv_object *o, uint32_t method, uint32_t value) {
  switch (method) {
  case NV_COMPUTE_SEND_SIGNALING_PCAS2_B:
    return nv_qmd_action(ch, o, pcas_address(o), FIELD(SEND_SIGNALING_PCAS2_B, PCAS_ACTION));
  case NV_COMPUTE_SEND_SIGNALING_PCAS_B:
    return FIELD(SEND_SIGNALING_PCAS_B, SCHEDULE) ? nv_qmd_schedule(ch, o, pcas_address(o)) : NV_DONE;
  case NV_COMPUTE_PM_TRIGGER: ch->triggered = true; return NV_DONE;
  case NV_COMPUTE_LAUNCH_DMA: return nv_inline_launch(ch, o, value);
  case NV_COMPUTE_LOAD_INLINE_DATA: return nv_inline_data(ch, o, value);
  case NV_COMPUTE_SET_REPORT_SEMAPHORE_D: return report_semaphore(ch, o, value);
  case NV_COMPUTE_REPORT_SEMAPHORE_EXECUTE: return report_semaphore_execute(ch, o, value);
  case NV_COMPUTE_INVALIDATE_SHADER_CACHES: return invalidate_caches(ch, FIELD(INVALIDATE_SHADER_CACHES, INSTRUCTION));
  case NV_COMPUTE_INVALIDATE_SHADER_CACHES_NO_WFI:
    return invalidate_caches(ch, FIELD(INVALIDATE_SHADER_CACHES_NO_WFI, INSTRUCTION));
  case NV_COMPUTE_SET_RENDER_ENABLE_C:
  case NV_COMPUTE_SET_GLOBAL_RENDER_ENABLE_C:
    return value == 1 ? NV_DONE : nv_method_error(ch, "not supported: conditional launches");
  case NV_COMPUTE_SET_RENDER_ENABLE_OVERRIDE:
    return value == 0 ? NV_DONE : nv_method_error(ch, "not supported: SET_RENDER_ENABLE_OVERRIDE");
  case NV_COMPUTE_SET_QMD_VIRTUALIZATION_CONTROL:
    return value == 0 ? NV_DONE : nv_method_error(ch, "not supported: QMD virtualization");
  case NV_COMPUTE_SEND_PCAS_B:
  case NV_COMPUTE_NOTIFY:
  case NV_COMPUTE_PERFMON_TRANSFER:
  case NV_COMPUTE_ENABLE_SHADER_PERFORMANCE_SNAPSHOT_COUNTER:
  case NV_COMPUTE_START_SHADER_PERFORMANCE_COUNTER:
  case NV_COMPUTE_SET_INSTRUMENTATION_METHOD_DATA: return nv_method_error(ch, "not supported: this method");
  default: break;
  }
  if (method >= NV_COMPUTE_LOAD_INLINE_QMD_DATA && method < NV_COMPUTE_LOAD_INLINE_QMD_DATA_64 + 4 * 32)
    return inline_qmd_data(ch, o, (method - NV_COMPUTE_LOAD_INLINE_QMD_DATA) / 4, value);
  return NV_DONE;
}
