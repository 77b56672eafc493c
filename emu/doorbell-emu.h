/* libdoorbell-emu: AMD GPU machine code on the host's own memory. A GPU address is a host address: kernels read and
 * write whatever this process may. For whole machines behind the kernel driver's interface, see `doorbell emu`.
 *
 * All functions may be called from several threads. None prints, exits or raises a signal: an access to memory that the
 * process does not have is a fault of the launch. (That takes a handler for SIGSEGV and SIGBUS, installed by a launch
 * that finds another, which hands on what is not a kernel's.) */
#ifndef DOORBELL_EMU_PUBLIC_H
#define DOORBELL_EMU_PUBLIC_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Runs gfx1100 code in wave32 with remu's calling convention: gx*gy*gz workgroups of lx*ly*lz work-items, at most 1024;
 * s[0:1] is kernarg. The workgroup's ids: x, y, z in s13, s14, s15 when neither gy nor gz is 1; else x, y in s14, s15
 * when gy is not 1; else x in s15. v0 is x | y << 10 | z << 20 of the work-item. 64 KiB of LDS a workgroup, 64 KiB of
 * scratch a lane. Denormals of f32 are flushed, as kernel descriptors say by default. bytes is a multiple of 4.
 * 0, or a negative errno: -EINVAL, -ENOMEM, -EFAULT for what the kernel did wrong; db_emu_error() says what. */
int run_asm(const char *code, uint32_t bytes, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t lx, uint32_t ly,
            uint32_t lz, const uint64_t *kernarg);

/* Why the last call of this thread failed, one line; "" if none has. */
const char *db_emu_error(void);

enum db_emu_fault {
  DB_EMU_OK,
  DB_EMU_PAGE_FAULT, /* no such memory, or not the right to it */
  DB_EMU_ILLEGAL,    /* not an instruction, or not supported */
  DB_EMU_MISALIGNED,
  DB_EMU_TRAP,
  DB_EMU_TIMEOUT,    /* still running after timeout_ms */
  DB_EMU_BAD_LAUNCH, /* the request itself */
};

struct db_emu_launch {
  uint32_t size; /* sizeof(struct db_emu_launch) */

  /* What to run. */
  uint32_t wave_size;              /* 32 or 64; 0: 32 */
  const char *arch;                /* NULL: gfx1100 */
  const void *code;                /* the first instruction */
  uint64_t code_bytes;             /* a multiple of 4 */
  uint32_t grid[3], block[3];      /* workgroups; work-items of one */
  uint32_t rsrc1, rsrc2, rsrc3;    /* as in the kernel descriptor: registers, FLOAT_MODE, user SGPRs, ids, LDS_SIZE */
  uint32_t user_sgpr[16];          /* s0 and on; rsrc2 says how many */
  uint32_t scratch_bytes_per_lane; /* private segment; used when rsrc2 enables it */
  uint32_t timeout_ms;             /* 0: none */

  /* What became of it. */
  enum db_emu_fault fault;
  uint64_t fault_pc, fault_address;
  int32_t fault_lane; /* -1: not one lane's */
  uint32_t fault_group[3], fault_wave;
  char fault_text[512]; /* complete message: what, where, instruction */
  uint64_t instructions, waves, bytes_loaded, bytes_stored;
  /* Lanes that accessed LDS outside the workgroup's part, where hardware loads 0 and stores nothing, and the first. */
  uint64_t lds_outside;
  char lds_outside_text[512];
};
/* Runs a grid to its end. 0; -EFAULT with fault set; -EINVAL (fault DB_EMU_BAD_LAUNCH) or -ENOMEM. */
int db_emu_run(struct db_emu_launch *launch);

/* One workgroup, an instruction at a time. */
struct db_emu_group;
/* NULL on an error. launch is copied; what it points to must stay. */
struct db_emu_group *db_emu_open(const struct db_emu_launch *launch, const uint32_t group[3]);
void db_emu_close(struct db_emu_group *g);
unsigned db_emu_waves(const struct db_emu_group *g);
enum db_emu_step { DB_EMU_STEPPED, DB_EMU_AT_BARRIER, DB_EMU_ENDED, DB_EMU_FAULTED };
/* Executes a wave's next instruction. A wave at a barrier stays there until every other wave is at it or has ended. */
enum db_emu_step db_emu_step(struct db_emu_group *g, unsigned wave);
/* Address of the next instruction; its text as LLVM prints it. */
uint64_t db_emu_pc(const struct db_emu_group *g, unsigned wave);
int db_emu_disassemble(const struct db_emu_group *g, unsigned wave, char *buf, size_t cap);
/* Scalar registers by number: 0..105 SGPRs, 106 and 107 VCC, 125 M0, 126 and 127 EXEC, 253 SCC. 0 outside. */
uint32_t db_emu_read_sgpr(const struct db_emu_group *g, unsigned wave, unsigned n);
uint32_t db_emu_read_vgpr(const struct db_emu_group *g, unsigned wave, unsigned lane, unsigned n);
void db_emu_write_sgpr(struct db_emu_group *g, unsigned wave, unsigned n, uint32_t value);
void db_emu_write_vgpr(struct db_emu_group *g, unsigned wave, unsigned lane, unsigned n, uint32_t value);
/* The message of a fault. */
const char *db_emu_fault_text(const struct db_emu_group *g);

#ifdef __cplusplus
}
#endif
#endif
