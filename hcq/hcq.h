/* The queue layer of Doorbell: devices, buffers, signals, programs and command queues.
 *
 * It is a complete driver by itself: bring a kernel, record it into a queue, submit, wait on the queue's timeline.
 *
 *   db_device *dev = db_open("EMU+AMD:gfx1100");
 *   db_buffer *x = db_alloc(dev, 4096, 0);
 *   db_program *p = db_program_load(dev, image, size, "saxpy", NULL, 0);
 *   db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
 *   db_queue_exec(q, p, args, nargs, (uint32_t[3]){16, 1, 1}, (uint32_t[3]){64, 1, 1});
 *   db_queue_submit(q, &when);
 *   db_wait(db_queue_timeline(q), when, 5000000000ull);
 *
 * Errors: functions return 0 or a negative errno, or NULL; db_error() then tells what and where. An object that is NULL
 * is an error, too, whose message repeats why it could not be made; NULL may be released. A recorder remembers
 * its first error: later records are no-ops and submit returns it, so a chain may be checked once, at submit.
 * Ownership: every object is reference counted. A queue keeps what it recorded alive until the hardware has finished
 * with it, so releasing a buffer right after submit is safe.
 * Threads: devices, buffers, signals and programs may be used from several threads at once, a recorder and a recording
 * by one at a time; references are taken and dropped anywhere. Submissions of several threads to one hardware queue run
 * one after the other, in the order in which they came. Environment: DEV (db_open). With PROFILE or DEBUG=2
 * (doorbell(1)) recorders stamp each kernel and copy, and a recording waits for its last run before it runs again. What
 * was submitted is reported once it is known to have finished, lines and errors of the file on standard error. A file
 * that cannot be opened is an error of the first db_queue_new. Processes: a child of fork has none of its parent's
 * devices. Every call on one, or on an object of one, fails there with -ENODEV or NULL; releasing them touches no
 * hardware, and the child may open devices of its own. */
#ifndef DOORBELL_HCQ_H
#define DOORBELL_HCQ_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define DB_VERSION "0.1.0"
/* DB_VERSION of the library that is linked, which may differ from that of the header. */
const char *db_version(void);

typedef struct db_device db_device;
typedef struct db_buffer db_buffer;
typedef struct db_signal db_signal;
typedef struct db_program db_program;
typedef struct db_queue db_queue;
typedef struct db_recording db_recording;

/* The message of the last failure on this thread; "" if none. Valid until the next failing call on this thread. */
const char *db_error(void);

/* ---- devices ---- */

/* Opens (or takes another reference to) a device. name: "CPU", "AMD", "NV", "EMU+AMD:gfx1100", "EMU+NV:sm_90", each
 * with
 * ":index" for another one of its machine; NULL reads the environment variable DEV and falls back to "CPU". An emulated
 * machine has two GPUs of the named ISA, or those of a list: "EMU+AMD:gfx1100,gfx1100:1". NULL on failure. */
db_device *db_open(const char *name);
db_device *db_device_retain(db_device *dev);
/* Drops a reference; the last one waits for submitted work, then closes. */
void db_close(db_device *dev);

enum { DB_GROUP_MAX = 64 };
/* Several devices under one handle, for what is made on all of them (tensors, doorbell.h); it has no memory and no
 * queues itself. Keeps them open until db_close. All are different. NULL on failure. */
db_device *db_group(db_device *const *devices, unsigned n);
unsigned db_group_size(const db_device *dev); /* 0: dev is one device */
db_device *db_group_device(const db_device *dev, unsigned i);

/* Canonical name as given to db_open: "CPU", "AMD", "AMD:1", "EMU+AMD:gfx1100". */
const char *db_device_name(const db_device *dev);
/* ISA that programs must be built for: "gfx1100", "sm_90"; the host's "x86_64" or "aarch64" for CPU. */
const char *db_device_arch(const db_device *dev);
/* Marketing or topology name, for people. */
const char *db_device_description(const db_device *dev);

