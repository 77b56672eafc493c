/* The files under /sys and /dev by which a driver finds GPUs: KFD's topology, and the device folders of the render
 * nodes. Formats as Linux prints them (kfd_topology.c, amdgpu_discovery.c); the topology has one "key value" per
 * line. */
#define _GNU_SOURCE
#include "process.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

struct text {
  char *buf;
  size_t n, cap;
};

struct sysfs_entry {
  char *path;
  /* NULL for a device file, which is only listed. Returns false if the file does not exist now. gpu is NULL for the
   * CPU's node. */
  bool (*print)(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t);
  struct amd_gpu *gpu;
  unsigned index;
};

__attribute__((format(printf, 2, 3))) static void put_text(struct text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->buf + t->n, t->cap - t->n, format, args);
  va_end(args);
  if (n > 0) t->n += (size_t)n < t->cap - t->n ? (size_t)n : t->cap - t->n - 1;
}
static void put_line(struct text *t, const char *key, uint64_t value) { put_text(t, "%s %" PRIu64 "\n", key, value); }

struct pair {
  const char *key;
  uint64_t value;
};
static bool put_lines(struct text *t, const struct pair *pairs, size_t n) {
  for (size_t i = 0; i < n; i++) put_line(t, pairs[i].key, pairs[i].value);
  return true;
}
#define LINES(t, ...)                                                                                                  \
  put_lines(t, (const struct pair[]){__VA_ARGS__}, sizeof((const struct pair[]){__VA_ARGS__}) / sizeof(struct pair))

/* ---- topology ---- */

static bool generation_id(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  put_text(t, "%u\n", m->ngpus + 1);
  return true;
}

static bool system_properties(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  return LINES(t, {"platform_oem", 0}, {"platform_id", 0}, {"platform_rev", 0});
}

static bool gpu_id(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  put_text(t, "%u\n", gpu ? gpu->gpu_id : 0);
  return true;
}

static bool node_name(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  put_text(t, "%s\n", gpu ? gpu->model->name : "");
  return true;
}

/* The caches of a GPU: one instance of a kind per `cus` compute units. */
static const struct cache_kind {
  uint32_t cus, level, line, type; /* type bits: 1 data, 2 instruction, 8 used by compute units */
} cache_kinds[] = {
    {1, 1, 128, 9},  /* vector L0 */
    {2, 1, 64, 9},   /* scalar data, one per WGP */
    {2, 1, 64, 10},  /* instructions, one per WGP */
    {8, 1, 128, 9},  /* GL1, one per shader array */
    {96, 2, 128, 9}, /* L2 */
    {96, 3, 64, 9},  /* memory-attached last level */
};
enum { CACHE_KINDS = sizeof cache_kinds / sizeof cache_kinds[0] };
static uint32_t cache_kib(const struct amd_model *m, size_t kind) {
  const uint32_t kib[CACHE_KINDS] = {32, 16, 32, m->gl1_kib, m->l2_kib, m->l3_kib};
  return kib[kind];
}
static unsigned cache_count(const struct amd_model *m) {
  unsigned n = 0;
  for (size_t k = 0; k < CACHE_KINDS; k++) n += amd_model_cus(m) / cache_kinds[k].cus;
  return n;
}

static bool cache_properties(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  size_t k = 0;
  unsigned nth = index;
  while (nth >= amd_model_cus(gpu->model) / cache_kinds[k].cus) nth -= amd_model_cus(gpu->model) / cache_kinds[k++].cus;
  const struct cache_kind *c = &cache_kinds[k];
  LINES(t, {"processor_id_low", 0x80001000u + nth * c->cus * gpu->model->simds_per_cu}, {"level", c->level},
        {"size", cache_kib(gpu->model, k)}, {"cache_line_size", c->line}, {"cache_lines_per_tag", 1},
        {"association", 0}, {"latency", 0}, {"type", c->type});
  put_text(t, "sibling_map ");
  for (uint32_t cu = 0; cu < c->cus; cu++) put_text(t, "%s1", cu ? "," : "");
  put_text(t, "\n");
  return true;
}

static uint64_t host_memory(void) {
  struct sysinfo info;
  return sysinfo(&info) ? 0 : (uint64_t)info.totalram * info.mem_unit;
}

