/* Loads programs of NVIDIA GPUs. */
#include "program.h"
#include "cubin/cubin.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stack for calls that the compiler could not count: recursion, function pointers. CUDA's default is 1 KiB. */
#define CALL_STACK_BYTES 4096u
#define LOCAL_ALIGN      32u

static void program_destroy(struct hcq_object *object) {
  struct nv_program *p = (struct nv_program *)object;
  db_device *dev = p->base.dev;
  if (p->code) hcq_release(&p->code->object);
  free(p->base.params);
  free(p->base.image);
  free(p->base.copied);
  free(p);
  hcq_release(&dev->object);
}

static int upload(struct nv_program *p, const struct cubin *c) {
  db_device *dev = p->base.dev;
  p->code = hcq_buffer_new(dev, c->size, 0, true);
  if (!p->code) return -ENOMEM;
  void *copy = malloc(c->size);
  if (!copy) return db_fail(-ENOMEM, "%s: out of host memory for a program", dev->name);
  int err = cubin_load(c, copy, p->code->address);
  if (!err) err = db_buffer_write(p->code, 0, copy, c->size);
  free(copy);
  return err;
}

/* Code runs on its own architecture and on later ones with the same major version. */
static int check_arch(const db_device *dev, const struct cubin *c, unsigned sm) {
  if (c->sm / 10 == sm / 10 && c->sm <= sm) return 0;
  return db_fail(-ENOEXEC, "%s: the cubin is for sm_%u, the device is %s", dev->name, c->sm, dev->arch);
}

static int copy_params(struct nv_program *p, const struct cubin_kernel *k, const struct db_param *extra,
                       unsigned nextra) {
  p->base.params = calloc(k->nparams + nextra + 1u, sizeof *p->base.params);
  if (!p->base.params) return db_fail(-ENOMEM, "%s: out of host memory for a program", p->base.dev->name);
  for (unsigned i = 0; i < k->nparams - k->ntensors; i++) {
    struct db_param *param = &p->base.params[p->base.nparams++];
    snprintf(param->name, sizeof param->name, "arg%u", i);
    param->offset = k->param_base + k->params[i].offset;
    param->size = k->params[i].size;
    /* The file does not distinguish pointers from other values of 8 bytes. */
    param->kind = param->size == 8 ? DB_PARAM_BUFFER : DB_PARAM_VALUE;
  }
  for (unsigned i = 0; i < nextra; i++) {
    struct db_param *param = &p->base.params[p->base.nparams++];
    *param = extra[i];
    param->offset = 0;
  }
  return 0;
}

/* The caller does not pass tensor maps: each launch stores the address of the tensor's argument in the map. */
static int copy_tensors(struct nv_program *p, const struct cubin_kernel *k) {
  p->base.copied = calloc(k->ntensors + 1u, sizeof *p->base.copied);
  if (!p->base.copied) return db_fail(-ENOMEM, "%s: out of host memory for a program", p->base.dev->name);
  p->launch.tensors = k->ntensors > 0;
  for (unsigned i = 0; i < k->ntensors; i++) {
    struct nv_tensor *t = &p->tensor[p->ntensors++];
    t->offset = k->param_base + k->params[k->nparams - k->ntensors + i].offset;
    tensor_map_encode(t->map, &k->tensor[i]);
    p->base.copied[p->base.ncopied++] =
        (struct hcq_copied){k->tensor[i].slot, t->offset, (uint64_t)k->tensor[i].offset * 16};
  }
  return 0;
}

static int check_limits(const struct nv_program *p, const struct cubin_kernel *k) {
  const char *dev = p->base.dev->name;
  const struct nv_arch *a = p->launch.arch;
  uint32_t system = a->reserve_in_size ? 0 : a->shared_reserved;
  if (k->missing) return db_fail(-ENOTSUP, "%s: kernel %s: not supported: calls %s", dev, k->name, k->missing);
  if (p->base.local_size + system > a->shared_max)
    return db_fail(-EINVAL, "%s: kernel %s needs %u bytes of shared memory, a block has at most %u", dev, k->name,
                   p->base.local_size, a->shared_max - system);
  if (k->param_base != a->param_base)
    return db_fail(-ENOTSUP, "%s: kernel %s: not supported: parameters at 0x%x of constant bank 0, expected 0x%x", dev,
                   k->name, k->param_base, a->param_base);
  if (k->cluster[0] * k->cluster[1] * k->cluster[2] > 16)
    return db_fail(-EINVAL, "%s: kernel %s: clusters of %ux%ux%u blocks, at most 16 are possible", dev, k->name,
                   k->cluster[0], k->cluster[1], k->cluster[2]);
  return 0;
}

