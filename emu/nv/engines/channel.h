/* The seam between what the kernel modules keep (objects, memory, address spaces) and the engines that a channel feeds:
 * the host engine reads GP entries and pushbuffers and hands methods to the compute or copy engine.
 *
 * Neither side knows the other's structures. */
#ifndef DOORBELL_EMU_NV_CHANNEL_H
#define DOORBELL_EMU_NV_CHANNEL_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "../../emu.h"
#include "../../fault.h"
#include "../../pool.h"
#include "../../vm.h"

/* What tells one GPU from another. */
struct nv_model {
  const char *name;                 /* ISA, as in os_emulated: "sm_90" */
  const char *marketing, *codename; /* "NVIDIA H100 80GB HBM3", "GH100" */
  uint32_t sm_version;              /* GR_INFO SM_VERSION: 0x900 */
  uint32_t sass_version;            /* QMD SASS_VERSION: 0x90 */
  uint32_t architecture, implementation, pci_device, pci_subsystem;
  uint32_t gpcs, tpcs_per_gpc, sms_per_tpc, sms; /* sms: after floor-sweeping */
  uint32_t max_warps_per_sm;
  uint32_t copy_engines;
  uint32_t shared_kib_per_sm, shared_bytes_per_cta; /* 228, 227 << 10 */
  uint64_t vram_bytes;
  uint32_t l2_bytes, bus_bits;
  unsigned va_bits;    /* of a channel's address space: 57 on Hopper, 40 before */
  unsigned upper_bits; /* of upper address fields in methods: 25 on Hopper */
  uint32_t usermode_class, gpfifo_class, compute_class, copy_class;
  const uint32_t *classes; /* the class list, closed by 0 */
  unsigned qmd_major;
};

enum nv_engine_kind { NV_ENGINE_GRAPHICS, NV_ENGINE_COPY };

/* The engines of one GPU, with a thread that watches its channels. */
struct nv_engines;
struct nv_engines_config {
  const struct nv_model *model;
  unsigned gpu;      /* index */
  struct pool *pool; /* of the machine */
  _Atomic uint32_t
      *usermode;      /* the usermode register page, 64 KiB: the doorbell at byte 0x90, the timer at 0x80 and 0x84 */
  const bool *strict; /* race.h */
  const atomic_bool *detail; /* grids that begin are counted instruction by instruction */
  /* Prints one line for the log: an error with everything known, before the process can learn of it; a grid that was
   * abandoned; a doorbell that nobody answers. */
  void (*log)(void *ctx, const char *line);
  /* An error of a channel's group, the same line, once it is in the notifiers and nv_channel_error has it. Or NULL. */
  void (*error)(void *ctx, const char *line);
  void *ctx;
};
struct nv_engines *nv_engines_new(const struct nv_engines_config *config);
void nv_engines_free(struct nv_engines *e); /* all channels are freed before */
/* Totals since the engines were made; kernels as emu_kernels. */
void nv_engines_stats(struct nv_engines *e, struct emu_stats *out);
int nv_engines_kernels(struct nv_engines *e, struct emu_kernel_stats **out, size_t *n);
/* Nanoseconds of the GPU's timer (PTIMER), CLOCK_MONOTONIC in steps of 32. */
uint64_t nv_engines_time(struct nv_engines *e);
/* Keeps the timer in the usermode page moving, at least each millisecond, from now on; so does making a group. False
 * when there is no thread for it. */
bool nv_engines_watch(struct nv_engines *e);
/* Abandons the grids that run, each with a line to the log, and waits for that a little. No channel runs afterwards. */
void nv_engines_stop(struct nv_engines *e);

/* Channels of one group share their fate: an error stops all of them, and each gets it in its notifier. */
struct nv_channel_group;
struct nv_channel_group *nv_group_new(struct nv_engines *e);
void nv_group_free(struct nv_channel_group *g); /* its channels are freed before */
/* Starts (true) or stops scheduling; stopping waits until nothing of the group runs. False when that took too long: a
 * grid then goes on, nothing behind it does. */
bool nv_group_schedule(struct nv_channel_group *g, bool on);

/* An error as a channel's notifier tells it: 16 bytes, NvNotification of nvos.h. */
struct nv_notifier {
  _Atomic uint64_t time;   /* ns */
  _Atomic uint32_t info32; /* ROBUST_CHANNEL_* error number (Xid) */
  _Atomic uint16_t info16; /* engine */
  _Atomic uint16_t status; /* 0xffff after an error */
};
_Static_assert(sizeof(struct nv_notifier) == 16, "NvNotification");

struct nv_channel_desc {
  struct vm *vm;
  enum nv_engine_kind kind;
  unsigned engine; /* copy engine's number */
  uint64_t gpfifo_va;
  uint32_t gpfifo_entries;
  uint32_t *userd;              /* 512 bytes of host memory, GPGet at 0x88 and GPPut at 0x8c */
  struct nv_notifier *notifier; /* or NULL */
  uint32_t token;               /* what rings it when written to the doorbell */
  uint32_t id;                  /* channel number, for messages */
  uint32_t gpfifo_class;        /* as it was allocated; 0: the model's */
};
struct nv_channel;
struct nv_channel *nv_channel_new(struct nv_channel_group *g, const struct nv_channel_desc *desc);
void nv_channel_free(struct nv_channel *ch);
/* A class whose object was allocated under the channel, which SET_OBJECT may name from now on. */
void nv_channel_allow_class(struct nv_channel *ch, uint32_t class);
/* The error that stopped the channel's group, copied; false when there is none. xid: as in the notifier; esr: warp
 * error code, 0 when no SM met it. */
struct nv_channel_error {
  uint32_t xid, esr;
  uint32_t sm; /* that met it */
  uint64_t time;
  struct fault fault; /* text: the whole line */
};
bool nv_channel_error(struct nv_channel *ch, struct nv_channel_error *out);
#endif
