/* PC sampling: the registers of the performance monitors that it uses, and the stream of their records to memory.
 *
 * An SM streams if everything has the value that is known to work on hardware (hcq/nv/pma/pma_wire.h): its monitor, its
 * GPC's router and credits, the aggregator, and the context. NVIDIA documents neither the values nor what others do, so
 * with any other value an SM streams nothing. A PM_TRIGGER in a channel of the context starts the sampling of the next
 * grid of that channel. How long it lasts on hardware is not documented; this is the least that a driver may rely on.
 */
#include <stdlib.h>
#include <string.h>
#include "../../../hcq/nv/rm_wire.h"
#include "engines.h"

int nv_pma_init(struct nv_engines *e) {
  pthread_mutex_init(&e->pma.lock, NULL);
  e->pma.sm = calloc(e->config.model->sms, sizeof *e->pma.sm);
  return e->pma.sm ? 0 : -1;
}

void nv_pma_free(struct nv_engines *e) {
  pthread_mutex_destroy(&e->pma.lock);
  free(e->pma.sm);
}

/* ---- registers ---- */

/* The registers of an SM's monitor, with the values that it must have; the id's depends on the SM. */
static const struct {
  uint32_t offset, value;
} monitor[NV_PMM_REGISTERS] = {
    {PMM_PERFMON_ID, 0},
    {PMM_EVENT_SEL, PMM_EVENTS},
    {PMM_TRIG0_SEL, PMM_TRIG0},
    {PMM_TRIG1_SEL, PMM_TRIG1},
    {PMM_EC, PMM_EC_VALUE},
    {PMM_ENGINE_SEL, PMM_STARTED_BY_TRIGGER},
    {PMM_CONTROL, PMM_CONTROL_VALUE},
    {PMM_108, PMA_GA_PMM_108},
};

/* Where an SM is. SMs are numbered GPC by GPC. */
struct place {
  unsigned gpc, tpc, sm, tpcs; /* tpcs: of the GPC */
};
static struct place place_of(const struct nv_model *m, uint32_t sm) {
  struct place p = {.sm = sm % m->sms_per_tpc, .tpc = sm / m->sms_per_tpc};
  uint32_t tpcs = m->sms / m->sms_per_tpc;
  for (;; p.gpc++) {
    p.tpcs = tpcs / m->gpcs + (p.gpc < tpcs % m->gpcs);
    if (p.tpc < p.tpcs) return p;
    p.tpc -= p.tpcs;
  }
}
static uint32_t id_of(const struct nv_model *m, uint32_t sm) {
  struct place p = place_of(m, sm);
  return pma_id(p.gpc, p.tpc, p.sm);
}

static bool has_registers(const struct nv_model *m) { return m->sm_version == 0x806 || m->sm_version == 0x809; }

static uint32_t *monitor_register(struct nv_engines *e, uint32_t offset) {
  const struct nv_model *m = e->config.model;
  for (uint32_t sm = 0; sm < m->sms; sm++) {
    struct place p = place_of(m, sm);
    uint32_t base = PMA_GA_PMM + p.gpc * PMA_GA_PMM_STRIDE + (m->tpcs_per_gpc - p.tpcs + p.tpc) * PMA_GA_PMM_UNIT +
                    (p.sm ? PMA_GA_PMM_SM1 : PMA_GA_PMM_SM0);
    for (unsigned i = 0; i < NV_PMM_REGISTERS; i++)
      if (offset == base + monitor[i].offset) return &e->pma.sm[sm].monitor[i];
  }
  return NULL;
}

/* Returns element (offset - first) / stride of an array of n registers, or NULL. */
static uint32_t *element(uint32_t *array, uint32_t n, uint32_t offset, uint32_t first, uint32_t stride) {
  uint32_t at = (offset - first) / stride;
  return offset >= first && at < n && (offset - first) % stride == 0 ? &array[at] : NULL;
}

static uint32_t *gpu_register(struct nv_engines *e, uint32_t offset) {
  struct nv_pma *p = &e->pma;
  uint32_t gpcs = e->config.model->gpcs, *at;
  if (offset == PMA_GA_CONTROL_USER) return &p->control;
  if (offset == PMA_GA_GPC + PMA_GPC_SAMPLING) return &p->sampling;
  if ((at = element(p->router, gpcs, offset, PMA_GA_ROUTER, PMA_GA_ROUTER_STRIDE))) return at;
  if ((at = element(p->word_65c, 2 * gpcs, offset, PMA_GA_65C, 4))) return at;
  return monitor_register(e, offset);
}

