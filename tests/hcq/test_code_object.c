/* The code object loader: kernels built by clang compared with the output of llvm-readelf, unlinked objects from LLVM's
 * C API, and malformed files, for each of which the message must name the problem. */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "hcq/amd/code_object.h"
#include "hcq/hcq.h"
#include "llvm_emit.h"

const char *db_error(void);

struct bytes {
  uint8_t *p;
  size_t n;
};
static struct bytes read_file(const char *path) {
  struct bytes b = {0};
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("cannot open %s", path);
  fseek(f, 0, SEEK_END);
  b.n = (size_t)ftell(f);
  rewind(f);
  b.p = malloc(b.n);
  assert_int_equal(fread(b.p, 1, b.n, f), b.n);
  fclose(f);
  return b;
}
static struct bytes read_kernel(const char *name) {
  char path[512];
  snprintf(path, sizeof path, KERNELS_DIR "/tests/kernels/%s.gfx1100.co", name);
  return read_file(path);
}
static void open_ok(struct code_object *co, struct bytes b) {
  if (code_object_open(co, b.p, b.n, "gfx1100")) fail_msg("%s", db_error());
}

static uint64_t offset_of(const struct code_object *co, const char *name) {
  uint64_t offset = 0;
  int symbol = elf_find_symbol(&co->elf, name);
  if (symbol <= 0) fail_msg("no symbol %s", name);
  if (elf_image_symbol(&co->image, (unsigned)symbol, &offset)) fail_msg("%s", db_error());
  return offset;
}

/* ---- compared with llvm-readelf ---- */

/* Whether a line of `llvm-readelf --notes` has the key; stores its value in out. */
static bool value_of(const char *line, const char *key, char *out) {
  const char *at = strstr(line, key);
  out[0] = 0;
  return at && at[strlen(key)] == ':' && sscanf(at + strlen(key) + 1, " %127[^\n]", out) == 1;
}

static const char *kind_names[] = {
#define NAME(enumerator, name, bytes) name,
    CODE_OBJECT_VALUE_KINDS(NAME)
#undef NAME
};

/* Compares one file with the printed metadata, in which an argument's .offset precedes its .size and .value_kind, and a
 * kernel's .args precedes its other keys (LLVM sorts them). */
static void compare_with_readelf(const char *path) {
  struct bytes b = read_file(path);
  struct code_object co;
  open_ok(&co, b);
  char command[600], line[512], v[128];
  snprintf(command, sizeof command, "llvm-readelf-19 --notes %s", path);
  FILE *f = popen(command, "r");
  assert_non_null(f);
  unsigned kernel = 0, arg = 0, kernels = 0, checked = 0;
  uint32_t reqd = 0;
  while (fgets(line, sizeof line, f)) {
    const struct code_object_kernel *k = kernel < co.nkernels ? &co.kernels[kernel] : NULL;
    if (!k && strstr(line, ".offset:")) fail_msg("%s: more kernels than the loader found", path);
    const struct code_object_arg *a = k && arg < k->nargs ? &k->args[arg] : NULL;
#define NUMBER(key, field)                                                                                             \
  if (value_of(line, key, v)) {                                                                                        \
    assert_int_equal(strtoul(v, NULL, 0), field);                                                                      \
    checked++;                                                                                                         \
  }
    if (strstr(line, ".offset:") && !a) fail_msg("%s: %s has more than %u arguments", path, k->name, arg);
    if (a) NUMBER(".offset", a->offset);
    if (a) NUMBER(".size", a->size);
    if (a && value_of(line, ".value_kind", v)) {
      assert_string_equal(v, kind_names[a->kind]);
      arg++;
    }
    if (!k) continue;
    NUMBER(".group_segment_fixed_size", k->group_bytes);
    NUMBER(".kernarg_segment_align", k->kernarg_align);
    NUMBER(".kernarg_segment_size", k->kernarg_size);
    NUMBER(".private_segment_fixed_size", k->private_bytes);
    NUMBER(".max_flat_workgroup_size", k->max_flat_workgroup_size);
    if (value_of(line, ".name", v) && arg == k->nargs && strncmp(line, "      - ", 8) && strncmp(line, "        ", 8))
      assert_string_equal(v, k->name);
    if (strstr(line, ".reqd_workgroup_size:"))
      reqd = 1;
    else if (reqd && sscanf(line, " - %127s", v) == 1)
      assert_int_equal(strtoul(v, NULL, 0), k->reqd_workgroup_size[reqd++ - 1]);
    else
      reqd = 0;
    if (value_of(line, ".wavefront_size", v)) { /* the following keys are not checked */
      assert_int_equal(strtoul(v, NULL, 0), k->wavefront_size);
      assert_int_equal(arg, k->nargs);
      kernel++, kernels++;
      arg = 0;
    }
  }
  assert_int_equal(pclose(f), 0);
  assert_int_equal(kernels, co.nkernels);
  assert_true(checked >= 5 * kernels && kernels);
  code_object_close(&co);
  free(b.p);
}

