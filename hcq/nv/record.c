/* Records commands as methods.
 *
 * Kernels of the compute queue run in the order recorded. If a launch directly follows another one, it needs no method:
 * the previous QMD names it as dependent, and the GPU starts it when the previous one is done. Every other command
 * between launches waits until the engine is idle. A memory barrier is therefore a no-op: each QMD writes back and
 * invalidates the caches that it must. */
#include <errno.h>
#include <string.h>
#include "program.h"
#include "pushbuffer.h"

/* The QMD of the last launch if nothing was recorded after it and the next launch needs no method of its own; otherwise
 * NULL. */
static uint32_t *open_chain(const db_queue *q) {
  return !q->sampling && q->chain.launch && q->chain.batch == q->batch && q->chain.words == q->words.n ? q->chain.launch
                                                                                                       : NULL;
}

/* The payload of a host semaphore is the third data dword after the header. */
static void patch_value(db_queue *q, uint32_t value) {
  hcq_patch_words(q, q->slots[0], q->words.n + 3, (struct hcq_patch){.bytes = 4, .addend = value});
}

int nv_wait(db_queue *q, uint64_t address, uint32_t value) {
  if (open_chain(q)) push_wait_for_idle(&q->words);
  patch_value(q, value);
  push_acquire(&q->words, address, value);
  return 0;
}

int nv_signal(db_queue *q, uint64_t address, uint32_t value) {
  patch_value(q, value);
  push_release(&q->words, address, value);
  return 0;
}

int nv_timestamp(db_queue *q, uint64_t stamp_address) {
  push_release_stamped(&q->words, stamp_address, 0);
  return 0;
}

int nv_memory_barrier(db_queue *q) { return 0; }

int nv_copy(db_queue *q, uint64_t dst, uint64_t src, uint64_t n) {
  size_t piece = q->words.n;
  for (uint64_t at = 0; at < n; at += PUSH_COPY_MAX, piece += PUSH_COPY_DWORDS) {
    struct hcq_patch address = {.bytes = 8, .addend = at + q->slot_offsets[1], .upper_first = true, .is_buffer = true};
    hcq_patch_words(q, q->slots[1], piece + 1, address);
    address.addend = at + q->slot_offsets[0];
    hcq_patch_words(q, q->slots[0], piece + 3, address);
  }
  push_copy(&q->words, dst, src, n);
  return 0;
}

/* ---- kernels ---- */

/* Warps are assigned to the SM's four partitions in turn; each partition has a quarter of the SM's registers. */
static bool registers_suffice(uint32_t registers, uint32_t threads) {
  uint32_t warps = (threads + 31) / 32;
  return (warps + 3) / 4 * ((registers + 7) & ~7u) * 32 <= 65536 / 4;
}

static int check_launch(const db_queue *q, const struct nv_program *p, uint32_t shared, const uint32_t grid[3],
                        const uint32_t block[3]) {
  const char *dev = q->dev->name, *name = p->base.name;
  const struct nv_launch *l = &p->launch;
  uint32_t system = l->arch->reserve_in_size ? 0 : l->arch->shared_reserved;
  uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (block[0] > 1024 || block[1] > 1024 || block[2] > 64 || threads > p->max_threads)
    return db_fail(-EINVAL, "%s: kernel %s: block %ux%ux%u, a block has at most %u threads", dev, name, block[0],
                   block[1], block[2], p->max_threads);
  if (p->required_block[0] && memcmp(p->required_block, block, sizeof p->required_block))
    return db_fail(-EINVAL, "%s: kernel %s: block %ux%ux%u, it was compiled for %ux%ux%u", dev, name, block[0],
                   block[1], block[2], p->required_block[0], p->required_block[1], p->required_block[2]);
  if (grid[0] > INT32_MAX || grid[1] > UINT16_MAX || grid[2] > UINT16_MAX)
    return db_fail(-EINVAL, "%s: kernel %s: grid %ux%ux%u, a grid has at most 2147483647x65535x65535 blocks", dev, name,
                   grid[0], grid[1], grid[2]);
  for (int i = 0; i < 3; i++)
    if (grid[i] % l->cluster[i])
      return db_fail(-EINVAL, "%s: kernel %s: grid %ux%ux%u is not a multiple of its clusters of %ux%ux%u blocks", dev,
                     name, grid[0], grid[1], grid[2], l->cluster[0], l->cluster[1], l->cluster[2]);
  if (!registers_suffice(l->registers, (uint32_t)threads))
    return db_fail(-EINVAL, "%s: kernel %s: a block of %u threads with %u registers each exceeds an SM's 65536", dev,
                   name, (uint32_t)threads, l->registers);
  if (shared > l->arch->shared_max - system)
    return db_fail(-EINVAL, "%s: kernel %s: %u bytes of shared memory, a block has at most %u", dev, name, shared,
                   l->arch->shared_max - system);
  return 0;
}

