/* Reads AMD GPU code objects: checks the ELF file, reads kernels from the metadata and descriptors from the image. */
#include "code_object.h"
#include "../error.h"
#include <errno.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, NT_AMDGPU_METADATA = 32, OSABI_AMDGPU_HSA = 64, MAX_WORKGROUP = 1024, ENTRY_ALIGN = 256 };

/* Low 8 bits of e_flags. Source: LLVM's EF_AMDGPU_MACH table. */
static const struct {
  uint8_t mach;
  char name[16];
} machines[] = {
    {0x2c, "gfx900"},          {0x2d, "gfx902"},          {0x2e, "gfx904"},        {0x2f, "gfx906"},
    {0x30, "gfx908"},          {0x31, "gfx909"},          {0x32, "gfx90c"},        {0x33, "gfx1010"},
    {0x34, "gfx1011"},         {0x35, "gfx1012"},         {0x36, "gfx1030"},       {0x37, "gfx1031"},
    {0x38, "gfx1032"},         {0x39, "gfx1033"},         {0x3d, "gfx1035"},       {0x3e, "gfx1034"},
    {0x3f, "gfx90a"},          {0x40, "gfx940"},          {0x41, "gfx1100"},       {0x42, "gfx1013"},
    {0x43, "gfx1150"},         {0x44, "gfx1103"},         {0x45, "gfx1036"},       {0x46, "gfx1101"},
    {0x47, "gfx1102"},         {0x48, "gfx1200"},         {0x4a, "gfx1151"},       {0x4b, "gfx941"},
    {0x4c, "gfx942"},          {0x4e, "gfx1201"},         {0x4f, "gfx950"},        {0x51, "gfx9-generic"},
    {0x52, "gfx10-1-generic"}, {0x53, "gfx10-3-generic"}, {0x54, "gfx11-generic"}, {0x55, "gfx1152"},
    {0x58, "gfx1153"},         {0x59, "gfx12-generic"},
};

/* Whether code for one ISA runs on another: they are equal, or the code is generic for the family of arch (LLVM
 * AMDGPUUsage, "AMDGPU Generic Processors"). */
static bool runs_on(const char *code, const char *arch) {
  static const struct {
    const char *generic, *family;
  } families[] = {{"gfx10-1-generic", "gfx101"},
                  {"gfx10-3-generic", "gfx103"},
                  {"gfx11-generic", "gfx11"},
                  {"gfx12-generic", "gfx12"}};
  bool runs = !strcmp(code, arch);
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    runs |= !strcmp(code, families[i].generic) && !strncmp(arch, families[i].family, strlen(families[i].family));
  return runs;
}

static int check_file(struct code_object *co, const char *arch) {
  const Elf64_Ehdr *h = &co->elf.header;
  if (h->e_machine != EM_AMDGPU)
    return db_fail(-ENOEXEC,
                   "code object: the program is for %s, not for an AMD GPU (ELF machine %u at file offset 18, not 224)",
                   elf_machine_name(h->e_machine), h->e_machine);
  if (h->e_ident[EI_OSABI] != OSABI_AMDGPU_HSA)
    return db_fail(-ENOEXEC, "code object: OS ABI %u at file offset 7 is not AMDGPU HSA (64)", h->e_ident[EI_OSABI]);
  unsigned abi = h->e_ident[EI_ABIVERSION];
  if (abi < 1 || abi > 4)
    return db_fail(
        -ENOTSUP, "not supported: code object with ABI version %u at file offset 8 (versions 3 to 6 have 1 to 4)", abi);
  co->version = abi + 2;
  for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
    if (machines[i].mach == (h->e_flags & 0xff)) snprintf(co->arch, sizeof co->arch, "%s", machines[i].name);
  if (!co->arch[0]) snprintf(co->arch, sizeof co->arch, "machine 0x%x", h->e_flags & 0xff);
  if (arch && !runs_on(co->arch, arch)) return db_fail(-ENOEXEC, "code object is for %s, device is %s", co->arch, arch);
  return 0;
}