static int copy_kernel(struct nv_program *p, const struct cubin_kernel *k) {
  struct nv_device *dev = nv_device(p->base.dev);
  struct nv_launch *l = &p->launch;
  if (strlen(k->name) >= sizeof p->base.name)
    return db_fail(-ENAMETOOLONG, "%s: kernel %.32s...: the name has more than %zu characters", dev->base.name, k->name,
                   sizeof p->base.name - 1);
  strcpy(p->base.name, k->name);
  p->base.local_size = k->shared_bytes;
  if (l->arch->reserve_in_size && p->base.local_size < l->arch->shared_reserved)
    p->base.local_size = l->arch->shared_reserved;
  int err = check_limits(p, k);
  if (err) return err;
  uint32_t bank0 = k->param_base + k->param_bytes;
  p->qmd_offset = (bank0 + QMD_ALIGN - 1) & ~(QMD_ALIGN - 1);
  p->base.kernarg_size = p->qmd_offset + qmd_words(l->arch->qmd) * 4;
  p->base.kernarg_align = QMD_ALIGN;
  p->max_threads = k->max_threads ? k->max_threads : 1024;
  memcpy(p->required_block, k->required_block, sizeof p->required_block);
  l->registers = k->registers;
  p->base.registers = k->registers;
  p->base.private_size = k->local_bytes;
  p->base.wave = 32;
  l->barriers = k->barriers;
  l->explicit_cluster = k->explicit_cluster;
  memcpy(l->cluster, k->cluster, sizeof l->cluster);
  l->local_size = (k->local_bytes + (k->calls ? CALL_STACK_BYTES : 0) + LOCAL_ALIGN - 1) & ~(LOCAL_ALIGN - 1);
  l->shared_window = dev->machine->shared_window;
  l->local_window = dev->machine->local_window;
  l->sms = dev->sms;
  l->max_warps_per_sm = dev->max_warps_per_sm;
  l->bank[0].size = bank0;
  return 0;
}

/* params may request dynamic shared memory: entries of kind DB_PARAM_LOCAL and size 0, which follow the kernel's own
 * parameters. Others are rejected, because a cubin describes its parameters itself. */
static int check_extra(const db_device *dev, const struct db_param *params, unsigned nparams) {
  for (unsigned i = 0; i < nparams; i++)
    if (params[i].kind != DB_PARAM_LOCAL || params[i].size)
      return db_fail(-EINVAL, "%s: a cubin describes its own parameters; only dynamic shared memory may be added",
                     dev->name);
  return 0;
}

int nv_program_load(db_device *base, const void *image, size_t size, const char *entry, const struct db_param *params,
                    unsigned nparams, db_program **out) {
  struct nv_device *dev = nv_device(base);
  const struct nv_arch *arch = nv_arch(dev->sm_version);
  if (!arch) return db_fail(-ENOTSUP, "%s: not supported: programs for %s", base->name, base->arch);
  int err = check_extra(base, params, nparams);
  if (err) return err;
  struct cubin c;
  if ((err = cubin_open(&c, image, size))) return err;
  struct nv_program *p = NULL;
  const struct cubin_kernel *k = NULL;
  if ((err = check_arch(base, &c, arch->sm))) goto out;
  if (!(k = cubin_find(&c, entry))) {
    err = -ENOENT;
    goto out;
  }
  if (!(p = calloc(1, sizeof *p))) {
    err = db_fail(-ENOMEM, "%s: out of host memory for a program", base->name);
    goto out;
  }
  hcq_object_init(&p->base.object, program_destroy);
  p->base.dev = base;
  hcq_retain(&base->object);
  p->launch.arch = arch;
  if ((err = copy_kernel(p, k)) || (err = copy_params(p, k, params, nparams)) || (err = copy_tensors(p, k)) ||
      (err = upload(p, &c)))
    goto out;
  p->launch.program = p->base.address = p->code->address + k->entry;
  for (unsigned i = 1; i < CUBIN_BANKS; i++)
    p->launch.bank[i] = (struct nv_bank){p->code->address + k->bank[i].offset, k->bank[i].size};
  if (p->launch.local_size) err = nv_local_reserve(dev, p->launch.local_size);
out:
  if (err && p) hcq_release(&p->base.object);
  if (!err) *out = &p->base;
  cubin_close(&c);
  return err;
}
