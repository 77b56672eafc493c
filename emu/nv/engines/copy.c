/* The copy class: copies lines of bytes between pitch-linear memory, fills, semaphores. Source: NVIDIA open-gpu-doc,
 * clc8b5.h. */
#include "engines.h"
#include <inttypes.h>
#include <string.h>

#define FIELD(field) BITS_GET(NV_COPY_LAUNCH_DMA_##field, launch)
#define REMAP(field) BITS_GET(NV_COPY_SET_REMAP_COMPONENTS_##field, remap)

/* Freeing the channel stops a copy between two parts. One host core copies a part of this size in about a
 * millisecond. */
enum { PART_MAX = 8 << 20, VIDEO_PROTECTED = 3 << 22 /* clc7b5.h: VPRMODE */ };

static enum nv_status copy_line(struct nv_channel *ch, struct vm_range *from, struct vm_range *to, uint64_t src,
                                uint64_t dst, uint64_t left) {
  while (left) {
    uint64_t n = left < PART_MAX ? left : PART_MAX;
    const void *in = nv_span(ch, from, "LAUNCH_DMA", src, &n, VM_READ);
    void *out = in ? nv_span(ch, to, "LAUNCH_DMA", dst, &n, VM_WRITE) : NULL;
    if (!out || nv_channel_stopped(ch)) return NV_DEAD;
    race_touch(in, n, VM_READ);
    race_touch(out, n, VM_WRITE);
    memmove(out, in, n);
    src += n;
    dst += n;
    left -= n;
  }
  return NV_DONE;
}

/* Remapping of elements with up to four components: each comes from a component of the source or from a constant. */
struct remap {
  unsigned component, nsrc, ndst; /* bytes per component; components per source and destination element */
  uint8_t select[4];
  uint32_t constant[2];
  bool reads;
};

static enum nv_status remap_of(struct nv_channel *ch, const struct nv_object *o, struct remap *r) {
  uint32_t remap = nv_reg(o, NV_COPY_SET_REMAP_COMPONENTS);
  *r = (struct remap){
      .component = REMAP(COMPONENT_SIZE) + 1,
      .nsrc = REMAP(NUM_SRC_COMPONENTS) + 1,
      .ndst = REMAP(NUM_DST_COMPONENTS) + 1,
      .select = {(uint8_t)REMAP(DST_X), (uint8_t)REMAP(DST_Y), (uint8_t)REMAP(DST_Z), (uint8_t)REMAP(DST_W)},
      .constant = {nv_reg(o, NV_COPY_SET_REMAP_CONST_A), nv_reg(o, NV_COPY_SET_REMAP_CONST_B)},
  };
  for (unsigned i = 0; i < r->ndst; i++) {
    if (r->select[i] > NV_REMAP_NO_WRITE)
      return nv_method_error(ch, "SET_REMAP_COMPONENTS: component %u from %u", i, r->select[i]);
    if (r->select[i] >= NV_REMAP_CONST_A) continue;
    if (r->select[i] >= r->nsrc)
      return nv_method_error(ch, "SET_REMAP_COMPONENTS: component %u from %u of %u", i, r->select[i], r->nsrc);
    r->reads = true;
  }
  return NV_DONE;
}

/* If every byte is the same, or all elements are one constant: the host's memset is much faster than a loop. */
static bool fill_constant(uint8_t *out, uint64_t n, const struct remap *r) {
  uint8_t element[16];
  for (unsigned i = 0; i < r->ndst; i++) {
    if (r->select[i] != NV_REMAP_CONST_A && r->select[i] != NV_REMAP_CONST_B) return false;
    memcpy(element + i * r->component, &r->constant[r->select[i] - NV_REMAP_CONST_A], r->component);
  }
  unsigned size = r->component * r->ndst;
  bool same = true;
  for (unsigned i = 1; i < size; i++) same &= element[i] == element[0];
  if (same) {
    memset(out, element[0], n);
    return true;
  }
  for (uint64_t i = 0; i < n; i += size) memcpy(out + i, element, size);
  return true;
}

static enum nv_status remap_element(struct nv_channel *ch, const struct remap *r, uint64_t src, uint64_t dst) {
  uint8_t in[16] = {0};
  uint64_t bad = src;
  if (r->reads && !vm_read(ch->d.vm, src, in, r->component * r->nsrc, &bad))
    return nv_page_fault(ch, "LAUNCH_DMA", bad, VM_READ);
  for (unsigned i = 0; i < r->ndst; i++) {
    unsigned s = r->select[i];
    const void *from = s >= NV_REMAP_CONST_A ? (const void *)&r->constant[s - NV_REMAP_CONST_A] : in + s * r->component;
    if (s != NV_REMAP_NO_WRITE && !vm_write(ch->d.vm, dst + i * r->component, from, r->component, &bad))
      return nv_page_fault(ch, "LAUNCH_DMA", bad, VM_WRITE);
  }
  return NV_DONE;
}

/* length is in elements. */
static enum nv_status remap_line(struct nv_channel *ch, struct vm_range *to, const struct remap *r, uint64_t src,
                                 uint64_t dst, uint64_t length) {
  unsigned in = r->component * r->nsrc, out = r->component * r->ndst;
  while (length) {
    uint64_t n = length * out < PART_MAX ? length * out : PART_MAX / out * out;
    uint8_t *at = nv_span(ch, to, "LAUNCH_DMA", dst, &n, VM_WRITE);
    if (!at || nv_channel_stopped(ch)) return NV_DEAD;
    uint64_t elements = n / out;
    if (elements) race_touch(at, elements * out, VM_WRITE);
    if (!elements || !fill_constant(at, elements * out, r)) {
      elements = 1;
      if (remap_element(ch, r, src, dst) != NV_DONE) return NV_DEAD;
    }
    src += elements * in;
    dst += elements * out;
    length -= elements;
  }
  return NV_DONE;
}

