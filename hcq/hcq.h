/* The queue layer of Doorbell: devices, buffers, signals, programs and command queues.
 *
 * It is a complete driver by itself: load a kernel, record it into a queue, submit, wait on the queue's timeline.
 *
 *   db_device *dev = db_open("EMU+AMD:gfx1100");
 *   db_buffer *x = db_alloc(dev, 4096, 0);
 *   db_program *p = db_program_load(dev, image, size, "saxpy", NULL, 0);
 *   db_queue *q = db_queue_new(dev, DB_QUEUE_COMPUTE);
 *   db_queue_exec(q, p, args, nargs, (uint32_t[3]){16, 1, 1}, (uint32_t[3]){64, 1, 1});
 *   db_queue_submit(q, &when);
 *   db_wait(db_queue_timeline(q), when, 5000000000ull);
 *
 * Errors: functions return 0 or a negative errno, or a pointer that is NULL on failure; db_error() then returns the
 * message. Passing a NULL object is an error whose message repeats the last failure, usually the reason why the object
 * could not be made. Releasing NULL is a no-op. A recorder remembers its first error: later records are no-ops and
 * db_queue_submit returns that error, so a caller may check once, at submit.
 *
 * Ownership: every object is reference counted. A queue keeps everything it recorded alive until the hardware has
 * finished with it, so releasing a buffer right after submit is safe.
 *
 * Threads: several threads may use devices, buffers, signals and programs at once. A recorder or a recording may be
 * used by one thread at a time. References may be taken and dropped in any thread. Submissions by several threads to
 * one hardware queue run one after the other, in the order of the calls.
 *
 * Environment: db_open reads DEV. With PROFILE or DEBUG=2 (doorbell(1)) recorders timestamp each kernel and copy, and a
 * recording waits for its last run before it runs again. Times are reported after a submission is known to have
 * finished; the lines of DEBUG=2 and errors of the PROFILE file go to standard error. If a file cannot be opened,
 * db_queue_new fails. PROF writes the same times for `doorbell prof`; PROF_COUNTERS counts around each kernel,
 * and then kernels do not overlap.
 *
 * Processes: a child of fork inherits no devices. In the child, every call on a device of the parent, or on an object
 * of one, fails with -ENODEV or NULL. Releasing them there does not touch the hardware. The child may open devices
 * itself. */
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
/* DB_VERSION of the linked library, which may differ from that of the header. */
const char *db_version(void);

typedef struct db_device db_device;
typedef struct db_buffer db_buffer;
typedef struct db_signal db_signal;
typedef struct db_program db_program;
typedef struct db_queue db_queue;
typedef struct db_recording db_recording;
typedef struct db_thread_trace db_thread_trace;

/* The message of the last failure on this thread; "" if none. Valid until the next failing call on this thread. */
const char *db_error(void);

/* ---- devices ---- */

/* Opens a device, or takes another reference to an open one. name is "CPU", "AMD", "NV", "EMU+AMD:gfx1100" or
 * "EMU+NV:sm_90", and may end in ":index" (from 0) to select another device of that machine. If name is NULL, the
 * environment variable DEV names the device; if DEV is not set, "CPU" is opened. An emulated machine has two GPUs of
 * the named ISA, or one GPU per entry of a list: "EMU+AMD:gfx1100,gfx1100:1". Returns NULL on failure. */
db_device *db_open(const char *name);
/* Takes another reference; returns dev. */
db_device *db_device_retain(db_device *dev);
/* Drops a reference. Dropping the last one waits for submitted work, then closes the device. */
void db_close(db_device *dev);

enum { DB_GROUP_MAX = 64 };
/* Makes one handle for n different devices (1 to DB_GROUP_MAX), for layers that place an object on all of them
 * (tensors, doorbell.h). The group itself has no memory and no queues. It keeps its members open until db_close.
 * Returns NULL on failure. */
db_device *db_group(db_device *const *devices, unsigned n);
unsigned db_group_size(const db_device *dev); /* number of members; 0 if dev is a single device */
/* Member i, not retained; NULL if i is not below db_group_size. */
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
/* Fills *out with the counts since the device was opened. */
void db_device_counters(const db_device *dev, struct db_device_counters *out);