static bool node_properties(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  if (!gpu) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return LINES(t, {"cpu_cores_count", cores > 0 ? (uint64_t)cores : 1}, {"simd_count", 0}, {"mem_banks_count", 1},
                 {"caches_count", 0}, {"io_links_count", m->ngpus}, {"p2p_links_count", 0}, {"cpu_core_id_base", 0},
                 {"simd_id_base", 0}, {"max_waves_per_simd", 0}, {"lds_size_in_kb", 0}, {"gds_size_in_kb", 0},
                 {"num_gws", 0}, {"wave_front_size", 0}, {"array_count", 0}, {"simd_arrays_per_engine", 0},
                 {"cu_per_simd_array", 0}, {"simd_per_cu", 0}, {"max_slots_scratch_cu", 0}, {"gfx_target_version", 0},
                 {"vendor_id", 0}, {"device_id", 0}, {"location_id", 0}, {"domain", 0}, {"drm_render_minor", 0},
                 {"hive_id", 0}, {"num_sdma_engines", 0}, {"num_sdma_xgmi_engines", 0},
                 {"num_sdma_queues_per_engine", 0}, {"num_cp_queues", 0}, {"max_engine_clk_ccompute", 3000});
  }
  const struct amd_model *g = gpu->model;
  return LINES(t, {"cpu_cores_count", 0}, {"simd_count", (uint64_t)amd_model_cus(g) * g->simds_per_cu},
               {"mem_banks_count", 1}, {"caches_count", cache_count(g)}, {"io_links_count", 1},
               {"p2p_links_count", m->base.peers ? m->ngpus - 1 : 0}, {"cpu_core_id_base", 0},
               {"simd_id_base", 0x80001000u + 0x1000u * gpu->index}, {"max_waves_per_simd", g->waves_per_simd},
               {"lds_size_in_kb", g->lds_kib}, {"gds_size_in_kb", 0}, {"num_gws", 64},
               {"wave_front_size", g->wave_size}, {"array_count", (uint64_t)g->shader_engines * g->arrays_per_engine},
               {"simd_arrays_per_engine", g->arrays_per_engine}, {"cu_per_simd_array", g->cus_per_array},
               {"simd_per_cu", g->simds_per_cu}, {"max_slots_scratch_cu", g->scratch_slots_per_cu},
               {"gfx_target_version", g->gfx_target_version}, {"vendor_id", 0x1002}, {"device_id", g->device_id},
               {"location_id", 0x300 + 0x300u * gpu->index}, {"domain", 0}, {"drm_render_minor", gpu->minor},
               {"hive_id", 0}, {"num_sdma_engines", g->sdma_engines}, {"num_sdma_xgmi_engines", 0},
               {"num_sdma_queues_per_engine", g->sdma_queues_per_engine}, {"num_cp_queues", g->cp_queues},
               {"max_engine_clk_fcompute", g->engine_mhz}, {"local_mem_size", 0}, {"fw_version", g->mec_fw},
               {"capability", g->capability}, {"debug_prop", g->debug_prop}, {"sdma_fw_version", g->sdma_fw},
               {"unique_id", 0x5eed000000000000u + gpu->gpu_id}, {"num_xcc", 1}, {"max_engine_clk_ccompute", 3000});
}

static bool mem_bank(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  if (!gpu)
    return LINES(t, {"heap_type", 0}, {"size_in_bytes", host_memory()}, {"flags", 0}, {"width", 64},
                 {"mem_clk_max", 3200});
  return LINES(t, {"heap_type", 1}, {"size_in_bytes", gpu->vram.size}, {"flags", 0}, {"width", gpu->model->memory_bits},
               {"mem_clk_max", gpu->model->memory_mhz});
}

static bool link_over_pcie(struct text *t, uint64_t from, uint64_t to) {
  return LINES(t, {"type", 2}, {"version_major", 0}, {"version_minor", 0}, {"node_from", from}, {"node_to", to},
               {"weight", 20}, {"min_latency", 0}, {"max_latency", 0}, {"min_bandwidth", 312}, {"max_bandwidth", 31504},
               {"recommended_transfer_size", 0}, {"recommended_sdma_engine_id_mask", 0}, {"flags", 1});
}