static unsigned each_file(const char *dir, void (*visit)(const char *path)) {
  DIR *d = opendir(dir);
  if (!d) fail_msg("no %s: run make kernels", dir);
  unsigned n = 0;
  for (struct dirent *e; (e = readdir(d));) {
    char path[512];
    size_t len = strlen(e->d_name);
    if (len < 4 || strcmp(e->d_name + len - 3, ".co")) continue;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    visit(path);
    n++;
  }
  closedir(d);
  return n;
}

static void metadata_as_readelf_prints_it(void **state) {
  assert_true(each_file(KERNELS_DIR "/tests/kernels", compare_with_readelf) >= 10);
  each_file(KERNELS_DIR "/bench/kernels", compare_with_readelf);
}

/* The descriptor's entry is the kernel's symbol, and loading copies the contents of the file's sections. */
static void check_image(const char *path) {
  struct bytes b = read_file(path);
  struct code_object co;
  open_ok(&co, b);
  uint64_t address = 0x7f1200000000;
  uint8_t *image = malloc(co.image.size);
  memset(image, 0xaa, co.image.size);
  assert_int_equal(code_object_load(&co, image, address), 0);
  for (unsigned i = 0; i < co.nkernels; i++) {
    const struct code_object_kernel *k = &co.kernels[i];
    int symbol = elf_find_symbol(&co.elf, k->name);
    uint64_t offset;
    assert_true(symbol > 0);
    assert_int_equal(elf_image_symbol(&co.image, (unsigned)symbol, &offset), 0);
    assert_int_equal(offset, k->entry_offset);
    assert_memory_equal(image + k->descriptor_offset, &k->descriptor, 64);
    assert_ptr_equal(code_object_find(&co, k->name), k);
  }
  for (unsigned i = 1; i < co.elf.nsections; i++) {
    const Elf64_Shdr *s = &co.elf.sections[i];
    if (s->sh_flags & SHF_ALLOC && !(s->sh_flags & SHF_WRITE) && s->sh_type == SHT_PROGBITS)
      assert_memory_equal(image + s->sh_addr, b.p + s->sh_offset, s->sh_size);
  }
  free(image);
  code_object_close(&co);
  free(b.p);
}
static void images_hold_the_sections(void **state) { each_file(KERNELS_DIR "/tests/kernels", check_image); }

/* Literal values of one kernel, from llvm-readelf for tests/kernels/calls.cl. */
static void descriptor_fields(void **state) {
  struct bytes b = read_kernel("calls");
  struct code_object co;
  open_ok(&co, b);
  assert_string_equal(co.arch, "gfx1100");
  assert_int_equal(co.version, 5);
  const struct code_object_kernel *k = code_object_find(&co, NULL);
  assert_non_null(k);
  assert_string_equal(k->name, "calls");
  assert_int_equal(k->nargs, 17);
  assert_int_equal(k->args[3].kind, CODE_OBJECT_BY_VALUE);
  assert_int_equal(k->args[3].offset, 24);
  assert_int_equal(k->args[4].kind, CODE_OBJECT_HIDDEN_BLOCK_COUNT_X);
  assert_int_equal(k->args[4].offset, 32);
  assert_int_equal(k->args[16].kind, CODE_OBJECT_HIDDEN_GRID_DIMS);
  assert_int_equal(k->args[16].offset, 96);
  assert_int_equal(k->kernarg_size, 288);
  assert_int_equal(k->descriptor.kernarg_size, 288);
  assert_int_equal(k->wavefront_size, 32);
  assert_int_equal(BITS_GET(KERNEL_CODE_KERNARG_SEGMENT_PTR, k->descriptor.kernel_code_properties), 1);
  assert_int_equal(k->descriptor.compute_pgm_rsrc2 & 1, 1); /* calls pass structures through scratch */
  assert_true(k->private_bytes > 0);
  code_object_close(&co);
  free(b.p);
}

