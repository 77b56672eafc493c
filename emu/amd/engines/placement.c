/* Where the workgroups of a dispatch run: thread traces and performance counters report it. As recordings of a gfx1100
 * show, workgroups go to the shader engines in turns. The first workgroup of a queue goes to engine 1; each later
 * dispatch continues with the engine after that of the last workgroup. Within an engine, workgroups go to the
 * processors of array 0, then to those of array 1; on the next round to the other compute unit of each. This is exact
 * while all units have room; later, hardware prefers units that become free earlier. */
#include "gpu.h"
#include "../../../hcq/amd/registers.h"

/* Bit 29 of PGM_RSRC1: a workgroup uses both compute units of a workgroup processor (LLVM AMDGPUUsage, WGP_MODE). */
enum { WGP_MODE = 29, UNITS_PER_ARRAY = 16, FIRST_ENGINE = 1, SIMDS = 4 };

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
  unsigned engines = m->shader_engines, first = (unsigned)((FIRST_ENGINE + q->launched) % engines);
  bool both = rsrc1 >> WGP_MODE & 1;
  unsigned n = 0;
  for (unsigned cu = 0; cu < (both ? 1 : 2); cu++)
    for (unsigned array = 0; array < m->arrays_per_engine; array++)
      for (unsigned wgp = 0; wgp < m->cus_per_array / 2; wgp++)
        for (unsigned turn = 0; turn < engines && n < AMD_UNITS_MAX; turn++) {
          unsigned engine = (first + turn) % engines;
          unsigned bit = array * UNITS_PER_ARRAY + wgp * 2 + cu;
          uint32_t need = (both ? 3u : 1u) << bit;
          if ((enabled_units(q, engine) & need) != need) continue;
          out[n++] = (struct amd_unit){(uint8_t)engine, (uint8_t)array, (uint8_t)wgp, (uint8_t)cu, both};
        }
  return n;
}

/* The waves of a workgroup go to the SIMDs of its unit in turns. In compute-unit mode, a workgroup starts with the SIMD
 * that has fewer waves, or with that of the last wave if both have as many; the first workgroup starts with SIMD 0 of
 * its unit on even processors, and with SIMD 1 on odd ones. No recording has workgroups of both units. */
unsigned amd_simd_of(const struct amd_unit *u, uint64_t earlier, unsigned waves, unsigned wave) {
  if (u->both) return wave % SIMDS;
  uint64_t start = waves % 2 ? (earlier + 1) / 2 : earlier;
  return u->cu + (unsigned)((u->wgp + start + wave) % 2) * 2;
}
