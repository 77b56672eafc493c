/* PC sampling: RM's profiler object, its reservations, the stream of records and the registers. The order of the calls
 * is that of tinygrad (runtime/ops_nv.py); the rules are those of NVIDIA open-gpu-kernel-modules (hwpm/profiler_v2). */
#include "nv.h"
#include "pma/registers.h"
#include "pma/samples.h"
#include "pushbuffer.h"
#include "rm.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
  const struct pma_chip *chip;
  struct pma_shape shape;
  uint32_t object; /* of the profiler */
  struct nv_memory buffer, available;
  uint32_t channel;
  uint64_t taken; /* bytes of the stream that were read */
  unsigned done;  /* number of set-up steps that were made */
  uint8_t known[PMA_IDS / 8];
  struct pma_rest rest[PMA_IDS];
};

static int result(struct nv_device *dev, int rc, const char *what) {
  if (!rc) return 0;
  return rm_error(dev->base.name, rc, "PC sampling: %s%s", what,
                  rc == RM_STATE_IN_USE ? " (another profiler uses it)" : "");
}

/* ---- register operations ---- */

/* Executes operations, as many at a time as one call takes. */
static int execute(struct nv_device *dev, const struct sampler *s, const struct rm_reg_op *op, unsigned n) {
  struct rm_reg_ops *call = malloc(sizeof *call);
  int err = call ? 0 : db_fail(-ENOMEM, "%s: out of host memory for register operations", dev->base.name);
  for (unsigned at = 0; at < n && !err; at += RM_REG_OPS_MAX) {
    unsigned count = n - at < RM_REG_OPS_MAX ? n - at : RM_REG_OPS_MAX;
    memset(call, 0, sizeof *call);
    call->count = count, call->mode = RM_REG_CONTINUE;
    memcpy(call->ops, op + at, count * sizeof *op);
    int rc = rm_ctrl(dev->machine, s->object, RM_CTRL_EXEC_REG_OPS, call, sizeof *call);
    err = result(dev, rc, "register operations");
    for (unsigned i = 0; i < count && !err; i++)
      if (call->ops[i].status)
        err = db_fail(-EACCES, "%s: PC sampling: the driver refuses register 0x%x (status 0x%x)", dev->base.name,
                      call->ops[i].offset, call->ops[i].status);
  }
  free(call);
  return err;
}

static int write_one(struct nv_device *dev, const struct sampler *s, enum pma_scope scope, uint32_t offset,
                     uint32_t value) {
  struct rm_reg_op op = pma_op(scope, offset, UINT32_MAX, value);
  return execute(dev, s, &op, 1);
}

/* Each GPC gets a credit for each of its TPCs; without credits its monitors write nothing. */
static int set_credits(struct nv_device *dev, const struct sampler *s) {
  struct rm_hs_credits p = {.channel = (uint8_t)s->channel, .count = (uint8_t)s->shape.gpcs};
  for (unsigned g = 0; g < s->shape.gpcs; g++)
    p.credit[g] = (struct rm_hs_credit){RM_CHIPLET_GPC, (uint8_t)g, (uint16_t)s->shape.tpcs[g]};
  int rc = rm_ctrl(dev->machine, s->object, RM_CTRL_SET_HS_CREDITS, &p, sizeof p);
  if (rc) return result(dev, rc, "the credits of the GPCs");
  return p.status ? db_fail(-EIO, "%s: PC sampling: the driver refuses the credits of GPC %u (status %u)",
                            dev->base.name, p.failed, p.status)
                  : 0;
}

/* ---- set-up: a function per step, and one that undoes it ---- */

static int read_shape(struct nv_device *dev, struct sampler *s) {
  s->shape = (struct pma_shape){.tpcs_per_gpc = dev->tpcs_per_gpc, .sms_per_tpc = dev->sms_per_tpc};
  struct rm_gpc_mask gpcs = {0};
  int rc = rm_ctrl(dev->machine, dev->subdevice, RM_CTRL_GPC_MASK, &gpcs, sizeof gpcs);
  for (uint32_t i = 0; i < PMA_GPCS && !rc; i++) {
    struct rm_tpc_mask tpcs = {.gpc_id = i};
    if (!(gpcs.gpc_mask >> i & 1)) continue;
    rc = rm_ctrl(dev->machine, dev->subdevice, RM_CTRL_TPC_MASK, &tpcs, sizeof tpcs);
    if (tpcs.tpc_mask) s->shape.tpcs[s->shape.gpcs++] = (unsigned)__builtin_popcount(tpcs.tpc_mask);
  }
  if (rc) return result(dev, rc, "querying the GPCs");
  enum { TPCS = 16, SMS = 2 }; /* of an id */
  for (unsigned g = 0; g < s->shape.gpcs; g++)
    for (unsigned t = 0; t < s->shape.tpcs[g]; t++)
      for (unsigned sm = 0; sm < dev->sms_per_tpc; sm++) {
        if (t >= TPCS || sm >= SMS || s->shape.tpcs[g] > dev->tpcs_per_gpc)
          return db_fail(-EPROTO, "%s: PC sampling: GPC %u has %u TPCs of %u SMs", dev->base.name, g, s->shape.tpcs[g],
                         dev->sms_per_tpc);
        pma_ids_add(s->known, pma_id(g, t, sm));
      }
  return 0;
}

