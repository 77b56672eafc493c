/* UVM's calls on /dev/nvidia-uvm.
 *
 * Its structures carry no size. Each is passed in the newest and longest form, and the status is read where the
 * driver's branch stores it. */
#include "rm.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define STATUS_UNTOUCHED 0xdb0000dbu /* stays in place if a module writes its status elsewhere */

static int call(const struct nv_machine *m, int fd, uint32_t command, void *arg, const uint32_t *status) {
  int err = rm_ioctl(m, fd, command, arg);
  if (err) return err;
  if (*status == STATUS_UNTOUCHED) return -EPROTO;
  return *status == RM_WARN_NOTHING_TO_DO ? 0 : *status > INT32_MAX ? (int)RM_GENERIC : (int)*status;
}

int uvm_open(struct nv_machine *m) {
  struct os *os = m->os;
  m->uvm = os->open(os, RM_UVM_DEVICE, O_RDWR | O_CLOEXEC);
  if (m->uvm < 0) return db_fail(m->uvm, "%s: cannot open " RM_UVM_DEVICE ": %s", m->name, strerror(-m->uvm));
  /* Without heterogeneous memory management, an invalid access of a kernel faults, as on other systems. */
  struct uvm_initialize init = {.flags = UVM_INIT_DISABLE_HMM, .status = STATUS_UNTOUCHED};
  int rc = call(m, m->uvm, UVM_INITIALIZE, &init, &init.status);
  if (rc) return rm_error(m->name, rc, "initializing " RM_UVM_DEVICE);
  m->uvm_mm = os->open(os, RM_UVM_DEVICE, O_RDWR | O_CLOEXEC);
  if (m->uvm_mm < 0) return db_fail(m->uvm_mm, "%s: cannot open " RM_UVM_DEVICE ": %s", m->name, strerror(-m->uvm_mm));
  /* Ties the address space to the process's. Modules without pageable memory access do not need it and return an error,
   * which is ignored. */
  struct uvm_mm_initialize mm = {.uvm_fd = m->uvm};
  rm_ioctl(m, m->uvm_mm, UVM_MM_INITIALIZE, &mm);
  return 0;
}

void uvm_close(struct nv_machine *m) {
  int *fds[] = {&m->uvm_mm, &m->uvm};
  for (int i = 0; i < 2; i++) {
    if (*fds[i] >= 0) m->os->close(m->os, *fds[i]);
    *fds[i] = -1;
  }
}

int uvm_gpu_register(struct nv_machine *m, const struct uvm_uuid *gpu) {
  struct uvm_register_gpu a = {.uuid = *gpu, .rm_ctrl_fd = -1, .status = STATUS_UNTOUCHED};
  return call(m, m->uvm, UVM_REGISTER_GPU, &a, &a.status);
}

int uvm_gpu_unregister(struct nv_machine *m, const struct uvm_uuid *gpu) {
  struct uvm_unregister_gpu a = {.uuid = *gpu, .status = STATUS_UNTOUCHED};
  return call(m, m->uvm, UVM_UNREGISTER_GPU, &a, &a.status);
}

int uvm_vaspace_register(struct nv_machine *m, const struct uvm_uuid *gpu, uint32_t vaspace) {
  struct uvm_register_gpu_vaspace a = {
      .uuid = *gpu, .rm_ctrl_fd = m->ctl, .client = m->client, .va_space = vaspace, .status = STATUS_UNTOUCHED};
  return call(m, m->uvm, UVM_REGISTER_GPU_VASPACE, &a, &a.status);
}

int uvm_vaspace_unregister(struct nv_machine *m, const struct uvm_uuid *gpu) {
  struct uvm_unregister_gpu_vaspace a = {.uuid = *gpu, .status = STATUS_UNTOUCHED};
  return call(m, m->uvm, UVM_UNREGISTER_GPU_VASPACE, &a, &a.status);
}

