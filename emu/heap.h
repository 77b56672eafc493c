/* Backing memory of emulated GPUs. */
#ifndef DOORBELL_EMU_HEAP_H
#define DOORBELL_EMU_HEAP_H
#include <stddef.h>
#include <stdint.h>

/* A page allocator over one sparse file, which the emulator maps as it is used and clients map where they want. Freed
 * pages are given back, so memory is always zero when allocated, and stay mapped, so that a stray access of a kernel
 * that still runs hits zeroes and not the host. */
struct heap {
  int fd;
  uint64_t size, used;
  struct heap_extent {
    uint64_t offset, size;
  } *gaps; /* by offset, none adjacent */
  size_t ngaps, cap;
  uint8_t **windows; /* the emulator's view, one per HEAP_WINDOW; NULL until used */
  size_t nwindows;
  struct heap_view {
    struct heap_view *next;
    uint64_t offset, size;
    uint8_t *host;
  } *views; /* of ranges across windows */
};
#define HEAP_WINDOW (1ull << 30)
int heap_init(struct heap *heap, const char *name, uint64_t size);
void heap_fini(struct heap *heap);
int heap_alloc(struct heap *heap, uint64_t size, uint64_t *offset, uint8_t **host);
void heap_free(struct heap *heap, uint64_t offset, uint64_t size, uint8_t *host);
#endif
