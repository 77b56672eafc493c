/* KFD's topology: directories of "key value" files, one node per processor (Linux amdkfd, kfd_topology.c). */
#include "amd.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX  8192
#define NODES_MAX 256

struct property {
  const char *key;
  uint64_t value;
};

/* Finds the value of a key in "key value\n" lines; returns false if it is missing or not a number. */
static bool find_value(const char *text, const char *key, uint64_t *value) {
  size_t n = strlen(key);
  for (const char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
    if (strncmp(line, key, n) != 0 || line[n] != ' ') continue;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(line + n + 1, &end, 10);
    if (end == line + n + 1 || (*end && *end != '\n') || errno) return false;
    *value = v;
    return true;
  }
  return false;
}

static ssize_t read_node(struct kfd_process *p, unsigned node, const char *file, char *buf, size_t cap) {
  char path[160];
  snprintf(path, sizeof path, KFD_TOPOLOGY "/nodes/%u/%s", node, file);
  return p->os->read_file(p->os, path, buf, cap);
}

struct numbers {
  unsigned n[NODES_MAX], count;
};
static int add_number(void *ctx, const char *name) {
  struct numbers *all = ctx;
  char *end;
  unsigned long v = strtoul(name, &end, 10);
  if (*name >= '0' && *name <= '9' && !*end && all->count < NODES_MAX) all->n[all->count++] = (unsigned)v;
  return 0;
}
static int by_value(const void *a, const void *b) {
  return (*(const unsigned *)a > *(const unsigned *)b) - (*(const unsigned *)a < *(const unsigned *)b);
}

static int list_numbers(struct kfd_process *p, const char *path, struct numbers *out) {
  out->count = 0;
  int err = p->os->list_dir(p->os, path, add_number, out);
  qsort(out->n, out->count, sizeof *out->n, by_value);
  return err < 0 ? err : 0;
}

/* Reads the memory clock, and adds up frame buffer sizes: heap_type 1 is memory that the host can address, heap_type 2
 * the rest. */
static void read_banks(struct kfd_process *p, struct amd_node *n, char *text) {
  char path[160];
  struct numbers banks;
  snprintf(path, sizeof path, KFD_TOPOLOGY "/nodes/%u/mem_banks", n->number);
  if (list_numbers(p, path, &banks)) return;
  uint64_t shown = 0;
  for (unsigned i = 0; i < banks.count; i++) {
    char file[64];
    uint64_t type, size, clock;
    snprintf(file, sizeof file, "mem_banks/%u/properties", banks.n[i]);
    if (read_node(p, n->number, file, text, FILE_MAX) < 0 || !find_value(text, "heap_type", &type) ||
        !find_value(text, "size_in_bytes", &size))
      continue;
    if (type == 1 || type == 2) n->vram_size += size;
    if (type == 1) shown += size;
    if (find_value(text, "mem_clk_max", &clock) && clock <= UINT32_MAX) n->memory_clock_mhz = (uint32_t)clock;
  }
  n->vram_public = n->vram_size && shown == n->vram_size;
}

/* Marks the topology nodes that a GPU's links of one kind lead to, if the links allow peer access. io_links are direct
 * (between GPUs: xGMI); p2p_links use PCIe and exist only if the kernel allows that. */
static void read_links(struct kfd_process *p, const struct amd_node *n, const char *kind, char *text,
                       bool linked[NODES_MAX]) {
  enum { ENABLED = 1, NO_PEER_ACCESS = 16 };
  char path[160];
  struct numbers links;
  snprintf(path, sizeof path, KFD_TOPOLOGY "/nodes/%u/%s", n->number, kind);
  if (list_numbers(p, path, &links)) return;
  for (unsigned i = 0; i < links.count; i++) {
    char file[64];
    uint64_t to, flags;
    snprintf(file, sizeof file, "%s/%u/properties", kind, links.n[i]);
    if (read_node(p, n->number, file, text, FILE_MAX) < 0 || !find_value(text, "node_to", &to) ||
        !find_value(text, "flags", &flags))
      continue;
    if (to < NODES_MAX && flags & ENABLED && !(flags & NO_PEER_ACCESS)) linked[to] = true;
  }
}

static void read_peers(struct kfd_process *p, char *text) {
  for (unsigned i = 0; i < p->nnodes; i++) {
    bool linked[NODES_MAX] = {false};
    read_links(p, &p->nodes[i], "io_links", text, linked);
    read_links(p, &p->nodes[i], "p2p_links", text, linked);
    for (unsigned k = 0; k < p->nnodes && k < 64; k++)
      if (k == i || (p->nodes[k].number < NODES_MAX && linked[p->nodes[k].number])) p->nodes[i].peers |= 1ull << k;
  }
}