/* ---- metadata ---- */

/* MessagePack's tags: a row covers the tags from the previous row's last + 1 to its own last. Source: the MessagePack
 * specification. */
enum { BAD, SCALAR, BYTES, ARRAY, MAP };
static const struct msgpack_tag {
  uint8_t last, kind;
  uint8_t mask;         /* bits of the tag that hold the length */
  uint8_t length_bytes; /* size of a big-endian length after the tag */
  uint8_t payload;      /* bytes of a scalar */
} msgpack_tags[] = {
    {0x7f, SCALAR},
    {0x8f, MAP, 15},
    {0x9f, ARRAY, 15},
    {0xbf, BYTES, 31},
    {0xc0, SCALAR},
    {0xc1, BAD},
    {0xc3, SCALAR},
    {0xc4, BYTES, 0, 1},
    {0xc5, BYTES, 0, 2},
    {0xc6, BYTES, 0, 4},
    {0xc9, BAD},
    {0xca, SCALAR, 0, 0, 4},
    {0xcb, SCALAR, 0, 0, 8},
    {0xcc, SCALAR, 0, 0, 1},
    {0xcd, SCALAR, 0, 0, 2},
    {0xce, SCALAR, 0, 0, 4},
    {0xcf, SCALAR, 0, 0, 8},
    {0xd0, SCALAR, 0, 0, 1},
    {0xd1, SCALAR, 0, 0, 2},
    {0xd2, SCALAR, 0, 0, 4},
    {0xd3, SCALAR, 0, 0, 8},
    {0xd8, BAD},
    {0xd9, BYTES, 0, 1},
    {0xda, BYTES, 0, 2},
    {0xdb, BYTES, 0, 4},
    {0xdc, ARRAY, 0, 2},
    {0xdd, ARRAY, 0, 4},
    {0xde, MAP, 0, 2},
    {0xdf, MAP, 0, 4},
    {0xff, SCALAR},
};

/* msgpack-c allocates memory for the length that the input claims before it has seen that many bytes. This walk rejects
 * input whose containers claim more elements than bytes remain, so allocations are proportional to the file's size. */
static int check_msgpack(const uint8_t *p, size_t size) {
  size_t at = 0;
  for (uint64_t pending = 1; pending; pending--) { /* elements left, on all levels together */
    if (at == size) goto cut;
    const struct msgpack_tag *tag = msgpack_tags;
    while (p[at] > tag->last) tag++;
    if (tag->kind == BAD)
      return db_fail(-EINVAL, "code object: metadata has no known MessagePack at its offset 0x%zx (byte 0x%02x)", at,
                     p[at]);
    uint64_t length = p[at++] & tag->mask;
    if (tag->length_bytes > size - at) goto cut;
    for (unsigned i = 0; i < tag->length_bytes; i++) length = length << 8 | p[at++];
    uint64_t skip = tag->kind == BYTES ? length : tag->payload;
    if (skip > size - at) goto cut;
    at += skip;
    pending += tag->kind == ARRAY ? length : tag->kind == MAP ? 2 * length : 0;
    if (pending - 1 > size - at)
      return db_fail(-EINVAL, "code object: metadata claims more elements than its 0x%zx bytes can hold (offset 0x%zx)",
                     size, at);
  }
  return 0;
cut:
  return db_fail(-EINVAL, "code object: metadata is cut off after 0x%zx bytes", size);
}

/* State for reading one kernel's metadata. */
struct reader {
  char *strings; /* free space for names; as large as the metadata, so it cannot run out */
  const char *kernel;
};

static bool key_is(const msgpack_object *key, const char *name) {
  size_t n = strlen(name);
  return key->type == MSGPACK_OBJECT_STR && key->via.str.size == n && !memcmp(key->via.str.ptr, name, n);
}