/* Marks the grid's counts as replaceable; they are stored in the QMD and in constant bank 0. */
static int patch_grid(db_queue *q, const struct nv_launch *l, uint32_t *qmd, uint8_t *bank0) {
  if (l->explicit_cluster)
    return db_fail(-ENOTSUP, "%s: not supported: a grid in slots for a kernel of clusters", q->dev->name);
  for (unsigned k = 0; k < 3; k++) {
    enum qmd_field field = (enum qmd_field)(QMD_GRID_WIDTH + k);
    unsigned bit = qmd_field_info(field)->place[l->arch->qmd].lo, bits = qmd_width(l->arch->qmd, field);
    struct hcq_patch count = {.bytes = (uint8_t)(bits / 8), .is_count = true};
    hcq_patch_memory(q, q->slots[k], (uint8_t *)qmd + bit / 8, count);
    count.bytes = 4;
    for (unsigned i = 0; i < 2; i++) {
      uint32_t offset = nv_launch_grid_offset(l->arch, i, k);
      if (offset) hcq_patch_memory(q, q->slots[k], bank0 + offset, count);
    }
  }
  return 0;
}

int nv_exec(db_queue *q, db_program *prog, uint8_t *kernarg, uint64_t kernarg_address, uint32_t local_size,
            const uint32_t grid[3], const uint32_t block[3]) {
  struct nv_program *p = (struct nv_program *)prog;
  struct nv_launch l = p->launch;
  int err = check_launch(q, p, local_size, grid, block);
  if (err) return err;
  uint64_t qmd_address = kernarg_address + p->qmd_offset;
  memcpy(l.grid, grid, sizeof l.grid);
  memcpy(l.block, block, sizeof l.block);
  uint32_t fixed = (prog->local_size + 15) & ~15u;
  l.shared_size = local_size;
  l.dynamic_size = local_size > fixed ? local_size - fixed : 0;
  l.grid_id = hcq_launch_id(q);
  l.bank[0].address = kernarg_address;
  uint32_t *qmd = (uint32_t *)(void *)(kernarg + p->qmd_offset);
  nv_launch_header(&l, kernarg);
  for (unsigned i = 0; i < p->ntensors; i++) /* the address, the first word, is stored already */
    memcpy(kernarg + p->tensor[i].offset + 8, p->tensor[i].map + 1, sizeof p->tensor[i].map - 8);
  if (!nv_launch_qmd(&l, qmd))
    return db_fail(-EINVAL, "%s: kernel %s: a QMD cannot describe a launch of this size or at this address",
                   q->dev->name, prog->name);
  bool patched = q->slots[0] || q->slots[1] || q->slots[2];
  if (patched && (err = patch_grid(q, &l, qmd, kernarg))) return err;
  uint32_t *before = open_chain(q);
  if (q->sampling) nv_samples_trigger(q);
  if (qmd_address + QMD_MAX_WORDS * 4 > NV_LOW_END) { /* neither SEND_PCAS_A nor another QMD can hold its address */
    if (patched)
      return db_fail(-ENOTSUP, "%s: kernel %s: not supported: a grid in slots for a launch above 1 TiB", q->dev->name,
                     prog->name);
    if (before) push_wait_for_idle(&q->words);
    push_launch_inline(&q->words, qmd_address, qmd, qmd_words(l.arch->qmd));
    push_wait_for_idle(&q->words);
    return 0;
  }
  if (!before)
    push_launch(&q->words, qmd_address);
  else if (!nv_launch_chain(l.arch, before, qmd_address))
    return db_fail(-EINVAL, "%s: kernel %s: its QMD at 0x%llx cannot be chained to another", q->dev->name, prog->name,
                   (unsigned long long)qmd_address);
  q->chain.launch = qmd;
  q->chain.words = q->words.n;
  q->chain.batch = q->batch;
  return 0;
}
