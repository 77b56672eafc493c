/* Reads arbitrary bytes as an ELF file and as a code object: no crash, no access outside of buffers, bounded memory. */
#include <stdlib.h>
#include "hcq/amd/code_object.h"

enum { LARGEST = 1 << 22 };

static uint64_t resolve(void *ctx, const char *name) { return name[0] == 'u' ? 0 : 0x7f0000001000; }

/* Loads the whole image into a buffer of exactly its size. */
static void load(const struct elf_image *image, uint64_t address) {
  if (image->size > LARGEST) return;
  void *dst = malloc(image->size);
  if (dst) elf_image_load(image, dst, 0, image->size, address & ~(image->align - 1), resolve, NULL);
  free(dst);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct elf e;
  if (!elf_open(&e, data, size)) {
    struct elf_image image;
    if (!elf_image_layout(&image, &e, 4096)) {
      load(&image, 0x7f1234567000);
      for (unsigned i = 0; i < e.symbols.count; i++) {
        uint64_t offset;
        elf_image_symbol(&image, i, &offset);
      }
      elf_image_free(&image);
    }
    elf_close(&e);
  }
  struct code_object co;
  if (code_object_open(&co, data, size, NULL)) return 0;
  code_object_find(&co, NULL);
  code_object_find(&co, "?");
  for (unsigned i = 0; i < co.nkernels; i++) code_object_find(&co, co.kernels[i].name);
  load(&co.image, 0);
  code_object_close(&co);
  return 0;
}