static const msgpack_object *find(const msgpack_object *map, const char *name) {
  if (!map || map->type != MSGPACK_OBJECT_MAP) return NULL;
  for (uint32_t i = 0; i < map->via.map.size; i++)
    if (key_is(&map->via.map.ptr[i].key, name)) return &map->via.map.ptr[i].val;
  return NULL;
}

/* Returns a terminated copy of a string; NULL if it is missing or has another type. */
static const char *read_string(struct reader *r, const msgpack_object *map, const char *key) {
  const msgpack_object *o = find(map, key);
  if (!o || o->type != MSGPACK_OBJECT_STR) return NULL;
  char *s = r->strings;
  memcpy(s, o->via.str.ptr, o->via.str.size);
  s[o->via.str.size] = 0;
  r->strings += o->via.str.size + 1;
  return s;
}

static int read_u32(const struct reader *r, const msgpack_object *map, const char *key, bool required, uint32_t *out) {
  const msgpack_object *o = find(map, key);
  if (!o && !required) return 0;
  if (!o) return db_fail(-EINVAL, "code object: kernel '%s': metadata lacks %s", r->kernel, key);
  if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 > UINT32_MAX)
    return db_fail(-EINVAL, "code object: kernel '%s': %s is not a 32-bit number", r->kernel, key);
  *out = (uint32_t)o->via.u64;
  return 0;
}

static int read_kind(const struct reader *r, const msgpack_object *map, enum code_object_kind *kind, unsigned *bytes) {
#define KIND_ROW(enumerator, name, bytes) {name, bytes},
  static const struct {
    char name[32];
    unsigned bytes;
  } kinds[] = {CODE_OBJECT_VALUE_KINDS(KIND_ROW)};
#undef KIND_ROW
  const msgpack_object *o = find(map, ".value_kind");
  if (!o || o->type != MSGPACK_OBJECT_STR)
    return db_fail(-EINVAL, "code object: kernel '%s': an argument lacks .value_kind", r->kernel);
  for (unsigned i = 0; i < CODE_OBJECT_KINDS; i++)
    if (key_is(o, kinds[i].name)) {
      *kind = (enum code_object_kind)i;
      *bytes = kinds[i].bytes;
      return 0;
    }
  return db_fail(-ENOTSUP, "not supported: kernel '%s' has an argument of kind %.*s", r->kernel,
                 (int)(o->via.str.size < 64 ? o->via.str.size : 64), o->via.str.ptr);
}

static int read_args(struct reader *r, const msgpack_object *args, struct code_object_kernel *k) {
  if (!args) return 0;
  if (args->type != MSGPACK_OBJECT_ARRAY)
    return db_fail(-EINVAL, "code object: kernel '%s': .args is not a list", r->kernel);
  k->args = calloc(args->via.array.size + 1, sizeof *k->args);
  if (!k->args) return db_fail(-ENOMEM, "code object: out of memory for the arguments of '%s'", r->kernel);
  uint64_t end = 0;
  for (uint32_t i = 0; i < args->via.array.size; i++) {
    const msgpack_object *map = &args->via.array.ptr[i];
    struct code_object_arg *a = &k->args[k->nargs++];
    unsigned bytes = 0;
    int err = read_u32(r, map, ".offset", true, &a->offset);
    if (!err) err = read_u32(r, map, ".size", true, &a->size);
    if (!err) err = read_kind(r, map, &a->kind, &bytes);
    if (err) return err;
    a->name = read_string(r, map, ".name");
    if (!a->name) a->name = "";
    if (bytes && a->size != bytes)
      return db_fail(-EINVAL, "code object: kernel '%s': argument %u (%s) has %u bytes, its kind has %u", r->kernel, i,
                     a->name, a->size, bytes);
    if (a->offset < end)
      return db_fail(
          -EINVAL,
          "code object: kernel '%s': argument %u (%s) at offset %u overlaps the one before it, which ends at %llu",
          r->kernel, i, a->name, a->offset, (unsigned long long)end);
    end = (uint64_t)a->offset + a->size;
    if (end > k->kernarg_size)
      return db_fail(-EINVAL,
                     "code object: kernel '%s': argument %u (%s), %u bytes at offset %u, is outside of the %u-byte "
                     "argument segment",
                     r->kernel, i, a->name, a->size, a->offset, k->kernarg_size);
  }
  return 0;
}