/* The CPU's node has a link per GPU; a GPU's node has one link, to the CPU. */
static bool io_link(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  return link_over_pcie(t, gpu ? gpu->index + 1 : 0, gpu ? 0 : index + 1);
}

/* A link to each other GPU, if peer access is enabled. */
static bool p2p_link(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  return link_over_pcie(t, gpu->index + 1, index + (index >= gpu->index) + 1);
}

/* ---- the render node's device ---- */

static bool vram_total(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  put_text(t, "%" PRIu64 "\n", gpu->vram.size);
  return true;
}
static bool vram_used(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  pthread_mutex_lock(&m->lock);
  put_text(t, "%" PRIu64 "\n", gpu->vram.used);
  pthread_mutex_unlock(&m->lock);
  return true;
}
static bool unique_id(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  put_text(t, "%" PRIx64 "\n", 0x5eed000000000000u + gpu->gpu_id);
  return true;
}
/* The clocks are constant, as this level promises. Profilers refuse other levels. */
static bool performance_level(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  put_text(t, "profile_standard\n");
  return true;
}
static bool product_name(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  put_text(t, "%s\n", gpu->model->marketing);
  return true;
}
static bool link_speed(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  put_text(t, "16.0 GT/s PCIe\n");
  return true;
}
static bool pp_dpm_sclk(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  put_text(t, "0: 500Mhz\n1: %uMhz *\n", gpu->model->engine_mhz);
  return true;
}
static bool pci_ids(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  put_text(t, "0x%04x\n", index ? gpu->model->device_id : 0x1002);
  return true;
}

/* In the format of amdgpu (Linux amdgpu_dev_coredump.c), without firmware versions and rings. The emulator's additional
 * data follows as the state of a separate IP block. */
static bool coredump(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  pthread_mutex_lock(&gpu->queues_lock);
  bool faulted = atomic_load(&gpu->faulted);
  const struct fault *f = &gpu->fault;
  const struct amd_model *g = gpu->model;
  if (faulted) {
    uint64_t page;
    uint32_t status = amd_fault_status(gpu, &page);
    put_text(t, "**** AMDGPU Device Coredump ****\nversion: 1\nkernel: emulated\nmodule: amdgpu\ntime: %lld.%09ld\n",
             (long long)gpu->fault_time.tv_sec, gpu->fault_time.tv_nsec);
    put_text(t, "process_name: %s PID: %d\n", program_invocation_short_name, (int)getpid());
    put_text(t, "\nSOC Information\nSOC Device id: %u\nSOC Family: %u\nSOC External Revision id: %u\n", g->device_id,
             g->family_id, g->chip_external_rev);
    put_text(t,
             "\nSOC Memory Information\nreal vram size: %" PRIu64 "\nvisible vram size: %" PRIu64 "\ngtt size: %" PRIu64
             "\n",
             gpu->vram.size, gpu->vram.size, m->gtt.size);
    put_text(t,
             "\n[gfxhub] Page fault observed\nFaulty page starting at address: 0x%016" PRIx64
             "\nProtection fault status register: 0x%x\n\n",
             page, status);
    put_text(t, "IP Dump\nIP: emulator\nfault: %s\n", f->text);
    if (f->pc) {
      put_text(t, "pc: 0x%" PRIx64 "\nworkgroup: %u %u %u\nwave: %u\n", f->pc, f->workgroup[0], f->workgroup[1],
               f->workgroup[2], f->wave);
      if (f->lane >= 0) put_text(t, "lane: %d\n", f->lane);
    }
    if (f->address) put_text(t, "address: 0x%" PRIx64 "\n", f->address);
    put_text(t, "\n%s", f->kind == FAULT_PAGE ? "" : "VRAM is lost due to GPU reset!\n");
  }
  pthread_mutex_unlock(&gpu->queues_lock);
  return faulted;
}