/* A linked file's dynamic relocations, and memory that is not in the file (.bss). */
static void program_scope_variables(void **state) {
  struct bytes b = read_kernel("globals");
  struct code_object co;
  open_ok(&co, b);
  uint64_t address = 0x7f1200000000;
  uint8_t *image = malloc(co.image.size);
  memset(image, 0xaa, co.image.size);
  if (code_object_load(&co, image, address)) fail_msg("%s", db_error());
  uint64_t table[3], first = address + offset_of(&co, "globals_first"),
                     second = address + offset_of(&co, "globals_second");
  memcpy(table, image + offset_of(&co, "globals_table"), sizeof table);
  assert_int_equal(table[0], first);
  assert_int_equal(table[1], second);
  assert_int_equal(table[2], first + 8);
  assert_memory_equal(image + offset_of(&co, "globals_second"), ((int[]){10, 20, 30, 40}), 16);
  const uint8_t *zeros = image + offset_of(&co, "globals_zeros");
  for (int i = 0; i < 8000; i++) assert_int_equal(zeros[i], 0);
  free(image);
  code_object_close(&co);
  free(b.p);
}

/* ---- unlinked, as LLVM's code generator emits it ---- */

static const char unlinked_ir[] =
    "target triple = \"amdgcn-amd-amdhsa\"\n"
    "@table = internal addrspace(4) constant [4 x i32] [i32 10, i32 20, i32 30, i32 40], align 16\n"
    "@counter = addrspace(1) global i32 7, align 4\n"
    "@pointer = addrspace(1) global ptr addrspace(1) @counter, align 8\n"
    "define hidden i32 @helper(i32 %x) noinline nounwind {\n"
    "  %y = mul i32 %x, 3\n"
    "  ret i32 %y\n"
    "}\n"
    "define amdgpu_kernel void @k(ptr addrspace(1) %out, i32 %i) nounwind {\n"
    "  %p = getelementptr [4 x i32], ptr addrspace(4) @table, i32 0, i32 %i\n"
    "  %t = load i32, ptr addrspace(4) %p\n"
    "  %h = call i32 @helper(i32 %t)\n"
    "  store i32 %h, ptr addrspace(1) %out\n"
    "  ret void\n"
    "}\n"
    "define amdgpu_kernel void @second(ptr addrspace(1) %out) nounwind {\n"
    "  store i32 1, ptr addrspace(1) %out\n"
    "  ret void\n"
    "}\n";

static void unlinked_object(void **state) {
  size_t size;
  void *object = llvm_emit("amdgcn-amd-amdhsa", "gfx1100", unlinked_ir, LLVMRelocPIC, LLVMCodeModelDefault, &size);
  struct code_object co;
  open_ok(&co, (struct bytes){object, size});
  assert_int_equal(co.nkernels, 2);
  assert_null(code_object_find(&co, NULL));
  assert_non_null(strstr(db_error(), "k, second"));
  const struct code_object_kernel *k = code_object_find(&co, "k");
  assert_non_null(k);
  assert_int_equal(k->nargs >= 2, 1);
  assert_int_equal(k->entry_offset, offset_of(&co, "k"));
  assert_int_equal(code_object_find(&co, "second")->entry_offset, offset_of(&co, "second"));

  uint64_t address = 0x7f45fffff000;
  uint8_t *image = malloc(co.image.size);
  assert_int_equal(code_object_load(&co, image, address), 0);
  /* REL32_LO/HI: s_getpc_b64 (SOP1 opcode 0x47) gives the address of the next instruction; s_add_u32 and s_addc_u32
   * with literals add the distance. Each such sequence of the kernel must give the address of the helper or the table.
   */
  bool saw_helper = false, saw_table = false;
  const uint32_t *code = (const uint32_t *)(image + k->entry_offset);
  for (unsigned i = 0; i < 64; i++) {
    if ((code[i] & 0xff80ffff) != 0xbe804700) continue;
    assert_int_equal(code[i + 1] & 0xff80ff00, 0x8000ff00); /* s_add_u32 sN, sN, literal */
    assert_int_equal(code[i + 3] & 0xff80ff00, 0x8200ff00); /* s_addc_u32 */
    uint64_t pc = address + k->entry_offset + 4 * (i + 1), target = pc + (code[i + 2] | (uint64_t)code[i + 4] << 32);
    if (target == address + offset_of(&co, "helper"))
      saw_helper = true;
    else if (target - address < co.image.size && !memcmp(image + (target - address), (uint32_t[]){10, 20, 30, 40}, 16))
      saw_table = true;
    else
      fail_msg("address pair at dword %u leads to 0x%llx", i, (unsigned long long)target);
  }
  assert_true(saw_helper && saw_table);
  /* ABS64: a pointer in data. */
  uint64_t pointer;
  memcpy(&pointer, image + offset_of(&co, "pointer"), 8);
  assert_int_equal(pointer, address + offset_of(&co, "counter"));
  /* Access rights: descriptor readable, code executable and not writable, data writable. */
  unsigned access[3] = {0};
  for (unsigned i = 0; i < co.image.nranges; i++) {
    const struct elf_range *r = &co.image.ranges[i];
    const uint64_t at[] = {k->descriptor_offset, k->entry_offset, offset_of(&co, "counter")};
    for (int j = 0; j < 3; j++)
      if (at[j] >= r->offset && at[j] < r->offset + r->size) access[j] = r->access;
  }
  assert_int_equal(access[0], ELF_READ);
  assert_int_equal(access[1], ELF_READ | ELF_EXEC);
  assert_int_equal(access[2], ELF_READ | ELF_WRITE);
  free(image);
  code_object_close(&co);
  free(object);
}

