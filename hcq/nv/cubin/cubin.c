/* Reads cubins: kernels and their attributes. cubin_image.c handles the image. */
#include "cubin.h"
#include "../../error.h"
#include "cubin_image.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  ABI_FLAGS_LOW = 7,  /* with this e_ident[EI_ABIVERSION] the SM version is the low byte of e_flags */
  ABI_FLAGS_HIGH = 8, /* with this one it is the second byte */
  SHT_CUDA_INFO = 0x70000000,
  SHT_CUDA_CALLGRAPH = 0x70000001,
  STO_CUDA_ENTRY = 0x10,   /* in st_other: the function is a kernel */
  SHF_BARRIERS_SHIFT = 20, /* ptxas up to 12: number of barriers, in sh_flags of a .text section */
  SHF_BARRIERS_MASK = 0x7f,
};

/* Attributes of .nv.info sections; launches do not need the others. */
enum attribute {
  ATTR_MAX_THREADS = 0x05,
  ATTR_PARAM_CBANK = 0x0a,
  ATTR_EXTERNS = 0x0f,
  ATTR_REQNTID = 0x10,
  ATTR_MIN_STACK_SIZE = 0x12,
  ATTR_KPARAM_INFO = 0x17,
  ATTR_CRS_STACK_SIZE = 0x1e,
  ATTR_REGCOUNT = 0x2f,
  ATTR_CTA_PER_CLUSTER = 0x3d,
  ATTR_EXPLICIT_CLUSTER = 0x3e,
  ATTR_KPARAM_INFO_V2 = 0x45,
  ATTR_NUM_BARRIERS = 0x4c,
};
#define STACK_UNKNOWN UINT32_MAX

struct record {
  uint8_t attribute;
  const uint8_t *data;
  uint32_t size;
};

