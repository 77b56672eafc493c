/* Encoders of PM4 packets for gfx11 compute queues. Each appends whole packets to a word buffer; running out of memory
 * is recorded in the buffer (words.h). Addresses are GPU virtual addresses. Wire format and sources: pm4_wire.h,
 * registers.h. */
#ifndef DOORBELL_HCQ_AMD_PM4_H
#define DOORBELL_HCQ_AMD_PM4_H
#include "../words.h"
#include "pm4_wire.h"

/* Sets count consecutive registers of the SH range, starting at an absolute dword address of enum gfx11_register. */
void pm4_set_sh_regs(struct words *w, uint32_t reg, const uint32_t *values, unsigned count);
void pm4_set_sh_reg(struct words *w, uint32_t reg, uint32_t value);
/* The same for one register of the UCONFIG range. */
void pm4_set_uconfig_reg(struct words *w, uint32_t reg, uint32_t value);
/* Waits until a register's bits of mask equal value. */
void pm4_wait_reg(struct words *w, uint32_t reg, uint32_t value, uint32_t mask);
/* Signals an event that is not the end of work, such as PM4_EVENT_THREAD_TRACE_FINISH. */
void pm4_event(struct words *w, enum pm4_event event);

/* Invalidates every cache that shaders read through (instruction, scalar, L0, L1, L2) and writes L2 back, over the
 * whole address space. Later commands of this queue then see earlier writes of other agents. */
void pm4_acquire_mem(struct words *w);

/* Waits until all compute waves launched by this queue have ended. */
void pm4_cs_partial_flush(struct words *w);

/* At the end of the pipe, when all earlier work has ended: flushes the caches if requested, then writes the data, then
 * raises the interrupt. */
struct pm4_release {
  uint64_t address;                     /* of the data; aligned to 8 bytes for 64-bit data and clocks, otherwise to 4 */
  uint64_t value;                       /* for PM4_DATA_32 and PM4_DATA_64 */
  enum pm4_release_data data;           /* PM4_DATA_GPU_CLOCK writes the 64-bit 100 MHz counter */
  enum pm4_release_interrupt interrupt; /* raises it after the data is visible */
  uint32_t event_id;                    /* context of the interrupt: the id of the KFD event */
  bool flush; /* write back and invalidate L2 and the caches above it, so others see this queue's writes */
};
void pm4_release_mem(struct words *w, const struct pm4_release *r);

/* Waits until the 64 bits at address (8-byte aligned) are >= value. Works for all values of a timeline. */
void pm4_wait_mem64(struct words *w, uint64_t address, uint64_t value);
/* Waits until the 32 bits at address (4-byte aligned) are >= value, unsigned. On the low dword of a 64-bit timeline
 * that is correct only while the timeline is below 2^32, because the low dword then wraps around. The owner of the
 * timeline restarts its count before that, or uses pm4_wait_mem64. */
void pm4_wait_mem32(struct words *w, uint64_t address, uint32_t value);
/* Makes the host's writes to device memory over the bus visible: writes the flush request and polls until it is
 * done. */
void pm4_hdp_flush(struct words *w);

/* One kernel launch. */
struct pm4_dispatch {
  uint64_t entry;               /* first instruction, 256-byte aligned */
  uint32_t rsrc1, rsrc2, rsrc3; /* from the kernel descriptor; LDS_SIZE is replaced by lds_bytes */
  uint32_t lds_bytes;           /* static + dynamic local memory, at most 64 KiB */
  uint64_t scratch_base;        /* 256-byte aligned; 0 if there is no scratch */
  uint32_t scratch_waves;       /* number of waves per shader engine that the scratch memory has room for */
  uint32_t scratch_wave_bytes;  /* bytes per wave; rounded up to 256 */
  const uint32_t *user_data;    /* initial SGPRs, nuser <= 16 */
  unsigned nuser;
  uint32_t groups[3];  /* workgroups; each >= 1 */
  uint32_t threads[3]; /* work-items per workgroup; each >= 1 */
  bool wave32;
  bool counted; /* performance counters of the shaders count it */
};
/* Sets all registers of a launch and launches it. Does not acquire before or wait after; the recorder adds barriers. */
void pm4_dispatch(struct words *w, const struct pm4_dispatch *d);

/* Runs ndw dwords (< 2^20) at address (4-byte aligned), then continues after this packet. */
void pm4_indirect_buffer(struct words *w, uint64_t address, uint32_t ndw);
/* Continues in another indirect buffer and does not return; must be the last packet of this one. */
void pm4_chain(struct words *w, uint64_t address, uint32_t ndw);

/* For GPUs with several XCCs, in indirect buffers only: the XCCs of the mask execute the packets between pm4_pred_exec
 * and pm4_pred_exec_end, the others skip them. The end gets the position that the beginning returned. */
size_t pm4_pred_exec(struct words *w, uint32_t xccs);
void pm4_pred_exec_end(struct words *w, size_t at);

/* Writes count dwords to memory and waits for confirmation before the next packet. */
void pm4_write_data(struct words *w, uint64_t address, const uint32_t *values, unsigned count);
/* Copies a 64-bit clock, a memory word or a 32-bit register to memory. from is a memory address, a register's dword
 * address, or 0 for a clock. */
void pm4_copy_data(struct words *w, enum pm4_copy_sel source, uint64_t from, uint64_t to, bool is_64bit);

/* Filler of exactly ndw dwords. */
void pm4_nop(struct words *w, size_t ndw);

#endif