int uvm_channel_register(struct nv_machine *m, const struct uvm_uuid *gpu, uint32_t channel, uint64_t base,
                         uint64_t size) {
  struct uvm_register_channel a = {.uuid = *gpu,
                                   .rm_ctrl_fd = m->ctl,
                                   .client = m->client,
                                   .channel = channel,
                                   .base = base,
                                   .length = size,
                                   .status = STATUS_UNTOUCHED};
  return call(m, m->uvm, UVM_REGISTER_CHANNEL, &a, &a.status);
}

int uvm_channel_unregister(struct nv_machine *m, const struct uvm_uuid *gpu, uint32_t channel) {
  union {
    struct uvm_unregister_channel longer;
    struct uvm_unregister_channel_590 shorter;
  } a = {0};
  if (rm_branch_uvm_short(&m->branch)) {
    a.shorter =
        (struct uvm_unregister_channel_590){.client = m->client, .channel = channel, .status = STATUS_UNTOUCHED};
    return call(m, m->uvm, UVM_UNREGISTER_CHANNEL, &a, &a.shorter.status);
  }
  a.longer = (struct uvm_unregister_channel){
      .uuid = *gpu, .client = m->client, .channel = channel, .status = STATUS_UNTOUCHED};
  return call(m, m->uvm, UVM_UNREGISTER_CHANNEL, &a, &a.longer.status);
}

int uvm_range_new(struct nv_machine *m, uint64_t va, uint64_t size) {
  struct uvm_create_external_range a = {.base = va, .length = size, .status = STATUS_UNTOUCHED};
  return call(m, m->uvm, UVM_CREATE_EXTERNAL_RANGE, &a, &a.status);
}

int uvm_range_map(struct nv_machine *m, uint64_t va, uint64_t size, uint32_t memory, const struct uvm_uuid *gpu) {
  struct uvm_mapping mapping = {.uuid = *gpu, .mapping = UVM_MAPPING_READ_WRITE_ATOMIC};
  if (rm_branch_uvm_many_gpus(&m->branch)) {
    struct uvm_map_external_allocation a = {.base = va,
                                            .length = size,
                                            .gpus = {mapping},
                                            .gpu_count = 1,
                                            .rm_ctrl_fd = m->ctl,
                                            .client = m->client,
                                            .memory = memory,
                                            .status = STATUS_UNTOUCHED};
    return call(m, m->uvm, UVM_MAP_EXTERNAL_ALLOCATION, &a, &a.status);
  }
  struct uvm_map_external_allocation_545 a = {.base = va,
                                              .length = size,
                                              .gpus = {mapping},
                                              .gpu_count = 1,
                                              .rm_ctrl_fd = m->ctl,
                                              .client = m->client,
                                              .memory = memory,
                                              .status = STATUS_UNTOUCHED};
  return call(m, m->uvm, UVM_MAP_EXTERNAL_ALLOCATION, &a, &a.status);
}

int uvm_range_free(struct nv_machine *m, uint64_t va, uint64_t size) {
  union {
    struct uvm_free longer;
    struct uvm_free_590 shorter;
  } a = {0};
  if (rm_branch_uvm_short(&m->branch)) {
    a.shorter = (struct uvm_free_590){.base = va, .status = STATUS_UNTOUCHED};
    return call(m, m->uvm, UVM_FREE, &a, &a.shorter.status);
  }
  a.longer = (struct uvm_free){.base = va, .length = size, .status = STATUS_UNTOUCHED};
  return call(m, m->uvm, UVM_FREE, &a, &a.longer.status);
}

int uvm_peers_enable(struct nv_machine *m, const struct uvm_uuid *a, const struct uvm_uuid *b) {
  struct uvm_peer_access p = {.uuid_a = *a, .uuid_b = *b, .status = STATUS_UNTOUCHED};
  return call(m, m->uvm, UVM_ENABLE_PEER_ACCESS, &p, &p.status);
}