/* The only register of the context: which context is sampled. */
static unsigned context_op(struct nv_engines *e, const struct nv_channel_group *context, struct rm_reg_op *op,
                           bool dry) {
  uint32_t old = context && e->pma.context == context;
  if (op->offset != PMA_GA_GPC + PMA_GPC_CONTEXT_ENABLE) return RM_REG_INVALID_OFFSET;
  if (!context) return RM_REG_INVALID_TYPE;
  if (dry) return 0;
  if (op->op == RM_REG_READ_32)
    op->value = old;
  else if ((old & ~op->mask) | op->value)
    e->pma.context = context;
  else if (old)
    e->pma.context = NULL;
  return 0;
}

unsigned nv_pma_register(struct nv_engines *e, const struct nv_channel_group *context, struct rm_reg_op *op, bool dry) {
  if (op->op > RM_REG_WRITE_32) return RM_REG_UNSUPPORTED_OP;
  if (op->type > RM_REG_CONTEXT) return RM_REG_INVALID_TYPE;
  if (!has_registers(e->config.model)) return RM_REG_INVALID_OFFSET;
  unsigned status = 0;
  pthread_mutex_lock(&e->pma.lock);
  uint32_t *at = op->type == RM_REG_GLOBAL ? gpu_register(e, op->offset) : NULL;
  if (op->type == RM_REG_CONTEXT) {
    status = context_op(e, context, op, dry);
  } else if (!at) {
    status = RM_REG_INVALID_OFFSET;
  } else if (!dry && op->op == RM_REG_READ_32) {
    op->value = *at;
  } else if (!dry) {
    *at = (*at & ~op->mask) | op->value;
    if (at == &e->pma.control && *at & PMA_GA_CONTROL_CLEAR) e->pma.overflow = false;
  }
  pthread_mutex_unlock(&e->pma.lock);
  return status;
}

void nv_pma_credits(struct nv_engines *e, const uint16_t *credits) {
  pthread_mutex_lock(&e->pma.lock);
  memcpy(e->pma.credits, credits, e->config.model->gpcs * sizeof *credits);
  pthread_mutex_unlock(&e->pma.lock);
}

void nv_pma_forget(struct nv_channel_group *g) {
  struct nv_pma *p = &g->e->pma;
  pthread_mutex_lock(&p->lock);
  if (p->context == g) p->context = NULL;
  pthread_mutex_unlock(&p->lock);
}

/* ---- the stream ---- */

void nv_pma_attach(struct nv_engines *e, uint8_t *ring, uint64_t size) {
  struct nv_pma *p = &e->pma;
  pthread_mutex_lock(&p->lock);
  p->ring = ring, p->size = size, p->put = p->got = 0, p->overflow = false;
  pthread_mutex_unlock(&p->lock);
}

void nv_pma_reset(struct nv_engines *e) {
  struct nv_pma *p = &e->pma;
  pthread_mutex_lock(&p->lock);
  memset(p->sm, 0, e->config.model->sms * sizeof *p->sm);
  memset(p->router, 0, sizeof p->router);
  memset(p->word_65c, 0, sizeof p->word_65c);
  memset(p->credits, 0, sizeof p->credits);
  p->control = p->sampling = 0, p->context = NULL;
  pthread_mutex_unlock(&p->lock);
}

bool nv_pma_position(struct nv_engines *e, uint64_t consumed, struct nv_pma_position *out) {
  struct nv_pma *p = &e->pma;
  pthread_mutex_lock(&p->lock);
  bool valid = consumed <= p->put - p->got;
  if (valid) p->got += consumed;
  *out = (struct nv_pma_position){p->put - p->got, p->size ? p->put % p->size : 0, p->overflow};
  pthread_mutex_unlock(&p->lock);
  return valid;
}

/* Writes the first n bytes of an SM's data as a record. If there is no room, the samples that they are part of are
 * dropped. */