/* One entry per device that this machine could offer, for `doorbell devices`. If usable is false, reason says why. */
struct db_device_info {
  char name[48], arch[24], description[96], reason[256];
  bool usable, emulated;
  uint64_t memory;                      /* bytes of device memory, 0 if unknown */
  uint32_t units;                       /* compute units, SMs or processors; 0 if unknown */
  uint32_t clock_mhz, memory_clock_mhz; /* highest clock of the units and of the memory; 0 if unknown */
  char pci[16];                         /* "0000:03:00.0", or "" if the device is not on a PCI bus */
  char driver[80];                      /* the kernel driver's interface or version; "" if there is none */
};
/* Fills up to cap entries; returns the number of devices, which may exceed cap. Closes every device that it opens. */
int db_devices(struct db_device_info *out, int cap);

/* Waits until everything submitted to any queue of dev has finished. */
int db_device_synchronize(db_device *dev, uint64_t timeout_ns);

/* The timeout of calls that wait for a device and take no timeout argument: closing it, reading and writing buffers,
 * submitting to a full ring, changing a recording that is running, reading tensors. After that time they fail with
 * -ETIMEDOUT, and db_close stops the device. The initial value is read when the device is opened, from the environment
 * variable DB_TIMEOUT (seconds), and is 120 seconds if that is not set. For a group, the setter applies to all members
 * and the getter returns the first member's value. */
uint64_t db_device_timeout(const db_device *dev);
void db_device_set_timeout(db_device *dev, uint64_t timeout_ns);
/* Stops a device even if a kernel never ends or a queue waits for a signal that is never set. Work in flight is lost.
 * All calls that wait for the device, in any thread, and all later calls on it fail with -EIO and a message that says
 * so. Other devices are not affected. The device may be opened again after every object made on it is released. Returns
 * -EBUSY if something cannot be stopped (a CPU kernel that never returns); its memory is then kept until it ends or the
 * process exits. */
int db_halt(db_device *dev);

/* ---- buffers ----
 *
 * Devices of one machine use each other's buffers where its topology allows. "CPU", "AMD", "NV" and each emulated
 * machine are different machines. Devices of different machines use each other's host memory: buffers with
 * DB_BUFFER_HOST, imported buffers, and all buffers of the CPU. So their queues can also wait for each other's signals.
 * The CPU device uses any memory that the host can address. */

/* Whether queues of dev can use memory of other that is not DB_BUFFER_HOST. True for dev itself and for the CPU's
 * memory; otherwise it depends on the machine's links and its driver. If it is false, recording a command that uses
 * such memory fails with -EXDEV. */
bool db_reaches(db_device *dev, db_device *other);

enum db_buffer_flags {
  DB_BUFFER_HOST = 1 << 0,    /* host memory, mapped for host and device (staging, kernel arguments) */
  DB_BUFFER_CPU_MAP = 1 << 1, /* device memory that the host can also address; fails if the BAR does not allow it */
};
/* Allocates a buffer of size bytes (> 0). Its contents are undefined. */
db_buffer *db_alloc(db_device *dev, size_t size, unsigned flags);
/* Makes existing host memory (any alignment) accessible to the device. The caller keeps the memory valid until the
 * buffer is released. */
db_buffer *db_import_host(db_device *dev, void *host, size_t size);
/* Takes another reference; returns buf. */
db_buffer *db_buffer_retain(db_buffer *buf);
/* Drops a reference. Memory that submitted work uses stays allocated until that work has finished. */
void db_buffer_release(db_buffer *buf);
size_t db_buffer_size(const db_buffer *buf);      /* bytes */
uint64_t db_buffer_address(const db_buffer *buf); /* device virtual address */
void *db_buffer_host(const db_buffer *buf);       /* host pointer; NULL if the buffer is not mapped */
db_device *db_buffer_device(const db_buffer *buf);
/* Blocking copies between a buffer and host memory through the copy queue, ordered after all work submitted to the
 * device so far. offset and n are in bytes. */
int db_buffer_write(db_buffer *dst, size_t offset, const void *src, size_t n);
int db_buffer_read(const db_buffer *src, size_t offset, void *dst, size_t n);

/* ---- signals: a 64-bit value that only grows and the time of its last timestamp, both written by hardware ---- */

/* Creates a signal with value 0. It keeps its device open, and every other device whose queues recorded a timestamp of
 * it. */
