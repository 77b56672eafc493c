/* How exactly each instruction is executed. The builder decides whether a row executes, so the report cannot claim that
 * a missing instruction executes. The approximate ones and their error bounds are listed below;
 * tests/emu/test_rdna3_isa.c measures them. */
#define _GNU_SOURCE
#include "rdna3_isa.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rdna3_exec.h"

#define DOT "sums are rounded to f32 after each product; hardware's order is not public"
static const struct {
  uint16_t row;
  float ulp;
  const char *note;
} approximate[] = {
    /* Computed in double and rounded once. RDNA3's documents guarantee 1 ulp for f32. */
    {RDNA3_VOP1_v_exp_f32, 0.51f, "denormals are zero"},
    {RDNA3_VOP1_v_log_f32, 0.51f, "denormals are zero"},
    {RDNA3_VOP1_v_rcp_f32, 0.5f, "denormals are zero"},
    {RDNA3_VOP1_v_rcp_iflag_f32, 0.5f, "denormals are zero"},
    {RDNA3_VOP1_v_rsq_f32, 0.51f, "denormals are zero"},
    {RDNA3_VOP1_v_sqrt_f32, 0.5f, "denormals are zero"},
    {RDNA3_VOP1_v_sin_f32, 0.51f, "argument in turns, denormals are zero"},
    {RDNA3_VOP1_v_cos_f32, 0.51f, "argument in turns, denormals are zero"},
    {RDNA3_VOP1_v_exp_f16, 0.51f, ""},
    {RDNA3_VOP1_v_log_f16, 0.51f, ""},
    {RDNA3_VOP1_v_rcp_f16, 0.51f, ""},
    {RDNA3_VOP1_v_rsq_f16, 0.51f, ""},
    {RDNA3_VOP1_v_sqrt_f16, 0.51f, ""},
    {RDNA3_VOP1_v_sin_f16, 0.51f, "argument in turns"},
    {RDNA3_VOP1_v_cos_f16, 0.51f, "argument in turns"},
    {RDNA3_VOP1_v_rcp_f64, 0.5f, "hardware is less accurate"},
    {RDNA3_VOP1_v_rsq_f64, 1.51f, "hardware is less accurate"},
    {RDNA3_VOP1_v_sqrt_f64, 0.5f, "hardware is less accurate"},
    {RDNA3_VOP2_v_dot2acc_f32_f16, 0, DOT},
    {RDNA3_VOPD_X_v_dual_dot2acc_f32_f16, 0, DOT},
    {RDNA3_VOPD_Y_v_dual_dot2acc_f32_f16, 0, DOT},
    {RDNA3_VOP3P_v_dot2_f32_f16, 0, DOT},
    {RDNA3_VOP3P_v_dot2_f32_bf16, 0, DOT},
    {RDNA3_VOP3_v_dot2_f16_f16, 0, DOT},
    {RDNA3_VOP3_v_dot2_bf16_bf16, 0, DOT},
    {RDNA3_VOP3P_v_wmma_f32_16x16x16_f16, 0, DOT},
    {RDNA3_VOP3P_v_wmma_f32_16x16x16_bf16, 0, DOT},
    {RDNA3_VOP3P_v_wmma_f16_16x16x16_f16, 0, DOT},
    {RDNA3_VOP3P_v_wmma_bf16_16x16x16_bf16, 0, DOT},
    {RDNA3_SOPP_s_trap, 0, "no trap handler: ends the wave with a trap fault"},
    {RDNA3_SOPP_s_sethalt, 0, "halting ends the wave with a trap fault"},
    {RDNA3_SOPP_s_sendmsg, 0, "the messages of compute shaders have no effect"},
    {RDNA3_SOP1_s_sendmsg_rtn_b32, 0, "the real time is the emulated device's; doorbell and trap addresses are 0"},
    {RDNA3_SOP1_s_sendmsg_rtn_b64, 0, "the real time is the emulated device's; doorbell and trap addresses are 0"},
    {RDNA3_SOPK_s_getreg_b32, 0, "cycles count instructions; identities are those of one shader array"},
};

/* Returns true if the builder can build these words. */
static bool executes(const uint32_t *dw, unsigned size, bool wave64) {
  struct rdna3_inst inst[2] = {{0}, {.pc = size, .size = 4}};
  struct rdna3_trace t = {.code.end = size, .mode = 0x3f0, .wave64 = wave64, .inst = inst, .insts = 1};
  if (!rdna3_decode_wave(dw, 4, 0, wave64, &inst[0])) return false;
  bool ok = !rdna3_build(&t) && t.uops && t.uop[0].fn != rdna3_exec_illegal;
  free(t.uop_of), free(t.pool);
  return ok;
}

struct rdna3_isa rdna3_isa(enum rdna3_row row) {
  const struct rdna3_op *op = &rdna3_ops[row];
  uint32_t dw[4];
  rdna3_init();
  unsigned size = rdna3_example(row, dw);
  if (!size) return (struct rdna3_isa){RDNA3_MISSING, 0, "graphics"};
  if (row == RDNA3_SOPP_s_code_end) return (struct rdna3_isa){RDNA3_EXACT, 0, "an illegal instruction by definition"};
  bool pair = op->format == RDNA3_VOPD_X || op->format == RDNA3_VOPD_Y;
  if (!executes(dw, size, false) || (!pair && !executes(dw, size, true)))
    return (struct rdna3_isa){RDNA3_MISSING, 0, op->flags & F_COMPUTE ? "" : "not available to compute shaders"};
  for (size_t i = 0; i < sizeof approximate / sizeof *approximate; i++)
    if (approximate[i].row == row)
      return (struct rdna3_isa){RDNA3_APPROXIMATE, (double)approximate[i].ulp, approximate[i].note};
  return (struct rdna3_isa){RDNA3_EXACT, 0, ""};
}

char *rdna3_isa_report(const char *gpu) {
  if (strcmp(gpu, "gfx1100") != 0) return NULL;
  static const char *const words[] = {"exact", "approximate", "missing"};
  unsigned total[2][3] = {{0}};
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  if (!f) return NULL;
  for (unsigned row = 0; row < RDNA3_ROW_COUNT; row++) {
    const struct rdna3_op *op = &rdna3_ops[row];
    struct rdna3_isa isa = rdna3_isa((enum rdna3_row)row);
    bool compute = op->flags & F_COMPUTE;
    total[compute][isa.fidelity]++;
    fprintf(f, "%-7s %-34s %s", rdna3_format_names[op->format], op->name, words[isa.fidelity]);
    if (isa.ulp != 0) fprintf(f, ", within %.2f ulp", isa.ulp);
    fprintf(f, "%s%s\n", *isa.note ? ": " : "", isa.note);
  }
  for (int compute = 1; compute >= 0; compute--)
    fprintf(f, "%s: %u exact, %u approximate, %u missing\n", compute ? "compute" : "other", total[compute][0],
            total[compute][1], total[compute][2]);
  bool failed = ferror(f);
  if (fclose(f) || failed) {
    free(text);
    return NULL;
  }
  return text;
}
