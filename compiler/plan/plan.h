/* A kernel's plan: the list of optimization steps that builds it, as data and as text.
 *
 * The text lists the steps in the order in which they are applied, separated by semicolons:
 *
 *     merge a b; vector c:8; upcast a:4; unroll d:4; thread a:16
 *
 * Axes have letters a, b, c, ... z, A, ... V in the order of the kernel's own axes, which DEBUG=3 prints: first those
 * of the outputs (loop, then serial), then those of the reductions (reduce). A split leaves the name to the outer part.
 * The inner parts of axis c are named c1, c2, ... in the order in which they are split off. `vector c:8` splits c into
 * c and c1, its 8 lanes; a later `local c:32` splits c into c and c2. If the outer part has size 1, c disappears and
 * only c1 remains. `merge a b` leaves a. A part can be split like any axis: `serial c:64; vector c1:8` makes c, c1 and
 * c2.
 *
 * The plan of a kernel of several parts has a section for each part, separated by `|`. The plan of a kernel of phases
 * has a section for the axes around the phases, which become workgroups or loops, and then one for each phase. */
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
  char letter;  /* 0: no name */
  uint8_t part; /* 0: the axis itself; n: its n-th split-off part */
};
enum { MAX_STAGED = 16 };
struct step {
  uint8_t kind;
  struct axis_name axis, other; /* other: the second axis of a step that takes two */
  uint16_t column;              /* column in the text that it was parsed from; 0 if it was not parsed */
  int64_t amount;               /* STAGE: the argument's slot; MATRIX: the row in matrix.def */
  struct axis_name list[MAX_STAGED];
  uint8_t nlist;
};
enum { MAX_STEPS = 128 };
struct plan {
  unsigned n;
  struct step step[MAX_STEPS];
};

const char *step_word(enum step_kind kind);
const char *step_arguments(enum step_kind kind); /* a letter for each argument: steps.def */

static inline bool plan_has(const struct plan *p, enum step_kind kind) {
  bool found = false;
  for (unsigned i = 0; i < p->n; i++) found = found || p->step[i].kind == kind;
  return found;
}

void step_print(FILE *f, const struct step *s);
void plan_print(FILE *f, const struct plan *p);
/* Parses a plan up to the end of the text, the end of the line or `|`, and returns a pointer to where it stopped.
 * Returns NULL on a syntax error; err then names the wrong word and its column. The axes are not checked here: applying
 * a step shows whether it is possible. */
const char *plan_parse(struct plan *p, const char *text, char *err, size_t errcap);

/* Checks the syntax of the sections of a plan, up to the end of the text or line. On failure err is that of
 * plan_parse. */
bool plan_check_sections(const char *text, char *err, size_t errcap);

/* Finds the line for a kernel among plans given by hand, one per line (compiler_options.plan): "NAME = plan", "NUMBER =
 * plan", or a plan for every kernel. A line that names the kernel takes precedence over one for every kernel. Returns
 * the text after `=`, or NULL if there is none. Sets *named to whether the line names the kernel. */
const char *plan_line(const char *lines, const char *name, unsigned number, bool *named);

/* A mark for each line shows whether its kernel was compiled. plan_mark_lines marks the lines that name this kernel,
 * plan_print_unmarked prints a message for each other line that names a kernel. */
unsigned plan_count_lines(const char *lines);
void plan_mark_lines(const char *lines, const char *name, unsigned number, bool *marks);
void plan_print_unmarked(FILE *f, const char *lines, const bool *marks);

/* Checks the syntax of plans given by hand. On failure err names the line, the column and the word that is wrong. */
bool plan_check(const char *lines, char *err, size_t errcap);
#endif