static uint32_t load16(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t load32(const uint8_t *p) { return load16(p) | load16(p + 2) << 16; }

/* ---- .nv.info: {format, attribute, value}; formats 1 to 3 hold two bytes, format 4 a length and bytes ---- */

static int next_record(const struct elf *e, unsigned section, uint64_t *at, struct record *out) {
  const Elf64_Shdr *s = &e->sections[section];
  const uint8_t *p = e->data + s->sh_offset + *at;
  uint64_t left = s->sh_size - *at;
  *out = (struct record){.data = p};
  if (left < 4) return left ? db_fail(-EINVAL, "cubin: %s ends inside a record", elf_section_name(e, section)) : 0;
  out->attribute = p[1];
  if (p[0] >= 1 && p[0] <= 3) {
    out->data = p + 2;
    out->size = p[0] == 1 ? 0 : p[0] - 1u;
    *at += 4;
    return 1;
  }
  if (p[0] != 4)
    return db_fail(-EINVAL, "cubin: %s has a record of format %u at 0x%llx", elf_section_name(e, section), p[0],
                   (unsigned long long)*at);
  out->data = p + 4;
  out->size = load16(p + 2);
  if (out->size > left - 4)
    return db_fail(-EINVAL, "cubin: a record of %u bytes at 0x%llx runs past the end of %s", out->size,
                   (unsigned long long)*at, elf_section_name(e, section));
  *at += 4 + out->size;
  return 1;
}

static int expect_size(const struct cubin_kernel *k, const struct record *r, uint32_t size) {
  if (r->size >= size) return 0;
  return db_fail(-EINVAL, "cubin: kernel %s: attribute 0x%02x has %u bytes, expected %u", k->name, r->attribute,
                 r->size, size);
}

static int read_param(struct cubin_kernel *k, const struct record *r) {
  int err = expect_size(k, r, 12);
  if (err) return err;
  uint32_t ordinal = load16(r->data + 4), offset = load16(r->data + 6), size;
  size = r->attribute == ATTR_KPARAM_INFO ? load32(r->data + 8) >> 18 : load16(r->data + 8);
  if (ordinal >= 4096) return db_fail(-EINVAL, "cubin: kernel %s: parameter %u", k->name, ordinal);
  if (ordinal >= k->nparams) {
    struct cubin_param *params = realloc(k->params, (ordinal + 1) * sizeof *params);
    if (!params) return db_fail(-ENOMEM, "cubin: out of memory for parameters");
    memset(params + k->nparams, 0, (ordinal + 1 - k->nparams) * sizeof *params);
    k->params = params;
    k->nparams = ordinal + 1;
  }
  if (!size || k->params[ordinal].size)
    return db_fail(-EINVAL, "cubin: kernel %s: parameter %u %s", k->name, ordinal,
                   size ? "is listed twice" : "has no size");
  k->params[ordinal] = (struct cubin_param){offset, size};
  return 0;
}

static int read_dims(struct cubin_kernel *k, const struct record *r, uint32_t dims[3]) {
  int err = expect_size(k, r, 12);
  for (int i = 0; i < 3 && !err; i++) {
    dims[i] = load32(r->data + 4 * i);
    if (!dims[i] || dims[i] > 1u << 20)
      err = db_fail(-EINVAL, "cubin: kernel %s: attribute 0x%02x has the value %u", k->name, r->attribute, dims[i]);
  }
  return err;
}

/* Reads one record of the kernel's own section. */
static int read_kernel_info(struct cubin *c, struct cubin_kernel *k, const struct record *r) {
  uint32_t dims[3];
  int err = 0;
  switch (r->attribute) {
  case ATTR_KPARAM_INFO:
  case ATTR_KPARAM_INFO_V2: return read_param(k, r);
  case ATTR_PARAM_CBANK:
    if ((err = expect_size(k, r, 8))) return err;
    k->param_base = load16(r->data + 4);
    k->param_bytes = load16(r->data + 6);
    return 0;
  case ATTR_MAX_THREADS:
    if ((err = read_dims(k, r, dims))) return err;
    k->max_threads = dims[0] * dims[1] * dims[2];
    if ((uint64_t)dims[0] * dims[1] * dims[2] > 1u << 20) k->max_threads = 1u << 20;
    return 0;
  case ATTR_REQNTID: return read_dims(k, r, k->required_block);
  case ATTR_CTA_PER_CLUSTER: return read_dims(k, r, k->cluster);
  case ATTR_EXPLICIT_CLUSTER: k->explicit_cluster = true; return 0;
  case ATTR_CRS_STACK_SIZE: k->calls = true; return 0;
  case ATTR_NUM_BARRIERS:
    if ((err = expect_size(k, r, 1))) return err;
    if (r->data[0] > k->barriers) k->barriers = r->data[0];
    return 0;
  case ATTR_EXTERNS:
    for (uint32_t i = 0; i + 4 <= r->size && !k->missing; i += 4) {
      Elf64_Sym sym;
      if ((err = elf_symbol(&c->elf.symbols, load32(r->data + i), &sym, &k->missing))) return err;
    }
    return 0;
  default: return 0;
  }
}

/* Reads registers and stack from the section for the whole file, which lists them by symbol. Functions that a kernel
 * calls may use more registers than its own code. If the kernel calls any, the maximum over all functions of the file
 * that are not kernels is included, because the exact number is not worth computing. */
static int read_file_info(struct cubin *c, struct cubin_kernel *k, unsigned section) {
  struct record r;
  uint64_t at = 0;
  int more;
  while ((more = next_record(&c->elf, section, &at, &r)) > 0) {
    if (r.attribute != ATTR_REGCOUNT && r.attribute != ATTR_MIN_STACK_SIZE) continue;
    int err = expect_size(k, &r, 8);
    if (err) return err;
    uint32_t symbol = load32(r.data), value = load32(r.data + 4);
    if (symbol != k->symbol) {
      Elf64_Sym sym;
      const char *name;
      if (r.attribute != ATTR_REGCOUNT || !k->calls) continue;
      if ((err = elf_symbol(&c->elf.symbols, symbol, &sym, &name))) return err;
      if (sym.st_other & STO_CUDA_ENTRY) continue;
    }
    if (r.attribute == ATTR_REGCOUNT) {
      if (value > k->registers) k->registers = value;
    } else if (value == STACK_UNKNOWN) {
      k->calls = true;
    } else if (value > k->local_bytes) {
      k->local_bytes = value;
    }
  }
  return more;
}

/* ---- the call graph: pairs of symbols in groups; a pair {0, -n} begins group n ---- */

enum { CALLS_DIRECT = 1, CALLS_ADDRESS_TAKEN = 2, CALLS_INDIRECT = 3, CALLS_REFERS = 4 };

static void mark_reached(const struct cubin *c, const uint8_t *pairs, uint64_t n, uint8_t *reached, bool *changed) {
  unsigned group = 0;
  bool indirect = false;
  for (uint64_t i = 0; i < n; i++) {
    uint32_t from = load32(pairs + i * 8), to = load32(pairs + i * 8 + 4);
    if (!from && to >= -4u) {
      group = -to;
    } else if (from < c->elf.symbols.count && group == CALLS_INDIRECT) {
      indirect |= reached[from];
    } else if (from < c->elf.symbols.count && to < c->elf.symbols.count && reached[from] && !reached[to] &&
               (group == CALLS_DIRECT || group == CALLS_REFERS)) {
      reached[to] = 1;
      *changed = true;
    }
  }
  if (!indirect) return;
  for (uint64_t i = 0; i < n; i++) { /* an indirect call may reach every function whose address is taken */
    uint32_t from = load32(pairs + i * 8), to = load32(pairs + i * 8 + 4);
    if (!from && to >= -4u) group = -to;
    if (from && from < c->elf.symbols.count && group == CALLS_ADDRESS_TAKEN && !reached[from]) {
      reached[from] = 1;
      *changed = true;
    }
  }
}

static int read_call_graph(struct cubin *c, struct cubin_kernel *k, unsigned section) {
  const Elf64_Shdr *s = &c->elf.sections[section];
  const uint8_t *pairs = c->elf.data + s->sh_offset;
  uint64_t n = s->sh_size / 8;
  uint8_t *reached = calloc(c->elf.symbols.count + 1u, 1);
  if (!reached) return db_fail(-ENOMEM, "cubin: out of memory for the call graph");
  reached[k->symbol] = 1;
  bool changed = true;
  for (unsigned pass = 0; changed && pass < 1000; pass++) {
    changed = false;
    mark_reached(c, pairs, n, reached, &changed);
  }
  int err = changed ? db_fail(-ENOTSUP, "not supported: cubin with calls nested 1000 deep") : 0;
  for (unsigned i = 1; i < c->elf.symbols.count && !err; i++) {
    Elf64_Sym sym;
    const char *name;
    if (!reached[i] || i == k->symbol) continue;
    k->calls = true;
    if (!(err = elf_symbol(&c->elf.symbols, i, &sym, &name)) && sym.st_shndx == SHN_UNDEF && !k->missing)
      k->missing = name;
  }
  free(reached);
  return err;
}

/* ---- kernels ---- */

/* Size of the section named PREFIX KERNEL; 0 if there is none. */
static uint64_t own_section_size(const struct elf *e, const char *prefix, const char *kernel) {
  size_t n = strlen(prefix);
  for (unsigned i = 1; i < e->nsections; i++) {
    const char *name = elf_section_name(e, i);
    if (!strncmp(name, prefix, n) && !strcmp(name + n, kernel)) return e->sections[i].sh_size;
  }
  return 0;
}

static int read_banks(const struct cubin *c, struct cubin_kernel *k) {
  for (unsigned i = 1; i < c->elf.nsections; i++) {
    unsigned bank;
    const char *name = elf_section_name(&c->elf, i), *owner;
    uint64_t size = c->elf.sections[i].sh_size;
    if (c->placed[i] == ELF_NOT_PLACED || !size || !cubin_bank_of(name, &bank, &owner)) continue;
    if (owner && strcmp(owner, k->name)) continue;
    if (bank >= CUBIN_BANKS)
      return db_fail(-ENOTSUP, "cubin: kernel %s: not supported: constant bank %u", k->name, bank);
    if (size > 0x10000) return db_fail(-EINVAL, "cubin: %s has %llu bytes", name, (unsigned long long)size);
    k->bank[bank] = (struct cubin_bank){c->placed[i], (uint32_t)size};
  }
  return 0;
}

static int check_params(struct cubin *c, struct cubin_kernel *k) {
  uint64_t constant0 = own_section_size(&c->elf, ".nv.constant0.", k->name);
  if (!k->param_base) { /* some versions write no PARAM_CBANK for a kernel without parameters */
    if (k->nparams) return db_fail(-EINVAL, "cubin: kernel %s does not state where its parameters are", k->name);
    k->param_base = (uint32_t)(constant0 < 0x10000 ? constant0 : 0);
  }
  if (k->param_base + k->param_bytes > 0x10000)
    return db_fail(-EINVAL, "cubin: kernel %s: %u bytes of parameters at 0x%x", k->name, k->param_bytes, k->param_base);
  for (unsigned i = 0; i < k->nparams; i++) {
    const struct cubin_param *p = &k->params[i];
    if (!p->size)
      return db_fail(-EINVAL, "cubin: kernel %s does not describe parameter %u of %u", k->name, i, k->nparams);
    if (p->offset + p->size > k->param_bytes)
      return db_fail(-EINVAL, "cubin: kernel %s: parameter %u, %u bytes at %u, exceeds the %u bytes of all parameters",
                     k->name, i, p->size, p->offset, k->param_bytes);
  }
  return 0;
}

static int check_tensor(const struct cubin_kernel *k, unsigned i) {
  const struct tensor_description *d = &k->tensor[i];
  unsigned own = k->nparams - k->ntensors;
  const struct cubin_param *map = &k->params[own + i];
  bool ok = d->rank && d->rank <= TENSOR_DIMS && d->type < TENSOR_TYPES && d->swizzle < 4 && !(d->steps & 7) &&
            !(d->steps >> 3 * TENSOR_DIMS);
  for (unsigned n = 0; ok && n < d->rank; n++) ok = d->size[n] && d->box[n] && d->box[n] <= 256;
  if (!ok || d->slot >= own || k->params[d->slot].size != 8)
    return db_fail(-EINVAL, "cubin: kernel %s: tensor map %u is not valid", k->name, i);
  if (map->size != TENSOR_MAP_WORDS * 8 || (k->param_base + map->offset) % TENSOR_MAP_ALIGN)
    return db_fail(-EINVAL, "cubin: kernel %s: the parameter of tensor map %u has %u bytes at 0x%x", k->name, i,
                   map->size, k->param_base + map->offset);
  return 0;
}

/* Reads the descriptions of the tensor maps among the parameters. */
static int read_tensors(const struct cubin *c, struct cubin_kernel *k) {
  char name[160];
  Elf64_Sym sym;
  const char *found;
  if (snprintf(name, sizeof name, "__doorbell_tensors_%s", k->name) >= (int)sizeof name) return 0;
  int at = elf_find_symbol(&c->elf, name);
  if (at < 0) return 0;
  int err = elf_symbol(&c->elf.symbols, (unsigned)at, &sym, &found);
  if (err) return err;
  const Elf64_Shdr *s = sym.st_shndx < c->elf.nsections ? &c->elf.sections[sym.st_shndx] : NULL;
  uint64_t n = sym.st_size / sizeof *k->tensor;
  if (!s || s->sh_type != SHT_PROGBITS || sym.st_value > s->sh_size || sym.st_size > s->sh_size - sym.st_value ||
      sym.st_size % sizeof *k->tensor || n > MAX_TENSORS || n > k->nparams)
    return db_fail(-EINVAL, "cubin: %s has %llu bytes", name, (unsigned long long)sym.st_size);
  memcpy(k->tensor, c->elf.data + s->sh_offset + sym.st_value, sym.st_size);
  k->ntensors = (unsigned)n;
  for (unsigned i = 0; i < k->ntensors && !err; i++) err = check_tensor(k, i);
  return err;
}

static int read_kernel(struct cubin *c, struct cubin_kernel *k, const Elf64_Sym *sym) {
  const struct elf *e = &c->elf;
  if (sym->st_shndx >= e->nsections || c->placed[sym->st_shndx] == ELF_NOT_PLACED)
    return db_fail(-EINVAL, "cubin: kernel %s is in section %u, which has no code", k->name, sym->st_shndx);
  const Elf64_Shdr *text = &e->sections[sym->st_shndx];
  if (sym->st_value > text->sh_size || sym->st_size > text->sh_size - sym->st_value || sym->st_value % 128)
    return db_fail(-EINVAL, "cubin: kernel %s, 0x%llx bytes at 0x%llx, is not inside its section (0x%llx bytes)",
                   k->name, (unsigned long long)sym->st_size, (unsigned long long)sym->st_value,
                   (unsigned long long)text->sh_size);
  k->section = sym->st_shndx;
  k->entry = c->placed[sym->st_shndx] + sym->st_value;
  k->code_bytes = text->sh_size - sym->st_value;
  k->barriers = (uint32_t)(text->sh_flags >> SHF_BARRIERS_SHIFT & SHF_BARRIERS_MASK);
  for (int i = 0; i < 3; i++) k->cluster[i] = 1;
  int err = 0;
  for (unsigned i = 1; i < e->nsections && !err; i++) {
    if (e->sections[i].sh_type == SHT_CUDA_CALLGRAPH) err = read_call_graph(c, k, i);
    if (e->sections[i].sh_type != SHT_CUDA_INFO || e->sections[i].sh_info != k->section) continue;
    struct record r;
    uint64_t at = 0;
    int more;
    while ((more = next_record(e, i, &at, &r)) > 0 && !err) err = read_kernel_info(c, k, &r);
    if (more < 0) err = more;
  }
  for (unsigned i = 1; i < e->nsections && !err; i++)
    if (e->sections[i].sh_type == SHT_CUDA_INFO && !e->sections[i].sh_info) err = read_file_info(c, k, i);
  if (!k->registers && c->sm < 90) k->registers = text->sh_info >> 24;
  if (!err) err = check_params(c, k);
  if (!err) err = read_tensors(c, k);
  if (!err) err = read_banks(c, k);
  if (err) return err;
  uint64_t shared = own_section_size(e, ".nv.shared.", k->name);
  if (!k->registers || k->registers > 255)
    return db_fail(-EINVAL, "cubin: kernel %s uses %u registers", k->name, k->registers);
  if (k->barriers > 16) return db_fail(-EINVAL, "cubin: kernel %s uses %u barriers", k->name, k->barriers);
  if (shared > 1u << 20 || k->local_bytes > 1u << 24)
    return db_fail(-EINVAL, "cubin: kernel %s uses %llu bytes of shared and %u of local memory", k->name,
                   (unsigned long long)shared, k->local_bytes);
  k->shared_bytes = (uint32_t)shared;
  return 0;
}

static int read_kernels(struct cubin *c) {
  const struct elf_symbols *symbols = &c->elf.symbols;
  for (unsigned i = 1; i < symbols->count; i++) {
    Elf64_Sym sym;
    const char *name;
    int err = elf_symbol(symbols, i, &sym, &name);
    if (err) return err;
    if (ELF64_ST_TYPE(sym.st_info) != STT_FUNC || !(sym.st_other & STO_CUDA_ENTRY) || sym.st_shndx == SHN_UNDEF)
      continue;
    struct cubin_kernel *kernels = realloc(c->kernels, (c->nkernels + 1) * sizeof *kernels);
    if (!kernels) return db_fail(-ENOMEM, "cubin: out of memory for kernels");
    c->kernels = kernels;
    kernels[c->nkernels] = (struct cubin_kernel){.name = name, .symbol = i};
    if ((err = read_kernel(c, &kernels[c->nkernels++], &sym))) return err;
  }
  return c->nkernels ? 0 : db_fail(-EINVAL, "cubin: the file has no kernel");
}

int cubin_open(struct cubin *c, const void *image, size_t size) {
  *c = (struct cubin){0};
  int err = elf_open(&c->elf, image, size);
  if (err) return err;
  const Elf64_Ehdr *h = &c->elf.header;
  if (h->e_machine != EM_CUDA || h->e_type != ET_EXEC) {
    err = h->e_machine == EM_CUDA
              ? db_fail(-EINVAL, "not supported: unlinked cubin (ELF type %u)", h->e_type)
              : db_fail(-EINVAL, "cubin: the program is for %s, not for an NVIDIA GPU (ELF machine %u)",
                        elf_machine_name(h->e_machine), h->e_machine);
    goto out;
  }
  unsigned abi = h->e_ident[EI_ABIVERSION];
  c->sm = abi == ABI_FLAGS_HIGH ? h->e_flags >> 8 & 0xff : h->e_flags & 0xff;
  if ((abi != ABI_FLAGS_LOW && abi != ABI_FLAGS_HIGH) || c->sm < 10) {
    err = db_fail(-ENOTSUP, "not supported: cubin of ABI version %u with flags 0x%x", abi, h->e_flags);
    goto out;
  }
  if (!(err = cubin_place(c))) err = read_kernels(c);
out:
  if (err) cubin_close(c);
  return err;
}

void cubin_close(struct cubin *c) {
  for (unsigned i = 0; i < c->nkernels; i++) free(c->kernels[i].params);
  free(c->kernels);
  free(c->placed);
  elf_close(&c->elf);
  *c = (struct cubin){0};
}

const struct cubin_kernel *cubin_find(const struct cubin *c, const char *name) {
  char names[256] = "";
  size_t at = 0;
  if (!name && c->nkernels == 1) return &c->kernels[0];
  for (unsigned i = 0; i < c->nkernels; i++) {
    if (name && !strcmp(c->kernels[i].name, name)) return &c->kernels[i];
    if (at < sizeof names - 1)
      at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", c->kernels[i].name);
  }
  if (!name) return db_fail_null(-EINVAL, "the cubin has %u kernels (%s): name one", c->nkernels, names);
  return db_fail_null(-ENOENT, "the cubin has no kernel %.128s; it has: %s", name, names);
}