/* IP blocks of the discovery table: hardware id, version, and the segment base addresses of their registers. */
static const struct ip_block {
  unsigned hwid, major, minor, revision;
  uint32_t base[6];
} ip_blocks[] = {
    {11, 11, 0, 0, {0x1260, 0xa000, 0x1c000, 0x2402c00}},              /* GC */
    {42, 6, 0, 0, {0x1260, 0xa000, 0x1c000, 0x2402c00}},               /* SDMA0 */
    {43, 6, 0, 0, {0x1260, 0xa000, 0x1c000, 0x2402c00}},               /* SDMA1 */
    {108, 4, 3, 0, {0x0, 0x14, 0xd20, 0x10400, 0x241b000, 0x4040000}}, /* NBIF */
};
enum { IP_MAJOR, IP_MINOR, IP_REVISION, IP_INSTANCE, IP_HARVEST, IP_BASE, IP_FILES };
static const char *const ip_files[IP_FILES] = {"major", "minor", "revision", "num_instance", "harvest", "base_addr"};
static bool ip_file(struct amd_machine *m, struct amd_gpu *gpu, unsigned index, struct text *t) {
  const struct ip_block *b = &ip_blocks[index / IP_FILES];
  const unsigned numbers[IP_BASE] = {b->major, b->minor, b->revision, 0, 0};
  unsigned file = index % IP_FILES;
  if (file == IP_HARVEST)
    put_text(t, "0x%x\n", numbers[file]);
  else if (file < IP_BASE)
    put_text(t, "%u\n", numbers[file]);
  else
    for (size_t i = 0; i < 6 && (!i || b->base[i]); i++) put_text(t, "0x%08X\n", b->base[i]);
  return true;
}

/* ---- the tree ---- */

