/* NVIDIA's calls pass descriptors to the driver inside their structures. Under `doorbell emu` the machine gets its own
 * descriptors, in a copy of the structure. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include "../../hcq/nv/rm_wire.h"
#include "../user.h"
#include "client.h"

enum { LARGEST = sizeof(struct uvm_map_external_allocation), NO_FD = 0x7fffffff };

/* The position of a descriptor in a call's structure; size: of the structure, for calls whose request does not include
 * it. */
struct field {
  uint32_t call, offset, size;
};
static const struct field rm_fields[] = {
    {RM_NR_ALLOC_MEMORY, offsetof(struct rm_alloc_memory_fd, fd), 0},
    {RM_NR_MAP_MEMORY, offsetof(struct rm_map_memory_fd, fd), 0},
    {RM_NR_REGISTER_FD, offsetof(struct rm_register_fd, ctl_fd), 0},
    {RM_NR_ALLOC_OS_EVENT, offsetof(struct rm_os_event, fd), 0},
    {RM_NR_FREE_OS_EVENT, offsetof(struct rm_os_event, fd), 0},
};
#define UVM_FIELD(command, type, member) {UVM_##command, offsetof(struct type, member), sizeof(struct type)}
static const struct field uvm_fields[] = {
    UVM_FIELD(MM_INITIALIZE, uvm_mm_initialize, uvm_fd),
    UVM_FIELD(REGISTER_GPU, uvm_register_gpu, rm_ctrl_fd),
    UVM_FIELD(REGISTER_GPU_VASPACE, uvm_register_gpu_vaspace, rm_ctrl_fd),
    UVM_FIELD(REGISTER_CHANNEL, uvm_register_channel, rm_ctrl_fd),
    UVM_FIELD(MAP_EXTERNAL_ALLOCATION, uvm_map_external_allocation, rm_ctrl_fd),
};

static const struct field *find(const struct field *f, size_t n, uint32_t call) {
  for (; n--; f++)
    if (f->call == call) return f;
  return NULL;
}

/* Returns the machine's descriptor for one of the program's. The caller puts back the reference in *held. */
static int32_t translate(int32_t fd, struct client_file **held) {
  *held = client_get(fd);
  return *held ? (*held)->fd : fd == -1 ? -1 : (int32_t)NO_FD;
}

static int ioctl_translated(struct os *os, int fd, unsigned long request, void *arg, uint32_t size, uint32_t offset) {
  uint64_t copy[LARGEST / 8 + 1];
  char *bytes = (char *)copy;
  struct client_file *held;
  int32_t theirs, ours;
  if (size > LARGEST || offset + sizeof theirs > size || user_read(copy, (uintptr_t)arg, size))
    return os->ioctl(os, fd, request, arg);
  memcpy(&theirs, bytes + offset, sizeof theirs);
  ours = translate(theirs, &held);
  memcpy(bytes + offset, &ours, sizeof ours);
  int rc = os->ioctl(os, fd, request, copy);
  memcpy(bytes + offset, &theirs, sizeof theirs);
  if (user_write((uintptr_t)arg, copy, size)) rc = -EFAULT;
  if (held) client_put(held);
  return rc;
}

/* The parameters of an event object contain the descriptor that polls for it. */
static int alloc_event(struct os *os, int fd, unsigned long request, void *arg, uint32_t size) {
  union {
    struct rm_alloc full;
    struct rm_alloc_short brief;
  } a;
  struct rm_event_alloc p;
  struct client_file *held;
  if (size > sizeof a || user_read(&a, (uintptr_t)arg, size)) return os->ioctl(os, fd, request, arg);
  bool event = a.brief.class == RM_CLASS_EVENT_OS || a.brief.class == RM_CLASS_EVENT;
  uint64_t at = a.brief.params;
  if (!event || user_read(&p, at, sizeof p)) return os->ioctl(os, fd, request, arg);
  uint64_t theirs = p.data;
  p.data = (uint32_t)translate((int32_t)theirs, &held);
  a.brief.params = (uintptr_t)&p;
  int rc = os->ioctl(os, fd, request, &a);
  p.data = theirs;
  a.brief.params = at;
  if (user_write((uintptr_t)arg, &a, size) || user_write(at, &p, sizeof p)) rc = -EFAULT;
  if (held) client_put(held);
  return rc;
}

int client_nv_ioctl(struct os *os, struct client_file *file, unsigned long request, void *arg) {
  const struct field *f;
  uint32_t size = RM_IO_SIZE(request);
  if (client_kind(file) == CLIENT_UVM) {
    f = find(uvm_fields, sizeof uvm_fields / sizeof uvm_fields[0], (uint32_t)request);
    return f ? ioctl_translated(os, file->fd, request, arg, f->size, f->offset) : os->ioctl(os, file->fd, request, arg);
  }
  if (RM_IO_NR(request) == RM_NR_XFER) {
    /* Passed on as the call that it wraps. */
    struct rm_xfer x;
    if (size == sizeof x && !user_read(&x, (uintptr_t)arg, size) && x.size < 1 << 14 && x.cmd < 0x100 &&
        x.cmd != RM_NR_XFER)
      return client_nv_ioctl(os, file, RM_IO(x.cmd, x.size), (void *)(uintptr_t)x.ptr);
  }
  if (RM_IO_NR(request) == RM_NR_ALLOC) return alloc_event(os, file->fd, request, arg, size);
  f = find(rm_fields, sizeof rm_fields / sizeof rm_fields[0], RM_IO_NR(request));
  return f ? ioctl_translated(os, file->fd, request, arg, size, f->offset) : os->ioctl(os, file->fd, request, arg);
}
