/* The end of devices: they stop, are lost by a fault, and what waits for them goes on. */
#ifndef DOORBELL_HCQ_LOSS_H
#define DOORBELL_HCQ_LOSS_H
#include "device.h"

/* Stops its queues between submissions; as the backend's. */
bool hcq_device_halt(db_device *dev);
/* Waits for everything submitted and drops what it held; when that fails the device is halted. */
void hcq_device_drain(db_device *dev);
/* Marks the device as lost for the first reason given; returns -EIO. What waits for it goes on and counts as failed. */
int hcq_device_lost(db_device *dev, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* 0, or -EIO with the reason as message. */
int hcq_device_check(const db_device *dev);
/* Again, for what was submitted since, and over what its other queues stored since. */
void hcq_device_release_waiters(db_device *lost);
/* Looks whether other devices were lost, for which something submitted to this one may wait, be it by way of others. */
void hcq_device_check_others(db_device *dev);
#endif
