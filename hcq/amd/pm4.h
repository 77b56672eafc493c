/* Encoders of PM4 packets for gfx11 compute queues. Each appends whole packets to a word buffer; running out of memory
 * is the buffer's sticky state. Addresses are GPU virtual addresses. Wire format and sources: pm4_wire.h,
 * registers.h. */
#ifndef DOORBELL_HCQ_AMD_PM4_H
#define DOORBELL_HCQ_AMD_PM4_H
#include "../words.h"
#include "pm4_wire.h"

/* Sets count consecutive registers of the SH range, starting at an absolute dword address of enum gfx11_register. */
void pm4_set_sh_regs(struct words *w, uint32_t reg, const uint32_t *values, unsigned count);
void pm4_set_sh_reg(struct words *w, uint32_t reg, uint32_t value);

/* Invalidates every cache a shader reads through (instruction, scalar, L0, L1, L2) and writes L2 back, over the whole
 * address space: what comes after in this queue sees what others have written. */
void pm4_acquire_mem(struct words *w);

/* Waits until all compute waves that this queue launched have ended. */
void pm4_cs_partial_flush(struct words *w);

/* At the end of the pipe (all work before has ended): cache flush if asked, then the data, then the interrupt. */
struct pm4_release {
  uint64_t address;                     /* of the data; 8-byte aligned for 64-bit data and clocks, else 4 */
  uint64_t value;                       /* for PM4_DATA_32 and PM4_DATA_64 */
  enum pm4_release_data data;           /* PM4_DATA_GPU_CLOCK writes the 64-bit 100 MHz counter */
  enum pm4_release_interrupt interrupt; /* PM4_INT_AFTER_WRITE raises it once the data is visible */
  uint32_t event_id;                    /* the interrupt's context: the KFD event's id */
  bool flush; /* write back and invalidate L2 and what is above it, so others see this queue's writes */
};
void pm4_release_mem(struct words *w, const struct pm4_release *r);

/* Waits until the 64 bits at address (8-byte aligned) reach value: exact for the whole range of a timeline. */
void pm4_wait_mem64(struct words *w, uint64_t address, uint64_t value);
/* Waits until the 32 bits at address (4-byte aligned) are >= value, unsigned. On the low dword of a 64-bit timeline
 * that is right only while the timeline stays below 2^32, since the low dword starts again at 0 there; its owner
 * begins to count anew before, or uses pm4_wait_mem64. */
void pm4_wait_mem32(struct words *w, uint64_t address, uint32_t value);
/* Makes what the host wrote into device memory over the bus visible: writes the flush request and polls its answer. */
void pm4_hdp_flush(struct words *w);

/* One kernel launch. */
struct pm4_dispatch {
  uint64_t entry;               /* first instruction, 256-byte aligned */
  uint32_t rsrc1, rsrc2, rsrc3; /* of the kernel descriptor; LDS_SIZE is filled from lds_bytes */
  uint32_t lds_bytes;           /* static + dynamic local memory, at most 64 KiB */
  uint64_t scratch_base;        /* 256-byte aligned; 0 without scratch */
  uint32_t scratch_waves;       /* wave slots per shader engine that the scratch memory has room for */
  uint32_t scratch_wave_bytes;  /* bytes a wave needs; rounded up to 256 */
  const uint32_t *user_data;    /* initial SGPRs, nuser <= 16 */
  unsigned nuser;
  uint32_t groups[3];  /* workgroups; each >= 1 */
  uint32_t threads[3]; /* work-items of a workgroup; each >= 1 */
  bool wave32;
};
/* All registers of a launch and the launch. Neither acquires before nor waits after: that is the recorder's choice of
 * barriers. */
void pm4_dispatch(struct words *w, const struct pm4_dispatch *d);

/* Runs ndw dwords (< 2^20) at address (4-byte aligned), then goes on after this packet. */
void pm4_indirect_buffer(struct words *w, uint64_t address, uint32_t ndw);
/* Leaves this indirect buffer for another one; must be its last packet. */
void pm4_chain(struct words *w, uint64_t address, uint32_t ndw);

/* Writes count dwords to memory, confirmed before the next packet. */
void pm4_write_data(struct words *w, uint64_t address, const uint32_t *values, unsigned count);
/* Copies a 64-bit clock or memory word, or a 32-bit register, to memory. from is a register's dword address, a memory
 * address or 0. */
void pm4_copy_data(struct words *w, enum pm4_copy_sel source, uint64_t from, uint64_t to, bool is_64bit);

/* Filler of exactly ndw dwords. */
void pm4_nop(struct words *w, size_t ndw);

#endif
