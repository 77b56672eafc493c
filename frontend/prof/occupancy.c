/* Occupancy: how many of the waves that a compute unit can hold a kernel's registers, local memory and workgroup size
 * allow. */
#include "prof.h"
#include <string.h>

/* One SIMD unit of an AMD GPU's workgroup processor or compute unit, or a whole SM. Sources: LLVM's AMDGPUBaseInfo
 * (getTotalNumVGPRs, getVGPRAllocGranule, getMaxWavesPerEU); table "Technical Specifications per Compute Capability" of
 * NVIDIA's CUDA C++ Programming Guide. */
static const struct unit {
  const char *arch;
  uint32_t waves;            /* maximum number of waves in a unit */
  uint32_t units;            /* number of units that share the local memory and the limit of workgroups */
  uint32_t registers;        /* vector registers of all lanes of a wave of 32 (AMD), of the whole SM (NVIDIA) */
  uint32_t register_granule; /* registers per work-item are allocated in this many */
  uint32_t local_bytes, local_granule, local_reserved; /* reserved: in addition, for each workgroup */
  uint32_t workgroups; /* maximum number. AMD: workgroups of one wave need no barrier and do not count */
} units[] = {
    {"gfx1100", 16, 2, 1536, 24, 65536, 512, 0, 16},    {"gfx120", 16, 2, 1536, 24, 65536, 512, 0, 16},
    {"gfx942", 8, 4, 512, 8, 65536, 512, 0, 16},        {"sm_80", 64, 1, 65536, 8, 167936, 128, 1024, 32},
    {"sm_86", 48, 1, 65536, 8, 102400, 128, 1024, 16},  {"sm_89", 48, 1, 65536, 8, 102400, 128, 1024, 24},
    {"sm_90", 64, 1, 65536, 8, 233472, 128, 1024, 32},  {"sm_100", 64, 1, 65536, 8, 233472, 128, 1024, 32},
    {"sm_120", 48, 1, 65536, 8, 102400, 128, 1024, 24},
};

static uint32_t round_up(uint32_t n, uint32_t granule) { return (n + granule - 1) / granule * granule; }

/* Waves per unit that the registers allow. */
static uint32_t by_registers(const struct unit *u, const struct prof_kernel *k) {
  bool nvidia = u->units == 1, cdna = u->units == 4;
  if (!k->registers) return u->waves;
  /* On RDNA a wave of 64 uses each register twice. An SM counts the registers of all lanes. */
  uint32_t lanes = nvidia ? k->wave : cdna ? 1 : k->wave / 32;
  uint32_t granule = nvidia || cdna || k->wave == 32 ? u->register_granule : u->register_granule / 2;
  uint32_t waves = u->registers / (round_up(k->registers, granule) * (lanes ? lanes : 1));
  return waves < u->waves ? waves : u->waves;
}

/* Returns NULL for an unknown machine. */
static const struct unit *find_unit(const char *arch) {
  for (unsigned i = 0; i < sizeof units / sizeof *units; i++)
    if (!strncmp(arch, units[i].arch, strlen(units[i].arch))) return &units[i];
  return NULL;
}

json_t *prof_occupancy_limits(const char *arch) {
  const struct unit *u = find_unit(arch);
  if (!u) return NULL;
  bool nvidia = u->units == 1;
  return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s}", "vendor", nvidia ? "nvidia" : "amd", "waves",
                   (int)u->waves, "units", (int)u->units, "registers", (int)u->registers, "register_granule",
                   (int)u->register_granule, "local_bytes", (int)u->local_bytes, "local_granule", (int)u->local_granule,
                   "local_reserved", (int)u->local_reserved, "workgroups", (int)u->workgroups, "source",
                   nvidia ? "CUDA C++ Programming Guide, Technical Specifications per Compute Capability"
                          : "LLVM's AMDGPUBaseInfo");
}

bool prof_occupancy(const char *arch, const struct prof_kernel *k, struct prof_occupancy *out) {
  const struct unit *u = find_unit(arch);
  uint32_t items = k->block[0] * k->block[1] * k->block[2];
  if (!u || !k->wave || !items) return false;
  uint32_t waves = (items + k->wave - 1) / k->wave; /* of a workgroup */
  uint32_t capacity = u->waves * u->units;          /* of a compute unit */
  uint32_t local = round_up(k->local_bytes, u->local_granule) + u->local_reserved;
  /* Workgroups that fit at once, by what limits them. */
  const struct {
    const char *what;
    uint32_t workgroups;
  } limits[] = {{"waves", capacity / waves},
                {"registers", by_registers(u, k) * u->units / waves},
                {"local memory", local ? u->local_bytes / local : UINT32_MAX},
                {"workgroups", waves == 1 && u->units > 1 ? capacity : u->workgroups}};
  uint32_t least = UINT32_MAX;
  for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++)
    if (limits[i].workgroups < least) least = limits[i].workgroups, out->limit = limits[i].what;
  out->share = (double)(least * waves) / (double)capacity;
  return least > 0;
}
