/* Commands of a recorder as packets: PM4 for compute queues, SDMA for copy queues. */
#include "amd.h"
#include "pm4.h"
#include "sdma.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SCRATCH_BYTES_MAX (1ull << 30)

static inline bool is_compute(const db_queue *q) { return q->ring->kind == DB_QUEUE_COMPUTE; }

/* Index of the dword, from a packet's header, that holds the value to compare or write. */
enum { PM4_WAIT_VALUE = 4, PM4_RELEASE_VALUE = 5, SDMA_WAIT_VALUE = 3, SDMA_FENCE_VALUE = 3 };

static void patch_value(db_queue *q, size_t packet, unsigned at, uint32_t value) {
  hcq_patch_words(q, q->slots[0], packet + at, (struct hcq_patch){.bytes = 4, .addend = value});
}

int amd_wait(db_queue *q, uint64_t address, uint32_t value) {
  /* The host may have written to mapped device memory before it stored the signal. */
  bool window = amd_device(q->dev)->cpu_mapped;
  patch_value(q, q->words.n, is_compute(q) ? PM4_WAIT_VALUE : SDMA_WAIT_VALUE, value);
  if (is_compute(q)) {
    pm4_wait_mem32(&q->words, address, value);
    if (window) pm4_hdp_flush(&q->words);
    pm4_acquire_mem(&q->words); /* the caches may hold stale copies of the signaller's writes */
  } else {
    sdma_wait_mem32(&q->words, address, value);
    if (window) sdma_hdp_flush(&q->words);
    sdma_cache_flush(&q->words);
  }
  return 0;
}

int amd_signal(db_queue *q, uint64_t address, uint32_t value) {
  if (is_compute(q)) {
    patch_value(q, q->words.n, PM4_RELEASE_VALUE, value);
    pm4_release_mem(&q->words,
                    &(struct pm4_release){.address = address, .value = value, .data = PM4_DATA_64, .flush = true});
  } else {
    sdma_nop(&q->words, 1);
    sdma_cache_flush(&q->words);
    patch_value(q, q->words.n, SDMA_FENCE_VALUE, value);
    sdma_fence32(&q->words, address, value);
  }
  return 0;
}

int amd_timestamp(db_queue *q, uint64_t address) {
  if (is_compute(q)) {
    pm4_release_mem(&q->words, &(struct pm4_release){.address = address, .data = PM4_DATA_GPU_CLOCK});
  } else {
    sdma_nop(&q->words, 1);
    sdma_timestamp(&q->words, address);
  }
  return 0;
}

int amd_memory_barrier(db_queue *q) {
  if (is_compute(q)) {
    pm4_cs_partial_flush(&q->words);
    pm4_acquire_mem(&q->words);
  } else {
    sdma_nop(&q->words, 1);
  }
  return 0;
}

int amd_copy(db_queue *q, uint64_t dst, uint64_t src, uint64_t n) {
  size_t packet = q->words.n;
  for (uint64_t at = 0; at < n; at += SDMA_MAX_COPY, packet += SDMA_COPY_LINEAR_DWORDS) {
    hcq_patch_words(q, q->slots[0], packet + 5,
                    (struct hcq_patch){.bytes = 8, .addend = at + q->slot_offsets[0], .is_buffer = true});
    hcq_patch_words(q, q->slots[1], packet + 3,
                    (struct hcq_patch){.bytes = 8, .addend = at + q->slot_offsets[1], .is_buffer = true});
  }
  sdma_copy(&q->words, dst, src, n);
  return 0;
}

/* ---- kernels ---- */

/* Returns a reference to the queue's scratch memory of at least `bytes` bytes; NULL with a message on failure. */
static db_buffer *scratch_of(struct amd_queue *aq, uint64_t bytes) {
  db_device *dev = aq->base.dev;
  db_buffer *bigger = NULL;
  for (;;) {
    pthread_mutex_lock(&dev->lock);
    db_buffer *scratch = aq->scratch, *old = NULL;
    if (bigger && (!scratch || scratch->size < bigger->size)) {
      old = scratch;
      scratch = aq->scratch = bigger;
      bigger = NULL;
    }
    bool enough = scratch && scratch->size >= bytes;
    if (enough) hcq_retain(&scratch->object);
    pthread_mutex_unlock(&dev->lock);
    if (old) hcq_release(&old->object);
    if (bigger) hcq_release(&bigger->object); /* another thread stored a buffer at least as large */
    if (enough) return scratch;
    if (!(bigger = hcq_buffer_new(dev, bytes, 0, true))) return NULL;
  }
}

/* Reserves scratch for every wave that the GPU can hold, because the hardware assigns it by wave slot. If that exceeds
 * SCRATCH_BYTES_MAX, fewer waves run at once. The buffer grows; recordings keep the one they were recorded with. */
