/* Kernels of several parts or phases: collects the axes of each, and applies a plan that has a section for each. */
#include "internal.h"
#include <stdlib.h>

static bool verify(struct codegen *k) {
  char why[256];
  if (!k->spec || !uop_verify(&k->ast, 1, STAGE_KERNEL, why, sizeof why)) return true;
  return codegen_fail(k, "%s", why);
}

static bool collect_axes(struct codegen *k) {
  k->stage = "collect";
  if (!verify(k) || !axes_collect(k)) return false;
  codegen_name(k);
  return true;
}

/* Collects phase i with the current axes around it. */
static bool collect_axes_of_phase(struct codegen *k, unsigned i) {
  struct codegen *p = &k->parts[i];
  *p = (struct codegen){.g = k->g,
                        .target = k->target,
                        .ast = k->ast->src[i],
                        .is_phase = true,
                        .around = k,
                        .err = k->err,
                        .errcap = k->errcap};
  p->stage = "collect";
  if (!axes_collect_phase(p, k)) return false;
  codegen_name(p);
  return true;
}

/* Adds the arguments of part p to those of the kernel. */
static bool join_params(struct codegen *k, const struct codegen *p) {
  for (unsigned s = 0; s < p->nparams; s++) {
    if (!p->params[s].is_buffer) return codegen_fail(k, "a part depends on a variable");
    if (p->params[s].uop) k->params[s].uop = p->params[s].uop;
  }
  if (p->nparams > k->nparams) k->nparams = p->nparams;
  for (unsigned s = 0; s < k->nparams; s++) k->params[s].is_buffer = true;
  return true;
}

static void name_parts(struct codegen *k) {
  snprintf(k->name, sizeof k->name, "%.48s_p%u", k->parts[0].name, k->nparts);
}

static bool collect_axes_of_phases(struct codegen *k) {
  if (!verify(k)) return false;
  if (!axes_collect_shared(k)) return false;
  k->nparts = k->ast->nsrc - k->naxes;
  k->parts = calloc(k->nparts + 1, sizeof *k->parts);
  if (!k->parts || !k->nparts) return codegen_fail(k, "out of memory");
  for (unsigned i = 0; i < k->nparts; i++)
    if (!collect_axes_of_phase(k, i) || !join_params(k, &k->parts[i])) return false;
  name_parts(k);
  return true;
}

static bool collect_axes_of_parts(struct codegen *k) {
  k->nparts = k->ast->nsrc;
  k->parts = calloc(k->nparts, sizeof *k->parts);
  if (!k->parts) return codegen_fail(k, "out of memory");
  for (unsigned i = 0; i < k->nparts; i++) {
    struct codegen *p = &k->parts[i];
    *p = (struct codegen){.g = k->g,
                          .target = k->target,
                          .ast = k->ast->src[i],
                          .is_part = true,
                          .spec = k->spec,
                          .tf32 = k->tf32,
                          .err = k->err,
                          .errcap = k->errcap};
    if (!collect_axes(p) || !join_params(k, p)) return false;
  }
  name_parts(k);
  return true;
}

bool kernel_collect(struct codegen *k) {
  k->stage = "collect";
  if (uop_is_phased(k->ast)) return collect_axes_of_phases(k);
  bool several = k->ast->op == OP_SINK && k->ast->nsrc && k->ast->src[0]->op == OP_SINK;
  return several ? collect_axes_of_parts(k) : collect_axes(k);
}

unsigned kernel_sections(const struct codegen *k) { return k->nparts + (uop_is_phased(k->ast) || !k->nparts); }

struct codegen *kernel_section(struct codegen *k, unsigned i) {
  const bool phased = uop_is_phased(k->ast);
  if (!k->nparts || (phased && !i)) return k;
  k->stage = "plan";
  if (phased && !collect_axes_of_phase(k, i - 1)) return NULL;
  struct codegen *p = &k->parts[i - phased];
  p->steps = k->steps, p->spec = k->spec, p->tf32 = k->tf32;
  return p;
}

/* Applies the section of a plan at *text, or chooses one if *text is NULL. Advances *text to the end of the section. */
static bool plan_section(struct codegen *k, const char **text) {
  char why[384];
  struct plan given;
  if (!*text) {
    if (!optimize(k)) return false;
  } else {
    k->stage = "plan";
    if (!(*text = plan_parse(&given, *text, why, sizeof why))) return codegen_fail(k, "%s", why);
    if (!plan_apply(k, &given)) return false;
  }
  codegen_name(k);
  return verify(k);
}

bool kernel_plan(struct codegen *k, const char *text) {
  const unsigned n = kernel_sections(k);
  for (unsigned i = 0; i < n; i++) {
    struct codegen *p = kernel_section(k, i);
    if (!p) return false;
    if (i && text) {
      if (*text != '|') return codegen_fail(k, "the plan has %u of %u sections", i, n);
      text++;
    }
    if (!plan_section(p, &text)) {
      k->stage = p->stage;
      return false;
    }
  }
  if (text && *text == '|') return codegen_fail(k, "the plan has more than %u sections", n);
  if (k->nparts) name_parts(k);
  return true;
}
