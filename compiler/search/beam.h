/* A beam search over one kernel's plans (compiler/plan/plan.h).
 *
 * Each round proposes variants of the best plans so far: with one more step, with another amount of one step, or
 * without one step. The caller has beam_compile compile their kernels, measures these, and reports their times with
 * beam_measured. The search itself uses no device. Given the same times, it proposes the same plans.
 *
 * Two searches run side by side: one starts from the optimizer's plan, one from the empty plan. */
#ifndef DOORBELL_COMPILER_BEAM_H
#define DOORBELL_COMPILER_BEAM_H
#include "../compiler.h"

struct beam_options {
  unsigned width;     /* number of best plans of each search that the next round varies; at least 1 */
  unsigned proposals; /* maximum number of plans per round; 0: 8 for each plan that it varies, plus 8 */
  unsigned rounds;    /* maximum number of rounds; 0: 24 */
  unsigned threads;   /* compiling threads; 0: one for each processor */
  const char *plan;   /* best plan of an earlier search, or NULL; tried in the first round if it fits */
};

struct beam;
/* Returns a key of the ast, the target and the plans that may be proposed. It is equal for equal kernels and targets in
 * every process. */
uint64_t beam_key(const struct target *t, struct uop *ast, bool tf32);
/* o: options of the compiler that will build the kernel; its caches are not used. Returns NULL and writes err if the
 * kernel does not compile or memory runs out. */
struct beam *beam_new(const struct compiler_options *o, const struct target *t, struct uop *ast,
                      const struct beam_options *b, char *err, size_t errcap);
void beam_free(struct beam *b);
const char *beam_shape(const struct beam *b); /* the kernel's name before optimization steps */

/* Returns the number of plans in the next round, and the plans in *plans, valid until the next round. 0 ends the
 * search. Each plan is possible, and its code differs from that of all plans proposed before. The first plan of the
 * first round is the optimizer's. Plans that are estimated to be much slower than this one are not returned, but the
 * search varies them too. *again is set in the last round: it repeats the optimizer's plan, as the first one, and the
 * fastest plans, which should be measured with more care. */
unsigned beam_round(struct beam *b, const char *const **plans, bool *again);
/* Compiles the plans of the round in parallel threads. Returns a kernel per plan, NULL for a plan that does not
 * compile; valid until beam_free. Returns NULL if memory runs out. */
const struct kernel *const *beam_compile(struct beam *b);
/* seconds[i]: time of plan i of the round, or INFINITY if the plan cannot be used or its measurement was stopped
 * early. */
void beam_measured(struct beam *b, const double *seconds);
/* Returns the fastest plan so far, or NULL if none was measured. The optimizer's plan wins unless another plan is more
 * than 1 % faster. Sets *seconds to its time if seconds is not NULL. */
const char *beam_best(const struct beam *b, double *seconds);
#endif
