/* Machines, the devices in them, and the registry of both. */
#ifndef DOORBELL_HCQ_DEVICE_H
#define DOORBELL_HCQ_DEVICE_H
#include "os.h"
#include "recording.h"

/* ---- machines: one table of system calls and what a backend keeps per process and machine ---- */

struct hcq_machine {
  struct hcq_machine *next;
  const struct hcq_backend *ops;
  struct os *os;
  char name[144]; /* the device name without its index: "AMD", "EMU+AMD:gfx1100" */
  unsigned refs;
  bool emulated;
  uint32_t played_index; /* of the GPU that a played trace begins with */
  pthread_mutex_t lock;
  void *state; /* the backend's, made by its first open; machine_close drops it */
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
  uint64_t bytes_allocated, bytes_allocated_peak; /* of the lock */
  struct hcq_signal_page *signal_pages;           /* of the lock */
  /* By hcq_ring_place: the first of each kind is at the kind; others are made on first use, NULL before. */
  struct hcq_ring *_Atomic rings[HCQ_RINGS];
  unsigned nqueues[2]; /* by enum db_queue_kind: how many there can be */
  db_buffer *staging;
  db_queue *copier; /* of db_buffer_read and write */
  struct hcq_import *imports;
  struct hcq_clock { /* the device's clock and the host's, read at once; of the lock */
    uint32_t khz;    /* set by open */
    uint64_t ticks, ns;
    uint64_t checked_ns; /* when a reading last agreed with it */
  } clock;
  _Atomic uint64_t timeout_ns; /* db_device_timeout */
  _Atomic int lost;            /* 0, or the error every later call returns */
  char lost_reason[1024];      /* written before */
  bool inherited;              /* of the process that forked this one: its hardware is not touched */
  uint64_t looked_at;          /* by which look at others; of the registry's lock */
  db_device **members;         /* of a group (group.c), which has nothing else */
  unsigned nmembers;
};

/* Devices by canonical name, and the machines they sit in: the only global state. Opening and closing a device takes
 * long (a GPU's driver, an emulator's threads), and a wait for another device must not wait for that. So `opening` is
 * held for the whole of it and guards machines, while `lock` guards the list of devices for some instructions. A
 * device enters and leaves the list under both. */
struct hcq_registry {
  pthread_mutex_t opening, lock;
  uint64_t timeout_ns; /* of devices that are opened */
  db_device *devices;
  struct hcq_machine *machines;
};
extern struct hcq_registry hcq_registry;

/* ---- device.c ---- */
void hcq_device_init(db_device *dev, struct hcq_machine *machine, unsigned index, const char *name);
struct os *db_device_os(db_device *dev);
unsigned db_device_index(const db_device *dev); /* GPU of that machine */
/* Holds back submissions to a device, which is as it was before when they go on. Returns what to resume. */
unsigned hcq_device_pause(db_device *dev);
void hcq_device_resume(db_device *dev, unsigned paused);
/* A machine by its name ("CPU", "AMD", "EMU+AMD:gfx1100"), shared with open devices. */
struct hcq_machine *hcq_machine_open(const char *name);
void hcq_machine_release(struct hcq_machine *machine);
/* Calls each for its open devices, under registry.lock: it must not wait. */
void hcq_machine_each(struct hcq_machine *machine, void (*each)(db_device *dev, void *ctx), void *ctx);
/* Whether all queues of the process are to come to rest: then nothing may be submitted. */
extern atomic_bool hcq_resting;
/* Waits until that is over. ring: one whose timeline has to count anew, which is done while all are at rest. */
int hcq_rest(struct hcq_ring *ring);
/* When the process exits, drops what finished submissions held, of all devices that are open then. */
void hcq_devices_retire_at_exit(void);

/* The device's ring, which may be made now. */
struct hcq_ring *hcq_device_ring(db_device *dev, enum db_queue_kind kind, unsigned index);

/* ---- clock.c ---- */
/* Reads both clocks. open calls it once. */
int hcq_clock_calibrate(db_device *dev);
/* Ticks in the host's time, all by one reading of the clocks; 0 stays 0. */
void hcq_clock_to_ns(db_device *dev, const uint64_t *ticks, uint64_t *ns, unsigned n);
#endif