static bool add_file(struct amd_machine *m,
                     bool (*print)(struct amd_machine *, struct amd_gpu *, unsigned, struct text *),
                     struct amd_gpu *gpu, unsigned index, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
static bool add_file(struct amd_machine *m,
                     bool (*print)(struct amd_machine *, struct amd_gpu *, unsigned, struct text *),
                     struct amd_gpu *gpu, unsigned index, const char *format, ...) {
  va_list args;
  char *path = NULL;
  va_start(args, format);
  int n = vasprintf(&path, format, args);
  va_end(args);
  if (n < 0) return false;
  if ((m->nsysfs & (m->nsysfs + 1)) == 0) {
    struct sysfs_entry *grown = realloc(m->sysfs, (2 * m->nsysfs + 2) * sizeof *grown);
    if (!grown) {
      free(path);
      return false;
    }
    m->sysfs = grown;
  }
  m->sysfs[m->nsysfs++] = (struct sysfs_entry){path, print, gpu, index};
  return true;
}

static bool add_node(struct amd_machine *m, struct amd_gpu *gpu, unsigned node) {
  const char *top = KFD_TOPOLOGY "/nodes";
  bool ok = add_file(m, gpu_id, gpu, 0, "%s/%u/gpu_id", top, node) &&
            add_file(m, node_name, gpu, 0, "%s/%u/name", top, node) &&
            add_file(m, node_properties, gpu, 0, "%s/%u/properties", top, node) &&
            add_file(m, mem_bank, gpu, 0, "%s/%u/mem_banks/0/properties", top, node);
  for (unsigned i = 0; ok && gpu && i < cache_count(gpu->model); i++)
    ok = add_file(m, cache_properties, gpu, i, "%s/%u/caches/%u/properties", top, node, i);
  for (unsigned i = 0; ok && i < (gpu ? 1 : m->ngpus); i++)
    ok = add_file(m, io_link, gpu, i, "%s/%u/io_links/%u/properties", top, node, i);
  for (unsigned i = 0; ok && gpu && m->base.peers && i + 1 < m->ngpus; i++)
    ok = add_file(m, p2p_link, gpu, i, "%s/%u/p2p_links/%u/properties", top, node, i);
  return ok;
}

static bool add_render_node(struct amd_machine *m, struct amd_gpu *gpu) {
  static const struct {
    const char *name;
    bool (*print)(struct amd_machine *, struct amd_gpu *, unsigned, struct text *);
    unsigned index;
  } files[] = {
      {"mem_info_vram_total", vram_total, 0},
      {"mem_info_vram_used", vram_used, 0},
      {"unique_id", unique_id, 0},
      {"power_dpm_force_performance_level", performance_level, 0},
      {"product_name", product_name, 0},
      {"current_link_speed", link_speed, 0},
      {"pp_dpm_sclk", pp_dpm_sclk, 0},
      {"vendor", pci_ids, 0},
      {"device", pci_ids, 1},
      {"devcoredump/data", coredump, 0},
  };
  char top[64];
  snprintf(top, sizeof top, "/sys/class/drm/renderD%u/device", gpu->minor);
  bool ok = add_file(m, NULL, gpu, 0, "/dev/dri/renderD%u", gpu->minor);
  for (size_t i = 0; ok && i < sizeof files / sizeof files[0]; i++)
    ok = add_file(m, files[i].print, gpu, files[i].index, "%s/%s", top, files[i].name);
  for (unsigned b = 0; ok && b < sizeof ip_blocks / sizeof ip_blocks[0]; b++)
    for (unsigned f = 0; ok && f < IP_FILES; f++)
      ok = add_file(m, ip_file, gpu, b * IP_FILES + f, "%s/ip_discovery/die/0/%u/0/%s", top, ip_blocks[b].hwid,
                    ip_files[f]);
  return ok;
}

int amd_sysfs_init(struct amd_machine *m) {
  bool ok = add_file(m, NULL, NULL, 0, "%s", KFD_DEVICE) &&
            add_file(m, generation_id, NULL, 0, KFD_TOPOLOGY "/generation_id") &&
            add_file(m, system_properties, NULL, 0, KFD_TOPOLOGY "/system_properties") && add_node(m, NULL, 0);
  for (unsigned i = 0; ok && i < m->ngpus; i++) ok = add_node(m, &m->gpus[i], i + 1) && add_render_node(m, &m->gpus[i]);
  return ok ? 0 : -ENOMEM;
}

void amd_sysfs_fini(struct amd_machine *m) {
  for (size_t i = 0; i < m->nsysfs; i++) free(m->sysfs[i].path);
  free(m->sysfs);
}

/* Writes the canonical path of a file: without trailing slashes, and with the alias of the class resolved. */
static bool canonical(const char *path, char *buf, size_t cap) {
  static const char class[] = "/sys/class/kfd/", real[] = "/sys/devices/virtual/kfd/";
  size_t skip = strncmp(path, class, sizeof class - 1) != 0 ? 0 : sizeof class - 1;
  int n = snprintf(buf, cap, "%s%s", skip ? real : "", path + skip);
  while (n > 1 && (size_t)n < cap && buf[n - 1] == '/') buf[--n] = 0;
  return n > 0 && (size_t)n < cap;
}

ssize_t amd_sysfs_read(struct amd_machine *m, const char *path, char *buf, size_t cap) {
  char name[256];
  if (!canonical(path, name, sizeof name)) return -ENAMETOOLONG;
  buf[0] = 0;
  for (size_t i = 0; i < m->nsysfs; i++) {
    struct sysfs_entry *e = &m->sysfs[i];
    if (strcmp(e->path, name) != 0) continue;
    struct text t = {buf, 0, cap};
    if (!e->print) return -EINVAL;
    if (!e->print(m, e->gpu, e->index, &t)) return -ENOENT;
    return (ssize_t)t.n;
  }
  return -ENOENT;
}

int amd_sysfs_list(struct amd_machine *m, const char *path, int (*each)(void *ctx, const char *name), void *ctx) {
  char dir[256], name[256];
  if (!canonical(path, dir, sizeof dir)) return -ENAMETOOLONG;
  size_t n = strcmp(dir, "/") != 0 ? strlen(dir) : 0;
  bool found = false;
  for (size_t i = 0; i < m->nsysfs; i++) {
    const char *rest = m->sysfs[i].path;
    if (strncmp(rest, dir, n) != 0 || rest[n] != '/') continue;
    rest += n + 1;
    size_t length = strcspn(rest, "/");
    found = true;
    /* Entries of a folder need not be adjacent in the table: report a name only at its first entry. */
    bool seen = false;
    for (size_t k = 0; k < i && !seen; k++) {
      const char *other = m->sysfs[k].path;
      seen = !strncmp(other, dir, n) && other[n] == '/' && !strncmp(other + n + 1, rest, length) &&
             (other[n + 1 + length] == '/' || !other[n + 1 + length]);
    }
    if (seen) continue;
    snprintf(name, sizeof name, "%.*s", (int)length, rest);
    if (each(ctx, name)) return 0;
  }
  return found ? 0 : -ENOENT;
}
