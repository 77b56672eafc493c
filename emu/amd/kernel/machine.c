/* The machine: creating and freeing it, opening its files, and handling GPU faults. */
#define _GNU_SOURCE
#include "process.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>
#include "../../own_fd.h"
#include "../../watch.h"

static struct amd_machine *machine_of(struct emu_machine *m) { return (struct amd_machine *)m; }
static struct amd_file *file_of(struct emu_file *f) { return (struct amd_file *)f; }

struct amd_gpu *amd_gpu_find(struct amd_machine *m, uint32_t gpu_id) {
  for (unsigned i = 0; i < m->ngpus; i++)
    if (m->gpus[i].gpu_id == gpu_id) return &m->gpus[i];
  return NULL;
}

/* ---- faults ---- */

/* Handles a fault as the kernel does for a GPU without page-fault retry: it evicts the process's queues permanently,
 * then signals events. A page fault signals memory events. Any other fault hangs the GPU; the kernel answers with a
 * reset. */
static void gpu_fault(struct amd_gpu *gpu, const struct fault *fault) {
  struct amd_machine *m = gpu->machine;
  pthread_mutex_lock(&gpu->queues_lock);
  bool first = !atomic_load_explicit(&gpu->faulted, memory_order_relaxed);
  if (first) {
    gpu->fault = *fault;
    clock_gettime(CLOCK_REALTIME, &gpu->fault_time);
    atomic_store(&gpu->faulted, true);
  }
  for (struct amd_queue *q = gpu->queues; q; q = q->next) atomic_store(&q->stop, true);
  pthread_mutex_unlock(&gpu->queues_lock);
  if (!first) return;
  if (m->base.print) m->base.print(m->base.print_ctx, fault->text);
  if (fault->kind == FAULT_PAGE) {
    struct vm_range r;
    bool mapped = vm_find(gpu->vm, fault->address, &r);
    struct kfd_memory_exception x = {
        .not_present = !mapped,
        .read_only = mapped && (fault->access & VM_WRITE) && !(r.access & VM_WRITE),
        .no_execute = mapped && (fault->access & VM_EXEC) && !(r.access & VM_EXEC),
        .va = fault->address & ~(uint64_t)(AMD_PAGE - 1),
        .gpu_id = gpu->gpu_id,
    };
    amd_events_memory_fault(&m->events, &x);
  } else {
    amd_events_hw_exception(&m->events, &(struct kfd_hw_exception){.memory_lost = 1, .gpu_id = gpu->gpu_id});
  }
  amd_wake_queues(&m->shared);
}

/* ---- files ---- */

static int amd_ioctl(struct emu_file *f, unsigned long request, void *arg) {
  struct amd_file *file = file_of(f);
  int rc = file->gpu ? amd_drm_ioctl(file, request, arg) : amd_kfd_ioctl(file->machine, request, arg);
  amd_wake_queues(&file->machine->shared);
  return rc;
}

static void *map_page(struct amd_machine *m, int fd, size_t want, void *addr, size_t len, int prot, int flags,
                      void *alias, enum watch_kind kind) {
  if (len != want)
    return (void *)(intptr_t)emu_refuse(&m->base, -EINVAL, "mmap: this page of /dev/kfd has %zu bytes, not %zu", want,
                                        len);
  void *p = mmap(addr, len, prot, flags, fd, 0);
  if (p == MAP_FAILED) return (void *)(intptr_t)-errno;
  if (m->base.strict) watch_map(p, len, prot, alias, kind);
  return p;
}