static int read_workgroup(struct reader *r, const msgpack_object *map, struct code_object_kernel *k) {
  if (k->max_flat_workgroup_size < 1 || k->max_flat_workgroup_size > MAX_WORKGROUP)
    return db_fail(-EINVAL, "code object: kernel '%s': .max_flat_workgroup_size %u is not 1 to 1024", r->kernel,
                   k->max_flat_workgroup_size);
  const msgpack_object *o = find(map, ".reqd_workgroup_size");
  if (!o) return 0;
  uint64_t total = 1;
  for (unsigned i = 0; i < 3; i++) {
    const msgpack_object *n = o->type == MSGPACK_OBJECT_ARRAY && o->via.array.size == 3 ? &o->via.array.ptr[i] : NULL;
    if (!n || n->type != MSGPACK_OBJECT_POSITIVE_INTEGER || n->via.u64 < 1 || n->via.u64 > MAX_WORKGROUP)
      return db_fail(-EINVAL, "code object: kernel '%s': .reqd_workgroup_size is not three numbers of 1 to 1024",
                     r->kernel);
    k->reqd_workgroup_size[i] = (uint32_t)n->via.u64;
    total *= n->via.u64;
  }
  if (total > MAX_WORKGROUP)
    return db_fail(-EINVAL, "code object: kernel '%s': .reqd_workgroup_size has %llu work-items, more than 1024",
                   r->kernel, (unsigned long long)total);
  return 0;
}

/* Reads the descriptor and checks it against the metadata and the image. */
static int read_descriptor(struct code_object *co, struct code_object_kernel *k, const char *symbol) {
  const struct elf_image *image = &co->image;
  int index = elf_find_symbol(&co->elf, symbol);
  if (index == -ENOENT)
    return db_fail(-EINVAL, "code object: kernel '%s': its descriptor's symbol %s is not in the symbol table", k->name,
                   symbol);
  if (index < 0) return index;
  int err = elf_image_symbol(image, (unsigned)index, &k->descriptor_offset);
  if (err) return err;
  struct kernel_descriptor *d = &k->descriptor;
  if (k->descriptor_offset % sizeof *d || image->size - k->descriptor_offset < sizeof *d)
    return db_fail(-EINVAL,
                   "code object: kernel '%s': descriptor at image offset 0x%llx is not 64 aligned bytes of the image "
                   "(0x%llx bytes)",
                   k->name, (unsigned long long)k->descriptor_offset, (unsigned long long)image->size);
  /* The descriptor's contents are relative to its own address, so every load address gives the same bytes. */
  err = elf_image_load(image, d, k->descriptor_offset, sizeof *d, 0, NULL, NULL);
  if (err) return err;
  k->entry_offset = k->descriptor_offset + (uint64_t)d->kernel_code_entry_byte_offset;
  bool executable = false;
  for (unsigned i = 0; i < image->nranges; i++)
    if (image->ranges[i].access & ELF_EXEC && k->entry_offset >= image->ranges[i].offset &&
        k->entry_offset - image->ranges[i].offset < image->ranges[i].size)
      executable = true;
  if (!executable || k->entry_offset % ENTRY_ALIGN)
    return db_fail(-EINVAL,
                   "code object: kernel '%s': entry at image offset 0x%llx (descriptor 0x%llx + %lld) is not at 256 "
                   "aligned bytes of executable code",
                   k->name, (unsigned long long)k->entry_offset, (unsigned long long)k->descriptor_offset,
                   (long long)d->kernel_code_entry_byte_offset);
  unsigned wave = BITS_GET(KERNEL_CODE_WAVEFRONT_SIZE32, d->kernel_code_properties) ? 32 : 64;
  if (wave != k->wavefront_size)
    return db_fail(-EINVAL, "code object: kernel '%s': the metadata has wave%u, the descriptor wave%u", k->name,
                   k->wavefront_size, wave);
  /* Hand-written files may leave a value at zero in the metadata or in the descriptor, so take the larger one. */
  if (d->group_segment_fixed_size > k->group_bytes) k->group_bytes = d->group_segment_fixed_size;
  if (d->private_segment_fixed_size > k->private_bytes) k->private_bytes = d->private_segment_fixed_size;
  if (d->kernarg_size > k->kernarg_size) k->kernarg_size = d->kernarg_size;
  if (BITS_GET(KERNEL_CODE_USES_DYNAMIC_STACK, d->kernel_code_properties)) k->dynamic_stack = true;
  return 0;
}

