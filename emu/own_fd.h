/* Descriptors that the emulator holds for itself inside the client's process: the memory files behind VRAM, doorbells
 * and events. They lie above the numbers that a kernel gives by default, and a client's close, close_range or dup2 must
 * leave them alone. */
#ifndef DOORBELL_EMU_OWN_FD_H
#define DOORBELL_EMU_OWN_FD_H
#include <stdint.h>

/* A new memory file of `size` zero bytes, closed on exec; or a negative errno. */
int own_fd_memory(const char *name, uint64_t size);
/* Closes a descriptor that own_fd_memory made. fd < 0: no-op. */
void own_fd_close(int fd);
/* In a child after fork: the descriptors are its to close, as any it inherited. */
void own_fd_forget(void);
/* The first descriptor of the emulator that is at least fd, or INT_MAX. */
int own_fd_next(int fd);
#endif
