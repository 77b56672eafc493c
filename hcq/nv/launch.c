/* A kernel launch as data. Sources: open-gpu-doc clcbc0qmd.h and the headers of the other layouts for the fields; Mesa
 * NVK for the codes of shared-memory configurations; the offsets in constant bank 0 from ptxas's code (nvdisasm
 * output). */
#include "launch.h"
#include <string.h>

static const uint8_t configs_8x[] = {8, 16, 32, 64, 100, 0}, configs_80[] = {8, 16, 32, 64, 100, 132, 164, 0},
                     configs_90[] = {8, 16, 32, 64, 100, 132, 164, 196, 228, 0};

static const struct nv_arch arches[] = {
    {80, QMD_V03, 1024, false, 164 << 10, 0x160, configs_80}, {86, QMD_V03, 1024, false, 100 << 10, 0x160, configs_8x},
    {89, QMD_V03, 1024, false, 100 << 10, 0x160, configs_8x}, {90, QMD_V04, 1024, true, 228 << 10, 0x210, configs_90},
    {100, QMD_V05, 1024, true, 228 << 10, 0x380, configs_90}, {103, QMD_V05, 1024, true, 228 << 10, 0x380, configs_90},
    {120, QMD_V05, 1024, true, 100 << 10, 0x380, configs_8x},
};

const struct nv_arch *nv_arch(uint32_t sm_version) {
  unsigned sm = (sm_version >> 8) * 10 + (sm_version & 0xff);
  for (size_t i = 0; i < sizeof arches / sizeof *arches; i++)
    if (arches[i].sm == sm) return &arches[i];
  return NULL;
}

/* ---- QMD ---- */

/* Code of the smallest configuration with at least `bytes` bytes, or of the largest if none is large enough. */
static uint32_t config_code(const struct nv_arch *a, uint64_t bytes) {
  const uint8_t *c = a->shared_configs;
  while (c[1] && (uint64_t)*c << 10 < bytes) c++;
  return *c / 4u + 1;
}

/* Number of CTAs that one SM can run at once, limited by registers and warps only. */
static uint32_t ctas_per_sm(const struct nv_launch *l) {
  uint32_t warps = (l->block[0] * l->block[1] * l->block[2] + 31) / 32, limit = l->max_warps_per_sm / warps;
  uint32_t by_registers = 65536 / (((l->registers + 7) & ~7u) * 32 * warps);
  if (by_registers < limit) limit = by_registers;
  return limit < 1 ? 1 : limit > 32 ? 32 : limit;
}

bool nv_launch_qmd(const struct nv_launch *l, uint32_t *qmd) {
  const struct nv_arch *a = l->arch;
  enum qmd_version v = a->qmd;
  bool clusters = l->explicit_cluster;
  bool ok = true;
#define SET(field, value) (ok &= qmd_set(qmd, v, QMD_##field, 0, value))
  memset(qmd, 0, qmd_words(v) * 4);
  SET(QMD_MAJOR_VERSION, qmd_major(v));
  SET(SASS_VERSION, a->sm / 10 << 4 | a->sm % 10);
  if (qmd_has(v, QMD_QMD_TYPE)) SET(QMD_TYPE, clusters ? QMD_TYPE_GRID_GPC_CGA : QMD_TYPE_GRID_CTA);
  SET(QMD_GROUP_ID, 0x3f);
  if (v == QMD_V03) SET(SM_GLOBAL_CACHING_ENABLE, 1);
  SET(API_VISIBLE_CALL_LIMIT, QMD_CALL_LIMIT_NO_CHECK);
  SET(CWD_MEMBAR_TYPE, QMD_MEMBAR_L1_SYSMEMBAR); /* the grid's writes are visible to everyone when it is done */
  SET(INVALIDATE_SHADER_DATA_CACHE, 1);          /* earlier writes of others are visible to the grid */
  SET(INVALIDATE_SHADER_CONSTANT_CACHE, 1);
  /* The memory of these arguments may have held other tensor maps. NVIDIA does not document which cache holds maps; of
   * the caches that a QMD can invalidate, that of texture headers is the most likely. */
  SET(INVALIDATE_TEXTURE_HEADER_CACHE, l->tensors);

  ok &= qmd_set_pair(qmd, v, QMD_PROGRAM_ADDRESS_LOWER, 0, l->program);
  SET(REGISTER_COUNT, l->registers);
  SET(BARRIER_COUNT, l->barriers);
  for (unsigned i = 0; i < 3; i++) {
    ok &= qmd_set(qmd, v, (enum qmd_field)(QMD_GRID_WIDTH + i), 0, l->grid[i]);
    ok &= qmd_set(qmd, v, (enum qmd_field)(QMD_CTA_THREAD_DIMENSION0 + i), 0, l->block[i]);
    if (clusters) ok &= qmd_set(qmd, v, (enum qmd_field)(QMD_GPC_CGA_WIDTH + i), 0, l->cluster[i]);
  }

  uint64_t shared = (l->shared_size + 127) & ~127ull, taken = shared + (a->reserve_in_size ? 0 : a->shared_reserved);
  SET(SHARED_MEMORY_SIZE, shared);
  SET(MIN_SM_CONFIG_SHARED_MEM_SIZE, config_code(a, taken));
  SET(TARGET_SM_CONFIG_SHARED_MEM_SIZE, config_code(a, taken * ctas_per_sm(l)));
  SET(MAX_SM_CONFIG_SHARED_MEM_SIZE, config_code(a, UINT32_MAX));
  SET(SHADER_LOCAL_MEMORY_HIGH_SIZE, l->local_size);

  for (unsigned i = 0; i < 8; i++) {
    if (!l->bank[i].size) continue;
    ok &= qmd_set(qmd, v, QMD_CONSTANT_BUFFER_VALID, i, 1);
    ok &= qmd_set_pair(qmd, v, QMD_CONSTANT_BUFFER_ADDR_LOWER, i, l->bank[i].address);
    ok &= qmd_set(qmd, v, QMD_CONSTANT_BUFFER_SIZE, i, (l->bank[i].size + 15) & ~15u);
    ok &= qmd_set(qmd, v, QMD_CONSTANT_BUFFER_INVALIDATE, i, 1);
  }
#undef SET
  return ok;
}

