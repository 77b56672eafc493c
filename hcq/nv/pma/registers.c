#include "registers.h"
#include <stdlib.h>

void pma_write(struct pma_ops *ops, enum pma_scope scope, uint32_t offset, uint32_t mask, uint32_t value) {
  if (ops->n == ops->cap) {
    unsigned cap = ops->cap ? 2 * ops->cap : RM_REG_OPS_MAX;
    struct rm_reg_op *op = realloc(ops->op, cap * sizeof *op);
    if (!op) {
      ops->failed = true;
      return;
    }
    ops->op = op, ops->cap = cap;
  }
  ops->op[ops->n++] = pma_op(scope, offset, mask, value);
}

static void set(struct pma_ops *ops, uint32_t offset, uint32_t value) {
  pma_write(ops, PMA_OF_GPU, offset, UINT32_MAX, value);
}

/* The performance monitor of an SM, which reports as id. */
static void set_monitor(struct pma_ops *ops, uint32_t base, uint32_t id, uint32_t value_108) {
  set(ops, base + PMM_PERFMON_ID, id);
  set(ops, base + PMM_EVENT_SEL, PMM_EVENTS);
  set(ops, base + PMM_TRIG0_SEL, PMM_TRIG0);
  set(ops, base + PMM_TRIG1_SEL, PMM_TRIG1);
  set(ops, base + PMM_EC, PMM_EC_VALUE);
  set(ops, base + PMM_ENGINE_SEL, PMM_STARTED_BY_TRIGGER);
  set(ops, base + PMM_CONTROL, PMM_CONTROL_VALUE);
  set(ops, base + PMM_108, value_108);
}

static void setup_ga(struct pma_ops *ops, const struct pma_shape *s) {
  for (unsigned g = 0; g < s->gpcs; g++)
    pma_write(ops, PMA_OF_GPU, PMA_GA_ROUTER + g * PMA_GA_ROUTER_STRIDE, PMA_GA_ROUTER_STREAM, PMA_GA_ROUTER_STREAM);
  ops->first = ops->n;
  for (unsigned i = 0; i < 2 * s->gpcs; i++) set(ops, PMA_GA_65C + 4 * i, UINT32_MAX);
  set(ops, PMA_GA_CONTROL_USER, PMA_GA_CONTROL_VALUE);
  set(ops, PMA_GA_GPC + PMA_GPC_SAMPLING, PMA_GPC_SAMPLING_VALUE);
  for (unsigned g = 0; g < s->gpcs; g++)
    for (unsigned t = 0; t < s->tpcs[g]; t++)
      for (unsigned sm = 0; sm < s->sms_per_tpc; sm++) {
        uint32_t unit = s->tpcs_per_gpc - s->tpcs[g] + t;
        uint32_t base = PMA_GA_PMM + g * PMA_GA_PMM_STRIDE + unit * PMA_GA_PMM_UNIT;
        set_monitor(ops, base + (sm ? PMA_GA_PMM_SM1 : PMA_GA_PMM_SM0), pma_id(g, t, sm), PMA_GA_PMM_108);
      }
}

static void setup_gb(struct pma_ops *ops, const struct pma_shape *s) {
  static const uint32_t of_tpc[] = {0x100, 0x108, 0x110, 0x120};
  for (uint32_t i = 0; i < PMA_GB_1128_PAIRS; i++) {
    set(ops, PMA_GB_1128 + 8 * i, PMA_GB_1128_FIRST);
    set(ops, PMA_GB_1128 + 8 * i + 4, PMA_GB_1128_SECOND);
  }
  set(ops, PMA_GB_CONFIG_USER, PMA_GB_CONFIG_VALUE);
  set(ops, PMA_GB_CONTROL_USER, PMA_GB_CONTROL_VALUE);
  for (unsigned g = 0; g < s->gpcs; g++)
    for (unsigned t = 0; t < s->tpcs[g]; t++)
      for (unsigned i = 0; i < sizeof of_tpc / sizeof *of_tpc; i++)
        set(ops, PMA_GB_PMM + g * PMA_GB_PMM_STRIDE + PMA_GB_PMM_TPC + t * PMA_GB_PMM_UNIT + of_tpc[i], 0);
  set(ops, PMA_GB_GPC + PMA_GPC_SAMPLING, PMA_GPC_SAMPLING_VALUE);
  for (unsigned g = 0; g < s->gpcs; g++)
    for (unsigned t = 0; t < s->tpcs[g]; t++)
      for (unsigned sm = 0; sm < s->sms_per_tpc; sm++) {
        uint32_t unit = t * s->sms_per_tpc + sm;
        uint32_t base = PMA_GB_PMM + g * PMA_GB_PMM_STRIDE + PMA_GB_PMM_SM + unit * PMA_GB_PMM_UNIT;
        set_monitor(ops, base, pma_id(g, t, sm), PMA_GB_PMM_108);
        set(ops, base + PMM_120, PMA_GB_PMM_120);
      }
}

const struct pma_chip *pma_chip(uint32_t sm_version) {
  static const struct pma_chip ga = {PMA_SAMPLES_8, PMA_GA_GPC + PMA_GPC_CONTEXT_ENABLE, PMA_GA_CONTROL_USER,
                                     PMA_GA_CONTROL_VALUE, setup_ga},
                               gb = {PMA_SAMPLES_9, PMA_GB_GPC + PMA_GPC_CONTEXT_ENABLE, PMA_GB_CONTROL_USER,
                                     PMA_GB_CONTROL_VALUE, setup_gb};
  static const struct {
    uint32_t sm_version;
    const struct pma_chip *chip;
  } chips[] = {{0x806, &ga}, {0x809, &ga}, {0xa04, &gb}, {0xc00, &gb}};
  for (unsigned i = 0; i < sizeof chips / sizeof *chips; i++)
    if (chips[i].sm_version == sm_version) return chips[i].chip;
  return NULL;
}
