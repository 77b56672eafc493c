/* Access to the client's memory as a kernel module has it. */
#define _GNU_SOURCE
#include "user.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { USER_PAGE = 4096 };

/* Uses the kernel's checked copy. Sandboxes may forbid the call. */
static int copy_user(uint64_t user, void *mine, size_t n, bool in) {
  struct iovec local = {mine, n}, remote = {(void *)(uintptr_t)user, n};
  if (!n) return 0;
  ssize_t done =
      in ? process_vm_readv(getpid(), &local, 1, &remote, 1, 0) : process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
  if (done == (ssize_t)n) return 0;
  if (done >= 0 || (errno != EPERM && errno != ENOSYS) || !user) return -EFAULT;
  if (in)
    memcpy(mine, (const void *)(uintptr_t)user, n);
  else
    memcpy((void *)(uintptr_t)user, mine, n);
  return 0;
}
int user_read(void *dst, uint64_t src, size_t n) { return copy_user(src, dst, n, true); }
int user_write(uint64_t dst, const void *src, size_t n) { return copy_user(dst, (void *)src, n, false); }

bool user_pages(uint64_t address, uint64_t size, bool writable) {
#ifdef MADV_POPULATE_WRITE
  if (!madvise((void *)(uintptr_t)address, size, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ)) return true;
  if (errno != EINVAL) return false;
#endif
  /* Kernels before 5.14 do not have MADV_POPULATE, and EINVAL is also the error for pages without the right. So access
   * one byte of each page. */
  for (uint64_t at = address; at < address + size; at += USER_PAGE) {
    uint8_t byte;
    if (user_read(&byte, at, 1) || (writable && user_write(at, &byte, 1))) return false;
  }
  return true;
}