struct db_device_counters {
  uint64_t packets;         /* hardware packets written into rings and indirect buffers */
  uint64_t doorbells;       /* doorbell stores */
  uint64_t kernels;         /* kernel dispatches submitted */
  uint64_t copies;          /* copy commands submitted */
  uint64_t bytes_allocated; /* device memory now held, bytes */
  uint64_t bytes_allocated_peak;
};
void db_device_counters(const db_device *dev, struct db_device_counters *out);

/* One line per device this machine could offer, for `doorbell devices`. usable is false when reason says why not. */
struct db_device_info {
  char name[48], arch[24], description[96], reason[256];
  bool usable, emulated;
  uint64_t memory; /* bytes of device memory, 0 if unknown */
};
/* Fills up to cap entries; returns how many exist. Opens nothing that it does not close. */
int db_devices(struct db_device_info *out, int cap);

/* Waits until everything submitted to any queue of dev has finished. */
int db_device_synchronize(db_device *dev, uint64_t timeout_ns);

/* How long calls wait for a device that take no timeout of their own: closing it, reading and writing buffers, a
 * submission into a full ring, a change of a recording that runs, tensors that are read. After that they fail with
 * -ETIMEDOUT, and db_close stops the device. The environment variable DB_TIMEOUT gives it in seconds when the device is
 * opened; 120 if it is not set. Of a group: of its members. */
uint64_t db_device_timeout(const db_device *dev);
void db_device_set_timeout(db_device *dev, uint64_t timeout_ns);
/* Stops a device, whatever it runs: a kernel that never ends, a wait for a signal that nobody sets. Work under way is
 * lost. Every call that waits for the device, in any thread, and every later one fails with -EIO and says so; other
 * devices go on. The device may be opened again once all that was made on it is released. -EBUSY when something still
 * runs, as a kernel on the CPU does that never returns: then its memory stays until it ends, or the process does. */
int db_halt(db_device *dev);

/* ---- buffers ----
 *
 * Devices of one machine use each other's buffers where its topology allows. Devices of different machines ("CPU",
 * "AMD", "NV" and each emulated one are machines) use each other's host memory: DB_BUFFER_HOST, imported, all of the
 * CPU's; so their queues also wait for each other's signals. The CPU uses whatever the host can address. */

/* Whether queues of dev use memory of other that is not DB_BUFFER_HOST: true for dev itself and for the CPU's
 * memory, else as the machine's links and the driver say. Where not, recording fails with -EXDEV. */
bool db_reaches(db_device *dev, db_device *other);

enum db_buffer_flags {
  DB_BUFFER_HOST = 1 << 0,    /* host memory, mapped for both sides (staging, kernargs) */
  DB_BUFFER_CPU_MAP = 1 << 1, /* device memory that the host can also address; fails where the BAR does not allow it */
};
/* size in bytes, > 0. Contents are undefined. */
db_buffer *db_alloc(db_device *dev, size_t size, unsigned flags);
/* Makes existing host memory (any alignment) reachable by the device; the caller keeps it valid until released. */
db_buffer *db_import_host(db_device *dev, void *host, size_t size);
db_buffer *db_buffer_retain(db_buffer *buf);
void db_buffer_release(db_buffer *buf);
size_t db_buffer_size(const db_buffer *buf);
uint64_t db_buffer_address(const db_buffer *buf); /* device virtual address */
void *db_buffer_host(const db_buffer *buf);       /* host pointer, NULL when not mapped */
db_device *db_buffer_device(const db_buffer *buf);
/* Blocking convenience copies through the copy queue, ordered after all work submitted to the device so far. */
int db_buffer_write(db_buffer *dst, size_t offset, const void *src, size_t n);
int db_buffer_read(const db_buffer *src, size_t offset, void *dst, size_t n);

