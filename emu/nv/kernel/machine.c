/* The machine: creating and freeing it, its files, and what the engines report. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <time.h>
#include "../../own_fd.h"
#include "nv.h"

static struct nv_machine *machine_of(struct emu_machine *m) { return (struct nv_machine *)m; }
static struct nv_file *file_of(struct emu_file *f) { return (struct nv_file *)f; }

struct nv_gpu *nv_gpu_of_id(struct nv_machine *m, uint32_t gpu_id) {
  for (unsigned i = 0; i < m->ngpus; i++)
    if (m->gpus[i].gpu_id == gpu_id) return &m->gpus[i];
  return NULL;
}

struct nv_gpu *nv_gpu_of_uuid(struct nv_machine *m, const struct uvm_uuid *uuid) {
  for (unsigned i = 0; i < m->ngpus; i++)
    if (!memcmp(&m->gpus[i].uuid, uuid, sizeof *uuid)) return &m->gpus[i];
  return NULL;
}

void nv_uuid_text(const struct uvm_uuid *uuid, char text[41]) {
  const uint8_t *b = uuid->bytes;
  snprintf(text, 41, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
           b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* Called by an engine's thread, which may hold the engine's locks. */
static void gpu_log(void *ctx, const char *line) {
  struct nv_gpu *g = ctx;
  const struct emu_machine *base = &g->machine->base;
  if (!strncmp(line, "Xid", 3)) {
    pthread_mutex_lock(&g->log_lock);
    snprintf(g->xid, sizeof g->xid, "%s", line);
    pthread_mutex_unlock(&g->log_lock);
  }
  if (base->print) base->print(base->print_ctx, line);
}

static void gpu_error(void *ctx, const char *line) {
  struct nv_gpu *g = ctx;
  struct nv_machine *m = g->machine;
  pthread_mutex_lock(&m->event_lock);
  g->errors++;
  pthread_cond_broadcast(&m->event_cond);
  pthread_mutex_unlock(&m->event_lock);
}

/* ---- files ---- */

static int nv_ioctl(struct emu_file *f, unsigned long request, void *arg) {
  struct nv_file *file = file_of(f);
  pthread_mutex_lock(&file->machine->lock);
  int rc = file->kind == NV_FILE_UVM ? nv_uvm_ioctl(file, request, arg) : nv_rm_ioctl(file, request, arg);
  pthread_mutex_unlock(&file->machine->lock);
  return rc;
}

static void *nv_mmap(struct emu_file *f, void *addr, size_t len, int prot, int flags, off_t off) {
  struct nv_file *file = file_of(f);
  struct nv_machine *m = file->machine;
  if (file->kind == NV_FILE_UVM)
    return (void *)(intptr_t)emu_refuse(&m->base, -EOPNOTSUPP,
                                        "not supported: managed memory, by mmap of " RM_UVM_DEVICE);
  pthread_mutex_lock(&m->lock);
  void *p = nv_rm_mmap(file, addr, len, prot, flags, (uint64_t)off);
  pthread_mutex_unlock(&m->lock);
  return p;
}

static int nv_poll(struct emu_file *f, short events, int timeout_ms) {
  struct nv_file *file = file_of(f);
  return file->kind == NV_FILE_UVM ? 0 : nv_rm_event_poll(file, events, timeout_ms);
}

static void nv_close(struct emu_file *f) {
  struct nv_file *file = file_of(f), *ctl = file->ctl;
  struct nv_machine *m = file->machine;
  pthread_mutex_lock(&m->lock);
  if (file->kind == NV_FILE_CTL) nv_rm_clients_close(m, file);
  if (file->uvm) nv_uvm_close(m, file->uvm);
  nv_rm_events_forget(m, file, NULL);
  nv_rm_memory_put(file->mapped);
  pthread_mutex_unlock(&m->lock);
  free(file);
  if (ctl) nv_file_put(ctl);
}

static const struct emu_file_ops file_ops = {.ioctl = nv_ioctl, .mmap = nv_mmap, .poll = nv_poll, .close = nv_close};

struct nv_file *nv_file_get(struct nv_machine *m, int fd) { return file_of(emu_file_get(&m->base, fd)); }
void nv_file_put(struct nv_file *file) { emu_file_put(&file->machine->base, &file->file); }

