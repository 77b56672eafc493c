/* Where the workgroups of a dispatch run: thread traces and performance counters report it. Hardware starts workgroups
 * on its shader engines in turns; within an engine, arrays, processors and units take turns, too. */
#include "gpu.h"
#include "../../../hcq/amd/registers.h"

/* Bit 29 of PGM_RSRC1: a workgroup uses both compute units of a workgroup processor (LLVM AMDGPUUsage, WGP_MODE). */
enum { WGP_MODE = 29, UNITS_PER_ARRAY = 16 };

/* COMPUTE_STATIC_THREAD_MGMT of an engine: one bit per compute unit, 16 per shader array. */
static uint32_t enabled_units(const struct amd_queue *q, unsigned engine) {
  static const uint16_t registers[] = {GFX11_COMPUTE_STATIC_THREAD_MGMT_SE0, GFX11_COMPUTE_STATIC_THREAD_MGMT_SE1,
                                       GFX11_COMPUTE_STATIC_THREAD_MGMT_SE2, GFX11_COMPUTE_STATIC_THREAD_MGMT_SE3,
                                       GFX11_COMPUTE_STATIC_THREAD_MGMT_SE4, GFX11_COMPUTE_STATIC_THREAD_MGMT_SE5,
                                       GFX11_COMPUTE_STATIC_THREAD_MGMT_SE6, GFX11_COMPUTE_STATIC_THREAD_MGMT_SE7};
  return q->sh[registers[engine] - PM4_SH_BASE];
}

unsigned amd_list_units(const struct amd_queue *q, uint32_t rsrc1, struct amd_unit *out) {
  const struct amd_model *m = q->gpu->model;
  bool both = rsrc1 >> WGP_MODE & 1;
  unsigned n = 0;
  for (unsigned cu = 0; cu < (both ? 1 : 2); cu++)
    for (unsigned wgp = 0; wgp < m->cus_per_array / 2; wgp++)
      for (unsigned array = 0; array < m->arrays_per_engine; array++)
        for (unsigned engine = 0; engine < m->shader_engines && n < AMD_UNITS_MAX; engine++) {
          unsigned bit = array * UNITS_PER_ARRAY + wgp * 2 + cu;
          uint32_t need = (both ? 3u : 1u) << bit;
          if ((enabled_units(q, engine) & need) != need) continue;
          out[n++] = (struct amd_unit){(uint8_t)engine, (uint8_t)array, (uint8_t)wgp, (uint8_t)cu, both};
        }
  return n;
}
