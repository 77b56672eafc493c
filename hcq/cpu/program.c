/* Kernels for the host: relocatable objects loaded into memory that is first writable, then executable, never both. */
#include "../elf/elf.h"
#define _GNU_SOURCE
#include "cpu.h"
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- functions that compilers call implicitly ----
 *
 * Conversions of 16-bit floats (names and meaning: compiler-rt's fp_extend, fp_trunc). bfloat16 is passed in the same
 * register as half, so its functions are declared with _Float16 and only move bits; this also supports compilers
 * without a bfloat16 type. */

static float bits_float(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static uint32_t float_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
static _Float16 bits_half(uint16_t u) {
  _Float16 h;
  memcpy(&h, &u, 2);
  return h;
}
static uint16_t half_bits(_Float16 h) {
  uint16_t u;
  memcpy(&u, &h, 2);
  return u;
}

static float half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return bits_float(sign | 0x7f800000 | fraction << 13);
  if (exponent) return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
  float f = (float)fraction * 0x1p-24f;
  return sign ? -f : f;
}

/* Rounds to nearest, ties to even. The argument is a double, so a conversion from either width rounds once. */
static uint16_t double_to_half(double d) {
  uint64_t u;
  memcpy(&u, &d, 8);
  uint16_t sign = (uint16_t)(u >> 48 & 0x8000);
  double a = fabs(d);
  if (d != d) return (uint16_t)(sign | 0x7e00 | (u >> 42 & 0x3ff));
  if (a >= 65520.0) return sign | 0x7c00;
  int exponent = (int)(u >> 52 & 0x7ff) - 1023;
  if (exponent < -14) exponent = -14;
  /* The half's unit in the last place at this exponent. nearbyint rounds to a multiple of it. */
  double unit = ldexp(1.0, exponent - 10);
  double n = nearbyint(a / unit);
  uint32_t fraction = (uint32_t)n;
  return (uint16_t)(sign | (((uint32_t)(exponent + 14) << 10) + fraction));
}

static uint16_t float_to_bfloat(float f) {
  uint32_t u = float_bits(f);
  if (f != f) return (uint16_t)(u >> 16 | 0x40);
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
/* Rounds a double to odd at float's width. Rounding the result to bfloat16 then gives the same value as rounding the
 * double directly. */
static float round_to_odd(double d) {
  float f = (float)d;
  if (d != d || (double)f == d || isinf(f)) return f;
  uint32_t u = float_bits(f);
  if (fabs((double)f) > fabs(d)) u--;
  return bits_float(u | 1);
}

static float extendhfsf2(_Float16 h) { return half_to_float(half_bits(h)); }
static double extendhfdf2(_Float16 h) { return (double)half_to_float(half_bits(h)); }
static _Float16 truncsfhf2(float f) { return bits_half(double_to_half((double)f)); }
static _Float16 truncdfhf2(double d) { return bits_half(double_to_half(d)); }
static float extendbfsf2(_Float16 b) { return bits_float((uint32_t)half_bits(b) << 16); }
static _Float16 truncsfbf2(float f) { return bits_half(float_to_bfloat(f)); }
static _Float16 truncdfbf2(double d) { return bits_half(float_to_bfloat(round_to_odd(d))); }

static const struct {
  const char *name;
  void *function;
} own_symbols[] = {
    {"__extendhfsf2", (void *)extendhfsf2}, {"__extendhfdf2", (void *)extendhfdf2},
    {"__truncsfhf2", (void *)truncsfhf2},   {"__truncdfhf2", (void *)truncdfhf2},
    {"__extendbfsf2", (void *)extendbfsf2}, {"__truncsfbf2", (void *)truncsfbf2},
    {"__truncdfbf2", (void *)truncdfbf2},
};

void *cpu_symbol(const char *name) {
  for (size_t i = 0; i < sizeof own_symbols / sizeof *own_symbols; i++)
    if (!strcmp(name, own_symbols[i].name)) return own_symbols[i].function;
  void *p = dlsym(RTLD_DEFAULT, name);
  if (p) return p;
  void *libm = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL); /* dlopen counts references, so opening it again is cheap */
  return libm ? dlsym(libm, name) : NULL;
}

static uint64_t resolve(void *ctx, const char *name) { return (uint64_t)(uintptr_t)cpu_symbol(name); }

/* ---- loading ---- */

/* The index of the defined function with that name, or of the only global one if name is NULL. */
static int find_entry(db_device *dev, const struct elf *e, const char *name, const char **found) {
  int only = -1;
  for (unsigned i = 0; i < e->symbols.count; i++) {
    Elf64_Sym sym;
    const char *s;
    if (elf_symbol(&e->symbols, i, &sym, &s)) continue;
    if (ELF64_ST_TYPE(sym.st_info) != STT_FUNC || sym.st_shndx == SHN_UNDEF) continue;
    if (name ? strcmp(s, name) != 0 : ELF64_ST_BIND(sym.st_info) != STB_GLOBAL) continue;
    if (only >= 0)
      return db_fail(-EINVAL, "%s: the object has several functions (%s, %s): name one", dev->name, *found, s);
    only = (int)i;
    *found = s;
    if (name) break;
  }
  if (only < 0) return db_fail(-ENOENT, "%s: the object has no function %s", dev->name, name ? name : "to run");
  return only;
}

static int protect(const struct elf_image *image, uint8_t *base, const char *device) {
  for (unsigned i = 0; i < image->nranges; i++) {
    const struct elf_range *r = &image->ranges[i];
    int prot = PROT_READ | (r->access & ELF_WRITE ? PROT_WRITE : 0) | (r->access & ELF_EXEC ? PROT_EXEC : 0);
    if ((prot & PROT_WRITE) && (prot & PROT_EXEC))
      return db_fail(-EACCES, "%s: the object has a section that is writable and executable", device);
    if (mprotect(base + r->offset, r->size, prot))
      return db_fail(-errno, "%s: protecting the program: %s", device, strerror(errno));
  }
  __builtin___clear_cache((char *)base, (char *)base + image->size);
  return 0;
}

static void program_destroy(struct hcq_object *object) {
  db_program *prog = (db_program *)object;
  db_device *dev = prog->dev;
  cpu_program_free(prog);
  hcq_release(&dev->object);
}

int cpu_program_load(db_device *dev, const void *data, size_t size, const char *entry, const struct db_param *params,
                     unsigned nparams, db_program **out) {
  struct elf elf;
  struct elf_image image = {0};
  struct cpu_program *p = NULL;
  int err = elf_open(&elf, data, size);
  if (err) return err;
#if defined(__x86_64__)
  const unsigned machine = EM_X86_64;
#else
  const unsigned machine = EM_AARCH64;
#endif
  if (elf.header.e_machine != machine) {
    err = db_fail(-ENOEXEC, "%s: the object is for %s (ELF machine %u), this host is %s", dev->name,
                  elf_machine_name(elf.header.e_machine), elf.header.e_machine, elf_machine_name(machine));
    goto out;
  }
  const char *name = "";
  int symbol = err = find_entry(dev, &elf, entry, &name);
  if (err < 0) goto out;
  if (strlen(name) >= sizeof p->base.name) {
    err = db_fail(-ENAMETOOLONG, "%s: the function's name has more than %zu characters", dev->name,
                  sizeof p->base.name - 1);
    goto out;
  }
  uint64_t offset;
  if ((err = elf_image_layout(&image, &elf, (uint64_t)sysconf(_SC_PAGESIZE)))) goto out;
  if ((err = elf_image_symbol(&image, (unsigned)symbol, &offset))) goto out;
  if (!(p = calloc(1, sizeof *p)) || !(p->base.params = calloc(nparams + 1u, sizeof *params))) {
    err = db_fail(-ENOMEM, "%s: out of memory for a program", dev->name);
    goto out;
  }
  p->base.dev = dev;
  strcpy(p->base.name, name);
  p->base.kernarg_align = 64;
  for (; p->base.nparams < nparams; p->base.nparams++) p->base.params[p->base.nparams] = params[p->base.nparams];
  for (unsigned i = 0; i < nparams; i++)
    if (params[i].offset + params[i].size > p->base.kernarg_size)
      p->base.kernarg_size = params[i].offset + params[i].size;
  void *map = mmap(NULL, image.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    err = db_fail(-errno, "%s: mapping %llu bytes for a program: %s", dev->name, (unsigned long long)image.size,
                  strerror(errno));
    goto out;
  }
  p->image = map;
  p->image_size = image.size;
  if ((err = elf_image_load(&image, map, 0, image.size, (uint64_t)(uintptr_t)map, resolve, NULL))) goto out;
  if ((err = protect(&image, map, dev->name))) goto out;
  p->entry = (cpu_entry *)((uintptr_t)map + offset);
  p->base.address = (uintptr_t)map + offset;
  hcq_object_init(&p->base.object, program_destroy);
  hcq_retain(&dev->object);
  *out = &p->base;
  p = NULL;
out:
  if (p) cpu_program_free(&p->base);
  elf_image_free(&image);
  elf_close(&elf);
  return err < 0 ? err : 0;
}

void cpu_program_free(db_program *prog) {
  struct cpu_program *p = (struct cpu_program *)prog;
  if (p->image) munmap(p->image, p->image_size);
  free(prog->params);
  free(prog->image);
  free(p);
}
