/* The boundary between a driver and the operating system.
 *
 * A backend calls the kernel only through one of these tables, so the provider of the table is the machine: the real
 * table calls libc, an emulated machine provides its own. Two machines in one process have two tables.
 *
 * Conventions: every call returns a value >= 0 on success and a negative errno on failure; none sets errno, prints or
 * exits. File descriptors are valid only with the table that returned them. Paths are absolute. */
#ifndef DOORBELL_HCQ_OS_H
#define DOORBELL_HCQ_OS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct os {
  int (*open)(struct os *os, const char *path, int flags);
  int (*close)(struct os *os, int fd);
  int (*ioctl)(struct os *os, int fd, unsigned long request, void *arg);
  /* Returns the mapped address, or a negative errno cast to a pointer (test with os_map_failed). */
  void *(*mmap)(struct os *os, void *addr, size_t len, int prot, int flags, int fd, off_t off);
  int (*munmap)(struct os *os, void *addr, size_t len);
  /* Polls one descriptor for poll(2) events; returns revents, or 0 after timeout_ms milliseconds. */
  int (*poll)(struct os *os, int fd, short events, int timeout_ms);
  /* Reads a whole small file into buf, NUL-terminated and truncated to cap - 1; returns the bytes read. */
  ssize_t (*read_file)(struct os *os, const char *path, char *buf, size_t cap);
  /* Calls each(ctx, name) for every entry but "." and ".." in an unspecified order; each returns non-zero to stop. */
  int (*list_dir)(struct os *os, const char *path, int (*each)(void *ctx, const char *name), void *ctx);
  /* Frees the machine; the table must not be used afterwards. A no-op for the real table. */
  void (*release)(struct os *os);
  /* NULL if doorbells need no call; otherwise called in place of the store that rings a doorbell. idle(queue) returns
   * whether the queue has finished everything submitted to it. Returns 0, or a negative errno with a message for
   * db_error(). */
  int (*ring)(struct os *os, void *at, uint64_t value, unsigned bytes, bool (*idle)(const void *queue),
              const void *queue);
};

/* bytes: 4 or 8. The release store publishes the ring's entries to the device that loads the doorbell. */
static inline void os_store_doorbell(void *at, uint64_t value, unsigned bytes) {
  if (bytes == 4)
    __atomic_store_n((uint32_t *)at, (uint32_t)value, __ATOMIC_RELEASE);
  else
    __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELEASE);
}
/* Backends ring every doorbell through this function. */
static inline int os_ring(struct os *os, void *at, uint64_t value, unsigned bytes, bool (*idle)(const void *queue),
                          const void *queue) {
  if (__builtin_expect(os->ring != NULL, 0)) return os->ring(os, at, value, bytes, idle, queue);
  os_store_doorbell(at, value, bytes);
  return 0;
}

static inline int os_map_failed(const void *p) { return (uintptr_t)p >= (uintptr_t)-4095; }

/* Annotations for ThreadSanitizer. An emulated device maps the host's pages at its own addresses, so ThreadSanitizer
 * cannot connect a doorbell store or a signal store with the load on the other side. The writer therefore calls
 * os_tsan_release after writing and before the store, with an address that both sides know: that of the ring or the
 * signal, which is the same for the host and the GPU. The reader calls os_tsan_acquire with that address after the
 * load. */
#if defined(__SANITIZE_THREAD__)
#define OS_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define OS_THREAD_SANITIZER 1
#endif
#endif
#ifdef OS_THREAD_SANITIZER
void __tsan_acquire(void *address);
void __tsan_release(void *address);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
static inline void os_tsan_release(uint64_t address) { __tsan_release((void *)(uintptr_t)address); }
static inline void os_tsan_acquire(uint64_t address) { __tsan_acquire((void *)(uintptr_t)address); }
/* Between these two calls the thread may read memory that devices write concurrently. */
static inline void os_tsan_ignore_begin(void) { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
static inline void os_tsan_ignore_end(void) { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
#else
static inline void os_tsan_release(uint64_t address) {}
static inline void os_tsan_acquire(uint64_t address) {}
static inline void os_tsan_ignore_begin(void) {}
static inline void os_tsan_ignore_end(void) {}
#endif

/* The table that calls libc. Never NULL; shared; release does nothing. */
struct os *os_real(void);

/* Makes a machine with one emulated GPU per entry of gpus ("gfx1100", or "sm_90,sm_90"), which drivers access through
 * the kernel interface of their vendor, "AMD" or "NV". Returns 0 and a table owned by the caller, or a negative errno
 * and a reason in err. Declared here as the other implementation of the table; emu/ defines it, and hcq/ never includes
 * emu/. */
int os_emulated(const char *vendor, const char *gpus, struct os **out, char *err, size_t errcap);

/* ---- recorded machines (trace/) ---- */

/* The header of a trace file. */
struct os_trace_header {
  char vendor[8];
  uint32_t index; /* index of the GPU that the recording program opened first */
};
/* Makes a table that wraps inner and writes all calls to file. release frees both. A trace that is still open when the
 * process exits is finished then. Returns 0, or a negative errno and a reason in err. */
int os_record(struct os *inner, const char *file, const struct os_trace_header *header, struct os **out, char *err,
              size_t errcap);
/* Makes a table that answers from file, and reads its header. A call that differs fails with -EBADMSG, and so do all
 * later calls; db_error() then ends with the difference. Returns as os_record. */
int os_play(const char *file, struct os_trace_header *header, struct os **out, char *err, size_t errcap);
#endif