static int reserve_scratch(db_queue *q, struct amd_program *p, struct pm4_dispatch *d) {
  const struct amd_node *n = amd_device(q->dev)->node;
  uint32_t engines = amd_node_engines(n), slots = n->scratch_slots_per_cu * amd_node_cus(n);
  uint64_t wave = ((uint64_t)p->private_bytes * (p->wave32 ? 32 : 64) + 255) & ~255ull;
  uint64_t want = wave * slots < SCRATCH_BYTES_MAX ? wave * slots : SCRATCH_BYTES_MAX;
  if (wave * engines > want)
    return db_fail(-ENOMEM, "%s: kernel %s: not supported: %u bytes of private memory per work-item", q->dev->name,
                   p->base.name, p->private_bytes);
  db_buffer *scratch = scratch_of((struct amd_queue *)q->ring, want);
  if (!scratch) return -ENOMEM;
  uint64_t waves = scratch->size / wave;
  if (waves > slots) waves = slots;
  d->scratch_base = scratch->address;
  d->scratch_waves = (uint32_t)(waves / engines);
  d->scratch_wave_bytes = (uint32_t)wave;
  int err = hcq_queue_hold(q, &scratch->object);
  hcq_release(&scratch->object);
  return err;
}

static inline void put_bytes(uint8_t *at, uint64_t value, uint32_t size) { memcpy(at, &value, size < 8 ? size : 8); }

/* Kinds: LLVM AMDGPUUsage, "Code Object V5 Metadata", value_kind. */
bool amd_fills_hidden(enum code_object_kind kind) {
  return (kind >= CODE_OBJECT_HIDDEN_BLOCK_COUNT_X && kind <= CODE_OBJECT_HIDDEN_GROUP_SIZE_Z) ||
         kind == CODE_OBJECT_HIDDEN_GRID_DIMS || kind == CODE_OBJECT_HIDDEN_DYNAMIC_LDS_SIZE ||
         kind == CODE_OBJECT_HIDDEN_PRIVATE_BASE || kind == CODE_OBJECT_HIDDEN_SHARED_BASE;
}

static void fill_hidden(const struct amd_device *dev, const struct amd_program *p, uint8_t *kernarg,
                        uint32_t local_size, const uint32_t grid[3], const uint32_t block[3]) {
  for (unsigned i = 0; i < p->nhidden; i++) {
    const struct code_object_arg *a = &p->hidden[i];
    uint32_t v;
    switch (a->kind) {
    case CODE_OBJECT_HIDDEN_BLOCK_COUNT_X:
    case CODE_OBJECT_HIDDEN_BLOCK_COUNT_Y:
    case CODE_OBJECT_HIDDEN_BLOCK_COUNT_Z: v = grid[a->kind - CODE_OBJECT_HIDDEN_BLOCK_COUNT_X]; break;
    case CODE_OBJECT_HIDDEN_GROUP_SIZE_X:
    case CODE_OBJECT_HIDDEN_GROUP_SIZE_Y:
    case CODE_OBJECT_HIDDEN_GROUP_SIZE_Z: v = block[a->kind - CODE_OBJECT_HIDDEN_GROUP_SIZE_X]; break;
    case CODE_OBJECT_HIDDEN_GRID_DIMS: v = grid[2] > 1 || block[2] > 1 ? 3 : grid[1] > 1 || block[1] > 1 ? 2 : 1; break;
    case CODE_OBJECT_HIDDEN_DYNAMIC_LDS_SIZE: v = local_size - p->base.local_size; break;
    case CODE_OBJECT_HIDDEN_PRIVATE_BASE: v = (uint32_t)(dev->apertures.scratch_base >> 32); break;
    case CODE_OBJECT_HIDDEN_SHARED_BASE: v = (uint32_t)(dev->apertures.lds_base >> 32); break;
    default: continue;
    }
    memcpy(kernarg + a->offset, &v, a->size < 4 ? a->size : 4);
  }
}

/* Writes the dispatch packet that an AQL queue would contain, for kernels that read it. Layout: HSA System
 * Architecture, "AQL kernel dispatch packet". */
static void fill_aql(uint8_t *at, const struct amd_program *p, uint64_t kernarg, uint32_t local_size,
                     const uint32_t grid[3], const uint32_t block[3]) {
  put_bytes(at, 2, 2); /* header: kernel dispatch */
  put_bytes(at + 2, 3, 2);
  for (int i = 0; i < 3; i++) {
    put_bytes(at + 4 + 2 * i, block[i], 2);
    put_bytes(at + 12 + 4 * i, grid[i] * block[i], 4);
  }
  put_bytes(at + 24, p->private_bytes, 4);
  put_bytes(at + 28, local_size, 4);
  put_bytes(at + 40, kernarg, 8);
}

