/* Decoded code of one address space, indexed by address: the instruction caches of emulated machines. A trace is
 * decoded once and shared by all cores. After an invalidation, the next lookup of a trace compares its bytes with
 * memory; only changed code is decoded again. */
#ifndef DOORBELL_EMU_CODE_CACHE_H
#define DOORBELL_EMU_CODE_CACHE_H
#include <stdbool.h>
#include <stdint.h>
#include "../vm.h"

/* A run of decoded code that starts at one address and ends at an unconditional end that no branch inside jumps past.
 * It is the first member of each machine's trace type. */
struct code_trace {
  uint64_t start, end;               /* [start, end) in bytes */
  uint64_t key;                      /* other parameters of decoding; defined by the machine */
  void *words;                       /* the code it was built from */
  uint64_t checked_vm, checked_code; /* generations at which the bytes were last found unchanged */
  struct code_trace *next;
};

/* Describes the code of a machine. */
struct code_kind {
  unsigned unit;   /* in bytes; instruction sizes are multiples of it */
  unsigned access; /* rights that fetching needs, as for vm_translate */
  /* Decodes from pc on and sets start, end, key and words. Returns NULL and sets *why on failure. */
  struct code_trace *(*decode)(struct vm *vm, uint64_t pc, uint64_t key, const char **why);
  void (*release)(struct code_trace *t);
};

struct code_cache;
struct code_cache *code_cache_new(const struct code_kind *kind); /* NULL if out of memory */
void code_cache_free(struct code_cache *c);
/* Call it when code in memory may have changed. */
void code_cache_invalidate(struct code_cache *c);
/* Traces that a core gets stay valid between enter and leave. */
void code_cache_enter(struct code_cache *c);
void code_cache_leave(struct code_cache *c);
/* Returns the trace of a key that starts at pc; with inside, else one that contains pc; else decodes a new one. Returns
 * NULL and sets *why if pc cannot be decoded. */
struct code_trace *code_cache_get(struct code_cache *c, struct vm *vm, uint64_t pc, uint64_t key, bool inside,
                                  const char **why);
#endif