bool nv_launch_chain(const struct nv_arch *arch, uint32_t *qmd, uint64_t next) {
  enum qmd_version v = arch->qmd;
  return qmd_set(qmd, v, QMD_DEPENDENT_QMD0_POINTER, 0, next) &&
         qmd_set(qmd, v, QMD_DEPENDENT_QMD0_ACTION, 0, QMD_DEPENDENT_SCHEDULE) &&
         qmd_set(qmd, v, QMD_DEPENDENT_QMD0_PREFETCH, 0, 1) && qmd_set(qmd, v, QMD_DEPENDENT_QMD0_ENABLE, 0, 1);
}

/* ---- constant bank 0 ---- */

enum item {
  BLOCK_DIMS,     /* 3 words */
  GRID_DIMS,      /* 3 words */
  SHARED_WINDOW,  /* 64 bits */
  LOCAL_WINDOW,   /* 64 bits */
  STACK_POINTER,  /* local address: end of the window; stacks grow down from it */
  DYNAMIC_SHARED, /* bytes */
  GRID_ID,        /* 64 bits */
  SM_COUNT,
  SHARED_ADJUST,    /* bytes of the allocated shared memory reserved by the system, if kernels count them */
  SHARED_AGGREGATE, /* bytes of shared memory allocated, as in the QMD */
  CLUSTER_FLAG,     /* 1 if the kernel is launched as clusters */
  CLUSTER_DIMS,     /* 3 words */
  CLUSTER_RECIPS,   /* 3 floats: their reciprocals */
  CLUSTER_GRID,     /* 3 words: the grid in clusters */
  CLUSTER_RANKS,    /* CTAs per cluster */
  PARAM_ADDRESS,    /* 64 bits: generic address of the parameters */
  CONSTANTS,        /* 64 bits: generic address of the program's constants, bank 3 */
  ITEMS
};
#define NONE 0xffff
static const uint16_t places_8x[ITEMS] = {
    [BLOCK_DIMS] = 0x0,      [GRID_DIMS] = 0xc,         [SHARED_WINDOW] = 0x18, [LOCAL_WINDOW] = 0x20,
    [STACK_POINTER] = 0x28,  [DYNAMIC_SHARED] = 0x2c,   [GRID_ID] = 0x30,       [SM_COUNT] = 0x10c,
    [SHARED_ADJUST] = 0x114, [SHARED_AGGREGATE] = NONE, [CLUSTER_FLAG] = NONE,  [CLUSTER_DIMS] = NONE,
    [CLUSTER_RECIPS] = NONE, [CLUSTER_GRID] = NONE,     [CLUSTER_RANKS] = NONE, [PARAM_ADDRESS] = NONE,
    [CONSTANTS] = 0x50,
};
static const uint16_t places_90[ITEMS] = {
    [BLOCK_DIMS] = 0x0,       [GRID_DIMS] = 0xc,          [SHARED_WINDOW] = NONE,  [LOCAL_WINDOW] = 0x20,
    [STACK_POINTER] = 0x28,   [DYNAMIC_SHARED] = 0x2c,    [GRID_ID] = 0x30,        [SM_COUNT] = 0x10c,
    [SHARED_ADJUST] = 0x114,  [SHARED_AGGREGATE] = 0x13c, [CLUSTER_FLAG] = 0x140,  [CLUSTER_DIMS] = 0x144,
    [CLUSTER_RECIPS] = 0x150, [CLUSTER_GRID] = 0x15c,     [CLUSTER_RANKS] = 0x188, [PARAM_ADDRESS] = 0x198,
    [CONSTANTS] = 0xd0,
};
static const uint16_t places_100[ITEMS] = {
    [BLOCK_DIMS] = 0x360,     [GRID_DIMS] = 0x370,        [SHARED_WINDOW] = 0x2f0, [LOCAL_WINDOW] = 0x2f8,
    [STACK_POINTER] = 0x37c,  [DYNAMIC_SHARED] = 0x2ac,   [GRID_ID] = 0x140,       [SM_COUNT] = 0x2d0,
    [SHARED_ADJUST] = 0x16c,  [SHARED_AGGREGATE] = 0x2bc, [CLUSTER_FLAG] = 0x36c,  [CLUSTER_DIMS] = 0x2a0,
    [CLUSTER_RECIPS] = 0x2b0, [CLUSTER_GRID] = 0x2c0,     [CLUSTER_RANKS] = 0x2cc, [PARAM_ADDRESS] = 0x348,
    [CONSTANTS] = 0x120,
};

