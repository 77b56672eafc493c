/* The state of a client's address space in nvidia-uvm.ko; one per initialized descriptor. */
#ifndef DOORBELL_EMU_NV_UVM_H
#define DOORBELL_EMU_NV_UVM_H
#include "nv.h"

/* The mapping of an external range on one GPU. */
struct uvm_map {
  struct uvm_map *next;
  struct nv_gpu *gpu;
  struct rm_memory *memory;
  uint64_t va, size, offset; /* offset: in the memory */
  unsigned access;
  uint32_t handle;
};
/* A range of addresses: external, or of a registered channel. */
struct uvm_range {
  struct uvm_range *next; /* sorted by address */
  uint64_t base, size;
  struct uvm_map *maps;
  bool channel;
};
struct uvm_channel {
  struct uvm_channel *next;
  struct uvm_space *space;
  struct rm_object *object;
  uint64_t base;
};
struct uvm_space {
  struct nv_machine *m;
  bool registered[NV_MAX_GPUS];
  struct rm_vas *vas[NV_MAX_GPUS];
  uint32_t peers[NV_MAX_GPUS]; /* one bit per GPU */
  struct uvm_range *ranges;
  struct uvm_channel *channels;
};

/* Returns the registered GPU with that UUID. If there is none, stores the reason and returns NULL. */
struct nv_gpu *nv_uvm_gpu(struct uvm_space *s, const struct uvm_uuid *uuid, const char *call);
/* Returns the client object that a call names with a control descriptor, or NULL. */
struct rm_object *nv_uvm_client(struct uvm_space *s, int ctl_fd, uint32_t client, const char *call);

/* ---- uvm_map.c ---- */

uint32_t nv_uvm_range_add(struct uvm_space *s, uint64_t base, uint64_t size, bool channel, const char *call);
void nv_uvm_range_remove(struct uvm_space *s, uint64_t base);
uint32_t nv_uvm_create_range(struct uvm_space *s, uint64_t base, uint64_t size);
uint32_t nv_uvm_free_range(struct uvm_space *s, uint64_t base, uint64_t size, bool sized);
uint32_t nv_uvm_map_external(struct uvm_space *s, struct uvm_map_external_allocation *p);
uint32_t nv_uvm_unmap(struct uvm_space *s, const struct uvm_unmap_external *p);
uint32_t nv_uvm_validate(struct uvm_space *s, uint64_t base, uint64_t size);
/* Removes all mappings on a GPU; if peer is not NULL, only those of peer's memory. */
void nv_uvm_unmap_gpu(struct uvm_space *s, const struct nv_gpu *gpu, const struct nv_gpu *peer);
#endif
