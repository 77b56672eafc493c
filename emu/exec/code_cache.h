/* Decoded code of one address space, found by address: what the emulated machines' instruction caches are. A trace is
 * decoded once and then shared by all cores; after an invalidation its bytes are compared with memory the next time
 * somebody enters it, and only changed code is decoded again. */
#ifndef DOORBELL_EMU_CODE_CACHE_H
#define DOORBELL_EMU_CODE_CACHE_H
#include <stdbool.h>
#include <stdint.h>
#include "../vm.h"

/* A run of decoded code that starts at one address: up to an unconditional end that no branch inside jumps over. The
 * first member of each machine's own trace. */
struct code_trace {
  uint64_t start, end;               /* [start, end) in bytes */
  uint64_t key;                      /* what else it was decoded for; the machine's own */
  void *words;                       /* the code it was built from */
  uint64_t checked_vm, checked_code; /* generations at which the bytes were last found unchanged */
  struct code_trace *next;
};

/* What a machine's code is. */
struct code_kind {
  unsigned unit;   /* bytes; instructions are multiples of it */
  unsigned access; /* that fetching needs, as vm_translate has it */
  /* Decodes from pc on; start, end, key and words are set. NULL and *why when it cannot. */
  struct code_trace *(*decode)(struct vm *vm, uint64_t pc, uint64_t key, const char **why);
  void (*release)(struct code_trace *t);
};

struct code_cache;
struct code_cache *code_cache_new(const struct code_kind *kind); /* NULL when memory is short */
void code_cache_free(struct code_cache *c);
/* Code may have changed in memory. */
void code_cache_invalidate(struct code_cache *c);
/* A core's use: the traces it gets stay valid between enter and leave. */
void code_cache_enter(struct code_cache *c);
void code_cache_leave(struct code_cache *c);
/* The trace of a key that starts at pc; with inside, else one that holds pc somewhere; else a new one. NULL and *why
 * when it cannot be decoded. */
struct code_trace *code_cache_get(struct code_cache *c, struct vm *vm, uint64_t pc, uint64_t key, bool inside,
                                  const char **why);
#endif
