/* Machines, the devices in them, and the registry of both. */
#ifndef DOORBELL_HCQ_DEVICE_H
#define DOORBELL_HCQ_DEVICE_H
#include "os.h"
#include "recording.h"

/* ---- machines: a table of system calls, and the state that a backend keeps per process and machine ---- */

struct hcq_machine {
  struct hcq_machine *next;
  const struct hcq_backend *ops;
  struct os *os;
  char name[144]; /* the device name without its index: "AMD", "EMU+AMD:gfx1100" */
  unsigned refs;
  bool emulated;
  uint32_t played_index; /* index of the GPU recorded in a played trace */
  pthread_mutex_t lock;
  void *state; /* owned by the backend: made by its first open, dropped by machine_close */
};

/* ---- devices ---- */

struct db_device {
  struct hcq_object object; /* counts handles and the objects made on the device */
  db_device *next;
  const struct hcq_backend *ops;
  struct hcq_machine *machine;
  struct os *os;
  unsigned index;
  atomic_uint handles; /* db_open and db_device_retain */
  char name[160], arch[24], description[96];
  pthread_mutex_t growing, transfer, lock;
  uint64_t bytes_allocated, bytes_allocated_peak; /* guarded by lock */
  struct hcq_signal_page *signal_pages;           /* guarded by lock */
  /* Indexed by hcq_ring_index. The first ring of each kind always exists; others are NULL until first use. */
  struct hcq_ring *_Atomic rings[HCQ_RINGS];
  unsigned nqueues[2]; /* maximum number of queues, by enum db_queue_kind */
  db_buffer *staging;
  db_queue *copier; /* recorder of db_buffer_read and db_buffer_write */
  struct hcq_import *imports;
  /* For PROF_COUNTERS: none of its names can be counted; what cannot be counted has been reported. */
  atomic_bool uncounted, explained;
  unsigned measured;  /* sets of counters and thread traces; guarded by lock */
  bool holds_clocks;  /* stable_clocks has made them stable */
  char unstable[320]; /* why the clocks are not stable meanwhile; "" if they are, or if the backend has no control */
  struct hcq_clock {  /* the device's clock and the host's, read at the same time; guarded by lock */
    uint32_t khz;     /* set by open */
    uint64_t ticks, ns;
    uint64_t checked_ns; /* last time at which a reading confirmed the calibration */
  } clock;
  _Atomic uint64_t timeout_ns; /* db_device_timeout */
  _Atomic int lost;            /* 0, or the error that every later call returns */
  char lost_reason[1024];      /* written before lost */
  bool inherited;              /* opened by the parent process before fork: its hardware must not be touched */
  uint64_t visited_by; /* number of the last hcq_device_check_others that visited it; guarded by registry.lock */
  db_device **members; /* of a group (group.c), which has no machine, rings or memory */
  unsigned nmembers;
};

/* Devices by canonical name, and the machines they belong to: the only global state. Opening and closing a device takes
 * long (a GPU's driver, an emulator's threads), and a wait on another device must not be delayed by it. `opening` is
 * therefore held for the whole of opening or closing and guards the machines. `lock` is held for a few instructions and
 * guards the list of devices. Devices are added and removed with both locks held. */
struct hcq_registry {
  pthread_mutex_t opening, lock;
  uint64_t timeout_ns; /* initial timeout of devices that are opened */
  db_device *devices;
  struct hcq_machine *machines;
};
extern struct hcq_registry hcq_registry;

/* ---- device.c ---- */
void hcq_device_init(db_device *dev, struct hcq_machine *machine, unsigned index, const char *name);
struct os *db_device_os(db_device *dev);
unsigned db_device_index(const db_device *dev); /* index of the GPU in its machine */
/* Blocks submissions to a device and the creation of rings until hcq_device_resume. Returns the set of paused rings,
 * which hcq_device_resume takes. */
unsigned hcq_device_pause(db_device *dev);
void hcq_device_resume(db_device *dev, unsigned paused);
/* Opens a machine by name ("CPU", "AMD", "EMU+AMD:gfx1100"), or takes a reference to one that open devices use. */
struct hcq_machine *hcq_machine_open(const char *name);
void hcq_machine_release(struct hcq_machine *machine);
/* Calls each for the machine's open devices, with registry.lock held: it must not wait. */
void hcq_machine_each(struct hcq_machine *machine, void (*each)(db_device *dev, void *ctx), void *ctx);
/* True while all queues of the process are being brought to idle; then nothing may be submitted. */
extern atomic_bool hcq_quiescing;
/* Waits until that is over. If ring is not NULL and its count would pass HCQ_SIGNAL_MAX, waits until all queues are
 * idle and restarts its count from 0. */
int hcq_quiesce(struct hcq_ring *ring);
/* Registers an exit handler that retires finished submissions of all open devices. */
void hcq_devices_retire_at_exit(void);

/* Returns the device's ring and creates it at first use. */
struct hcq_ring *hcq_device_ring(db_device *dev, enum db_queue_kind kind, unsigned index);

/* ---- clock.c ---- */
/* Calibrates the device's clock against the host's. open calls it once. */
int hcq_clock_calibrate(db_device *dev);
/* Converts n ticks to the host's time with one calibration; 0 stays 0. */
void hcq_clock_to_ns(db_device *dev, const uint64_t *ticks, uint64_t *ns, unsigned n);
#endif