db_signal *db_signal_new(db_device *dev);
/* Takes another reference; returns sig. A reference to a timeline keeps its device open. */
db_signal *db_signal_retain(db_signal *sig);
void db_signal_release(db_signal *sig);
/* The present value. */
uint64_t db_signal_value(const db_signal *sig);
/* Stores value; values above 2^32 - 1 are stored as 2^32 - 1. Do not use it on timelines: submissions advance them. */
void db_signal_set(db_signal *sig, uint64_t value);
/* Time of the last db_queue_timestamp on sig, converted to nanoseconds of the host's CLOCK_MONOTONIC; 0 if there is
 * none. */
uint64_t db_signal_time_ns(const db_signal *sig);
/* The same for a timestamp that db_queue_stamp wrote into buf, at offset, from a queue of dev. */
uint64_t db_stamp_time_ns(const db_device *dev, const db_buffer *buf, size_t offset);
/* Converts two timestamps whose difference matters. A device's clock is calibrated against the host's repeatedly. These
 * functions convert both times with one calibration, so their difference is exactly what the device counted. A time is
 * 0 if there is no timestamp. */
void db_signal_interval(const db_signal *begin, const db_signal *end, uint64_t *begin_ns, uint64_t *end_ns);
void db_stamp_interval(const db_device *dev, const db_buffer *buf, size_t begin, size_t end, uint64_t *begin_ns,
                       uint64_t *end_ns);
/* Blocks the host until sig reaches value. Fails with -ETIMEDOUT and a message that names the awaited signal, or with
 * -EIO and the fault if the device is lost. */
int db_wait(db_signal *sig, uint64_t value, uint64_t timeout_ns);

/* Checks, without waiting, whether the work of a submission is known to be lost. timeline and value are those of the
 * submission. Returns -EIO and the reason if its device was lost, or another device that it waited for; otherwise 0. */
int db_check(db_signal *timeline, uint64_t value);

/* ---- programs ---- */

struct db_param {
  char name[40];
  uint32_t offset, size; /* bytes in the kernel argument segment */
  enum db_param_kind { DB_PARAM_BUFFER, DB_PARAM_VALUE, DB_PARAM_LOCAL /* dynamic local memory, value = bytes */ } kind;
};

/* Loads one kernel of an image: a code object (AMD), a cubin (NVIDIA) or a relocatable object of the host (CPU). The
 * image is copied. If entry is NULL, the image must have exactly one kernel. params describes the argument segment if
 * the image has no metadata (CPU); on GPUs pass NULL, with one exception: images do not record that a kernel uses
 * dynamic local (shared) memory beyond its parameters, so entries of kind DB_PARAM_LOCAL and size 0 append such
 * parameters. */
db_program *db_program_load(db_device *dev, const void *image, size_t size, const char *entry,
                            const struct db_param *params, unsigned nparams);
/* Takes another reference; returns prog. */
db_program *db_program_retain(db_program *prog);
void db_program_release(db_program *prog);
/* The kernel's name; valid as long as prog. */
const char *db_program_name(const db_program *prog);
/* Address of the kernel's first instruction in the device's memory, which profiles contain. */
uint64_t db_program_address(const db_program *prog);
/* What a program uses of a compute unit, which limits how many of its waves run at once. Fields that do not apply are
 * 0, and all are 0 on the CPU. */
struct db_program_resources {
  uint32_t registers;     /* vector registers per work-item */
  uint32_t local_bytes;   /* static local (shared) memory per workgroup */
  uint32_t private_bytes; /* private (scratch) memory per work-item */
  uint32_t wave;          /* work-items of a wave */
};
void db_program_resources(const db_program *prog, struct db_program_resources *out);
/* Explicit parameters in order. The driver fills in hidden ones. */
const struct db_param *db_program_params(const db_program *prog, unsigned *count);

/* ---- queues ---- */

enum db_queue_kind { DB_QUEUE_COMPUTE, DB_QUEUE_COPY };

/* One explicit argument. If buffer is set, the argument is its address + bits. Otherwise, if data is set, it points to
 * the parameter's value (the parameter's size in bytes). Otherwise the value is the low bytes of bits. */
struct db_arg {
  db_buffer *buffer;
  uint64_t bits;
  const void *data;
  unsigned slot; /* replay slot for a queue that is bound to a recording; 0 if the argument is fixed */
};

