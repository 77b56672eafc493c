/* The performance counters of each generation of AMD GPUs, and the packets that select, start, read and stop them. */
#ifndef DOORBELL_HCQ_AMD_PERFMON_H
#define DOORBELL_HCQ_AMD_PERFMON_H
#include "../backend.h"
#include "../words.h"
#include "perf.h"

struct amd_perf_event {
  const char *name;
  uint16_t block, number;
};

struct amd_perf_generation {
  const char *arch; /* the beginning of the ISA's name */
  const struct amd_perf_block *blocks;
  const struct amd_perf_event *events;
  unsigned nevents;
  uint32_t sq_control, sq_control2; /* SQ_PERFCOUNTER_CTRL and _CTRL2; sq_control2: 0 if it is not written */
  uint32_t sq_mask;                 /* SQ_PERFCOUNTER_MASK; 0 if there is no such register */
  uint32_t sq_select;               /* bits of SQ's select registers beside the number of the event */
  bool clock;                       /* RLC_PERFMON_CLK_CNTL must be 1 while counters run */
};
/* Returns NULL if the counters of an ISA are not known. */
const struct amd_perf_generation *amd_perf_generation(const char *arch);

/* Appends the packets. Their order is that of ROCm's aqlprofile (pmc_builder.h). */
void amd_perf_begin(struct words *w, const struct amd_perf_generation *g, const struct hcq_counter_pick *picks,
                    unsigned n);
/* Stores the values of each pick at its address, 64 bits for each instance, and 1 at done_address after them. */
void amd_perf_end(struct words *w, const struct amd_perf_generation *g, const struct amd_perf_shape *shape,
                  const struct hcq_counter_pick *picks, unsigned n, uint64_t done_address);
#endif