static void *kfd_mmap(struct amd_machine *m, void *addr, size_t len, int prot, int flags, uint64_t off) {
  struct amd_gpu *gpu = amd_gpu_find(m, KFD_MMAP_GPU_ID(off));
  unsigned type = KFD_MMAP_TYPE(off);
  if (type == KFD_MMAP_EVENTS) return amd_events_mmap(m, addr, len, prot, flags);
  if (!gpu || type == KFD_MMAP_RESERVED_MEM)
    return (void *)(intptr_t)emu_refuse(&m->base, -ENODEV, "mmap: /dev/kfd has nothing at offset 0x%" PRIx64, off);
  if (type == KFD_MMAP_DOORBELL)
    return map_page(m, gpu->doorbell_fd, KFD_DOORBELL_MAP_SIZE, addr, len, prot, flags, (void *)gpu->doorbells,
                    WATCH_DOORBELL);
  return map_page(m, gpu->mmio_fd, AMD_PAGE, addr, len, prot, flags, gpu->mmio_page, WATCH_FLUSH);
}

static void *amd_mmap(struct emu_file *f, void *addr, size_t len, int prot, int flags, off_t off) {
  struct amd_file *file = file_of(f);
  struct amd_machine *m = file->machine;
  pthread_mutex_lock(&m->lock);
  void *p = file->gpu ? amd_bo_mmap(m, file->gpu->index, addr, len, prot, flags, (uint64_t)off)
                      : kfd_mmap(m, addr, len, prot, flags, (uint64_t)off);
  pthread_mutex_unlock(&m->lock);
  return p;
}

/* KFD keeps a reference to the render node's file that it got the address space from. So closing the descriptor does
 * not free the address space. It frees the file's contexts, and with them what keeps the clocks stable. */
static void amd_close(struct emu_file *f) {
  struct amd_file *file = file_of(f);
  pthread_mutex_lock(&file->machine->lock);
  if (file->gpu && file->gpu->stable_file == file) file->gpu->stable_file = NULL;
  pthread_mutex_unlock(&file->machine->lock);
  free(file);
}

static const struct emu_file_ops file_ops = {.ioctl = amd_ioctl, .mmap = amd_mmap, .close = amd_close};

static int amd_open(struct emu_machine *base, const char *path, int flags, struct emu_file **out) {
  struct amd_machine *m = machine_of(base);
  struct amd_gpu *gpu = NULL;
  unsigned minor = 0;
  int used = 0;
  if (sscanf(path, "/dev/dri/renderD%u%n", &minor, &used) == 1 && !path[used] && minor >= 128 && minor - 128 < m->ngpus)
    gpu = &m->gpus[minor - 128];
  else if (strcmp(path, KFD_DEVICE) != 0)
    return emu_refuse(&m->base, -ENOENT, "open: the emulated machine has no %s", path);
  struct amd_file *file = calloc(1, sizeof *file);
  if (!file) return -ENOMEM;
  *file = (struct amd_file){.file = {.ops = &file_ops}, .machine = m, .gpu = gpu};
  *out = &file->file;
  return 0;
}

static ssize_t amd_read_file(struct emu_machine *m, const char *path, char *buf, size_t cap) {
  return amd_sysfs_read(machine_of(m), path, buf, cap);
}
static int amd_list_dir(struct emu_machine *m, const char *path, int (*each)(void *ctx, const char *name), void *ctx) {
  return amd_sysfs_list(machine_of(m), path, each, ctx);
}

static int amd_stats(struct emu_machine *base, unsigned index, struct emu_stats *out) {
  struct amd_machine *m = machine_of(base);
  if (index >= m->ngpus) return -EINVAL;
  struct amd_gpu *g = &m->gpus[index];
  *out = (struct emu_stats){
      .instructions = atomic_load(&g->instructions),
      .waves = atomic_load(&g->waves),
      .workgroups = atomic_load(&g->workgroups),
      .dispatches = atomic_load(&g->dispatches),
      .bytes_loaded = atomic_load(&g->bytes_loaded),
      .bytes_stored = atomic_load(&g->bytes_stored),
  };
  amd_counters_total(g, &out->detail);
  return 0;
}
static void amd_detail(struct emu_machine *base, bool on, bool annotate) {
  atomic_store(&machine_of(base)->shared.detail, on);
  atomic_store(&machine_of(base)->shared.annotate, annotate);
}
static int amd_instructions(struct emu_machine *base, unsigned index, const struct emu_kernel_stats *kernel,
                            struct emu_site **out, size_t *n) {
  struct amd_machine *m = machine_of(base);
  return index < m->ngpus ? amd_counters_instructions(&m->gpus[index], kernel, out, n) : -EINVAL;
}
static const char *amd_arch(struct emu_machine *base, unsigned index) {
  struct amd_machine *m = machine_of(base);
  return index < m->ngpus ? m->gpus[index].model->name : NULL;
}
static int amd_kernels(struct emu_machine *base, unsigned index, struct emu_kernel_stats **out, size_t *n) {
  struct amd_machine *m = machine_of(base);
  return index < m->ngpus ? amd_counters_kernels(&m->gpus[index], out, n) : -EINVAL;
}