/* Creates a recorder for the device's first queue of that kind. Use it for work that relies on submission order. */
db_queue *db_queue_new(db_device *dev, enum db_queue_kind kind);
/* Creates a recorder for queue index (from 0) of that kind. Queues run concurrently; only waits order work between
 * them. The hardware queue is created at first use. */
db_queue *db_queue_new_at(db_device *dev, enum db_queue_kind kind, unsigned index);
/* Number of queues of that kind that the device has, at least 1. */
unsigned db_device_queues(const db_device *dev, enum db_queue_kind kind);
/* Frees the recorder. Records that were not submitted are dropped; submitted work continues. */
void db_queue_release(db_queue *q);

int db_queue_wait(db_queue *q, db_signal *sig, uint64_t value); /* the hardware waits until sig >= value */
/* Declares, without recording a command, that the recorded work depends on work of dev through another queue that it
 * waits for. It then fails if dev is lost. Not needed if the queue waits for a signal of dev directly. */
int db_queue_follow(db_queue *q, db_device *dev);
/* Sets sig to value after all earlier commands have finished and their writes are visible. */
int db_queue_signal(db_queue *q, db_signal *sig, uint64_t value);
int db_queue_timestamp(db_queue *q, db_signal *sig); /* timestamps sig after all earlier commands */
/* Like db_queue_timestamp, but writes the timestamp into DB_STAMP_BYTES bytes of a host-mapped buffer. offset must be a
 * multiple of DB_STAMP_BYTES. Use it to record many timestamps without a signal for each. */
#define DB_STAMP_BYTES 32
int db_queue_stamp(db_queue *q, db_buffer *buf, size_t offset);
int db_queue_memory_barrier(db_queue *q); /* later commands see earlier commands' writes */
/* For compute queues only. grid is in workgroups and block in work-items; each component is at least 1. nargs must
 * equal the number of the program's explicit parameters. */
int db_queue_exec(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs, const uint32_t grid[3],
                  const uint32_t block[3]);
/* For copy queues only. Copies n bytes. The queue's device must reach both buffers; the ranges must not overlap. */
int db_queue_copy(db_queue *q, db_buffer *dst, size_t dst_offset, db_buffer *src, size_t src_offset, size_t n);

/* Submits everything recorded with one doorbell and empties the recorder. The queue's timeline signal reaches *when
 * (may be NULL) after all of it has finished. Blocks only if the ring is full, and once every 2^32 submissions until
 * all queues are idle. */
int db_queue_submit(db_queue *q, uint64_t *when);
/* The signal that submissions to this hardware queue advance; owned by the device. */
db_signal *db_queue_timeline(db_queue *q);

/* ---- replay: recordings that stay in memory and run again with one doorbell and no copying ----
 *
 * To change something between runs, mark it while recording with a slot number (from 1): an argument (db_arg.slot), the
 * value of a wait or a signal, a component of a grid, an address of a copy. The recorded value is used until the slot
 * is set. Setting a slot writes only the words marked with it. A recorded buffer offset, or the recorded value of a
 * wait or signal, is added to the value that the slot is set to. A slot may mark any number of places, but either
 * buffers or values, not both. */

#define DB_SLOT_MAX 65535u
/* Like db_queue_wait, db_queue_signal, db_queue_exec and db_queue_copy; slot 0 marks nothing. */
int db_queue_wait_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot);
int db_queue_signal_slot(db_queue *q, db_signal *sig, uint64_t value, unsigned slot);
int db_queue_exec_slots(db_queue *q, db_program *prog, const struct db_arg *args, unsigned nargs,
                        const uint32_t grid[3], const uint32_t block[3], const unsigned grid_slots[3]);
int db_queue_copy_slots(db_queue *q, db_buffer *dst, size_t dst_offset, unsigned dst_slot, db_buffer *src,
                        size_t src_offset, unsigned src_slot, size_t n);
/* Freezes what was recorded and empties the recorder. The recording keeps everything it uses alive. Returns NULL if
 * recording failed; the message is that of the recorder's first error. */
db_recording *db_queue_bind(db_queue *q);
/* Takes another reference; returns r. */
db_recording *db_recording_retain(db_recording *r);
void db_recording_release(db_recording *r);
/* Set what the next runs use for a slot. If the last run of the recording is still in flight, these calls wait for it
 * to finish; to replay without gaps, bind two recordings and alternate. The recording retains buffer and releases the
 * slot's previous one. */
