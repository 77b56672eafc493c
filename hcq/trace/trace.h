/* Traces of the calls between a driver and its kernel: recorded on a machine, played back in its place.
 *
 * A recorder is a table of system calls that wraps another one. It writes every call with its arguments and results,
 * every doorbell, and the changes in memory that host and device share. A player is a table that answers from such a
 * file and compares: the driver must make the recorded calls, write the recorded packets and ring the recorded
 * doorbells. So the trace of one program on one card tests the driver wherever the same program runs.
 *
 * After each doorbell the recorder waits until the queue is idle. Changes before the doorbell were made by the host,
 * changes after it by the device: the player compares the former and supplies the latter. The program must therefore
 * not submit work that waits for something it submits or sets later. A trace of such a program contains the reason why
 * it cannot be played.
 *
 * The file is a gzip stream: the header, then events of the form
 *   uint32_t length of the rest, uint8_t kind, uint64_t numbers[], {uint32_t size, uint8_t bytes[size]} blobs[]
 * The kind determines the number of numbers (os_trace_kinds); the blobs fill the rest. All integers are
 * little-endian. */
#ifndef DOORBELL_HCQ_TRACE_H
#define DOORBELL_HCQ_TRACE_H
#include "../os.h"
#include <stdbool.h>

#define TRACE_MAGIC "DBTRACE\n"
enum { TRACE_VERSION = 1, TRACE_NUMBERS = 8, TRACE_BLOBS = 16, TRACE_PARTS = TRACE_BLOBS / 2 };

/* ---- events (file.c) ---- */

/* K(enumerator, name, number of numbers, number of those that are arguments, minimum and maximum number of blobs,
 * number of those that are arguments, names of the numbers) */
/* clang-format off */
#define TRACE_KINDS(K) \
  K(OPEN, "open", 2, 1, 1, 1, 1, "flags", "result") \
  K(CLOSE, "close", 2, 1, 0, 0, 0, "descriptor", "result") \
  K(IOCTL, "ioctl", 3, 2, 0, TRACE_BLOBS, 0, "descriptor", "request", "result") \
  K(MMAP, "mmap", 8, 6, 0, 0, 0, "address", "length", "protection", "flags", "descriptor", "offset", "result", \
    "memory") \
  K(MUNMAP, "munmap", 3, 2, 0, 0, 0, "address", "length", "result") \
  K(POLL, "poll", 4, 2, 0, 0, 0, "descriptor", "events", "timeout", "result") \
  K(READ_FILE, "read_file", 2, 1, 2, 2, 1, "capacity", "result") \
  K(LIST_DIR, "list_dir", 1, 0, 2, 2, 1, "result") \
  K(RING, "doorbell", 3, 3, 0, 0, 0, "address", "bytes", "value") \
  K(HOST, "memory of the host", 0, 0, 1, 1, 0, NULL) \
  K(DEVICE, "memory of the device", 0, 0, 1, 1, 0, NULL) \
  K(UNSUPPORTED, "unsupported", 0, 0, 1, 1, 0, NULL) \
  K(END, "end", 0, 0, 0, 0, 0, NULL)
/* clang-format on */
#define TRACE_KIND_ENUM(enumerator, ...) TRACE_##enumerator,
enum os_trace_kind { TRACE_KINDS(TRACE_KIND_ENUM) TRACE_KIND_COUNT };
struct os_trace_kind_info {
  const char *name;
  unsigned numbers, number_args, least_blobs, most_blobs, blob_args;
  const char *number_names[TRACE_NUMBERS];
};
extern const struct os_trace_kind_info os_trace_kinds[TRACE_KIND_COUNT];

struct os_trace_blob {
  const uint8_t *bytes;
  uint32_t size;
};
struct os_trace_event {
  enum os_trace_kind kind;
  uint64_t offset; /* in the uncompressed stream, for messages */
  uint64_t numbers[TRACE_NUMBERS];
  struct os_trace_blob blobs[TRACE_BLOBS];
  unsigned nblobs;
};

struct os_trace {
  struct os_trace_header header;
  struct os_trace_event *events; /* the last one is TRACE_END */
  size_t nevents;
  uint8_t *stream; /* holds the blobs */
};
/* Both return 0, or a negative errno and a reason in err that includes the offset. parse takes ownership of the
 * uncompressed stream, which was malloc'ed; on failure it frees it. */