static int nv_open(struct emu_machine *base, const char *path, int flags, struct emu_file **out) {
  struct nv_machine *m = machine_of(base);
  struct nv_file made = {.file = {.ops = &file_ops}, .machine = m};
  unsigned minor = 0;
  int used = 0;
  if (!strcmp(path, RM_CTL_DEVICE))
    made.kind = NV_FILE_CTL;
  else if (!strcmp(path, RM_UVM_DEVICE))
    made.kind = NV_FILE_UVM;
  else if (sscanf(path, RM_GPU_DEVICE "%n", &minor, &used) == 1 && !path[used] && minor < m->ngpus)
    made.kind = NV_FILE_GPU, made.gpu = &m->gpus[minor];
  else
    return emu_refuse(base, -ENOENT, "open: the emulated machine has no %s", path);
  struct nv_file *file = malloc(sizeof *file);
  if (!file) return -ENOMEM;
  *file = made;
  pthread_mutex_lock(&m->lock);
  if (made.gpu) made.gpu->attached = true;
  pthread_mutex_unlock(&m->lock);
  *out = &file->file;
  return 0;
}

/* ---- /proc/driver/nvidia and the folders of the device nodes ---- */

static void print_version(struct nv_machine *m, const struct nv_gpu *g, char *buf, size_t cap) {
  snprintf(buf, cap,
           "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (doorbell-emu)\n"
           "GCC version:  emulated\n",
           m->version);
}
static void print_information(struct nv_machine *m, const struct nv_gpu *g, char *buf, size_t cap) {
  char uuid[41];
  nv_uuid_text(&g->uuid, uuid);
  snprintf(buf, cap,
           "Model: \t\t %s\nIRQ:   \t\t %u\nGPU UUID: \t %s\nVideo BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\n"
           "DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t 0000:%02x:00.0\nDevice Minor: \t %u\n"
           "GPU Firmware: \t %s\nGPU Excluded:\t No\n",
           g->model->marketing, 64 + g->index, uuid, g->bus, g->minor, m->version);
}
static void print_xid(struct nv_machine *m, const struct nv_gpu *g, char *buf, size_t cap) {
  struct nv_gpu *gpu = &m->gpus[g->index];
  pthread_mutex_lock(&gpu->log_lock);
  snprintf(buf, cap, "%s%s", gpu->xid, *gpu->xid ? "\n" : "");
  pthread_mutex_unlock(&gpu->log_lock);
}

static void print_params(struct nv_machine *m, const struct nv_gpu *g, char *buf, size_t cap) {
  snprintf(buf, cap, "RmProfilingAdminOnly: %d\n", m->restricted);
}

/* Every path, with "%s" for a GPU's PCI address and "%u" for its minor number. Paths without print are folders or
 * nodes. */
static const struct entry {
  const char *path;
  void (*print)(struct nv_machine *m, const struct nv_gpu *g, char *buf, size_t cap);
} entries[] = {
    {RM_CTL_DEVICE, NULL},
    {RM_UVM_DEVICE, NULL},
    {RM_GPU_DEVICE, NULL},
    {RM_PROC_VERSION, print_version},
    {RM_PROC_PARAMS, print_params},
    {"/proc/driver/nvidia/gpus/%s/information", print_information},
    {"/proc/driver/nvidia/gpus/%s/xid", print_xid},
};

/* Calls each for the path of every entry; gpu is NULL for entries of the machine. */
static int for_each_path(struct nv_machine *m,
                         int (*each)(void *ctx, const struct entry *e, const char *path, const struct nv_gpu *g),
                         void *ctx) {
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
    const struct entry *e = &entries[i];
    const char *mark = strchr(e->path, '%');
    for (unsigned g = 0; g < (mark ? m->ngpus : 1); g++) {
      char path[128], name[32];
      if (mark && mark[1] == 'u')
        snprintf(name, sizeof name, "%u", m->gpus[g].minor);
      else
        snprintf(name, sizeof name, "0000:%02x:00.0", m->gpus[g].bus);
      snprintf(path, sizeof path, "%.*s%s%s", (int)(mark ? mark - e->path : (long)strlen(e->path)), e->path,
               mark ? name : "", mark ? mark + 2 : "");
      int rc = each(ctx, e, path, mark ? &m->gpus[g] : NULL);
      if (rc) return rc;
    }
  }
  return 0;
}

struct lookup {
  struct nv_machine *m;
  const char *path;
  char *buf;
  size_t cap;
  int (*each)(void *ctx, const char *name);
  void *ctx;
  char seen[1024]; /* names seen so far, each between slashes */
};
static int read_one(void *ctx, const struct entry *e, const char *path, const struct nv_gpu *g) {
  struct lookup *l = ctx;
  if (strcmp(path, l->path) != 0) return 0;
  if (!e->print) return -EINVAL; /* a folder or a device node */
  e->print(l->m, g, l->buf, l->cap);
  return 1;
}
static ssize_t nv_read_file(struct emu_machine *base, const char *path, char *buf, size_t cap) {
  struct lookup l = {.m = machine_of(base), .path = path, .buf = buf, .cap = cap};
  int rc = for_each_path(l.m, read_one, &l);
  return rc > 0 ? (ssize_t)strlen(buf) : rc ? rc : -ENOENT;
}