static int read_kernel(struct code_object *co, struct reader *r, const msgpack_object *map, unsigned index,
                       struct code_object_kernel *k) {
  k->name = read_string(r, map, ".name");
  const char *symbol = read_string(r, map, ".symbol");
  if (!k->name || !symbol) return db_fail(-EINVAL, "code object: kernel %u: metadata lacks .name or .symbol", index);
  r->kernel = k->name;
  k->max_flat_workgroup_size = MAX_WORKGROUP;
  k->kernarg_align = 8;
  const struct {
    const char *key;
    bool required;
    uint32_t *out;
  } numbers[] = {
      {".kernarg_segment_size", true, &k->kernarg_size},
      {".kernarg_segment_align", false, &k->kernarg_align},
      {".group_segment_fixed_size", true, &k->group_bytes},
      {".private_segment_fixed_size", true, &k->private_bytes},
      {".wavefront_size", true, &k->wavefront_size},
      {".max_flat_workgroup_size", false, &k->max_flat_workgroup_size},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    int err = read_u32(r, map, numbers[i].key, numbers[i].required, numbers[i].out);
    if (err) return err;
  }
  if (!k->kernarg_align || k->kernarg_align & (k->kernarg_align - 1) || k->kernarg_align > PAGE)
    return db_fail(-EINVAL, "code object: kernel '%s': .kernarg_segment_align %u is not a power of two up to 4096",
                   k->name, k->kernarg_align);
  const msgpack_object *dynamic = find(map, ".uses_dynamic_stack");
  k->dynamic_stack = dynamic && dynamic->type == MSGPACK_OBJECT_BOOLEAN && dynamic->via.boolean;
  int err = read_args(r, find(map, ".args"), k);
  if (!err) err = read_workgroup(r, map, k);
  return err ? err : read_descriptor(co, k, symbol);
}

static int check_target(const struct code_object *co, const msgpack_object *root) {
  static const char prefix[] = "amdgcn-amd-amdhsa--";
  const msgpack_object *o = find(root, "amdhsa.target");
  if (!o) return 0; /* version 3 has none */
  size_t n = sizeof prefix - 1, arch = strlen(co->arch);
  if (o->type == MSGPACK_OBJECT_STR && o->via.str.size >= n + arch && !memcmp(o->via.str.ptr, prefix, n) &&
      !memcmp(o->via.str.ptr + n, co->arch, arch) && (o->via.str.size == n + arch || o->via.str.ptr[n + arch] == ':'))
    return 0;
  int shown = o->type == MSGPACK_OBJECT_STR ? (int)(o->via.str.size < 64 ? o->via.str.size : 64) : 0;
  return db_fail(-EINVAL, "code object: the ELF flags have target %s, the metadata '%.*s'", co->arch, shown,
                 shown ? o->via.str.ptr : "");
}