static int check_launch(const db_queue *q, const struct amd_program *p, uint32_t local_size, const uint32_t grid[3],
                        const uint32_t block[3]) {
  const char *dev = q->dev->name, *name = p->base.name;
  uint64_t items = 1;
  for (int i = 0; i < 3; i++) {
    if (block[i] > 1024) items = UINT32_MAX; /* large enough to fail below; set before the product can overflow */
    items *= block[i];
    if ((uint64_t)grid[i] * block[i] > UINT32_MAX)
      return db_fail(-EINVAL, "%s: kernel %s: %u workgroups of %u work-items exceed 2^32 in dimension %d", dev, name,
                     grid[i], block[i], i);
    if (p->required_block[0] && block[i] != p->required_block[i])
      return db_fail(-EINVAL, "%s: kernel %s: block %ux%ux%u, but it was compiled for %ux%ux%u", dev, name, block[0],
                     block[1], block[2], p->required_block[0], p->required_block[1], p->required_block[2]);
  }
  if (items > p->max_block)
    return db_fail(-EINVAL, "%s: kernel %s: block %ux%ux%u has more than %u work-items", dev, name, block[0], block[1],
                   block[2], p->max_block);
  uint32_t most = amd_device(q->dev)->node->lds_kib << 10;
  if (local_size > most)
    return db_fail(-EINVAL, "%s: kernel %s: %u bytes of local memory, the device has %u", dev, name, local_size, most);
  return 0;
}

/* Marks the grid as replaceable. The last packet, a dispatch, ends with the three counts and the initiator. The number
 * of dimensions stays as recorded. */
static int patch_grid(db_queue *q, const struct amd_program *p, uint8_t *kernarg) {
  const struct hcq_patch count = {.bytes = 4, .is_count = true};
  for (unsigned k = 0; k < 3; k++) hcq_patch_words(q, q->slots[k], q->words.n - 4 + k, count);
  for (unsigned i = 0; i < p->nhidden; i++) {
    const struct code_object_arg *a = &p->hidden[i];
    unsigned k = (unsigned)(a->kind - CODE_OBJECT_HIDDEN_BLOCK_COUNT_X);
    if (k < 3) hcq_patch_memory(q, q->slots[k], kernarg + a->offset, count);
  }
  if (!p->aql_offset) return 0;
  return db_fail(-ENOTSUP, "%s: kernel %s: not supported: a grid in slots for a kernel that reads its dispatch packet",
                 q->dev->name, p->base.name);
}

int amd_exec(db_queue *q, db_program *prog, uint8_t *kernarg, uint64_t kernarg_address, uint32_t local_size,
             const uint32_t grid[3], const uint32_t block[3]) {
  struct amd_device *dev = amd_device(q->dev);
  struct amd_program *p = (struct amd_program *)prog;
  int err = check_launch(q, p, local_size, grid, block);
  if (err) return err;
  struct pm4_dispatch d = {
      .entry = p->base.address,
      .rsrc1 = p->rsrc1,
      .rsrc2 = p->rsrc2,
      .rsrc3 = p->rsrc3,
      .lds_bytes = local_size,
      .groups = {grid[0], grid[1], grid[2]},
      .threads = {block[0], block[1], block[2]},
      .wave32 = p->wave32,
      .counted = q->counting,
  };
  if (p->private_bytes && (err = reserve_scratch(q, p, &d))) return err;
  fill_hidden(dev, p, kernarg, local_size, grid, block);
  uint32_t user[16];
  unsigned n = 0;
  /* In this order (LLVM AMDGPUUsage, "Initial Kernel Execution State"); gfx11 passes scratch in separate registers. */
  const struct {
    uint64_t value;
    unsigned bit, dwords;
  } sgprs[] = {
      {kernarg_address + p->aql_offset, KERNEL_CODE_DISPATCH_PTR_SHIFT, 2},
      {kernarg_address, KERNEL_CODE_KERNARG_SEGMENT_PTR_SHIFT, 2},
      {hcq_launch_id(q), KERNEL_CODE_DISPATCH_ID_SHIFT, 2},
      {p->private_bytes, KERNEL_CODE_PRIVATE_SEGMENT_SIZE_SHIFT, 1},
  };
  for (unsigned i = 0; i < sizeof sgprs / sizeof *sgprs; i++) {
    if (!(p->properties >> sgprs[i].bit & 1)) continue;
    user[n++] = (uint32_t)sgprs[i].value;
    if (sgprs[i].dwords == 2) user[n++] = (uint32_t)(sgprs[i].value >> 32);
  }
  if (p->aql_offset) fill_aql(kernarg + p->aql_offset, p, kernarg_address, local_size, grid, block);
  d.user_data = user;
  d.nuser = n;
  pm4_dispatch(&q->words, &d);
  if ((q->slots[0] || q->slots[1] || q->slots[2]) && (err = patch_grid(q, p, kernarg))) return err;
  return 0;
}