static void write_record(struct nv_pma *p, struct nv_pma_sm *sm, uint32_t id, unsigned n) {
  uint32_t dropped = sm->dropped < PMA_DROPPED_MAX ? sm->dropped : PMA_DROPPED_MAX;
  uint32_t header = BITS(PMA_BYTES, n) | BITS(PMA_DROPPED_L, dropped) | BITS(PMA_DROPPED_H, dropped >> 3) |
                    BITS(PMA_ID_L, id) | BITS(PMA_ID_H, id >> 8) | BITS(PMA_SD, dropped > 0);
  if (p->put - p->got + PMA_RECORD_BYTES > p->size) {
    sm->dropped += (sm->n + sizeof(uint64_t) - 1) / sizeof(uint64_t), sm->n = 0;
    p->overflow = true;
    return;
  }
  uint8_t *at = p->ring + p->put % p->size; /* the size is a multiple of a record's */
  memset(at, 0, PMA_RECORD_BYTES);
  memcpy(at, sm->data, n < PMA_HEADER_AT ? n : PMA_HEADER_AT);
  memcpy(at + PMA_HEADER_AT, &header, sizeof header);
  if (n > PMA_HEADER_AT) memcpy(at + PMA_HEADER_AT + 4, sm->data + PMA_HEADER_AT, n - PMA_HEADER_AT);
  p->put += PMA_RECORD_BYTES;
  sm->dropped = 0, sm->n -= n;
  memmove(sm->data, sm->data + n, sm->n);
}

static bool streams(const struct nv_engines *e, uint32_t sm) {
  const struct nv_pma *p = &e->pma;
  struct place at = place_of(e->config.model, sm);
  bool known = p->sampling == PMA_GPC_SAMPLING_VALUE && p->control == PMA_GA_CONTROL_VALUE && p->credits[at.gpc] &&
               p->router[at.gpc] & PMA_GA_ROUTER_STREAM;
  for (unsigned i = 0; i < 2 * e->config.model->gpcs; i++) known &= p->word_65c[i] == UINT32_MAX;
  for (unsigned i = 0; i < NV_PMM_REGISTERS; i++)
    known &=
        p->sm[sm].monitor[i] == (monitor[i].offset == PMM_PERFMON_ID ? id_of(e->config.model, sm) : monitor[i].value);
  return known;
}

void nv_pma_sample(struct nv_engines *e, uint32_t sm, const struct sm_sample *s) {
  static const uint8_t reasons[SM_STALLS] = {
      [SM_ISSUED] = PMA_STALL_SELECTED,
      [SM_STALL_WAIT] = PMA_STALL_WAIT,
      [SM_STALL_SHORT_SCOREBOARD] = PMA_STALL_SHORT_SCOREBOARD,
      [SM_STALL_LONG_SCOREBOARD] = PMA_STALL_LONG_SCOREBOARD,
      [SM_STALL_CONSTANT] = PMA_STALL_CONSTANT,
      [SM_STALL_BARRIER] = PMA_STALL_BARRIER,
  };
  struct nv_pma_sm *to = &e->pma.sm[sm];
  uint64_t sample = pma_sample8(s->pc, reasons[s->stall], s->warp, s->stall == SM_ISSUED);
  pthread_mutex_lock(&e->pma.lock);
  if (to->streams) {
    memcpy(to->data + to->n, &sample, sizeof sample);
    to->n += sizeof sample;
    if (to->n >= PMA_DATA_BYTES) write_record(&e->pma, to, id_of(e->config.model, sm), PMA_DATA_BYTES);
  }
  pthread_mutex_unlock(&e->pma.lock);
}

bool nv_pma_begin(struct nv_channel *ch) {
  struct nv_engines *e = ch->e;
  bool triggered = ch->triggered;
  ch->triggered = false;
  if (!triggered) return false;
  pthread_mutex_lock(&e->pma.lock);
  bool on = e->pma.context == ch->group && e->pma.size;
  for (uint32_t i = 0; i < e->config.model->sms && on; i++) e->pma.sm[i].streams = streams(e, i);
  pthread_mutex_unlock(&e->pma.lock);
  return on;
}

void nv_pma_end(struct nv_engines *e) {
  pthread_mutex_lock(&e->pma.lock);
  for (uint32_t i = 0; i < e->config.model->sms; i++) {
    struct nv_pma_sm *sm = &e->pma.sm[i];
    if (sm->n || sm->dropped) write_record(&e->pma, sm, id_of(e->config.model, i), sm->n);
  }
  pthread_mutex_unlock(&e->pma.lock);
}