/* The context that is sampled is that of the compute channels. */
static int new_profiler(struct nv_device *dev, struct sampler *s) {
  struct rm_profiler_alloc p = {
      .client_target = dev->machine->client,
      .context_target = dev->rings[hcq_ring_index(DB_QUEUE_COMPUTE, 0)].group,
  };
  int rc = rm_object_new(dev->machine, dev->subdevice, RM_CLASS_PROFILER, &p, sizeof p, &s->object);
  return rc ? nv_profiler_refused(dev, rc) : 0;
}
static void free_profiler(struct nv_device *dev, struct sampler *s) {
  rm_object_free(dev->machine, dev->subdevice, &s->object);
}

/* Clock gating and slowing down when idle would stop the monitors. */
static uint32_t power(unsigned action) {
  return action << RM_POWER_ELCG | action << RM_POWER_BLCG | action << RM_POWER_ELPG |
         action << RM_POWER_IDLE_SLOWDOWN | action << RM_POWER_VAT;
}
static int request_power(struct nv_device *dev, struct sampler *s) {
  struct rm_power_request p = {.control = power(RM_POWER_DISABLE)};
  int rc = rm_ctrl(dev->machine, s->object, RM_CTRL_POWER_REQUEST, &p, sizeof p);
  return result(dev, rc, "stopping clock gating");
}
static void release_power(struct nv_device *dev, struct sampler *s) {
  struct rm_power_release p = {.control = power(RM_POWER_RELEASED)};
  rm_ctrl(dev->machine, s->object, RM_CTRL_POWER_RELEASE, &p, sizeof p);
}

static int new_stream(struct nv_device *dev, struct sampler *s) {
  struct rm_pma_stream p = {
      .buffer = s->buffer.handle,
      .buffer_size = s->buffer.size,
      .bytes = s->available.handle,
      .buffer_va = s->buffer.va,
  };
  int rc = rm_ctrl(dev->machine, s->object, RM_CTRL_ALLOC_PMA_STREAM, &p, sizeof p);
  s->channel = p.channel;
  return result(dev, rc, "a stream of records");
}
static void free_stream(struct nv_device *dev, struct sampler *s) {
  struct rm_pma_channel p = {s->channel};
  rm_ctrl(dev->machine, s->object, RM_CTRL_FREE_PMA_STREAM, &p, sizeof p);
}

static int reserve_monitors(struct nv_device *dev, struct sampler *s) {
  struct rm_reserve_hwpm p = {0};
  int rc = rm_ctrl(dev->machine, s->object, RM_CTRL_RESERVE_HWPM_LEGACY, &p, sizeof p);
  return result(dev, rc, "reserving the performance monitors");
}
static void release_monitors(struct nv_device *dev, struct sampler *s) {
  rm_ctrl(dev->machine, s->object, RM_CTRL_RELEASE_HWPM_LEGACY, NULL, 0);
}

static int reserve_sampler(struct nv_device *dev, struct sampler *s) {
  int rc = rm_ctrl(dev->machine, s->object, RM_CTRL_RESERVE_PC_SAMPLER, NULL, 0);
  return result(dev, rc, "reserving the sampler");
}
static void release_sampler(struct nv_device *dev, struct sampler *s) {
  rm_ctrl(dev->machine, s->object, RM_CTRL_RELEASE_PC_SAMPLER, NULL, 0);
}

static int bind_resources(struct nv_device *dev, struct sampler *s) {
  int rc = rm_ctrl(dev->machine, s->object, RM_CTRL_BIND_PM_RESOURCES, NULL, 0);
  return result(dev, rc, "binding what was reserved");
}
static void unbind_resources(struct nv_device *dev, struct sampler *s) {
  rm_ctrl(dev->machine, s->object, RM_CTRL_UNBIND_PM_RESOURCES, NULL, 0);
}

static int start(struct nv_device *dev, struct sampler *s) {
  struct pma_ops ops = {0};
  s->chip->setup(&ops, &s->shape);
  pma_write(&ops, PMA_OF_CONTEXT, s->chip->context_enable, UINT32_MAX, 1);
  int err = ops.failed ? db_fail(-ENOMEM, "%s: out of host memory for register operations", dev->base.name) : 0;
  if (!err) err = execute(dev, s, ops.op, ops.first);
  if (!err) err = set_credits(dev, s);
  if (!err) err = execute(dev, s, ops.op + ops.first, ops.n - ops.first);
  free(ops.op);
  return err;
}
static void stop(struct nv_device *dev, struct sampler *s) {
  write_one(dev, s, PMA_OF_CONTEXT, s->chip->context_enable, 0);
}

