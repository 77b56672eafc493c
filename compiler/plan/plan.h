/* A kernel's plan: the list of optimization steps that it is built by, as data and as text.
 *
 * The text is steps with semicolons between them, in the order in which they are applied:
 *
 *     merge a b; vector c:8; upcast a:4; unroll d:4; thread a:16
 *
 * Axes have letters: a, b, c, ... z, A, ... V in the order of the kernel's own axes, which DEBUG=3 prints: first those
 * of the outputs (loop, then serial), then those of the reductions (reduce). A split leaves the outer part its name and
 * names the inner parts of axis c: c1, c2, ... in the order in which they are split off. `vector c:8` splits c into c
 * and c1, its 8 lanes; `local c:32` after it splits c into c and c2. When nothing is left outside, c is gone and only
 * c1 is there. `merge a b` leaves a. A part can be split like any axis: `serial c:64; vector c1:8` makes c, c1 and c2.
 *
 * Each part of a kernel of several has a plan of its own; `|` is between them. So has each phase, behind the plan of
 * the axes around the phases, which become workgroups or loops. */
#ifndef DOORBELL_COMPILER_PLAN_H
#define DOORBELL_COMPILER_PLAN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum step_kind {
#define STEP(name, word, arguments, loop, serial, reduce, doc) STEP_##name,
#include "steps.def"
#undef STEP
  STEP_COUNT
};

struct axis_name {
  char letter;  /* 0: none */
  uint8_t part; /* 0: the axis that no step has split off */
};
enum { MAX_STAGED = 16 };
struct step {
  uint8_t kind;
  struct axis_name axis, other; /* other: the second of a step that takes two */
  uint16_t column;              /* where it stands in the text it was read from; 0: it was read from none */
  int64_t amount;               /* of a STAGE: the argument's slot; of a MATRIX: the row in matrix.def */
  struct axis_name list[MAX_STAGED];
  uint8_t nlist;
};
enum { MAX_STEPS = 128 };
struct plan {
  unsigned n;
  struct step step[MAX_STEPS];
};

const char *step_word(enum step_kind kind);
const char *step_arguments(enum step_kind kind); /* a letter for each: steps.def */

void step_print(FILE *f, const struct step *s);
void plan_print(FILE *f, const struct plan *p);
/* Reads a plan up to the end of the text, a line's end or `|`, and returns where that is. NULL: err names the word that
 * is wrong and its column. The axes are not known here: whether the steps are possible shows when they are applied. */
const char *plan_parse(struct plan *p, const char *text, char *err, size_t errcap);

/* Plans given by hand, one a line (compiler_options.plan): "NAME = plan", "NUMBER = plan", or a plan for every kernel.
 * The line for a kernel, behind its `=`; NULL: none. One that names the kernel wins over one that does not. */
const char *plan_line(const char *lines, const char *name, unsigned number, bool *named);
#endif