static void amd_stop(struct emu_machine *base) {
  struct amd_machine *m = machine_of(base);
  bool busy = true;
  for (int tries = 0; busy && tries < 200; tries++) {
    busy = false;
    for (unsigned i = 0; i < m->ngpus; i++) {
      struct amd_gpu *g = &m->gpus[i];
      pthread_mutex_lock(&g->queues_lock);
      for (struct amd_queue *q = g->queues; q; q = q->next) {
        if (!atomic_load(&q->dispatching)) continue;
        atomic_store(&q->stop, true);
        busy = true;
      }
      pthread_mutex_unlock(&g->queues_lock);
    }
    if (busy) usleep(1000);
  }
}

/* ---- creating and freeing ---- */

static int gpu_init(struct amd_machine *m, unsigned index, const struct amd_model *model) {
  struct amd_gpu *g = &m->gpus[index];
  void *doorbells = NULL, *mmio = NULL;
  int rc;
  g->machine = m;
  g->index = index;
  g->model = model;
  g->shared = &m->shared;
  g->gpu_id = 0x6a10 + index * 0x1f;
  g->minor = 128 + index;
  g->vram.fd = g->doorbell_fd = g->mmio_fd = -1;
  pthread_mutex_init(&g->queues_lock, NULL);
  pthread_mutex_init(&g->counters.lock, NULL);
  amd_sqtt_init(&g->sqtt);
  m->ngpus = index + 1;
  atomic_init(&g->grbm_gfx_index, 0xe0000000u); /* broadcast to all instances */
  g->vm = vm_new();
  if (amd_perf_init(g) || !g->vm) return -ENOMEM;
  if ((rc = heap_init(&g->vram, "vram", model->vram_bytes))) return rc;
  if ((rc = emu_shared_page("doorbells", KFD_DOORBELL_MAP_SIZE, &g->doorbell_fd, &doorbells))) return rc;
  g->doorbells = doorbells;
  if ((rc = emu_shared_page("mmio", AMD_PAGE, &g->mmio_fd, &mmio))) return rc;
  g->mmio_page = mmio;
  return 0;
}

static void gpu_fini(struct amd_gpu *g) {
  amd_perf_fini(g);
  if (g->acquired) emu_file_put(&g->machine->base, &g->acquired->file);
  if (g->doorbells) munmap((void *)g->doorbells, KFD_DOORBELL_MAP_SIZE);
  if (g->mmio_page) munmap(g->mmio_page, AMD_PAGE);
  own_fd_close(g->doorbell_fd);
  own_fd_close(g->mmio_fd);
  heap_fini(&g->vram);
  vm_free(g->vm);
  pthread_mutex_destroy(&g->queues_lock);
  pthread_mutex_destroy(&g->counters.lock);
  amd_sqtt_free(&g->sqtt);
  free(g->counters.kernel);
  emu_notes_free(&g->counters.notes);
}