static const struct step {
  int (*make)(struct nv_device *dev, struct sampler *s);
  void (*undo)(struct nv_device *dev, struct sampler *s); /* NULL if there is nothing to undo */
} steps[] = {
    {read_shape, NULL},
    {new_profiler, free_profiler},
    {request_power, release_power},
    {new_stream, free_stream},
    {reserve_monitors, release_monitors},
    {reserve_sampler, release_sampler},
    {bind_resources, unbind_resources},
    {start, stop},
};
enum { STEPS = sizeof steps / sizeof *steps };

static void close_sampler(struct nv_device *dev, struct sampler *s) {
  while (s->done--)
    if (steps[s->done].undo) steps[s->done].undo(dev, s);
  nv_memory_free(dev, &s->available);
  nv_memory_free(dev, &s->buffer);
  free(s);
}

int nv_sampler_open(db_pc_sampler *sampler) {
  struct nv_device *dev = nv_device(sampler->dev);
  const struct pma_chip *chip = pma_chip(dev->sm_version);
  if (!chip)
    return db_fail(-ENOTSUP,
                   "%s: not supported: PC sampling of %s, because its registers are not public; sm_86, sm_89 "
                   "and sm_120 are supported",
                   dev->base.name, dev->base.arch);
  if (!sampler->bytes || sampler->bytes > RM_PMA_BUFFER_MAX)
    return db_fail(-EINVAL, "%s: %zu bytes for PC samples; 1 to %zu are possible", dev->base.name, sampler->bytes,
                   (size_t)RM_PMA_BUFFER_MAX);
  struct sampler *s = calloc(1, sizeof *s);
  if (!s) return db_fail(-ENOMEM, "%s: out of host memory for a PC sampler", dev->base.name);
  s->chip = chip;
  int err = nv_memory_alloc(dev, sampler->bytes, NV_MEMORY_HOST, NULL, &s->buffer);
  if (!err) err = nv_memory_alloc(dev, RM_PMA_BYTES_SIZE, NV_MEMORY_READ_ONLY, NULL, &s->available);
  while (!err && s->done < STEPS) {
    err = steps[s->done].make(dev, s);
    s->done += !err;
  }
  if (err)
    close_sampler(dev, s);
  else
    sampler->hardware = s;
  return err;
}

void nv_sampler_close(db_pc_sampler *sampler) { close_sampler(nv_device(sampler->dev), sampler->hardware); }

/* ---- reading ---- */

/* Copies bytes of the ring, from where the last call ended. */
static void take(struct sampler *s, uint8_t *to, uint64_t n) {
  const uint8_t *ring = (const uint8_t *)(uintptr_t)s->buffer.va;
  uint64_t at = s->taken % s->buffer.size, first = s->buffer.size - at < n ? s->buffer.size - at : n;
  memcpy(to, ring + at, first);
  memcpy(to + first, ring, n - first);
  s->taken += n;
}

static int get_put(struct nv_device *dev, const struct sampler *s, struct rm_pma_get_put *p) {
  p->channel = s->channel;
  int rc = rm_ctrl(dev->machine, s->object, RM_CTRL_PMA_GET_PUT, p, sizeof *p);
  return result(dev, rc, "the position in the stream");
}

int nv_sampler_read(db_pc_sampler *sampler, struct db_pc_sample **out, size_t *n, uint64_t *lost) {
  struct nv_device *dev = nv_device(sampler->dev);
  struct sampler *s = sampler->hardware;
  struct rm_pma_get_put put = {.update = 1, .wait = 1};
  int err = get_put(dev, s, &put);
  if (err) return err;
  if (put.available > s->buffer.size || put.available % PMA_RECORD_BYTES)
    return db_fail(-EIO, "%s: PC sampling: the driver reports %llu bytes of records in %llu bytes of memory",
                   dev->base.name, (unsigned long long)put.available, (unsigned long long)s->buffer.size);
  uint8_t *stream = malloc(put.available + !put.available);
  if (!stream) return db_fail(-ENOMEM, "%s: out of host memory for PC samples", dev->base.name);
  take(s, stream, put.available);
  err = get_put(dev, s, &(struct rm_pma_get_put){.consumed = put.available});
  if (!err && put.overflow) err = write_one(dev, s, PMA_OF_GPU, s->chip->control, s->chip->clear);
  struct pma_samples samples = {0};
  if (!err) err = pma_decode(&samples, s->rest, stream, put.available, s->chip->format, s->known);
  free(stream);
  if (err) {
    pma_samples_free(&samples);
    return err;
  }
  *out = samples.sample, *n = samples.n;
  *lost = samples.dropped ? samples.dropped : put.overflow;
  return 0;
}

/* ---- methods ---- */

/* tinygrad writes the trigger before each kernel. Whether it lasts longer is not known. */
void nv_samples_trigger(db_queue *q) {
  push_wait_for_idle(&q->words);
  push_method(&q->words, NV_SUBCHANNEL_COMPUTE, NV_COMPUTE_PM_TRIGGER, 0);
}

int nv_samples_end(db_queue *q) {
  push_wait_for_idle(&q->words);
  return 0;
}