/* ---- signals: a 64-bit value that only grows, and the time it was last stamped, both written by hardware ---- */

/* A signal keeps its device open, and every other device whose queues have recorded a timestamp of it. */
db_signal *db_signal_new(db_device *dev);
db_signal *db_signal_retain(db_signal *sig);
void db_signal_release(db_signal *sig);
uint64_t db_signal_value(const db_signal *sig);
/* value: at most 2^32 - 1, which is stored for larger ones. Leave timelines to submissions. */
void db_signal_set(db_signal *sig, uint64_t value);
/* Time of the last db_queue_timestamp on it, converted to nanoseconds of the host's CLOCK_MONOTONIC. */
uint64_t db_signal_time_ns(const db_signal *sig);
/* The same of what db_queue_stamp has put into a buffer from a queue of dev. */
uint64_t db_stamp_time_ns(const db_device *dev, const db_buffer *buf, size_t offset);
/* Two times whose difference counts. A device's clock is compared with the host's again and again; these two are
 * converted by one comparison, so that their difference is what the device has counted. 0 where there is no stamp. */
void db_signal_interval(const db_signal *begin, const db_signal *end, uint64_t *begin_ns, uint64_t *end_ns);
void db_stamp_interval(const db_device *dev, const db_buffer *buf, size_t begin, size_t end, uint64_t *begin_ns,
                       uint64_t *end_ns);
/* Blocks the host until value is reached. -ETIMEDOUT says what was waited for; -EIO tells the device's fault. */
int db_wait(db_signal *sig, uint64_t value, uint64_t timeout_ns);

/* Whether what a timeline's value stands for is lost, as far as that is known: -EIO and the reason when its device was
 * lost, or another one that it waited for. Does not wait. */
int db_check(db_signal *timeline, uint64_t value);

/* ---- programs ---- */

struct db_param {
  char name[40];
  uint32_t offset, size; /* bytes in the kernel argument segment */
  enum db_param_kind { DB_PARAM_BUFFER, DB_PARAM_VALUE, DB_PARAM_LOCAL /* dynamic local memory, value = bytes */ } kind;
};

/* Loads one kernel of an image: a code object (AMD), a cubin (NVIDIA) or a relocatable object of the host (CPU). entry
 * NULL takes the only kernel. params describes the argument segment where the image has no metadata (CPU); elsewhere
 * NULL, except that files do not say that a kernel wants dynamic local (shared) memory beyond its parameters: entries
 * of kind DB_PARAM_LOCAL and size 0 append such parameters to its own. The image is copied. */
db_program *db_program_load(db_device *dev, const void *image, size_t size, const char *entry,
                            const struct db_param *params, unsigned nparams);
db_program *db_program_retain(db_program *prog);
void db_program_release(db_program *prog);
const char *db_program_name(const db_program *prog);
/* Explicit parameters in order (hidden ones are the driver's business). */
const struct db_param *db_program_params(const db_program *prog, unsigned *count);

/* ---- queues ---- */

enum db_queue_kind { DB_QUEUE_COMPUTE, DB_QUEUE_COPY };

/* One explicit argument. buffer: passes its address + bits as offset. Otherwise data points at the parameter's size
 * bytes, or if that is NULL the low bytes of bits are the value. */
struct db_arg {
  db_buffer *buffer;
  uint64_t bits;
  const void *data;
  unsigned slot; /* of a recording to bind: what replays may change; 0: fixed */
};

/* A recorder for the device's first queue of that kind, where what orders itself by submission order belongs. */
db_queue *db_queue_new(db_device *dev, enum db_queue_kind kind);
/* For another one, from 0 on, that runs beside the others: what orders them is waits. A hardware queue is made on first
 * use. */
db_queue *db_queue_new_at(db_device *dev, enum db_queue_kind kind, unsigned index);
/* How many of that kind the device has, at least 1. */
unsigned db_device_queues(const db_device *dev, enum db_queue_kind kind);
void db_queue_release(db_queue *q);

