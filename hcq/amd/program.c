/* Programs of AMD GPUs: one kernel of a code object, with its code in device memory. */
#include "amd.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Features that only a queue of the HSA runtime provides, or that gfx11 does not have. Kernels that request them are
 * rejected. */
static const struct {
  unsigned bit;
  const char *what;
} refused[] = {
    {KERNEL_CODE_PRIVATE_SEGMENT_BUFFER_SHIFT, "a private segment buffer"},
    {KERNEL_CODE_QUEUE_PTR_SHIFT, "the address of an HSA queue"},
    {KERNEL_CODE_FLAT_SCRATCH_INIT_SHIFT, "flat scratch in user registers"},
};
#define DYNAMIC_STACK_BYTES 4096u /* in addition to the compiler's count, for calls that it could not analyze */
#define AQL_PACKET_BYTES    64u
/* COMPUTE_PGM_RSRC1.GRANULATED_WORKITEM_VGPR_COUNT: from gfx10 on, granules of 8 registers in waves of 32 and of 4 in
 * waves of 64, minus one. Source: LLVM's AMDGPUUsage. */
#define VGPR_GRANULES 0x3fu

static void program_destroy(struct hcq_object *object) {
  struct amd_program *p = (struct amd_program *)object;
  db_device *dev = p->base.dev;
  if (p->code) hcq_release(&p->code->object);
  free(p->base.params);
  free(p->base.image);
  free(p->hidden);
  free(p);
  hcq_release(&dev->object);
}

/* Copies the code to device memory. The host writes it directly if it can address all device memory. */
static int upload(struct amd_program *p, const struct code_object *co) {
  struct amd_device *dev = amd_device(p->base.dev);
  bool window = dev->node->vram_public;
  p->code = hcq_buffer_new(&dev->base, co->image.size + co->image.align, window ? DB_BUFFER_CPU_MAP : 0, true);
  if (!p->code) return -ENOMEM;
  uint64_t offset = -p->code->address & (co->image.align - 1);
  p->base.address += p->code->address + offset;
  if (window) {
    int err = code_object_load(co, p->code->host + offset, p->code->address + offset);
    atomic_fetch_add_explicit(&dev->hdp_writes, 1, memory_order_release);
    return err;
  }
  void *copy = malloc(co->image.size);
  if (!copy) return db_fail(-ENOMEM, "%s: out of host memory for a program", dev->base.name);
  int err = code_object_load(co, copy, p->code->address + offset);
  if (!err) err = db_buffer_write(p->code, offset, copy, co->image.size);
  free(copy);
  return err;
}

/* Services that the driver does not provide, identified by the hidden argument through which code uses them. Compilers
 * name only the arguments that a kernel uses, except where they do not analyze it (-O0, calls of unknown functions):
 * then they name all, so a file that names all of them proves nothing about its needs. */
static const struct {
  enum code_object_kind kind;
  const char *what;
} services[] = {
    {CODE_OBJECT_HIDDEN_PRINTF_BUFFER, "printf"},
    {CODE_OBJECT_HIDDEN_HEAP_V1, "a heap (malloc)"},
    {CODE_OBJECT_HIDDEN_HOSTCALL_BUFFER, "calls to the host (printf, assert, malloc)"},
    {CODE_OBJECT_HIDDEN_DEFAULT_QUEUE, "a queue for kernels that it launches itself"},
    {CODE_OBJECT_HIDDEN_COMPLETION_ACTION, "a queue for kernels that it launches itself"},
    {CODE_OBJECT_HIDDEN_MULTIGRID_SYNC_ARG, "a cooperative launch"},
};
static int check_services(const struct amd_program *p, const struct code_object_kernel *k) {
  enum { SERVICES = sizeof services / sizeof *services, CERTAIN = 1, UNKNOWN = (1 << SERVICES) - 1 - 3 };
  unsigned named = 0;
  for (unsigned i = 0; i < k->nargs; i++)
    for (unsigned s = 0; s < SERVICES; s++)
      if (k->args[i].kind == services[s].kind) named |= 1u << s;
  if ((named & UNKNOWN) == UNKNOWN) named &= CERTAIN; /* version 4 code objects do not name the heap */
  if (!named) return 0;
  return db_fail(-ENOTSUP, "%s: kernel %s: not supported: it needs %s", p->base.dev->name, k->name,
                 services[__builtin_ctz(named)].what);
}

