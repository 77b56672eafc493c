/* The client's memory, as a kernel module reaches it: a wild pointer is an error and not a crash. */
#ifndef DOORBELL_EMU_USER_H
#define DOORBELL_EMU_USER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies between the client's memory and ours; -EFAULT where nothing is mapped. */
int user_read(void *dst, uint64_t src, size_t n);
int user_write(uint64_t dst, const void *src, size_t n);
/* What get_user_pages does: every page present and, if need be, writable. */
bool user_pages(uint64_t address, uint64_t size, bool writable);
#endif