static void amd_machine_free(struct emu_machine *base) {
  struct amd_machine *m = machine_of(base);
  for (unsigned i = 0; i < m->ngpus; i++) amd_queues_fini(&m->gpus[i]);
  unsigned workers = m->shared.pool ? pool_workers(m->shared.pool) : 0;
  pool_free(m->shared.pool);
  for (unsigned i = 0; m->shared.cores && i <= workers; i++) shader_core_free(m->shared.cores[i]);
  free(m->shared.cores);
  amd_memory_fini(m);
  for (unsigned i = 0; i < m->ngpus; i++) gpu_fini(&m->gpus[i]);
  heap_fini(&m->gtt);
  amd_events_fini(&m->events);
  amd_sysfs_fini(m);
  pthread_mutex_destroy(&m->lock);
  free(m->gpus);
  emu_machine_fini(base);
  free(m);
}

/* ---- interrupts ---- */

static void gpu_interrupt(struct amd_gpu *gpu, uint32_t context, unsigned valid_bits) {
  amd_events_interrupt(&gpu->machine->events, context, valid_bits);
}

static const struct emu_machine_ops machine_ops = {
    .open = amd_open,
    .read_file = amd_read_file,
    .list_dir = amd_list_dir,
    .stats = amd_stats,
    .detail = amd_detail,
    .instructions = amd_instructions,
    .arch = amd_arch,
    .kernels = amd_kernels,
    .stop = amd_stop,
    .free = amd_machine_free,
};

/* Parses a comma-separated list of model names. Returns a negative errno and a reason on failure. */
static int parse_models(const char *gpus, const struct amd_model **models, unsigned *n, char *err, size_t errcap) {
  char known[128];
  amd_model_names(known, sizeof known);
  *n = 0;
  for (const char *at = gpus;;) {
    size_t length = strcspn(at, ",");
    const struct amd_model *model = amd_model_find(at, length);
    if (!model) {
      snprintf(err, errcap, "no emulated AMD GPU \"%.*s\"; known: %s", (int)(length > 64 ? 64 : length), at, known);
      return -EINVAL;
    }
    if (*n == AMD_MAX_GPUS) {
      snprintf(err, errcap, "an emulated machine has at most %d GPUs", AMD_MAX_GPUS);
      return -EINVAL;
    }
    models[(*n)++] = model;
    if (!at[length]) return 0;
    at += length + 1;
  }
}

/* A process can pin at most 15/16 of the host's memory, as in KFD. */
static uint64_t host_memory_limit(void) {
  struct sysinfo info;
  uint64_t total = sysinfo(&info) ? 0 : (uint64_t)info.totalram * info.mem_unit;
  return (total / 16 * 15 / AMD_PAGE + 1) * AMD_PAGE;
}

int amd_machine_new(const char *gpus, struct emu_machine **out, char *err, size_t errcap) {
  const struct amd_model *models[AMD_MAX_GPUS];
  unsigned n;
  int rc = parse_models(gpus ? gpus : "", models, &n, err, errcap);
  if (rc) return rc;
  struct amd_machine *m = calloc(1, sizeof *m);
  if (!m) goto no_memory;
  emu_machine_init(&m->base, &machine_ops);
  m->shared.machine = &m->base;
  m->shared.interrupt = gpu_interrupt;
  m->shared.fault = gpu_fault;
  m->gtt.fd = -1;
  pthread_mutex_init(&m->lock, NULL);
  amd_events_init(&m->events);
  m->gpus = calloc(n, sizeof *m->gpus);
  m->shared.pool = pool_new();
  if (m->shared.pool) m->shared.cores = calloc(pool_workers(m->shared.pool) + 1, sizeof(struct shader_core *));
  if (!m->gpus || !m->shared.pool || !m->shared.cores) goto no_memory;
  for (unsigned i = 0; i < n && !rc; i++) rc = gpu_init(m, i, models[i]);
  if (!rc) rc = heap_init(&m->gtt, "gtt", host_memory_limit());
  if (!rc) rc = amd_sysfs_init(m);
  if (!rc) {
    *out = &m->base;
    return 0;
  }
  snprintf(err, errcap, "emulated machine: %s", strerror(-rc));
  amd_machine_free(&m->base);
  return rc;
no_memory:
  if (m) amd_machine_free(&m->base);
  snprintf(err, errcap, "emulated machine: out of memory");
  return -ENOMEM;
}