int db_recording_set_buffer(db_recording *r, unsigned slot, db_buffer *buffer, size_t offset);
int db_recording_set_value(db_recording *r, unsigned slot, uint64_t value);
/* Submits a run of the recording after everything submitted to the queue before; *when as in db_queue_submit. */
int db_recording_submit(db_recording *r, uint64_t *when);
/* Number of places that setting every slot once would patch. */
unsigned db_recording_patches(const db_recording *r);

/* ---- thread traces: when each wave ran, and when it issued each instruction ----
 *
 * AMD GPUs (gfx1100). Each shader engine writes a trace of its own. It contains the start and the end of every wave of
 * the engine, and the instructions of those waves that run on one SIMD (SIMD 0 unless db_thread_trace_select selects
 * another one) of the first active workgroup processor of shader array 0. `doorbell show` prints traces;
 * hcq/sqtt/sqtt.h describes the format and decodes it.
 *
 *   db_thread_trace *t = db_thread_trace_new(dev, 1 << 20);
 *   db_queue_trace_begin(q, t);
 *   db_queue_exec(q, ...);
 *   db_queue_trace_end(q, t);
 *   db_queue_submit(q, &when), db_wait(db_queue_timeline(q), when, timeout);
 *   void *bytes = db_thread_trace_read(t, engine, &size, &lost);
 *
 * A trace is of the whole GPU: at most one may be on at a time, and it may include what other queues run. While
 * it exists, the GPU's clocks are stable if the kernel driver offers that. */

/* Allocates memory for traces of `bytes` each (rounded up to 4096), one per shader engine. Returns NULL with -ENOTSUP
 * if the device has no thread traces. */
db_thread_trace *db_thread_trace_new(db_device *dev, size_t bytes);
/* Frees the memory when the recordings that use it have finished. A no-op if t is NULL. */
void db_thread_trace_release(db_thread_trace *t);
/* Number of shader engines. */
unsigned db_thread_trace_engines(const db_thread_trace *t);
/* Selects the SIMD, 0 to 3, whose instructions the traces contain that are recorded into queues from now on. To trace
 * all waves of a workgroup processor, run the same work once for each SIMD. */
int db_thread_trace_select(db_thread_trace *t, unsigned simd);
/* For compute queues: traces what later commands run, until the end, which the same recording must contain. Both wait
 * until earlier kernels have ended. */
int db_queue_trace_begin(db_queue *q, db_thread_trace *t);
int db_queue_trace_end(db_queue *q, db_thread_trace *t);
/* Reads the last trace of an engine; call it when the commands have finished. Returns *size bytes, which the caller
 * frees, or NULL. *lost is set to the number of packets that the engine did not write because the memory was full, or
 * to 1 if the memory is full and the engine did not count them; it may be NULL. */
void *db_thread_trace_read(const db_thread_trace *t, unsigned engine, size_t *size, uint64_t *lost);

/* ---- samples of program counters: where warps are, and why they wait ----
 *
 * NVIDIA GPUs whose registers are public: sm_86, sm_89 and sm_120. PC sampling has not been tried on hardware. At
 * regular intervals each SM reports the next instruction of one of its warps, and why that warp waits. The length of
 * the intervals is not known. On emulated GPUs times and reasons are those of a model
 * (emu/nv/exec/sm_sample.c).
 *
 *   db_pc_sampler *s = db_pc_sampler_new(dev, 32 << 20);
 *   db_queue_samples_begin(q, s);
 *   db_queue_exec(q, ...);
 *   db_queue_samples_end(q, s);
 *   db_queue_submit(q, &when), db_wait(db_queue_timeline(q), when, timeout);
 *   struct db_pc_sample *samples = db_pc_sampler_read(s, &n, &lost);
 *
 * A device has at most one sampler. One thread at a time may use it. Queues do not keep it alive: release it after the
 * kernels have finished. The samples may include what other queues run. */