/* The same module as code object version 4: hidden arguments are at other offsets, which the metadata gives. */
static void reads_version_4(void **state) {
  char ir[4096];
  snprintf(ir, sizeof ir, "%s!llvm.module.flags = !{!0}\n!0 = !{i32 1, !\"amdhsa_code_object_version\", i32 400}\n",
           unlinked_ir);
  size_t size;
  void *object = llvm_emit("amdgcn-amd-amdhsa", "gfx1100", ir, LLVMRelocPIC, LLVMCodeModelDefault, &size);
  struct code_object co;
  open_ok(&co, (struct bytes){object, size});
  assert_int_equal(co.version, 4);
  const struct code_object_kernel *k = code_object_find(&co, "k");
  /* 12 bytes of explicit arguments; implicit ones from 16: global offsets x, y, z. */
  bool saw = false;
  for (unsigned i = 0; i < k->nargs; i++)
    if (k->args[i].kind == CODE_OBJECT_HIDDEN_GLOBAL_OFFSET_Y) assert_int_equal(k->args[i].offset, 24), saw = true;
  assert_true(saw);
  code_object_close(&co);
  free(object);
}

/* Machines and versions that the loader accepts; LLVM's objects have the flags. */
static void machines_and_versions(void **state) {
  static const char *const archs[] = {"gfx900",  "gfx906",  "gfx908",  "gfx90a",  "gfx942",  "gfx1010",
                                      "gfx1030", "gfx1036", "gfx1100", "gfx1101", "gfx1102", "gfx1103",
                                      "gfx1150", "gfx1151", "gfx1152", "gfx1200", "gfx1201"};
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
    for (unsigned version = 4; version <= 6; version++) {
      char ir[256];
      size_t size;
      snprintf(ir, sizeof ir,
               "define amdgpu_kernel void @k(i64 %%x) { ret void }\n!llvm.module.flags = !{!0}\n"
               "!0 = !{i32 1, !\"amdhsa_code_object_version\", i32 %u}\n",
               100 * version);
      void *object = llvm_emit("amdgcn-amd-amdhsa", archs[i], ir, LLVMRelocPIC, LLVMCodeModelDefault, &size);
      struct code_object co;
      if (code_object_open(&co, object, size, archs[i])) fail_msg("%s version %u: %s", archs[i], version, db_error());
      assert_int_equal(co.version, version);
      const struct code_object_kernel *k = code_object_find(&co, "k");
      assert_non_null(k);
      assert_int_equal(k->wavefront_size, archs[i][3] == '9' ? 64 : 32); /* gfx9 has 64 lanes */
      code_object_close(&co);
      free(object);
    }
}