static int list_one(void *ctx, const struct entry *e, const char *path, const struct nv_gpu *g) {
  struct lookup *l = ctx;
  size_t n = strlen(l->path);
  while (n && l->path[n - 1] == '/') n--;
  if (strncmp(path, l->path, n) != 0 || path[n] != '/') return 0;
  char name[64];
  size_t length = strcspn(path + n + 1, "/"), used = strlen(l->seen);
  snprintf(name, sizeof name, "/%.*s/", (int)length, path + n + 1);
  if (strstr(l->seen, name)) return 0;
  snprintf(l->seen + used, sizeof l->seen - used, "%s", name);
  name[length + 1] = 0;
  return l->each(l->ctx, name + 1);
}
static int nv_list_dir(struct emu_machine *base, const char *path, int (*each)(void *ctx, const char *name),
                       void *ctx) {
  struct lookup l = {.m = machine_of(base), .path = path, .each = each, .ctx = ctx};
  int rc = for_each_path(l.m, list_one, &l);
  return *l.seen ? rc : -ENOENT;
}

/* ---- functions for host programs ---- */

static int nv_stats(struct emu_machine *base, unsigned index, struct emu_stats *out) {
  struct nv_machine *m = machine_of(base);
  if (index >= m->ngpus) return -EINVAL;
  nv_engines_stats(m->gpus[index].engines, out);
  return 0;
}
static void nv_detail(struct emu_machine *base, bool on, bool annotate) {
  atomic_store(&machine_of(base)->detail, on);
  atomic_store(&machine_of(base)->annotate, annotate);
}
static int nv_instructions(struct emu_machine *base, unsigned index, const struct emu_kernel_stats *kernel,
                           struct emu_site **out, size_t *n) {
  struct nv_machine *m = machine_of(base);
  return index < m->ngpus ? nv_engines_instructions(m->gpus[index].engines, kernel, out, n) : -EINVAL;
}
static const char *nv_arch(struct emu_machine *base, unsigned index) {
  struct nv_machine *m = machine_of(base);
  return index < m->ngpus ? m->gpus[index].model->name : NULL;
}
static int nv_kernels(struct emu_machine *base, unsigned index, struct emu_kernel_stats **out, size_t *n) {
  struct nv_machine *m = machine_of(base);
  return index < m->ngpus ? nv_engines_kernels(m->gpus[index].engines, out, n) : -EINVAL;
}

static void nv_stop(struct emu_machine *base) {
  struct nv_machine *m = machine_of(base);
  for (unsigned i = 0; i < m->ngpus; i++) nv_engines_stop(m->gpus[i].engines);
}

/* ---- creating and freeing ---- */

static int gpu_init(struct nv_machine *m, unsigned index, const struct nv_model *model) {
  struct nv_gpu *g = &m->gpus[index];
  void *page = NULL;
  int rc;
  g->machine = m;
  g->index = g->minor = index;
  g->model = model;
  g->bus = (uint8_t)(0x41 + index);
  g->gpu_id = (uint32_t)g->bus << 8;
  g->usermode_fd = -1;
  pthread_mutex_init(&g->log_lock, NULL);
  for (unsigned i = 0; i < sizeof g->uuid.bytes; i++)
    g->uuid.bytes[i] = (uint8_t)((model->pci_device >> (i % 2 * 8)) * 31 + i * 17 + index * (i + 1) + 5);
  m->ngpus = index + 1;
  if ((rc = heap_init(&g->vram, "vidmem", model->vram_bytes))) return rc;
  if ((rc = emu_shared_page("usermode", RM_USERMODE_SIZE, &g->usermode_fd, &page))) return rc;
  g->usermode = page;
  g->engines = nv_engines_new(&(struct nv_engines_config){.model = model,
                                                          .gpu = index,
                                                          .pool = m->pool,
                                                          .usermode = g->usermode,
                                                          .strict = &m->base.strict,
                                                          .detail = &m->detail,
                                                          .annotate = &m->annotate,
                                                          .log = gpu_log,
                                                          .error = gpu_error,
                                                          .ctx = g});
  return g->engines ? 0 : -ENOMEM;
}

