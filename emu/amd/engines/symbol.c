/* Finds the kernel of a program address in what loaders leave in GPU memory next to the code: the dynamic symbols of
 * the code object, after its ELF header, or plain symbol names if a loader copied only sections.
 *
 * The result is for messages only. All data is checked against the mapping because it may be corrupt; finding no name
 * is not an error. */
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include "gpu.h"

enum { IMAGE_MAX = 16 << 20, NAMES_MAX = 1 << 16, SYMBOLS_MAX = 4096 };

/* A loaded code object: host memory of [va, va + size). */
struct image {
  const uint8_t *host;
  uint64_t va, size;
};

static const void *image_part(const struct image *m, uint64_t offset, uint64_t size) {
  return offset <= m->size && size <= m->size - offset ? m->host + offset : NULL;
}

static bool copy_name(const struct image *m, uint64_t at, char *buf, size_t cap) {
  const char *name = at < m->size ? (const char *)m->host + at : NULL;
  if (!name || !*name || !memchr(name, 0, m->size - at)) return false;
  for (const char *c = name; *c; c++)
    if (*c <= ' ' || *c > '~') return false;
  snprintf(buf, cap, "%s", name);
  return true;
}

static bool from_symbols(const struct image *m, uint64_t pc, char *buf, size_t cap) {
  const Elf64_Ehdr *eh = image_part(m, 0, sizeof *eh);
  uint64_t symbols = 0, strings = 0, hash = 0, dynamic = 0;
  if (!eh || eh->e_phentsize != sizeof(Elf64_Phdr) || eh->e_phoff % 8) return false;
  for (unsigned i = 0; i < eh->e_phnum; i++) {
    const Elf64_Phdr *ph = image_part(m, eh->e_phoff + i * sizeof *ph, sizeof *ph);
    if (ph && ph->p_type == PT_DYNAMIC) dynamic = ph->p_vaddr;
  }
  for (const Elf64_Dyn *d;
       dynamic && dynamic % 8 == 0 && (d = image_part(m, dynamic, sizeof *d)) && d->d_tag != DT_NULL;
       dynamic += sizeof *d) {
    /* A loader may have relocated these addresses. */
    uint64_t value = d->d_un.d_ptr >= m->va ? d->d_un.d_ptr - m->va : d->d_un.d_ptr;
    if (d->d_tag == DT_SYMTAB) symbols = value;
    if (d->d_tag == DT_STRTAB) strings = value;
    if (d->d_tag == DT_HASH) hash = value;
  }
  const uint32_t *counts = hash && hash % 4 == 0 ? image_part(m, hash, 8) : NULL; /* counts of buckets and symbols */
  for (uint32_t i = 0; counts && symbols % 8 == 0 && i < counts[1] && i < SYMBOLS_MAX; i++) {
    const Elf64_Sym *s = image_part(m, symbols + i * sizeof *s, sizeof *s);
    if (s && ELF64_ST_TYPE(s->st_info) == STT_FUNC && pc - m->va - s->st_value < s->st_size)
      return copy_name(m, strings + s->st_name, buf, cap);
  }
  return false;
}

/* "NAME.kd" is the descriptor of kernel NAME. Two such names are ambiguous. */
static bool from_names(const struct image *m, uint64_t pc, char *buf, size_t cap) {
  uint64_t end = pc - m->va, low = end > NAMES_MAX ? end - NAMES_MAX : 0, found = 0;
  for (uint64_t at = low; at + 4 <= end; at++) {
    if (memcmp(m->host + at, ".kd", 4)) continue;
    uint64_t start = at;
    while (start > low && m->host[start - 1]) start--;
    if (found) return false;
    found = start;
  }
  char name[256];
  if (!found || !copy_name(m, found, name, sizeof name)) return false;
  snprintf(buf, cap, "%.*s", (int)(strlen(name) > 3 ? strlen(name) - 3 : 0), name);
  return true;
}

bool amd_kernel_name(struct vm *vm, uint64_t pc, char *buf, size_t cap) {
  struct vm_range r;
  if (!vm_find(vm, pc, &r) || !(r.access & VM_READ)) return false;
  uint64_t low = pc - r.va > IMAGE_MAX ? pc - IMAGE_MAX : r.va;
  for (uint64_t at = pc & ~(uint64_t)(AMD_PAGE - 1);; at -= AMD_PAGE) {
    struct image m = {(const uint8_t *)(at + r.delta), at, r.end - at};
    if (at >= low && !memcmp(m.host, ELFMAG, SELFMAG)) return from_symbols(&m, pc, buf, cap);
    if (at < low + AMD_PAGE) break;
  }
  struct image m = {(const uint8_t *)(low + r.delta), low, r.end - low};
  return from_names(&m, pc, buf, cap);
}