static int read_metadata(struct code_object *co) {
  const void *note;
  size_t size, at = 0;
  int err = elf_find_note(&co->elf, "AMDGPU", NT_AMDGPU_METADATA, &note, &size);
  if (err == -ENOENT) return db_fail(-EINVAL, "code object: no metadata (a note of AMDGPU, type 32)");
  if (!err) err = check_msgpack(note, size);
  if (err) return err;
  struct reader r = {.kernel = ""};
  r.strings = co->metadata = malloc(size + 1);
  if (!r.strings) return db_fail(-ENOMEM, "code object: out of memory for the metadata");

  msgpack_unpacked unpacked;
  msgpack_unpacked_init(&unpacked);
  msgpack_unpack_return ret = msgpack_unpack_next(&unpacked, note, size, &at);
  if (ret != MSGPACK_UNPACK_SUCCESS && ret != MSGPACK_UNPACK_EXTRA_BYTES) {
    /* Syntax and lengths have already been checked. */
    err = db_fail(-EINVAL, "code object: metadata is nested too deeply, or memory ran out");
    goto out;
  }
  const msgpack_object *root = &unpacked.data, *kernels = find(root, "amdhsa.kernels");
  err = check_target(co, root);
  if (err) goto out;
  if (!kernels || kernels->type != MSGPACK_OBJECT_ARRAY) {
    err = db_fail(-EINVAL, "code object: metadata lacks the list amdhsa.kernels");
    goto out;
  }
  co->kernels = calloc(kernels->via.array.size + 1, sizeof *co->kernels);
  if (!co->kernels) {
    err = db_fail(-ENOMEM, "code object: out of memory for %u kernels", kernels->via.array.size);
    goto out;
  }
  for (uint32_t i = 0; !err && i < kernels->via.array.size; i++)
    err = read_kernel(co, &r, &kernels->via.array.ptr[i], i, &co->kernels[co->nkernels++]);
out:
  msgpack_unpacked_destroy(&unpacked);
  return err;
}

/* ---- interface ---- */

int code_object_open(struct code_object *co, const void *data, size_t size, const char *arch) {
  *co = (struct code_object){0};
  int err = elf_open(&co->elf, data, size);
  if (!err) err = check_file(co, arch);
  if (!err) err = elf_image_layout(&co->image, &co->elf, PAGE);
  if (!err) err = read_metadata(co);
  if (err) code_object_close(co);
  return err;
}

void code_object_close(struct code_object *co) {
  for (unsigned i = 0; i < co->nkernels; i++) free(co->kernels[i].args);
  free(co->kernels);
  free(co->metadata);
  elf_image_free(&co->image);
  elf_close(&co->elf);
  *co = (struct code_object){0};
}

const struct code_object_kernel *code_object_find(const struct code_object *co, const char *name) {
  for (unsigned i = 0; name && i < co->nkernels; i++)
    if (!strcmp(co->kernels[i].name, name)) return &co->kernels[i];
  if (!name && co->nkernels == 1) return &co->kernels[0];
  if (!co->nkernels) return db_fail_null(-ENOENT, "code object: it has no kernels");
  char list[256] = "";
  for (unsigned i = 0; i < co->nkernels; i++) {
    size_t n = strlen(list);
    int more = snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", co->kernels[i].name);
    if (more >= (int)(sizeof list - n)) {
      memcpy(list + sizeof list - 4, "...", 4);
      break;
    }
  }
  if (!name) return db_fail_null(-EINVAL, "code object: it has %u kernels, name one of: %s", co->nkernels, list);
  return db_fail_null(-ENOENT, "code object: no kernel '%s'; it has: %s", name, list);
}

int code_object_load(const struct code_object *co, void *dst, uint64_t address) {
  return elf_image_load(&co->image, dst, 0, co->image.size, address, NULL, NULL);
}