static int read_gpu(struct kfd_process *p, struct amd_node *n, char *text) {
  ssize_t r = read_node(p, n->number, "properties", text, FILE_MAX);
  if (r < 0)
    return db_fail((int)r, "%s: reading the properties of topology node %u: %s", p->machine, n->number,
                   strerror((int)-r));
  const struct {
    const char *key;
    uint32_t *value;
    uint32_t least; /* 0 if the property may be missing */
  } keys[] = {
      {"gfx_target_version", &n->gfx_version, 1},
      {"drm_render_minor", &n->render_minor, 1},
      {"simd_count", &n->simd_count, 1},
      {"simd_per_cu", &n->simd_per_cu, 1},
      {"array_count", &n->array_count, 1},
      {"simd_arrays_per_engine", &n->arrays_per_engine, 1},
      {"max_slots_scratch_cu", &n->scratch_slots_per_cu, 1},
      {"lds_size_in_kb", &n->lds_kib, 1},
      {"num_xcc", &n->xcc_count, 0},
      {"num_cp_queues", &n->cp_queues, 0},
      {"num_sdma_engines", &n->sdma_engines, 0},
      {"max_engine_clk_fcompute", &n->clock_mhz, 0},
      {"domain", &n->domain, 0},
      {"location_id", &n->location, 0},
      {"cwsr_size", &n->save_area_size, 0},
      {"ctl_stack_size", &n->ctl_stack_size, 0},
      {"eop_buffer_size", &n->eop_size, 0},
  };
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    uint64_t v = 0;
    bool found = find_value(text, keys[i].key, &v);
    if ((keys[i].least && (!found || v < keys[i].least)) || v > UINT32_MAX)
      return db_fail(-EPROTO, "%s: topology node %u: property %s is missing or out of range", p->machine, n->number,
                     keys[i].key);
    *keys[i].value = (uint32_t)v;
  }
  if (!n->xcc_count) n->xcc_count = 1;
  if (n->simd_count < n->simd_per_cu || n->array_count < n->arrays_per_engine)
    return db_fail(-EPROTO,
                   "%s: topology node %u: %u SIMDs at %u per CU and %u arrays at %u per engine are not a valid GPU",
                   p->machine, n->number, n->simd_count, n->simd_per_cu, n->array_count, n->arrays_per_engine);
  /* The version is major * 10000 + minor * 100 + stepping; an ISA's name has the last two in hexadecimal. */
  snprintf(n->arch, sizeof n->arch, "gfx%u%x%x", n->gfx_version / 10000 % 100, n->gfx_version / 100 % 100 & 15,
           n->gfx_version % 100 & 15);
  read_banks(p, n, text);
  if (read_node(p, n->number, "name", text, FILE_MAX) > 0) {
    text[strcspn(text, "\n")] = 0;
    snprintf(n->name, sizeof n->name, "%.31s", text);
  }
  return 0;
}

int kfd_topology_read(struct kfd_process *p) {
  struct numbers all;
  int err = list_numbers(p, KFD_TOPOLOGY "/nodes", &all);
  if (err) return db_fail(err, "%s: listing " KFD_TOPOLOGY "/nodes: %s", p->machine, strerror(-err));
  char *text = malloc(FILE_MAX);
  p->nodes = calloc(all.count + 1u, sizeof *p->nodes);
  if (!text || !p->nodes) {
    err = db_fail(-ENOMEM, "%s: out of host memory", p->machine);
    goto out;
  }
  for (unsigned i = 0; i < all.count; i++) {
    /* Reading a node that a device cgroup hides fails with EPERM; a processor without a GPU has gpu_id 0. */
    if (read_node(p, all.n[i], "gpu_id", text, FILE_MAX) < 0) continue;
    unsigned long gpu_id = strtoul(text, NULL, 10);
    if (!gpu_id || gpu_id > UINT32_MAX) continue;
    struct amd_node *n = &p->nodes[p->nnodes];
    n->drm_fd = -1;
    n->number = all.n[i];
    n->gpu_id = (uint32_t)gpu_id;
    if ((err = read_gpu(p, n, text))) goto out;
    p->nnodes++;
  }
  read_peers(p, text);
out:
  free(text);
  return err;
}