typedef struct db_pc_sampler db_pc_sampler;
enum db_stall {
  DB_STALL_OTHER,
  DB_STALL_NONE,            /* the instruction was issued, or could have been */
  DB_STALL_FETCH,           /* no instruction: a branch, or the instruction cache */
  DB_STALL_EXECUTION,       /* a result of arithmetic, local (shared) memory or a fixed latency */
  DB_STALL_MEMORY,          /* a result of device memory */
  DB_STALL_SYNC,            /* a barrier */
  DB_STALL_CONSTANT,        /* constant memory */
  DB_STALL_PIPE,            /* a unit that is busy */
  DB_STALL_MEMORY_THROTTLE, /* a full queue of memory accesses */
  DB_STALLS
};
/* "memory dependency" and so on; NULL if reason is none of them. */
const char *db_stall_name(enum db_stall reason);
struct db_pc_sample {
  uint64_t pc;          /* address of the instruction */
  uint8_t gpc, tpc, sm; /* sm: in its TPC */
  uint8_t warp;         /* in its SM */
  uint8_t reason;       /* enum db_stall */
  bool issued;          /* the SM issued the instruction in this cycle */
};
/* Reserves the hardware and allocates memory for `bytes` of samples (rounded up to 4096), 9 to 11 bytes each. Returns
 * NULL with -ENOTSUP if the device has no PC sampling, with -EACCES if the driver forbids it, and with -EBUSY if
 * another sampler exists. */
db_pc_sampler *db_pc_sampler_new(db_device *dev, size_t bytes);
void db_pc_sampler_release(db_pc_sampler *s);
/* For compute queues: samples the kernels that are recorded between both, also when the recording replays. Each of
 * these kernels waits until earlier ones have ended. */
int db_queue_samples_begin(db_queue *q, db_pc_sampler *s);
int db_queue_samples_end(db_queue *q, db_pc_sampler *s);
/* Returns the *n samples since the last call, which the caller frees, or NULL. Call it when the kernels have finished.
 * *lost, which may be NULL, is set to the number of samples that the hardware dropped, at least 1 if the memory was
 * full. */
struct db_pc_sample *db_pc_sampler_read(db_pc_sampler *s, size_t *n, uint64_t *lost);

/* ---- performance counters ----
 *
 * A counter counts an event of a hardware block, such as the vector instructions that the shaders execute. Each
 * instance of the block counts for itself. A set is a list of counters that one device counts between two commands of a
 * compute queue. A set that needs more counters of a block than the hardware has takes several passes: submit the same
 * work once per pass.
 *
 * The hardware's counters belong to the whole device: at any time at most one set may count on a device. Work that
 * other queues and processes run at the same time may be counted, too. */

typedef struct db_counter_set db_counter_set;
struct db_counter {
  const char *name, *block; /* "SQ_INSTS_VALU", "SQ" */
  const char *unit;         /* "instructions"; "events" if the hardware's documents do not say */
  const char *description;  /* "" if the hardware's documents do not say */
  unsigned instances;       /* number of values */
  enum db_counter_source {
    DB_COUNTER_MEASURED, /* by hardware */
    DB_COUNTER_EXACT,    /* by an emulated device, equal to what hardware counts for the same work */
    DB_COUNTER_MODEL     /* by an emulated device's model of the hardware */
  } source;
};
/* Fills up to cap entries with what the device can count; the strings are valid while it is open. Returns the number of
 * counters, which may exceed cap, or a negative errno: -ENOTSUP if the device has no counters that Doorbell knows. */
int db_counters(db_device *dev, struct db_counter *out, unsigned cap);
/* Creates a set of n different counters, by name. Returns NULL on failure. */
db_counter_set *db_counter_set_new(db_device *dev, const char *const *names, unsigned n);
void db_counter_set_release(db_counter_set *set);
unsigned db_counter_set_passes(const db_counter_set *set); /* at least 1 */
/* Records the start and the end of counting in a compute queue: what the queue executes in between counts in pass (from
 * 0). Also in a recording that replays; each run then replaces the values. Both wait until the queue's earlier kernels
 * have ended, so kernels before, in between and after do not overlap. */
int db_queue_counters_begin(db_queue *q, db_counter_set *set, unsigned pass);
int db_queue_counters_end(db_queue *q);
/* Reads counter i of the set (in the order of names) after its pass has finished: up to cap values, by instance, and
 * their sum. values and sum may be NULL. Fails with -ENODATA if a pass has not run, and with -ESTALE if the passes
 * launched different numbers of waves, so they did not do the same work. */
int db_counter_set_read(const db_counter_set *set, unsigned i, uint64_t *values, unsigned cap, uint64_t *sum);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
