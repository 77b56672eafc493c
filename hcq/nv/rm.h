/* Calls of NVIDIA's resource manager (RM) and unified memory module (UVM).
 *
 * Unless stated otherwise, a call returns 0, a negative errno if the kernel refused the ioctl, or a positive RM
 * status. */
#ifndef DOORBELL_HCQ_NV_RM_H
#define DOORBELL_HCQ_NV_RM_H
#include "nv.h"

/* A plain ioctl; returns 0 or a negative errno. Restarts if interrupted. */
int rm_ioctl(const struct nv_machine *m, int fd, uint32_t request, void *arg);

/* Creates an object of a class under parent; RM chooses the handle. params may be NULL. */
int rm_object_new(struct nv_machine *m, uint32_t parent, uint32_t class, const void *params, size_t size,
                  uint32_t *handle);
/* Frees an object and all objects below it; *handle becomes 0. A no-op for handle 0. */
int rm_object_free(struct nv_machine *m, uint32_t parent, uint32_t *handle);
int rm_ctrl(struct nv_machine *m, uint32_t object, uint32_t command, void *params, size_t size);
/* Pins pages of the process and makes them a memory object. */
int rm_pin_host(struct nv_machine *m, int gpu_fd, uint32_t device, void *host, uint64_t size, uint32_t *handle);
/* Prepares a newly opened fd for mapping the memory object. */
int rm_map_prepare(struct nv_machine *m, uint32_t parent, uint32_t memory, uint64_t length, int fd);

int uvm_open(struct nv_machine *m);
void uvm_close(struct nv_machine *m);
int uvm_gpu_register(struct nv_machine *m, const struct uvm_uuid *gpu);
int uvm_gpu_unregister(struct nv_machine *m, const struct uvm_uuid *gpu);
int uvm_vaspace_register(struct nv_machine *m, const struct uvm_uuid *gpu, uint32_t vaspace);
int uvm_vaspace_unregister(struct nv_machine *m, const struct uvm_uuid *gpu);
/* base, size: addresses for the channel's buffers. */
int uvm_channel_register(struct nv_machine *m, const struct uvm_uuid *gpu, uint32_t channel, uint64_t base,
                         uint64_t size);
int uvm_channel_unregister(struct nv_machine *m, const struct uvm_uuid *gpu, uint32_t channel);
int uvm_range_new(struct nv_machine *m, uint64_t va, uint64_t size);
int uvm_range_map(struct nv_machine *m, uint64_t va, uint64_t size, uint32_t memory, const struct uvm_uuid *gpu);
/* Also removes its mappings on all GPUs. */
int uvm_range_free(struct nv_machine *m, uint64_t va, uint64_t size);
int uvm_peers_enable(struct nv_machine *m, const struct uvm_uuid *a, const struct uvm_uuid *b);

/* Converts a call's result to an errno. */
int rm_errno(int rc);
/* Makes the error message "<device>: <what>: <why>" from a call's result; returns the errno. */
int rm_error(const char *device, int rc, const char *what, ...) __attribute__((format(printf, 3, 4)));

#endif
