/* The register operations that start PC sampling on a GPU. */
#ifndef DOORBELL_HCQ_NV_PMA_REGISTERS_H
#define DOORBELL_HCQ_NV_PMA_REGISTERS_H
#include <stdbool.h>
#include "../rm_wire.h"
#include "pma_wire.h"

enum { PMA_GPCS = 32 };
/* The GPCs that have a TPC. */
struct pma_shape {
  unsigned gpcs, tpcs[PMA_GPCS]; /* tpcs: after floor-sweeping */
  unsigned tpcs_per_gpc;         /* before */
  unsigned sms_per_tpc;
};

/* Operations in the order in which they must be executed. */
struct pma_ops { /* zero-initialized */
  struct rm_reg_op *op;
  unsigned n, cap;
  unsigned first; /* number of operations to execute before the GPCs get their credits */
  bool failed;    /* host memory ran out */
};
/* A family of chips whose registers are known. */
struct pma_chip {
  enum pma_format format;
  uint32_t context_enable; /* register of the context: 1 while it is sampled */
  uint32_t control, clear; /* register and the value that clears the overflow */
  void (*setup)(struct pma_ops *ops, const struct pma_shape *shape);
};
/* Returns the family of an SM version as RM reports it (0x806), or NULL if its registers are not known. */
const struct pma_chip *pma_chip(uint32_t sm_version);
enum pma_scope { PMA_OF_GPU, PMA_OF_CONTEXT };
/* A write of a register of the GPU or of the context. */
static inline struct rm_reg_op pma_op(enum pma_scope scope, uint32_t offset, uint32_t mask, uint32_t value) {
  return (struct rm_reg_op){.op = RM_REG_WRITE_32,
                            .type = scope == PMA_OF_CONTEXT ? RM_REG_CONTEXT : RM_REG_GLOBAL,
                            .offset = offset,
                            .value = value,
                            .mask = mask};
}
/* Adds such a write. */
void pma_write(struct pma_ops *ops, enum pma_scope scope, uint32_t offset, uint32_t mask, uint32_t value);
#endif
