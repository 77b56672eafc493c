/* The interface between the kernel modules (objects, memory, address spaces) and the engines of a channel. The host
 * engine reads GP entries and pushbuffers and passes methods to the compute or copy engine. Neither side uses the
 * other's structures. */
#ifndef DOORBELL_EMU_NV_CHANNEL_H
#define DOORBELL_EMU_NV_CHANNEL_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "../../emu.h"
#include "../../fault.h"
#include "../../pool.h"
#include "../../vm.h"

/* The properties of a GPU model. */
struct nv_model {
  const char *name;                 /* ISA name, as passed to os_emulated: "sm_90" */
  const char *marketing, *codename; /* "NVIDIA H100 80GB HBM3", "GH100" */
  uint32_t sm_version;              /* GR_INFO SM_VERSION: 0x900 */
  uint32_t sass_version;            /* QMD SASS_VERSION: 0x90 */
  uint32_t architecture, implementation, pci_device, pci_subsystem;
  uint32_t gpcs, tpcs_per_gpc, sms_per_tpc, sms; /* sms: those that floor-sweeping left enabled */
  uint32_t max_warps_per_sm;
  uint32_t copy_engines;
  uint32_t shared_kib_per_sm, shared_bytes_per_cta; /* example: 228, 227 << 10 */
  uint64_t vram_bytes;
  uint32_t l2_bytes, bus_bits;
  unsigned va_bits;    /* bits of a channel's virtual address: 57 on Hopper, 40 before */
  unsigned upper_bits; /* bits of upper address fields in methods: 25 on Hopper */
  uint32_t usermode_class, gpfifo_class, compute_class, copy_class;
  const uint32_t *classes; /* the class list, terminated by 0 */
  unsigned qmd_major;
};

enum nv_engine_kind { NV_ENGINE_GRAPHICS, NV_ENGINE_COPY };

/* The engines of one GPU, with a thread that polls its channels. */
struct nv_engines;
struct nv_engines_config {
  const struct nv_model *model;
  unsigned gpu;      /* index */
  struct pool *pool; /* of the machine */
  _Atomic uint32_t
      *usermode;      /* the usermode register page, 64 KiB: the doorbell is at byte 0x90, the timer at 0x80 and 0x84 */
  const bool *strict; /* strict mode, race.h */
  /* They apply to grids that begin while they are set. detail: add to struct emu_detail; annotate: also to the struct
   * emu_site of each instruction. */
  const atomic_bool *detail, *annotate;
  /* Prints one line to the log: a complete error message, before the process can learn of the error; an abandoned grid;
   * a doorbell that matches no channel. */
  void (*log)(void *ctx, const char *line);
  /* Receives the same line of a channel group's error, after it is in the notifiers and nv_channel_error reports it.
   * May be NULL. */
  void (*error)(void *ctx, const char *line);
  void *ctx;
};
struct nv_engines *nv_engines_new(const struct nv_engines_config *config);
void nv_engines_free(struct nv_engines *e); /* all channels must have been freed */
/* Totals since the engines were created; the others as emu_kernels and emu_instructions. */
void nv_engines_stats(struct nv_engines *e, struct emu_stats *out);
int nv_engines_kernels(struct nv_engines *e, struct emu_kernel_stats **out, size_t *n);
int nv_engines_instructions(struct nv_engines *e, const struct emu_kernel_stats *kernel, struct emu_site **out,
                            size_t *n);
/* Returns the GPU's timer (PTIMER) in nanoseconds: CLOCK_MONOTONIC in steps of 32. */
uint64_t nv_engines_time(struct nv_engines *e);
/* From now on updates the timer in the usermode page at least once per millisecond; creating a group does so, too.
 * Returns false if the thread cannot be created. */
bool nv_engines_watch(struct nv_engines *e);
/* Abandons running grids, logs one line for each, and waits a short time for them. No channel runs afterwards. */
void nv_engines_stop(struct nv_engines *e);

/* ---- PC sampling (pma.c); the kernel module checks who may use it ---- */

struct nv_channel_group;
struct rm_reg_op; /* hcq/nv/rm_control_wire.h */
/* Executes a register operation, in a context or NULL. dry: only checks it. Returns 0 or bits of enum rm_reg_status. */
unsigned nv_pma_register(struct nv_engines *e, const struct nv_channel_group *context, struct rm_reg_op *op, bool dry);
/* Sets the credits of all GPCs. */
void nv_pma_credits(struct nv_engines *e, const uint16_t *credits);
/* Sets the memory of the stream; size is a multiple of a record's, or 0: there is none. */
void nv_pma_attach(struct nv_engines *e, uint8_t *ring, uint64_t size);
/* Resets the registers and the credits. */
void nv_pma_reset(struct nv_engines *e);
struct nv_pma_position {
  uint64_t available, put; /* put: offset in the memory */
  bool overflow;
};
/* Takes bytes that the client has read out of the stream. Returns false if there are fewer. */
bool nv_pma_position(struct nv_engines *e, uint64_t consumed, struct nv_pma_position *out);

/* The channels of a group fail together: an error stops all of them and is written to each channel's notifier. */
struct nv_channel_group;
struct nv_channel_group *nv_group_new(struct nv_engines *e);
void nv_group_free(struct nv_channel_group *g); /* all of its channels must have been freed */
/* Starts (true) or stops scheduling. Stopping waits until nothing of the group runs. Returns false if that took too
 * long: the running grid then continues, but no later work starts. */
bool nv_group_schedule(struct nv_channel_group *g, bool on);

/* An error in a channel's notifier: 16 bytes, NvNotification of nvos.h. */
struct nv_notifier {
  _Atomic uint64_t time;   /* in ns */
  _Atomic uint32_t info32; /* ROBUST_CHANNEL_* error number (Xid) */
  _Atomic uint16_t info16; /* number of the engine */
  _Atomic uint16_t status; /* 0xffff after an error */
};
_Static_assert(sizeof(struct nv_notifier) == 16, "NvNotification");

struct nv_channel_desc {
  struct vm *vm;
  enum nv_engine_kind kind;
  unsigned engine; /* number of the copy engine */
  uint64_t gpfifo_va;
  uint32_t gpfifo_entries;
  uint32_t *userd;              /* 512 bytes of host memory: GPGet at byte 0x88, GPPut at 0x8c */
  struct nv_notifier *notifier; /* or NULL */
  uint32_t token;               /* the value that rings this channel when written to the doorbell */
  uint32_t id;                  /* channel number, for messages */
  uint32_t gpfifo_class;        /* class that the client allocated; 0 means the model's */
};
struct nv_channel;
struct nv_channel *nv_channel_new(struct nv_channel_group *g, const struct nv_channel_desc *desc);
void nv_channel_free(struct nv_channel *ch);
/* Allows SET_OBJECT to name a class from now on: its object was allocated under the channel. */
void nv_channel_allow_class(struct nv_channel *ch, uint32_t class);
/* Copies the error that stopped the channel's group. Returns false if there is none. xid: as in the notifier; esr: warp
 * error code, or 0 if the error is not of an SM. */
struct nv_channel_error {
  uint32_t xid, esr;
  uint32_t sm; /* number of the SM */
  uint64_t time;
  struct fault fault; /* text: the complete log line */
};
bool nv_channel_error(struct nv_channel *ch, struct nv_channel_error *out);
#endif