static enum nv_status copy_lines(struct nv_channel *ch, const struct nv_object *o, uint32_t launch) {
  uint64_t src = nv_reg64(o, NV_COPY_OFFSET_IN_UPPER, NV_COPY_OFFSET_IN_LOWER),
           dst = nv_reg64(o, NV_COPY_OFFSET_OUT_UPPER, NV_COPY_OFFSET_OUT_LOWER);
  uint32_t length = nv_reg(o, NV_COPY_LINE_LENGTH_IN);
  uint32_t lines = FIELD(MULTI_LINE_ENABLE) ? nv_reg(o, NV_COPY_LINE_COUNT) : 1;
  int32_t pitch_in = (int32_t)nv_reg(o, NV_COPY_PITCH_IN), pitch_out = (int32_t)nv_reg(o, NV_COPY_PITCH_OUT);
  struct vm_range from = {0}, to = {0};
  struct remap r = {0};
  enum nv_status status = NV_DONE;
  if (FIELD(SRC_TYPE) || FIELD(DST_TYPE))
    return nv_method_error(ch, "LAUNCH_DMA: physical addresses need a privileged channel");
  if (FIELD(SRC_MEMORY_LAYOUT) != NV_LAYOUT_PITCH || FIELD(DST_MEMORY_LAYOUT) != NV_LAYOUT_PITCH)
    return nv_method_error(ch, "not supported: LAUNCH_DMA with a block-linear layout");
  if (FIELD(DATA_TRANSFER_TYPE) == NV_COPY_PREFETCH)
    return nv_method_error(ch, "not supported: LAUNCH_DMA that prefetches");
  if (FIELD(REMAP_ENABLE) && remap_of(ch, o, &r) != NV_DONE) return NV_DEAD;
  if (FIELD(DATA_TRANSFER_TYPE) == NV_COPY_NON_PIPELINED) nv_idle(ch);
  struct race_task *task = race_task = race_begin(ch->race, "LAUNCH_DMA");
  for (uint32_t line = 0; line < lines && length && status == NV_DONE; line++) {
    if (nv_channel_stopped(ch)) status = NV_DEAD;
    if (status == NV_DONE)
      status =
          FIELD(REMAP_ENABLE) ? remap_line(ch, &to, &r, src, dst, length) : copy_line(ch, &from, &to, src, dst, length);
    src += (uint64_t)(int64_t)pitch_in;
    dst += (uint64_t)(int64_t)pitch_out;
  }
  race_task = NULL;
  enum nv_status raced = nv_task_end(ch, task);
  nv_semaphore_released();
  return status == NV_DONE ? raced : status;
}

static enum nv_status semaphore(struct nv_channel *ch, const struct nv_object *o, uint32_t launch) {
  unsigned type = FIELD(SEMAPHORE_TYPE), op = FIELD(SEMAPHORE_REDUCTION);
  struct nv_semaphore s = {
      .what = "LAUNCH_DMA's semaphore",
      .va = nv_reg64(o, NV_COPY_SET_SEMAPHORE_A, NV_COPY_SET_SEMAPHORE_B),
      .payload = nv_reg64(o, NV_COPY_SET_SEMAPHORE_PAYLOAD_UPPER, NV_COPY_SET_SEMAPHORE_PAYLOAD),
      .wide = FIELD(SEMAPHORE_PAYLOAD_SIZE),
      .timestamp = type == NV_COPY_SEMAPHORE_WITH_TIMESTAMP,
      .is_signed = !FIELD(SEMAPHORE_REDUCTION_SIGN),
  };
  if (type == NV_COPY_SEMAPHORE_NONE) return NV_DONE;
  if (type == NV_COPY_SEMAPHORE_CONDITIONAL_INTR)
    return nv_method_error(ch, "not supported: LAUNCH_DMA with a conditional interrupt semaphore");
  if (FIELD(SEMAPHORE_REDUCTION_ENABLE)) {
    if (op >= NV_COPY_RED_FADD && op <= NV_COPY_RED_FMAX)
      return nv_method_error(ch, "not supported: LAUNCH_DMA with floating-point reduction %u", op);
    if (op > NV_SEM_RED_DEC) return nv_method_error(ch, "LAUNCH_DMA: semaphore reduction %u", op);
    s.reduction = nv_reduction_of_host(op);
  }
  return nv_semaphore_release(ch, &s);
}

static enum nv_status launch_dma(struct nv_channel *ch, const struct nv_object *o, uint32_t launch) {
  if (FIELD(COPY_TYPE) || launch & VIDEO_PROTECTED)
    return nv_method_error(ch, "not supported: LAUNCH_DMA that encrypts, scrubs or copies protected memory");
  enum nv_status status = FIELD(DATA_TRANSFER_TYPE) != NV_COPY_TRANSFER_NONE ? copy_lines(ch, o, launch) : NV_DONE;
  return status == NV_DONE ? semaphore(ch, o, launch) : status;
}

enum nv_status nv_copy_action(struct nv_channel *ch, struct nv_object *o, uint32_t method, uint32_t value) {
  switch (method) {
  case NV_COPY_LAUNCH_DMA: return launch_dma(ch, o, value);
  case NV_COPY_SET_RENDER_ENABLE_C:
    return value == 1 ? NV_DONE : nv_method_error(ch, "not supported: conditional copies");
  default: return NV_DONE;
  }
}
