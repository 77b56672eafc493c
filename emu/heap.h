/* Backing memory of emulated GPUs. */
#ifndef DOORBELL_EMU_HEAP_H
#define DOORBELL_EMU_HEAP_H
#include <stddef.h>
#include <stdint.h>

/* A page allocator over one sparse file. The emulator maps the file window by window when it first uses it; clients map
 * parts of it where they want. Freed pages are punched out of the file, so newly allocated memory is always zero. They
 * stay mapped, so a stray access of a kernel that is still running reads zeros and does not touch the host's memory. */
struct heap {
  int fd;
  uint64_t size, used;
  struct heap_extent {
    uint64_t offset, size;
  } *gaps; /* sorted by offset, none adjacent */
  size_t ngaps, cap;
  uint8_t **windows; /* the emulator's mappings, one per HEAP_WINDOW; NULL until first used */
  size_t nwindows;
  struct heap_view {
    struct heap_view *next;
    uint64_t offset, size;
    uint8_t *host;
  } *views; /* mappings of ranges that cross windows */
};
#define HEAP_WINDOW (1ull << 30)
/* Creates the file with room for size bytes. name is for debugging. Returns 0 or a negative errno. */
int heap_init(struct heap *heap, const char *name, uint64_t size);
void heap_fini(struct heap *heap);
/* Allocates size bytes, a multiple of the page size. *offset is the position in the file, *host the emulator's mapping.
 * Returns 0, or -ENOMEM if no gap is large enough, or another negative errno. */
int heap_alloc(struct heap *heap, uint64_t size, uint64_t *offset, uint8_t **host);
/* Frees an allocation; offset, size and host are those of heap_alloc. */
void heap_free(struct heap *heap, uint64_t offset, uint64_t size, uint8_t *host);
#endif
