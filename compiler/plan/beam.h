/* A beam search over one kernel's plans (compiler/plan/plan.h).
 *
 * A round proposes plans: each of the best plans so far with one more step, with another amount of one of its steps, or
 * without one of them. The caller has beam_compile make their kernels, measures these and says with beam_measured what
 * they took. What measures is the caller's business, so that no device is known here; given the same times, a search
 * proposes the same plans.
 *
 * Two searches run side by side: one from the plan that the optimizer chooses, one from the plan without a step. */
#ifndef DOORBELL_COMPILER_BEAM_H
#define DOORBELL_COMPILER_BEAM_H
#include "../compiler.h"

struct beam_options {
  unsigned width;     /* the best plans of each search, which the next round varies; at least 1 */
  unsigned proposals; /* the most plans that one round proposes; 0: 8 for each plan that it varies, and 8 */
  unsigned rounds;    /* the most rounds; 0: 24 */
  unsigned threads;   /* compiling threads; 0: one for each processor */
  const char *plan;   /* an earlier search's best plan, tried beside the optimizer's as far as it fits; or NULL */
};

struct beam;
/* Whether there is anything to search for: kernels of several parts are built as the optimizer says. */
bool beam_possible(struct uop *ast);
/* Equal for equal kernels on machines of equal targets, in every process: of the ast, the target and what plans may be
 * proposed. */
uint64_t beam_key(const struct target *t, struct uop *ast);
/* o: as for the compiler that will build the kernel; its caches are not used. NULL after a message in err: the kernel
 * does not compile, or memory is out. */
struct beam *beam_new(const struct compiler_options *o, const struct target *t, struct uop *ast,
                      const struct beam_options *b, char *err, size_t errcap);
void beam_free(struct beam *b);
const char *beam_shape(const struct beam *b); /* the kernel's name before optimization steps */

/* The plans of the next round, each legal and its code unlike that of any proposed before; 0: the search has ended. The
 * first plan of the first round is the optimizer's. Valid until the next round. *again: the last round, of the fastest
 * plans once more and the optimizer's first among them, to be measured with more care than all were. */
unsigned beam_round(struct beam *b, const char *const **plans, bool *again);
/* Their kernels, compiled side by side in threads; NULL for what does not compile. Valid until beam_free. */
const struct kernel *const *beam_compile(struct beam *b);
/* seconds[i]: what plan i of the round took. INFINITY: it cannot be used, or need not be measured to its end. */
void beam_measured(struct beam *b, const double *seconds);
/* The fastest plan so far, the optimizer's unless another one is faster by more than a hundredth; NULL: none was
 * measured. */
const char *beam_best(const struct beam *b, double *seconds);
#endif
