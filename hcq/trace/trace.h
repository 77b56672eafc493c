/* Traces of the calls between a driver and its kernel: recorded from a machine, played back as one.
 *
 * A recorder is a table of system calls in front of another one. It writes every call with its arguments and answers,
 * every doorbell, and what changes in memory that host and device share. A player is a table that answers from such a
 * file and compares: the driver must make the calls, the packets and the doorbells that were recorded. So the trace of
 * one program on one card is a test of the driver wherever the same program runs.
 *
 * The recorder waits behind each doorbell until the queue is idle. What changed before the doorbell is the host's, what
 * changed behind it the device's: the player compares the former and supplies the latter. The program must therefore be
 * one that waits for nothing it submits or sets later; a trace of another one names the reason why it cannot be played.
 *
 * The file is a gzip stream: the header, then events of the form
 *   uint32_t length of the rest, uint8_t kind, uint64_t numbers[], {uint32_t size, uint8_t bytes[size]} blobs[]
 * with as many numbers as the kind has (os_trace_kinds) and blobs up to the end. All integers are little-endian. */
#ifndef DOORBELL_HCQ_TRACE_H
#define DOORBELL_HCQ_TRACE_H
#include "../os.h"
#include <stdbool.h>

#define TRACE_MAGIC "DBTRACE\n"
enum { TRACE_VERSION = 1, TRACE_NUMBERS = 8, TRACE_BLOBS = 16, TRACE_PARTS = TRACE_BLOBS / 2 };

/* ---- events (file.c) ---- */

/* K(enumerator, name, numbers, of which are arguments, blobs at least and at most, of which are arguments, names) */
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

struct os_trace_header {
  char vendor[8];
  uint32_t index; /* of the GPU that the recording program opened first */
};
struct os_trace {
  struct os_trace_header header;
  struct os_trace_event *events; /* the last one is TRACE_END */
  size_t nevents;
  uint8_t *stream; /* owner of the blobs */
};
/* Both return 0 or a negative errno and a reason with the offset. parse takes the uncompressed stream, malloc'ed, and
 * frees it when it fails. */
int os_trace_load(const char *file, struct os_trace *out, char *err, size_t errcap);
int os_trace_parse(uint8_t *stream, size_t size, struct os_trace *out, char *err, size_t errcap);
void os_trace_free(struct os_trace *t);

struct os_trace_writer;
int os_trace_create(const char *file, const struct os_trace_header *header, struct os_trace_writer **out);
void os_trace_write(struct os_trace_writer *w, const struct os_trace_event *event);
/* Writes the end; 0 or a negative errno when anything could not be written. */
int os_trace_finish(struct os_trace_writer *w);

/* ---- what calls point to (calls.c) ---- */

struct os_trace_part {
  uint8_t *bytes;
  uint32_t size;
};
struct os_trace_call {
  char name[64];
  bool soft; /* how often it is made depends on time */
  struct os_trace_part parts[TRACE_PARTS];
  unsigned nparts;
  const void *fields; /* of the first part */
};
/* Names a call; with follow, what its argument points to, too, which a recorded one does not. False for a request that
 * is not known. */
bool os_trace_describe(unsigned long request, void *arg, bool follow, struct os_trace_call *out);
/* Copies the parts, the host's own pointers in them cleared: they differ between runs. */
void os_trace_parts_copy(const struct os_trace_call *call, unsigned long request, uint8_t *const out[TRACE_PARTS]);
/* Fills the parts from after[0], after[2] and so on, which have their sizes; pointers stay. */
void os_trace_parts_answer(const struct os_trace_call *call, unsigned long request, const struct os_trace_blob *after);
/* "va_addr", or the offset; where its bytes begin and how many there are. */
void os_trace_field(const struct os_trace_call *call, unsigned part, uint32_t at, char *name, size_t cap,
                    uint32_t *first, uint32_t *bytes);
/* Which mappings are registers, whose contents are not recorded. */
struct os_trace_registers {
  int kfd, usermode_fd; /* -1: none */
  uint32_t usermode;    /* RM's handle */
};
void os_trace_registers_open(struct os_trace_registers *r, const char *path, int fd);
void os_trace_registers_ioctl(struct os_trace_registers *r, unsigned long request, const void *arg); /* it succeeded */
bool os_trace_maps_registers(const struct os_trace_registers *r, int fd);
/* Whether a call pins pages of the process, and which. */
bool os_trace_pinned_pages(unsigned long request, const void *arg, uint64_t *address, uint64_t *size);

/* ---- memory that host and device share (memory.c) ---- */

struct os_trace_region {
  uint8_t *live, *known; /* as it is, and as it was at the last event */
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
/* Appends what has changed, {uint64_t address, uint32_t size, bytes}, and remembers it. */
void os_trace_memory_changes(struct os_trace_memory *m, struct os_trace_bytes *out);
/* The next run of such a list at *at; false at its end. A list that was parsed is well formed. */
bool os_trace_run(const struct os_trace_blob *list, size_t *at, uint64_t *address, struct os_trace_blob *bytes);
/* The known bytes of [address, address + size) when they lie in one region, or NULL. */
struct os_trace_region *os_trace_memory_find(struct os_trace_memory *m, uint64_t address, uint64_t size);

/* ---- tables ---- */

/* record.c: a table in front of inner, which writes to file what passes. release drops both. What is still open
 * when the process ends is finished then. */
int os_record(struct os *inner, const char *file, const struct os_trace_header *header, struct os **out, char *err,
              size_t errcap);
/* play.c: a table that answers from file. A call that differs fails with -EBADMSG, as do all after it, and
 * db_error() ends in what differed. */
int os_play(const char *file, struct os_trace_header *header, struct os **out, char *err, size_t errcap);
int os_play_trace(struct os_trace *t, struct os **out, char *err, size_t errcap); /* takes over the trace */
/* What differed first, or NULL. */
const char *os_play_difference(struct os *os);
/* 0 when everything recorded was played; else -EBADMSG and the next event in db_error(). */
int os_play_finished(struct os *os);

#endif