static int copy_params(struct amd_program *p, const struct code_object_kernel *k, const struct db_param *extra,
                       unsigned nextra) {
  p->base.params = calloc(k->nargs + nextra + 1u, sizeof *p->base.params);
  p->hidden = calloc(k->nargs + 1u, sizeof *p->hidden);
  if (!p->base.params || !p->hidden) return db_fail(-ENOMEM, "%s: out of host memory for a program", p->base.dev->name);
  for (unsigned i = 0; i < k->nargs; i++) {
    const struct code_object_arg *a = &k->args[i];
    if (code_object_is_hidden(a->kind)) {
      if (!amd_fills_hidden(a->kind)) continue;
      p->hidden[p->nhidden] = *a;
      p->hidden[p->nhidden++].name = NULL; /* points into the file, which does not outlive loading */
      continue;
    }
    struct db_param *param = &p->base.params[p->base.nparams++];
    param->offset = a->offset;
    param->size = a->size;
    strncpy(param->name, a->name, sizeof param->name - 1);
    switch (a->kind) {
    case CODE_OBJECT_GLOBAL_BUFFER: param->kind = DB_PARAM_BUFFER; break;
    case CODE_OBJECT_BY_VALUE: param->kind = DB_PARAM_VALUE; break;
    case CODE_OBJECT_DYNAMIC_SHARED_POINTER: param->kind = DB_PARAM_LOCAL; break;
    default:
      return db_fail(-ENOTSUP, "%s: kernel %s: not supported: argument %u (%s) is an image, sampler, pipe or queue",
                     p->base.dev->name, k->name, i, a->name);
    }
  }
  for (unsigned i = 0; i < nextra; i++) p->base.params[p->base.nparams++] = extra[i];
  return check_services(p, k);
}

static int copy_kernel(struct amd_program *p, const struct code_object_kernel *k, const struct db_param *extra,
                       unsigned nextra) {
  const char *dev = p->base.dev->name;
  const struct kernel_descriptor *d = &k->descriptor;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (d->kernel_code_properties >> refused[i].bit & 1)
      return db_fail(-ENOTSUP, "%s: kernel %s: not supported: it needs %s", dev, k->name, refused[i].what);
  if (d->kernarg_preload) return db_fail(-ENOTSUP, "%s: kernel %s: not supported: preloaded arguments", dev, k->name);
  if (strlen(k->name) >= sizeof p->base.name)
    return db_fail(-ENAMETOOLONG, "%s: kernel %.32s...: the name has more than %zu characters", dev, k->name,
                   sizeof p->base.name - 1);
  strcpy(p->base.name, k->name);
  p->rsrc1 = d->compute_pgm_rsrc1;
  p->rsrc2 = d->compute_pgm_rsrc2;
  p->rsrc3 = d->compute_pgm_rsrc3;
  p->properties = d->kernel_code_properties;
  p->wave32 = d->kernel_code_properties >> KERNEL_CODE_WAVEFRONT_SIZE32_SHIFT & 1;
  p->private_bytes = k->private_bytes + (k->dynamic_stack ? DYNAMIC_STACK_BYTES : 0);
  p->max_block = k->max_flat_workgroup_size;
  memcpy(p->required_block, k->reqd_workgroup_size, sizeof p->required_block);
  p->base.local_size = k->group_bytes;
  p->base.wave = p->wave32 ? 32 : 64;
  p->base.registers = ((d->compute_pgm_rsrc1 & VGPR_GRANULES) + 1) * (p->wave32 ? 8 : 4);
  p->base.private_size = p->private_bytes;
  p->base.kernarg_size = k->kernarg_size;
  p->base.kernarg_align = 64;
  if (d->kernel_code_properties >> KERNEL_CODE_DISPATCH_PTR_SHIFT & 1) {
    p->aql_offset = (k->kernarg_size + 63) & ~63u;
    if (!p->aql_offset) p->aql_offset = 64;
    p->base.kernarg_size = p->aql_offset + AQL_PACKET_BYTES;
  }
  if (k->kernarg_size > HCQ_CHUNK_SIZE / 2)
    return db_fail(-ENOTSUP, "%s: kernel %s: not supported: %u bytes of arguments", dev, k->name, k->kernarg_size);
  p->base.address = k->entry_offset; /* upload adds that of the code */
  return copy_params(p, k, extra, nextra);
}

int amd_program_load(db_device *dev, const void *image, size_t size, const char *entry, const struct db_param *params,
                     unsigned nparams, db_program **out) {
  struct code_object co;
  for (unsigned i = 0; i < nparams; i++)
    if (params[i].kind != DB_PARAM_LOCAL || params[i].size)
      return db_fail(-EINVAL, "%s: a code object describes its own parameters; only dynamic local memory may be added",
                     dev->name);
  int err = code_object_open(&co, image, size, dev->arch);
  if (err) return err;
  struct amd_program *p = NULL;
  const struct code_object_kernel *k = code_object_find(&co, entry);
  if (!k) {
    err = -ENOENT;
    goto out;
  }
  if (!(p = calloc(1, sizeof *p))) {
    err = db_fail(-ENOMEM, "%s: out of host memory for a program", dev->name);
    goto out;
  }
  hcq_object_init(&p->base.object, program_destroy);
  p->base.dev = dev;
  hcq_retain(&dev->object);
  if (!(err = copy_kernel(p, k, params, nparams))) err = upload(p, &co);
  if (err)
    hcq_release(&p->base.object);
  else
    *out = &p->base;
out:
  code_object_close(&co);
  return err;
}
