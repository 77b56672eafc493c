/* BEAM=n: searches the plans of kernels (compiler/plan/beam.h) by measuring them on the device that they run on, and
 * keeps what was found. */
#ifndef DOORBELL_FRONTEND_BEAM_H
#define DOORBELL_FRONTEND_BEAM_H
#include "runtime.h"

enum { BEAM_MOST = 64 };

/* ---- beam.c ---- */

/* The plan for a kernel of a schedule, kept until db_shutdown; *plan NULL: the optimizer's. BEAM=0 uses what was found
 * before, and measures nothing. Lock held. */
int beam_plan(const struct env *env, const struct schedule_item *item, const char **plan);
/* That plan does not fit, for this reason; the optimizer's is used. */
void beam_refused(const char *plan, const char *why);
void beam_shutdown(void);

/* ---- beam_measure.c ---- */

struct beam_measure;
/* Memory and signals for measuring the kernels of an item. NULL after db_fail. */
struct beam_measure *beam_measure_new(const struct schedule_item *item);
void beam_measure_free(struct beam_measure *m);
/* Whether its times are model time. */
bool beam_measure_is_model(const struct beam_measure *m);
/* Seconds of a launch: the best of several, or INFINITY for a kernel that is much slower than best (seconds; INFINITY:
 * none is known). 0, or a negative errno after db_fail. */
int beam_measure(struct beam_measure *m, const struct kernel *k, double best, double *seconds);
/* Runs k over memory made anew. The first call keeps its results; a later one compares: -EPROTO after db_fail when
 * they differ by more than another order of additions explains. */
int beam_compare(struct beam_measure *m, const struct kernel *k);

/* ---- beam_cache.c ---- */

struct beam_record {
  uint64_t key;
  char machine[96], shape[64];
  unsigned width, round; /* round 0: the search has ended */
  double chosen_us, best_us;
  char *plan;
};
struct beam_cache;
/* dir NULL: nothing is kept on disk. NULL: out of memory. */
struct beam_cache *beam_cache_open(const char *dir);
void beam_cache_close(struct beam_cache *c);
const struct beam_record *beam_cache_find(const struct beam_cache *c, uint64_t key, const char *machine);
/* Copies the record, and writes it in place of an older one. 0, or a negative errno of the file. */
int beam_cache_put(struct beam_cache *c, const struct beam_record *r);
/* Of one line; the caller frees out->plan. False: why says what is wrong with it, "" for lines without a record. */
bool beam_record_parse(const char *line, struct beam_record *out, char *why, size_t cap);
#endif
