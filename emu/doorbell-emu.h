/* libdoorbell-emu runs AMD GPU machine code on the memory of the calling process. A GPU address is a host address: a
 * kernel can read and write whatever this process can. To emulate whole machines behind the kernel driver's interface,
 * use `doorbell emu`.
 *
 * All functions may be called from several threads; one db_emu_group may be used by one thread at a time. No function
 * prints, exits or raises a signal. If a kernel accesses memory that the process does not have mapped, the launch fails
 * with a fault. To catch such accesses, each launch installs a handler for SIGSEGV and SIGBUS unless it is installed
 * already; the handler passes signals that no kernel caused to the handler that was installed before. */
#ifndef DOORBELL_EMU_PUBLIC_H
#define DOORBELL_EMU_PUBLIC_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Runs gfx1100 code in wave32 mode with remu's calling convention and waits until the grid has finished.
 *
 * code, bytes: the machine code; bytes is a multiple of 4. gx, gy, gz: the number of workgroups. lx, ly, lz: the number
 * of work-items per workgroup, at most 1024 in total. kernarg: the kernel arguments; s[0:1] holds this pointer.
 *
 * Registers at entry: if neither gy nor gz is 1, s13, s14 and s15 hold the workgroup's x, y and z; else if gy is not 1,
 * s14 and s15 hold x and y; else s15 holds x. v0 holds x | y << 10 | z << 20 of the work-item. A workgroup has 64 KiB
 * of LDS, a lane has 64 KiB of scratch. f32 denormals are flushed, which is the default of kernel descriptors.
 *
 * Returns 0 or a negative errno: -EINVAL for bad arguments, -ENOMEM, or -EFAULT if the kernel faulted. db_emu_error()
 * returns the message. */
int run_asm(const char *code, uint32_t bytes, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t lx, uint32_t ly,
            uint32_t lz, const uint64_t *kernarg);

/* Returns a one-line message for the last failed call of this thread, or "" if no call has failed. The string belongs
 * to the library; the next failing call of this thread overwrites it. */
const char *db_emu_error(void);

enum db_emu_fault {
  DB_EMU_OK,
  DB_EMU_PAGE_FAULT, /* the address is not mapped, or the access is not allowed */
  DB_EMU_ILLEGAL,    /* not an instruction, or not supported */
  DB_EMU_MISALIGNED,
  DB_EMU_TRAP,
  DB_EMU_TIMEOUT,    /* the grid was still running after timeout_ms */
  DB_EMU_BAD_LAUNCH, /* the launch request is invalid */
};

struct db_emu_launch {
  uint32_t size; /* set by the caller to sizeof(struct db_emu_launch) */

  /* Input: what to run. */
  uint32_t wave_size;              /* 32 or 64; 0 means 32 */
  const char *arch;                /* NULL means gfx1100 */
  const void *code;                /* the first instruction; aligned to 4 bytes */
  uint64_t code_bytes;             /* a multiple of 4 */
  uint32_t grid[3], block[3];      /* number of workgroups; work-items per workgroup */
  uint32_t rsrc1, rsrc2, rsrc3;    /* as in the kernel descriptor: registers, FLOAT_MODE, user SGPRs, ids, LDS_SIZE */
  uint32_t user_sgpr[16];          /* initial s0, s1, ...; rsrc2 holds their number */
  uint32_t scratch_bytes_per_lane; /* private segment; used if rsrc2 enables it */
  uint32_t timeout_ms;             /* in milliseconds; 0 means no timeout */

  /* Output: the result. */
  enum db_emu_fault fault;
  uint64_t fault_pc, fault_address;                         /* of the instruction; of the data that it accessed */
  int32_t fault_lane;                                       /* -1 if the fault is not of a single lane */
  uint32_t fault_group[3], fault_wave;                      /* workgroup id; wave number in the workgroup */
  char fault_text[512];                                     /* one-line message: cause, place, instruction */
  uint64_t instructions, waves, bytes_loaded, bytes_stored; /* totals; bytes are those of global memory */
  /* The number of lanes that accessed LDS outside the workgroup's allocation, and a message for the first of them.
   * Hardware loads 0 there and drops stores; the launch does the same and continues. */
  uint64_t lds_outside;
  char lds_outside_text[512];
};
/* Runs a grid until it has finished and fills the output fields of launch. Returns 0; -EFAULT if the kernel faulted or
 * timed out (launch->fault says which); -EINVAL if the request is invalid (DB_EMU_BAD_LAUNCH); or -ENOMEM. */
int db_emu_run(struct db_emu_launch *launch);

/* One workgroup that the caller executes instruction by instruction. */
struct db_emu_group;
/* Opens the workgroup with the given ids (x, y, z). Returns NULL on an error; db_emu_error() returns the message.
 * launch is copied, but the code that it points to must stay valid until db_emu_close. */
struct db_emu_group *db_emu_open(const struct db_emu_launch *launch, const uint32_t group[3]);
/* Frees the group. A no-op if g is NULL. */
void db_emu_close(struct db_emu_group *g);
/* Returns the number of waves of the group; they are numbered from 0. */
unsigned db_emu_waves(const struct db_emu_group *g);
/* The state of a wave after a step. After DB_EMU_FAULTED, db_emu_fault_text returns the message. */
enum db_emu_step { DB_EMU_STEPPED, DB_EMU_AT_BARRIER, DB_EMU_ENDED, DB_EMU_FAULTED };
/* Executes the next instruction of a wave. A wave at a barrier stays there until every other wave has reached the
 * barrier or has ended. A wave number that does not exist counts as ended. */
enum db_emu_step db_emu_step(struct db_emu_group *g, unsigned wave);
/* db_emu_pc returns the address of the wave's next instruction, or 0 if it has none. db_emu_disassemble writes the text
 * of that instruction as LLVM prints it, and returns its length. */
uint64_t db_emu_pc(const struct db_emu_group *g, unsigned wave);
int db_emu_disassemble(const struct db_emu_group *g, unsigned wave, char *buf, size_t cap);
/* Read and write a register of a wave. Scalar registers by number n: 0 to 105 are SGPRs, 106 and 107 are VCC, 125 is
 * M0, 126 and 127 are EXEC, 253 is SCC. For vector registers n is 0 to 255, and lane is 0 to 31, or 0 to 63 in wave64.
 * Reading a register that does not exist returns 0; writing to it is a no-op. */
uint32_t db_emu_read_sgpr(const struct db_emu_group *g, unsigned wave, unsigned n);
uint32_t db_emu_read_vgpr(const struct db_emu_group *g, unsigned wave, unsigned lane, unsigned n);
void db_emu_write_sgpr(struct db_emu_group *g, unsigned wave, unsigned n, uint32_t value);
void db_emu_write_vgpr(struct db_emu_group *g, unsigned wave, unsigned lane, unsigned n, uint32_t value);
/* Returns the message of the group's last fault, or "" if it has none. The string belongs to the group. */
const char *db_emu_fault_text(const struct db_emu_group *g);

#ifdef __cplusplus
}
#endif
#endif