static void gpu_fini(struct nv_gpu *g) {
  if (g->engines) nv_engines_free(g->engines);
  if (g->usermode) munmap((void *)g->usermode, RM_USERMODE_SIZE);
  own_fd_close(g->usermode_fd);
  if (g->vram.windows) heap_fini(&g->vram);
  pthread_mutex_destroy(&g->log_lock);
}

static void nv_machine_free(struct emu_machine *base) {
  struct nv_machine *m = machine_of(base);
  for (unsigned i = 0; m->gpus && i < m->ngpus; i++) gpu_fini(&m->gpus[i]);
  if (m->sysmem.windows) heap_fini(&m->sysmem);
  pool_free(m->pool);
  pthread_mutex_destroy(&m->lock);
  pthread_mutex_destroy(&m->event_lock);
  pthread_cond_destroy(&m->event_cond);
  free(m->clients);
  free(m->events);
  free(m->gpus);
  emu_machine_fini(base);
  free(m);
}

static const struct emu_machine_ops machine_ops = {
    .open = nv_open,
    .read_file = nv_read_file,
    .list_dir = nv_list_dir,
    .stats = nv_stats,
    .detail = nv_detail,
    .instructions = nv_instructions,
    .arch = nv_arch,
    .kernels = nv_kernels,
    .stop = nv_stop,
    .free = nv_machine_free,
};

void nv_machine_restrict(struct os *os) {
  struct nv_machine *m = (struct nv_machine *)os;
  if (m->base.ops == &machine_ops) m->restricted = true;
}

int nv_machine_version(struct os *os, const char *version) {
  struct nv_machine *m = (struct nv_machine *)os;
  struct rm_branch branch = rm_branch_find((unsigned)strtoul(version, NULL, 10));
  if (m->base.ops != &machine_ops || !branch.major || strlen(version) >= sizeof m->version) return -EINVAL;
  pthread_mutex_lock(&m->lock);
  m->branch = branch;
  memcpy(m->version, version, strlen(version) + 1);
  pthread_mutex_unlock(&m->lock);
  return 0;
}

/* Parses a comma-separated list of model names. Returns a negative errno and a reason on failure. */
static int parse_models(const char *gpus, const struct nv_model **models, unsigned *n, char *err, size_t errcap) {
  char known[128];
  nv_model_names(known, sizeof known);
  *n = 0;
  for (const char *at = gpus;;) {
    size_t length = strcspn(at, ",");
    const struct nv_model *model = nv_model_find(at, length);
    if (!model) {
      snprintf(err, errcap, "no emulated NVIDIA GPU \"%.*s\"; known: %s", (int)(length > 64 ? 64 : length), at, known);
      return -EINVAL;
    }
    if (*n == NV_MAX_GPUS) {
      snprintf(err, errcap, "an emulated machine has at most %d GPUs", NV_MAX_GPUS);
      return -EINVAL;
    }
    models[(*n)++] = model;
    if (!at[length]) return 0;
    at += length + 1;
  }
}

static uint64_t host_memory(void) {
  struct sysinfo info;
  uint64_t total = sysinfo(&info) ? 0 : (uint64_t)info.totalram * info.mem_unit;
  return (total / NV_PAGE + 1) * NV_PAGE;
}

int nv_machine_new(const char *gpus, struct emu_machine **out, char *err, size_t errcap) {
  const struct nv_model *models[NV_MAX_GPUS];
  pthread_condattr_t attr;
  unsigned n;
  int rc = parse_models(gpus ? gpus : "", models, &n, err, errcap);
  if (rc) return rc;
  struct nv_machine *m = calloc(1, sizeof *m);
  if (!m) {
    snprintf(err, errcap, "emulated machine: out of memory");
    return -ENOMEM;
  }
  emu_machine_init(&m->base, &machine_ops);
  pthread_mutex_init(&m->lock, NULL);
  pthread_mutex_init(&m->event_lock, NULL);
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&m->event_cond, &attr);
  pthread_condattr_destroy(&attr);
  snprintf(m->version, sizeof m->version, "580.142");
  m->branch = rm_branch_find(580);
  m->next_client = 0xc1d00000;
  m->next_map = 0x10000000;
  m->gpus = calloc(n, sizeof *m->gpus);
  m->pool = pool_new();
  if (!m->gpus || !m->pool) rc = -ENOMEM;
  if (!rc) rc = heap_init(&m->sysmem, "sysmem", host_memory());
  for (unsigned i = 0; i < n && !rc; i++) rc = gpu_init(m, i, models[i]);
  if (!rc) {
    *out = &m->base;
    return 0;
  }
  snprintf(err, errcap, "emulated machine: %s", strerror(-rc));
  nv_machine_free(&m->base);
  return rc;
}