struct header {
  uint8_t *bank;
  const uint16_t *places;
};
static void put32(const struct header *h, enum item item, unsigned i, uint32_t value) {
  if (h->places[item] != NONE) memcpy(h->bank + h->places[item] + 4 * i, &value, 4);
}
static void put64(const struct header *h, enum item item, uint64_t value) {
  put32(h, item, 0, (uint32_t)value);
  put32(h, item, 1, (uint32_t)(value >> 32));
}

static const uint16_t *item_offsets(const struct nv_arch *a) {
  return a->qmd == QMD_V03 ? places_8x : a->qmd == QMD_V04 ? places_90 : places_100;
}

uint32_t nv_launch_grid_offset(const struct nv_arch *arch, unsigned i, unsigned k) {
  uint16_t at = item_offsets(arch)[i ? CLUSTER_GRID : GRID_DIMS]; /* without clusters, a cluster is one CTA */
  return at == NONE ? 0 : at + 4 * k;
}

void nv_launch_header(const struct nv_launch *l, uint8_t *bank0) {
  const struct nv_arch *a = l->arch;
  const struct header h = {bank0, item_offsets(a)};
  for (unsigned i = 0; i < 3; i++) {
    float reciprocal = 1.0f / (float)l->cluster[i];
    uint32_t bits;
    memcpy(&bits, &reciprocal, 4);
    put32(&h, BLOCK_DIMS, i, l->block[i]);
    put32(&h, GRID_DIMS, i, l->grid[i]);
    put32(&h, CLUSTER_DIMS, i, l->cluster[i]);
    put32(&h, CLUSTER_RECIPS, i, bits);
    put32(&h, CLUSTER_GRID, i, l->grid[i] / l->cluster[i]);
  }
  put64(&h, SHARED_WINDOW, l->shared_window);
  put64(&h, LOCAL_WINDOW, l->local_window);
  put32(&h, STACK_POINTER, 0, NV_LOCAL_WINDOW);
  put32(&h, DYNAMIC_SHARED, 0, l->dynamic_size);
  put64(&h, GRID_ID, l->grid_id);
  put32(&h, SM_COUNT, 0, l->sms);
  put32(&h, SHARED_ADJUST, 0, a->reserve_in_size ? a->shared_reserved : 0);
  put32(&h, SHARED_AGGREGATE, 0, (l->shared_size + 127) & ~127u);
  put32(&h, CLUSTER_FLAG, 0, l->explicit_cluster);
  put64(&h, CONSTANTS, l->bank[3].address);
  put32(&h, CLUSTER_RANKS, 0, l->cluster[0] * l->cluster[1] * l->cluster[2]);
  put64(&h, PARAM_ADDRESS, l->bank[0].address + a->param_base);
}