int os_trace_load(const char *file, struct os_trace *out, char *err, size_t errcap);
int os_trace_parse(uint8_t *stream, size_t size, struct os_trace *out, char *err, size_t errcap);
void os_trace_free(struct os_trace *t);

struct os_trace_writer;
int os_trace_create(const char *file, const struct os_trace_header *header, struct os_trace_writer **out);
void os_trace_write(struct os_trace_writer *w, const struct os_trace_event *event);
/* Writes the end event and closes the file. Returns 0, or a negative errno if any write failed. */
int os_trace_finish(struct os_trace_writer *w);

/* ---- structures that calls point to (calls.c) ---- */

struct os_trace_part {
  uint8_t *bytes;
  uint32_t size;
};
struct os_trace_call {
  char name[64];
  bool time_dependent; /* the number of calls depends on time */
  struct os_trace_part parts[TRACE_PARTS];
  unsigned nparts;
  const void *fields; /* of the first part */
};
/* Stores the call's name and, with follow, the structures that its argument points to; pass follow = false for a
 * recorded call, whose pointers are invalid. Returns false for an unknown request. */
bool os_trace_describe(unsigned long request, void *arg, bool follow, struct os_trace_call *out);
/* Copies the parts. Host pointers in them are cleared, because they differ between runs. */
void os_trace_parts_copy(const struct os_trace_call *call, unsigned long request, uint8_t *const out[TRACE_PARTS]);
/* Fills the parts from after[0], after[2] and so on, which have the same sizes; pointers in the parts are kept. */
void os_trace_parts_fill(const struct os_trace_call *call, unsigned long request, const struct os_trace_blob *after);
/* The field that contains byte `at` of a part: its name ("va_addr", or an offset if it is unknown), its first byte and
 * its size in bytes. */
void os_trace_field(const struct os_trace_call *call, unsigned part, uint32_t at, char *name, size_t cap,
                    uint32_t *first, uint32_t *bytes);
/* Tracks which file descriptors map registers; the contents of those mappings are not recorded. */
struct os_trace_registers {
  int kfd, usermode_fd; /* -1 if none */
  uint32_t usermode;    /* RM's handle of the usermode object */
};
void os_trace_registers_open(struct os_trace_registers *r, const char *path, int fd);
/* Call it after the ioctl succeeded. */
void os_trace_registers_ioctl(struct os_trace_registers *r, unsigned long request, const void *arg);
bool os_trace_maps_registers(const struct os_trace_registers *r, int fd);
/* Whether a call pins pages of the process; if so, their address and size. */
bool os_trace_pinned_pages(unsigned long request, const void *arg, uint64_t *address, uint64_t *size);

/* ---- memory that host and device share (memory.c) ---- */

struct os_trace_region {
  uint8_t *live, *snapshot; /* live: the memory itself; snapshot: its contents at the last event */
  size_t size;
};
struct os_trace_memory {
  struct os_trace_region *regions;
  size_t n;
};
int os_trace_memory_add(struct os_trace_memory *m, void *at, size_t size);
void os_trace_memory_remove(struct os_trace_memory *m, void *at, size_t size);
void os_trace_memory_free(struct os_trace_memory *m);
struct os_trace_bytes {
  uint8_t *p;
  size_t n, cap;
  bool failed;
};
void os_trace_append(struct os_trace_bytes *b, const void *bytes, size_t n);
/* Appends the changes as {uint64_t address, uint32_t size, bytes} and updates the known contents. */
void os_trace_memory_changes(struct os_trace_memory *m, struct os_trace_bytes *out);
/* Reads the run at *at of such a list and advances *at; returns false at the end. Lists in a parsed trace are well
 * formed. */
bool os_trace_next_run(const struct os_trace_blob *list, size_t *at, uint64_t *address, struct os_trace_blob *bytes);
/* The region that contains all of [address, address + size), or NULL. */
struct os_trace_region *os_trace_memory_find(struct os_trace_memory *m, uint64_t address, uint64_t size);

/* ---- tables ---- */

/* As os_play (os.h), for a parsed trace, which it takes ownership of. os.h also declares os_record (record.c). */
int os_play_trace(struct os_trace *t, struct os **out, char *err, size_t errcap);
/* The first difference, or NULL. */
const char *os_play_difference(struct os *os);
/* Returns 0 if everything recorded was played; otherwise -EBADMSG, with the next event in db_error(). */
int os_play_finished(struct os *os);

#endif
