/* CUSTOM: the launch of a kernel that the user brings. Each result of a launch is a node of its own. The results of one
 * launch have the same sources except for the sizes and CUSTOM_RESULT, so the scheduler finds that they belong
 * together.
 *
 * The sources are the inputs, the sizes of the result, and numbers (CONST of DT_INDEX): those of enum custom_number,
 * then the type and the number of elements of each result, then two numbers for each parameter of the kernel. */
#ifndef DOORBELL_GRAPH_CUSTOM_H
#define DOORBELL_GRAPH_CUSTOM_H
#include "uop.h"

enum custom_number {
  CUSTOM_RESULT, /* which result of the launch the node is, from 0 */
  CUSTOM_RESULTS,
  CUSTOM_PARAMS,
  CUSTOM_GRID, /* 3 numbers: workgroups */
  CUSTOM_BLOCK = CUSTOM_GRID + 3,
  CUSTOM_NUMBERS = CUSTOM_BLOCK + 3
};
/* The first number of a parameter. The second is the number of an input or a result, or the bits of a value. An UPDATED
 * parameter is a result that contains an input when the kernel starts: result & UINT32_MAX, input << 32. */
enum custom_param { CUSTOM_PARAM_INPUT, CUSTOM_PARAM_RESULT, CUSTOM_PARAM_UPDATED, CUSTOM_PARAM_VALUE };

/* arg: the program, a number that the frontend chose, << 16 | inputs << 8 | sizes. */
static inline union uop_arg custom_arg(int64_t program, unsigned inputs, unsigned rank) {
  return (union uop_arg){.i = program << 16 | inputs << 8 | rank};
}
static inline int64_t custom_program(const struct uop *u) { return u->arg.i >> 16; }
static inline unsigned custom_inputs(const struct uop *u) { return (unsigned)(u->arg.i >> 8) & 255; }
static inline unsigned custom_rank(const struct uop *u) { return (unsigned)u->arg.i & 255; }
static inline unsigned custom_numbers(const struct uop *u) { return u->nsrc - custom_inputs(u) - custom_rank(u); }
static inline int64_t custom_number(const struct uop *u, unsigned i) {
  return u->src[custom_inputs(u) + custom_rank(u) + i]->arg.i;
}
static inline enum dtype custom_result_type(const struct uop *u, unsigned result) {
  return (enum dtype)custom_number(u, CUSTOM_NUMBERS + 2 * result);
}
static inline int64_t custom_result_size(const struct uop *u, unsigned result) {
  return custom_number(u, CUSTOM_NUMBERS + 2 * result + 1);
}
/* The index of the first number of parameter i. */
static inline unsigned custom_param_at(const struct uop *u, unsigned i) {
  return CUSTOM_NUMBERS + 2 * (unsigned)custom_number(u, CUSTOM_RESULTS) + 2 * i;
}
#endif
