/* Kernels that the user brings, as commands of executables and programs. */
#ifndef DOORBELL_FRONTEND_RUN_CUSTOM_H
#define DOORBELL_FRONTEND_RUN_CUSTOM_H
#include "runtime.h"

/* Returns the number that stands for the program in graphs. A number is never reused for another program. The slot
 * keeps the program until its device is closed. Returns 0 when out of memory. */
int64_t slot_custom_number(unsigned slot, db_program *program);
db_device *custom_device(const db_program *program);            /* the device that it is loaded on */
db_program *slot_custom_program(unsigned slot, int64_t number); /* NULL if there is none */

/* The launch of item, a SCHEDULE_CUSTOM, as a kernel: its name, grid and block, and the order of its arguments. The
 * caller gets a reference. Returns NULL when out of memory. */
const struct kernel *custom_kernel(const struct schedule_item *item, db_program *program);
/* References on kernels that custom_kernel made; other kernels belong to the compiler, and the calls do nothing. */
void kernel_retain(const struct kernel *k);
void kernel_release(const struct kernel *k);
/* Replaces the arguments of a command, its n buffers and variables, by those of its kernel, in the order of the
 * kernel's parameters. args has room for MAX_KERNEL_ARGS. Returns their number. */
unsigned kernel_arguments(const struct kernel *k, struct db_arg *args, unsigned n);
#endif
