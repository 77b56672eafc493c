/* Access to the client's memory as a kernel module has it: a bad pointer causes an error, not a crash. */
#ifndef DOORBELL_EMU_USER_H
#define DOORBELL_EMU_USER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copy between the client's memory and the emulator's. Return 0, or -EFAULT if the client's memory is not mapped. */
int user_read(void *dst, uint64_t src, size_t n);
int user_write(uint64_t dst, const void *src, size_t n);
/* As get_user_pages: returns true if every page is present and, if writable is set, can be written. */
bool user_pages(uint64_t address, uint64_t size, bool writable);
#endif
