/* The roofs of a machine, which `doorbell bench --peaks` measures and keeps in the cache. */
#ifndef DOORBELL_FRONTEND_PROF_PEAKS_H
#define DOORBELL_FRONTEND_PROF_PEAKS_H
#include "../../hcq/hcq.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { PEAKS_VERSION = 1, PEAKS_MOST = 32 };
struct peaks {
  struct peak_rate { /* arithmetic */
    char name[32];   /* "f32", "f16 matrix" */
    double flops;    /* operations per second; those of integers count, too */
  } rates[PEAKS_MOST];
  struct peak_level { /* memory, from the nearest level to the farthest */
    char name[16];    /* "16 KiB" */
    uint64_t bytes;   /* of the data that were read repeatedly */
    double bandwidth; /* bytes per second */
  } levels[PEAKS_MOST];
  unsigned nrates, nlevels;
  double launch_s, copy_s, copy_bandwidth; /* latency of an empty kernel and of a small copy; bytes per second */
};
/* ---- peaks_measure.c ---- */
/* Measures the roofs of a device; takes seconds. Returns 0, or a negative errno with db_error() set. */
int peaks_measure(db_device *dev, struct peaks *out);

/* ---- peaks.c: the file of the roofs of all devices, in the cache ---- */
/* The measured roofs of a device with this name, ISA and description. Returns false if there are none. */
bool peaks_load(struct peaks *p, const char *device, const char *arch, const char *description);
/* Stores them. Returns 0, or a negative errno with db_error() set. */
int peaks_store(const struct peaks *p, const db_device *dev);
json_t *peaks_json(const struct peaks *p);

struct peaks_roof {
  double share;      /* of the nearest roof */
  const char *limit; /* "compute" or "memory": which roof is nearest; "latency" if both are far */
};
/* How near a kernel with these rates is to the roofs. The roof of memory is that of the smallest level that holds
 * `bytes`, the data of one launch; the roof of arithmetic is that of f32, or the highest one if the kernel is above it.
 * Returns false if neither roof was measured. */
bool peaks_roof(const struct peaks *p, double flops, double bandwidth, double bytes, struct peaks_roof *out);
#endif