int db_queue_wait(db_queue *q, db_signal *sig, uint64_t value); /* hardware waits until sig >= value */
/* Records no command: says that what is recorded is behind work of dev, by way of another queue that it waits for, so
 * that it fails when dev is lost. Who waits for a device's signals need not say so. */
int db_queue_follow(db_queue *q, db_device *dev);
int db_queue_signal(db_queue *q, db_signal *sig, uint64_t value); /* after all before it has finished and is visible */
int db_queue_timestamp(db_queue *q, db_signal *sig);              /* stamps sig's time after all before it */
/* The same into DB_STAMP_BYTES of memory that the host maps, at an offset that is a multiple of as many: for more
 * stamps than one has signals. */
#define DB_STAMP_BYTES 32
int db_queue_stamp(db_queue *q, db_buffer *buf, size_t offset);
int db_queue_memory_barrier(db_queue *q); /* later commands see earlier commands' writes */
/* In compute queues only. grid in workgroups, block in work-items; each component >= 1. nargs must match the program's
 * explicit parameters. */
int db_queue_exec(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs, const uint32_t grid[3],
                  const uint32_t block[3]);
/* In copy queues only. Memory must be reachable from this queue's device; ranges must not overlap. */
int db_queue_copy(db_queue *q, db_buffer *dst, size_t dst_offset, db_buffer *src, size_t src_offset, size_t n);

/* Hands everything recorded to the hardware with one doorbell and empties the recorder. The queue's timeline signal
 * reaches *when (may be NULL) once it has all finished. Never blocks but when the ring is full, and once in 2^32
 * submissions, for all queues to come to rest. */
int db_queue_submit(db_queue *q, uint64_t *when);
/* The signal that submissions to this hardware queue advance; owned by the device. */
db_signal *db_queue_timeline(db_queue *q);

/* ---- replay: a recording that stays in memory the hardware reads, and runs again with one doorbell and nothing copied
 * ----
 *
 * What may differ from run to run is marked while recording with the number of a slot, from 1 on: an argument
 * (db_arg.slot), the value of a wait or a signal, a component of a grid, an address of a copy. What was given there
 * when it was recorded holds until the slot is set; setting touches the words marked with the slot and nothing else.
 * Offsets into buffers, and the values of waits and signals, are added to what the slot is set to. A slot marks buffers
 * or values, not both, in as many places as one likes. */

#define DB_SLOT_MAX 65535u
/* Like db_queue_wait, db_queue_signal, db_queue_exec and db_queue_copy; slot 0 marks nothing. */
int db_queue_wait_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot);
int db_queue_signal_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot);
int db_queue_exec_slots(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs,
                        const uint32_t grid[3], const uint32_t block[3], const unsigned grid_slots[3]);
int db_queue_copy_slots(db_queue *q, db_buffer *dst, size_t dst_offset, unsigned dst_slot, db_buffer *src,
                        size_t src_offset, unsigned src_slot, size_t n);
/* Freezes what was recorded and empties the recorder. The recording keeps everything it uses alive. Like submit, it
 * returns the recorder's first error: NULL. */
db_recording *db_queue_bind(db_queue *q);
db_recording *db_recording_retain(db_recording *r);
void db_recording_release(db_recording *r);
/* What the next runs find at a slot. While the recording's last run is under way they wait for its end, so whoever
 * replays without pause binds two and takes turns. A buffer is retained in place of the slot's last one. */
int db_recording_set_buffer(db_recording *r, unsigned slot, db_buffer *buffer, size_t offset);
int db_recording_set_value(db_recording *r, unsigned slot, uint64_t value);
/* Runs it, behind what was submitted to the queue before; *when as in db_queue_submit. */
int db_recording_submit(db_recording *r, uint64_t *when);
/* Words that setting all slots would write. */
unsigned db_recording_patches(const db_recording *r);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
