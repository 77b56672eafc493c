/* BEAM=n: searches plans for kernels (compiler/search/beam.h) by measuring them on their device, and stores the plans
 * that it finds. */
#ifndef DOORBELL_FRONTEND_BEAM_H
#define DOORBELL_FRONTEND_BEAM_H
#include "runtime.h"

enum { BEAM_MOST = 64 };

/* ---- beam.c ---- */

/* Finds the plan for item `at`, a kernel, of a schedule. *plan is valid until db_shutdown; NULL means the optimizer's
 * plan. BEAM=0 uses stored plans and measures nothing. Returns 0 or a negative errno. Called with rt.lock held. */
int beam_plan(const struct env *env, const struct schedule *schedule, size_t at, const char **plan);
/* Reports that a stored plan does not fit the kernel and why; the caller uses the optimizer's plan. */
void beam_refused(const char *plan, const char *why);
void beam_shutdown(void);

/* ---- beam_measure.c ---- */

struct beam_measure;
/* Whether kernels of a slot can be compared by time: emulated devices need model time. */
bool beam_has_times(unsigned slot);
/* Allocates memory and signals to measure the kernels of an item. Returns NULL after db_fail. */
struct beam_measure *beam_measure_new(const struct schedule_item *item);
void beam_measure_free(struct beam_measure *m);
/* Whether its times are model time, not measured time. */
bool beam_measure_is_model(const struct beam_measure *m);
/* Stores the time of a launch in seconds: the best of several launches, or one estimate for a kernel that is much
 * slower than best, or INFINITY for a kernel that the device does not load. best is in seconds, INFINITY if unknown.
 * Returns 0, or a negative errno after db_fail. */
int beam_measure(struct beam_measure *m, const struct kernel *k, double best, double *seconds);
/* Runs k on freshly filled memory. The first call stores the results. Later calls compare with them and return -EPROTO
 * after db_fail if they differ by more than another order of additions explains. A kernel that the device does not load
 * is not compared. */
int beam_compare(struct beam_measure *m, const struct kernel *k);

/* ---- beam_cache.c ---- */

struct beam_record {
  uint64_t key;
  char machine[96], shape[64];
  unsigned width, round; /* round 0: the search is complete */
  double chosen_us, best_us;
  char *plan;
};
struct beam_cache;
/* dir = NULL keeps nothing on disk. Returns NULL if memory runs out. */
struct beam_cache *beam_cache_open(const char *dir);
void beam_cache_close(struct beam_cache *c);
const struct beam_record *beam_cache_find(const struct beam_cache *c, uint64_t key, const char *machine);
/* Adds or replaces a record, in memory and in the file. Copies *r. Returns 0 or a negative errno. */
int beam_cache_put(struct beam_cache *c, const struct beam_record *r);
/* Parses a line. The caller frees out->plan. On false, why is the error, or "" for a line without a record. */
bool beam_record_parse(const char *line, struct beam_record *out, char *why, size_t cap);
#endif
