/* Descriptors that the emulator holds for itself in the client's process: the memory files of VRAM, doorbells and
 * events. Their numbers are above those that a kernel allocates by default. A client's close, close_range or dup2 must
 * not close them. */
#ifndef DOORBELL_EMU_OWN_FD_H
#define DOORBELL_EMU_OWN_FD_H
#include <stdint.h>

/* Creates a memory file of `size` zero bytes, closed on exec. Returns its descriptor or a negative errno. */
int own_fd_memory(const char *name, uint64_t size);
/* Closes a descriptor that own_fd_memory made. A no-op if fd < 0. */
void own_fd_close(int fd);
/* For a child after fork: from now on the child may close the descriptors, as any others that it inherited. */
void own_fd_forget(void);
/* Returns the emulator's first descriptor that is at least fd, or INT_MAX if there is none. */
int own_fd_next(int fd);
#endif