static void undefined_symbol(void **state) {
  size_t size;
  void *object = llvm_emit("amdgcn-amd-amdhsa", "gfx1100",
                           "declare i32 @missing_function(i32)\n"
                           "define amdgpu_kernel void @k(ptr addrspace(1) %out) nounwind {\n"
                           "  %h = call i32 @missing_function(i32 1)\n"
                           "  store i32 %h, ptr addrspace(1) %out\n"
                           "  ret void\n"
                           "}\n",
                           LLVMRelocPIC, LLVMCodeModelDefault, &size);
  struct code_object co;
  open_ok(&co, (struct bytes){object, size});
  uint8_t *image = malloc(co.image.size);
  assert_true(code_object_load(&co, image, 0) < 0);
  assert_non_null(strstr(db_error(), "missing_function"));
  free(image);
  code_object_close(&co);
  free(object);
}

/* Code for a GPU family runs on each of its members; one such kernel runs on the emulated gfx1100. */
static void generic_machine(void **state) {
  size_t size;
  void *object = llvm_emit("amdgcn-amd-amdhsa", "gfx11-generic",
                           "define amdgpu_kernel void @k(ptr addrspace(1) %p) { store i32 1234, ptr addrspace(1) %p\n"
                           "ret void }\n!llvm.module.flags = !{!0}\n"
                           "!0 = !{i32 1, !\"amdhsa_code_object_version\", i32 600}\n",
                           LLVMRelocPIC, LLVMCodeModelDefault, &size);
  const struct {
    const char *arch;
    bool runs;
  } cases[] = {{"gfx1100", true}, {"gfx1103", true}, {"gfx1151", true}, {"gfx1030", false}, {"gfx1200", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct code_object co;
    assert_int_equal(!code_object_open(&co, object, size, cases[i].arch), cases[i].runs);
    if (!cases[i].runs) continue;
    assert_string_equal(co.arch, "gfx11-generic");
    assert_int_equal(co.version, 6);
    code_object_close(&co);
  }
  db_device *dev = db_open("EMU+AMD:gfx1100");
  db_program *k = dev ? db_program_load(dev, object, size, "k", NULL, 0) : NULL;
  if (!k) fail_msg("%s", db_error());
  db_buffer *out = db_alloc(dev, 4, DB_BUFFER_HOST);
  db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
  const uint32_t one[3] = {1, 1, 1};
  uint64_t when;
  assert_int_equal(db_queue_exec(q, k, &(struct db_arg){.buffer = out}, 1, one, one), 0);
  assert_int_equal(db_queue_submit(q, &when), 0);
  if (db_wait(db_queue_timeline(q), when, 20000000000ull)) fail_msg("%s", db_error());
  assert_int_equal(*(uint32_t *)db_buffer_host(out), 1234);
  db_queue_release(q);
  db_buffer_release(out);
  db_program_release(k);
  db_close(dev);
  free(object);
}

static void wrong_machine(void **state) {
  size_t size;
  void *object = llvm_emit("amdgcn-amd-amdhsa", "gfx1201", "define amdgpu_kernel void @k() { ret void }", LLVMRelocPIC,
                           LLVMCodeModelDefault, &size);
  struct code_object co;
  assert_true(code_object_open(&co, object, size, "gfx1100") < 0);
  assert_string_equal(db_error(), "code object is for gfx1201, device is gfx1100");
  assert_int_equal(code_object_open(&co, object, size, NULL), 0);
  code_object_close(&co);
  free(object);
  object =
      llvm_emit("x86_64-linux-gnu", "", "define void @k() { ret void }", LLVMRelocPIC, LLVMCodeModelDefault, &size);
  assert_true(code_object_open(&co, object, size, "gfx1100") < 0);
  assert_non_null(strstr(db_error(), "machine 62"));
  free(object);
}

/* ---- malformed files ---- */

static Elf64_Ehdr *header(struct bytes b) { return (Elf64_Ehdr *)b.p; }
static Elf64_Shdr *section(struct bytes b, const char *name) {
  Elf64_Shdr *s = (Elf64_Shdr *)(b.p + header(b)->e_shoff);
  const char *names = (const char *)b.p + s[header(b)->e_shstrndx].sh_offset;
  for (unsigned i = 0; i < header(b)->e_shnum; i++)
    if (!strcmp(names + s[i].sh_name, name)) return &s[i];
  fail_msg("no section %s", name);
  return NULL;
}
static Elf64_Phdr *segment(struct bytes b, uint32_t type, unsigned nth) {
  Elf64_Phdr *p = (Elf64_Phdr *)(b.p + header(b)->e_phoff);
  for (unsigned i = 0; i < header(b)->e_phnum; i++)
    if (p[i].p_type == type && !nth--) return &p[i];
  fail_msg("no segment of type %u", type);
  return NULL;
}
/* The metadata's bytes after the nth occurrence of text. */
static uint8_t *after(struct bytes b, const char *text) {
  Elf64_Shdr *note = section(b, ".note");
  uint8_t *at = memmem(b.p + note->sh_offset, note->sh_size, text, strlen(text));
  if (!at) fail_msg("metadata has no %s", text);
  return at + strlen(text);
}
static uint8_t *metadata(struct bytes b) { return b.p + section(b, ".note")->sh_offset + 20; }
static struct kernel_descriptor *descriptor(struct bytes b) {
  return (struct kernel_descriptor *)(b.p + section(b, ".rodata")->sh_offset);
}
static Elf64_Sym *symbol(struct bytes b, const char *name) {
  Elf64_Shdr *t = section(b, ".symtab"), *names = section(b, ".strtab");
  Elf64_Sym *s = (Elf64_Sym *)(b.p + t->sh_offset);
  for (size_t i = 0; i < t->sh_size / sizeof *s; i++)
    if (!strcmp((char *)b.p + names->sh_offset + s[i].st_name, name)) return &s[i];
  fail_msg("no symbol %s", name);
  return NULL;
}

static Elf64_Rela *relocation(struct bytes b) { return (Elf64_Rela *)(b.p + section(b, ".rela.dyn")->sh_offset); }
static Elf64_Dyn *dynamic(struct bytes b, int64_t tag) {
  Elf64_Dyn *d = (Elf64_Dyn *)(b.p + section(b, ".dynamic")->sh_offset);
  while (d->d_tag && d->d_tag != tag) d++;
  if (!d->d_tag) fail_msg("no dynamic entry %d", (int)tag);
  return d;
}

/* M(name, required part of the message, change to a copy b of a valid file) */
#define MALFORMED(M)                                                                                                   \
  M(empty, "has 0 bytes", b->n = 0)                                                                                    \
  M(header_cut, "has 63 bytes", b->n = 63)                                                                             \
  M(magic, "no ELF magic", b->p[0] = 'M')                                                                              \
  M(class32, "not 64-bit", b->p[4] = 1)                                                                                \
  M(big_endian, "not little-endian", b->p[5] = 2)                                                                      \
  M(elf_version, "version 1/9", header(*b)->e_version = 9)                                                             \
  M(executable_type, "ELF type 2", header(*b)->e_type = ET_EXEC)                                                       \
  M(machine, "machine 183", header(*b)->e_machine = EM_AARCH64)                                                        \
  M(os_abi, "OS ABI 0", b->p[7] = 0)                                                                                   \
  M(version_2, "ABI version 0", b->p[8] = 0)                                                                           \
  M(version_9, "ABI version 7", b->p[8] = 7)                                                                           \
  M(other_arch, "code object is for gfx942, device is gfx1100", header(*b)->e_flags = 0x54c)                           \
  M(unknown_arch, "machine 0xff", header(*b)->e_flags = 0xff)                                                          \
  M(file_cut, "runs past the end", b->n /= 2)                                                                          \
  M(section_table_huge, "section header table", header(*b)->e_shoff = ~0ull - 63)                                      \
  M(section_entry_size, "section header entries have 40", header(*b)->e_shentsize = 40)                                \
  M(section_table_long, "section header table of 65000", header(*b)->e_shnum = 65000)                                  \
  M(extended_numbering, "extended section numbering", header(*b)->e_shnum = 0)                                         \
  M(program_table_off, "program header table", header(*b)->e_phoff = b->n - 8)                                         \
  M(program_entry_size, "program header entries have 32", header(*b)->e_phentsize = 32)                                \
  M(section_past_end, "(.text)", section(*b, ".text")->sh_size = 1ull << 40)                                           \
  M(section_wraps, "(.rodata)", section(*b, ".rodata")->sh_offset = ~0ull - 15)                                        \
  M(segment_past_end, "segment", segment(*b, PT_LOAD, 1)->p_filesz = segment(*b, PT_LOAD, 1)->p_memsz = 1 << 30)       \
  M(segment_shrinks, "bytes of memory but has", segment(*b, PT_LOAD, 1)->p_memsz = 1)                                  \
  M(segment_huge, "more than 1 GiB", segment(*b, PT_LOAD, 2)->p_memsz = 1ull << 41)                                    \
  M(segment_wraps, "wraps around", segment(*b, PT_LOAD, 2)->p_vaddr = ~0ull - 15)                                      \
  M(segments_overlap, "overlaps or precedes", segment(*b, PT_LOAD, 1)->p_vaddr = 0)                                    \
  M(segment_alignment, "alignment 0x1001", segment(*b, PT_LOAD, 0)->p_align = 4097)                                    \
  M(symbol_entry_size, "symbol table section", section(*b, ".symtab")->sh_entsize = 16)                                \
  M(symbol_table_ragged, "symbol table section", section(*b, ".symtab")->sh_size -= 5)                                 \
  M(string_table_missing, "string table", section(*b, ".symtab")->sh_link = 9999)                                      \
  M(symbol_name_wild, "runs past its string table", symbol(*b, "calls.kd")->st_name = 0x7fffffff)                      \
  M(note_cut, "runs past its section", memset(b->p + section(*b, ".note")->sh_offset + 4, 0xff, 4))                    \
  M(note_missing, "no metadata", b->p[section(*b, ".note")->sh_offset + 8] = 33)                                       \
  M(metadata_cut, "cut off", b->p[section(*b, ".note")->sh_offset + 4] -= 8)                                           \
  M(metadata_huge, "claims more elements", after(*b, "amdhsa.kernels")[0] = 0xdd)                                      \
  M(metadata_deep, "nested too deeply", memset(metadata(*b), 0x91, 1300), metadata(*b)[1300] = 0,                      \
    memset(b->p + section(*b, ".note")->sh_offset + 4, 0, 4), /* description of 1301 bytes */                          \
    b->p[section(*b, ".note")->sh_offset + 4] = 0x15, b->p[section(*b, ".note")->sh_offset + 5] = 5)                   \
  M(metadata_garbage, "no known MessagePack", after(*b, "amdhsa.kernels")[0] = 0xc1)                                   \
  M(metadata_no_kernels, "lacks the list amdhsa.kernels", after(*b, "amdhsa.kernels")[-1] = 'z')                       \
  M(metadata_target, "ELF flags have target", after(*b, "amdhsa--gfx1100")[-1] = '1')                                  \
  M(no_symbol_key, "lacks .name or .symbol", after(*b, ".symbol")[-1] = 'x')                                           \
  M(no_kernarg_size, "lacks .kernarg_segment_size", after(*b, ".kernarg_segment_size")[-1] = 'x')                      \
  M(kernarg_size_text, "not a 32-bit number", after(*b, ".private_segment_fixed_size")[0] = 0xa0)                      \
  M(kernarg_align, ".kernarg_segment_align 3", after(*b, ".kernarg_segment_align")[0] = 3)                             \
  M(value_kind, "argument of kind hidden_block_count_q", after(*b, "hidden_block_count_x")[-1] = 'q')                  \
  M(argument_outside, "is outside of the 16-byte argument segment", after(*b, ".kernarg_segment_size")[1] = 0,         \
    after(*b, ".kernarg_segment_size")[2] = 16)                                                                        \
  M(argument_overlap, "overlaps the one before", after(*b, ".offset\x08")[-1] = 4)                                     \
  M(argument_size, "its kind has 8", after(*b, ".size")[0] = 4)                                                        \
  M(wave_size, "metadata has wave64", after(*b, ".wavefront_size")[0] = 64)                                            \
  M(workgroup_size, ".max_flat_workgroup_size", after(*b, ".max_flat_workgroup_size")[1] = 0xff)                       \
  M(descriptor_symbol, "calls.kx is not in the symbol table", after(*b, "calls.kd")[-1] = 'x')                         \
  M(descriptor_outside, "outside of the image", symbol(*b, "calls.kd")->st_value = 1 << 20)                            \
  M(descriptor_unaligned, "not 64 aligned bytes", symbol(*b, "calls.kd")->st_value += 4)                               \
  M(descriptor_undefined, "not in the symbol table", symbol(*b, "calls.kd")->st_shndx = 0)                             \
  M(entry_outside, "not at 256 aligned bytes of executable code",                                                      \
    descriptor(*b)->kernel_code_entry_byte_offset = 1 << 24)                                                           \
  M(entry_in_data, "not at 256 aligned bytes of executable code", descriptor(*b)->kernel_code_entry_byte_offset = 0)   \
  M(entry_wraps, "not at 256 aligned bytes", descriptor(*b)->kernel_code_entry_byte_offset = INT64_MIN)                \
  M(entry_unaligned, "not at 256 aligned bytes", descriptor(*b)->kernel_code_entry_byte_offset += 4)

/* The same on a file with dynamic relocations. */
#define MALFORMED_DYNAMIC(M)                                                                                           \
  M(relocation_outside, "which it may not change", relocation(*b)->r_offset = 1ull << 33)                              \
  M(relocation_across_end, "run past the end", relocation(*b)->r_offset = 0x5ffc)                                      \
  M(relocation_type, "relocation type 99", relocation(*b)->r_info = 99)                                                \
  M(relocation_symbol, "symbol 4000000 of a table", relocation(*b)->r_info = 4000000ull << 32 | 3,                     \
    relocation(*b)->r_offset = symbol(*b, "globals.kd")->st_value)                                                     \
  M(relocation_got, "in a linked file", relocation(*b)->r_info = 7,                                                    \
    relocation(*b)->r_offset = symbol(*b, "globals.kd")->st_value)                                                     \
  M(relocations_not_in_file, "dynamic relocations at address", dynamic(*b, DT_RELASZ)->d_un.d_val = 1 << 20)           \
  M(relocations_without_addends, "not supported", dynamic(*b, DT_RELACOUNT)->d_tag = DT_REL)

#define DEFINE(name, message, ...)                                                                                     \
  static void change_##name(struct bytes *b) { __VA_ARGS__; }
MALFORMED(DEFINE)
MALFORMED_DYNAMIC(DEFINE)
static const struct malformed {
  const char *name, *message;
  void (*change)(struct bytes *b);
} malformed[] =
    {
#define TABLE_ROW(name, message, ...) {#name, message, change_##name},
        MALFORMED(TABLE_ROW)},
  malformed_dynamic[] = {MALFORMED_DYNAMIC(TABLE_ROW)};

static void each_names_its_problem(const char *kernel, const struct malformed *cases, size_t count) {
  struct bytes good = read_kernel(kernel);
  unsigned wrong = 0;
  for (size_t i = 0; i < count; i++) {
    struct bytes b = {malloc(good.n), good.n};
    memcpy(b.p, good.p, good.n);
    cases[i].change(&b);
    /* A copy of just the file's size, so that a sanitizer sees reads past its end. */
    uint8_t *exact = malloc(b.n ? b.n : 1);
    memcpy(exact, b.p, b.n);
    struct code_object co;
    int err = code_object_open(&co, exact, b.n, "gfx1100");
    if (!err) {
      uint8_t *image = malloc(co.image.size);
      err = code_object_load(&co, image, 0);
      free(image);
      code_object_close(&co);
    }
    if (!err || !strstr(db_error(), cases[i].message)) {
      print_error("%s: expected '%s', got '%s'\n", cases[i].name, cases[i].message, err ? db_error() : "success");
      wrong++;
    }
    free(exact);
    free(b.p);
  }
  free(good.p);
  assert_int_equal(wrong, 0);
}

static void malformed_files_name_their_problem(void **state) {
  each_names_its_problem("calls", malformed, sizeof malformed / sizeof *malformed);
  each_names_its_problem("globals", malformed_dynamic, sizeof malformed_dynamic / sizeof *malformed_dynamic);
}

/* Every prefix of a file is an error, and none causes a read past its end. */
static void refuses_truncated_files(void **state) {
  struct bytes good = read_kernel("structarg");
  for (size_t n = 0; n < good.n; n += n < 1200 ? 1 : 37) {
    uint8_t *exact = malloc(n ? n : 1);
    memcpy(exact, good.p, n);
    struct code_object co;
    assert_true(code_object_open(&co, exact, n, "gfx1100") < 0);
    free(exact);
  }
  free(good.p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(metadata_as_readelf_prints_it),
      cmocka_unit_test(images_hold_the_sections),
      cmocka_unit_test(descriptor_fields),
      cmocka_unit_test(program_scope_variables),
      cmocka_unit_test(unlinked_object),
      cmocka_unit_test(reads_version_4),
      cmocka_unit_test(machines_and_versions),
      cmocka_unit_test(undefined_symbol),
      cmocka_unit_test(generic_machine),
      cmocka_unit_test(wrong_machine),
      cmocka_unit_test(malformed_files_name_their_problem),
      cmocka_unit_test(refuses_truncated_files),
  };
  return cmocka_run_group_tests_name("code_object", tests, NULL, NULL);
}
