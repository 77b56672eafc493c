/* Inline-to-memory: data in the pushbuffer, sent by methods of the compute class or of a separate class. Source: NVIDIA
 * open-gpu-doc, cla140.h and clcbc0.h. */
#include "engines.h"
#include <inttypes.h>
#include <string.h>

#define FIELD(method, field) BITS_GET(NV_COMPUTE_##method##_##field, launch)

/* Performs the release that LAUNCH_DMA requests, after all data has arrived. */
static enum nv_status complete_write(struct nv_channel *ch, struct nv_object *o) {
  uint32_t launch = nv_reg(o, NV_COMPUTE_LAUNCH_DMA);
  struct race_task *task = o->write.task;
  o->write.task = NULL;
  nv_semaphore_released();
  if (nv_task_end(ch, task) != NV_DONE) return NV_DEAD;
  if (FIELD(LAUNCH_DMA, COMPLETION_TYPE) != NV_I2M_RELEASE_SEMAPHORE) return NV_DONE;
  struct nv_semaphore s = {
      .what = "LAUNCH_DMA's semaphore",
      .va = nv_reg64(o, NV_COMPUTE_SET_I2M_SEMAPHORE_A, NV_COMPUTE_SET_I2M_SEMAPHORE_B),
      .payload = nv_reg(o, NV_COMPUTE_SET_I2M_SEMAPHORE_C),
      .timestamp = !FIELD(LAUNCH_DMA, SEMAPHORE_STRUCT_SIZE),
      .is_signed = FIELD(LAUNCH_DMA, REDUCTION_FORMAT) == 1,
  };
  if (FIELD(LAUNCH_DMA, REDUCTION_ENABLE)) s.reduction = nv_reduction_of_qmd(FIELD(LAUNCH_DMA, REDUCTION_OP));
  return nv_semaphore_release(ch, &s);
}

enum nv_status nv_inline_launch(struct nv_channel *ch, struct nv_object *o, uint32_t launch) {
  struct nv_inline_write *w = &o->write;
  if (w->at < w->bytes)
    return nv_method_error(ch, "LAUNCH_DMA: %" PRIu64 " bytes of the one before have not arrived", w->bytes - w->at);
  if (FIELD(LAUNCH_DMA, DST_MEMORY_LAYOUT) != NV_LAYOUT_PITCH)
    return nv_method_error(ch, "not supported: LAUNCH_DMA to a block-linear destination");
  if (FIELD(LAUNCH_DMA, COMPLETION_TYPE) > NV_I2M_RELEASE_SEMAPHORE || FIELD(LAUNCH_DMA, INTERRUPT_TYPE) > 1 ||
      FIELD(LAUNCH_DMA, REDUCTION_FORMAT) > 1)
    return nv_method_error(ch, "LAUNCH_DMA: invalid completion, interrupt or reduction format");
  *w = (struct nv_inline_write){
      .va = nv_reg64(o, NV_COMPUTE_OFFSET_OUT_UPPER, NV_COMPUTE_OFFSET_OUT),
      .pitch = nv_reg(o, NV_COMPUTE_PITCH_OUT),
      .line = nv_reg(o, NV_COMPUTE_LINE_LENGTH_IN),
      .lines = nv_reg(o, NV_COMPUTE_LINE_COUNT),
      .task = race_begin(ch->race, "LOAD_INLINE_DATA"),
  };
  w->bytes = (uint64_t)w->line * w->lines;
  if (w->lines > 1 && w->line % 4)
    return nv_method_error(ch, "not supported: LAUNCH_DMA of %u lines of %u bytes, not a multiple of 4", w->lines,
                           w->line);
  return w->bytes ? NV_DONE : complete_write(ch, o);
}

enum nv_status nv_inline_data(struct nv_channel *ch, struct nv_object *o, uint32_t value) {
  struct nv_inline_write *w = &o->write;
  if (w->at >= w->bytes) return nv_method_error(ch, "LOAD_INLINE_DATA: more than LAUNCH_DMA announced");
  uint64_t line = w->at / w->line, column = w->at % w->line, va = w->va + line * w->pitch + column;
  uint64_t n = w->line - column < 4 ? w->line - column : 4;
  void *at = vm_translate(ch->d.vm, &ch->data, va, n, VM_WRITE);
  uint64_t bad = va;
  race_task = w->task;
  if (at) {
    race_touch(at, n, VM_WRITE);
    memcpy(at, &value, n);
  }
  bool written = at || vm_write(ch->d.vm, va, &value, n, &bad);
  race_task = NULL;
  if (!written) return nv_page_fault(ch, "LOAD_INLINE_DATA", bad, VM_WRITE);
  w->at += n;
  return w->at == w->bytes ? complete_write(ch, o) : NV_DONE;
}

enum nv_status nv_inline_action(struct nv_channel *ch, struct nv_object *o, uint32_t method, uint32_t value) {
  /* Other methods of the compute class do not belong to this class. */
  bool own = method <= NV_COMPUTE_FE_ATOMIC_SEQUENCE_BEGIN - 4 ||
             (method >= NV_COMPUTE_LINE_LENGTH_IN && method <= NV_COMPUTE_SET_I2M_SEMAPHORE_C);
  if (!own) return nv_method_error(ch, "class 0x%x has no method 0x%x", o->class, method);
  switch (method) {
  case NV_COMPUTE_LAUNCH_DMA: return nv_inline_launch(ch, o, value);
  case NV_COMPUTE_LOAD_INLINE_DATA: return nv_inline_data(ch, o, value);
  case NV_COMPUTE_NOTIFY: return nv_method_error(ch, "not supported: NOTIFY");
  default: return NV_DONE;
  }
}
