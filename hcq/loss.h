/* How devices end: they are halted, or lost through a fault, and waits for them are released. */
#ifndef DOORBELL_HCQ_LOSS_H
#define DOORBELL_HCQ_LOSS_H
#include "device.h"

/* Halts the device's queues between submissions. Returns as hcq_backend.halt. */
bool hcq_device_halt(db_device *dev);
/* Waits for everything submitted and releases what it held. If waiting fails, marks the device as lost and halts it. */
void hcq_device_drain(db_device *dev);
/* Marks the device as lost; only the first call sets the reason. Returns -EIO. Releases everything that waits for the
 * device and marks it as failed. */
int hcq_device_lost(db_device *dev, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Returns 0, or -EIO with the reason as message if the device is lost. */
int hcq_device_check(const db_device *dev);
/* Releases waiters of a lost device again: work submitted since, and signals that its still running queues have
 * overwritten. */
void hcq_device_release_waiters(db_device *lost);
/* Checks for loss every device that work in flight on dev waits for, directly or through other devices. */
void hcq_device_check_others(db_device *dev);
#endif
