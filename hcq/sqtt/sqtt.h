/* Thread traces of AMD GPUs (SQTT): from the bytes that a shader engine wrote to packets, waves and instructions.
 *
 * Each shader engine writes a trace of its own. It contains when every wave of the engine started and ended, and, for
 * the waves of one SIMD (the traced one), a packet for each instruction that was issued. It contains no addresses of
 * instructions: they follow from the program's first instruction, the order of the packets, and whether branches were
 * taken. sqtt_decode does this if it is given the code.
 *
 * The format. A trace of RDNA3 and RDNA4 is a stream of packets of whole nibbles (4 bits), the low nibble of a byte
 * first. The low 3 to 8 bits of a packet are its type, so NOP is one nibble and the most frequent packets are 8 to 20
 * bits. Most packets contain the clocks since the packet before; longer times are packets of their own (TS_DELTA_...).
 * A trace begins with a LAYOUT_HEADER. A trace of CDNA is a stream of packets of whole 16 bits with a 4-bit type; tools
 * put 8 bytes before it that name the shader engine, and this decoder requires them. packets.def lists all packets and
 * names the sources.
 *
 * Times are clocks of the shader engine since the beginning of the trace. For CDNA they are multiples of 4. */
#ifndef DOORBELL_HCQ_SQTT_H
#define DOORBELL_HCQ_SQTT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "wire.h"

/* ---- packets ---- */

struct sqtt_packet {
  uint64_t offset; /* in nibbles */
  uint64_t time;   /* after the packet's own clocks */
  uint64_t bits;   /* the packet, without its bits above 63 */
  uint32_t repeat; /* number of packets: a run of NOP, or of zeros in CDNA, is returned as one; otherwise 1 */
  uint8_t type;    /* enum sqtt_type */
};

struct sqtt_code_row;
struct sqtt_reader {
  const uint8_t *data;
  uint64_t at, end; /* in nibbles */
  uint64_t time;
  uint64_t stamp_base; /* CDNA: what to subtract from absolute times */
  bool has_stamp;
  enum sqtt_layout layout;
  const struct sqtt_code_row *rows; /* by the packet's low byte */
};

/* Starts to read a trace. The reader borrows bytes. Fails with -EBADMSG if they are not a trace, and with -ENOTSUP if
 * the layout is not known. */
int sqtt_open(struct sqtt_reader *r, const void *bytes, size_t size);
/* Reads the next packet. Returns 1, or 0 at the end, or -EBADMSG with the offset in the message. The hardware writes
 * units of 32 bytes: the last unit of a complete trace may end inside a packet, which is not returned; then r->at is
 * its offset and is less than r->end. */
int sqtt_next(struct sqtt_reader *r, struct sqtt_packet *p);

struct sqtt_field {
  const char *name;
  uint8_t shift, width;
};
const char *sqtt_layout_name(enum sqtt_layout layout);
const char *sqtt_type_name(enum sqtt_type type);
/* One sentence without a full stop. */
const char *sqtt_type_meaning(enum sqtt_type type);
/* Returns the fields of a packet and their number. */
const struct sqtt_field *sqtt_fields(enum sqtt_layout layout, enum sqtt_type type, unsigned *n);
uint64_t sqtt_field_value(const struct sqtt_field *f, const struct sqtt_packet *p);

/* ---- instructions ---- */

/* Classes of instructions. OTHER are those of another SIMD, of which the trace names no wave. */
/* clang-format off */
#define SQTT_CLASSES(X)                                                                                                \
  X(UNKNOWN, "unknown") X(OTHER, "other SIMD") X(SALU, "scalar") X(SMEM, "scalar memory") X(VALU, "vector")            \
  X(MEMORY, "memory") X(LDS, "LDS") X(BRANCH, "branch") X(MESSAGE, "message") X(BARRIER, "barrier")                    \
  X(IMMEDIATE, "wait or hint") X(END, "end")
/* clang-format on */
#define X(name, text) SQTT_CLASS_##name,
enum sqtt_class { SQTT_CLASSES(X) SQTT_CLASS_COUNT };
#undef X
const char *sqtt_class_name(enum sqtt_class class);
/* The name of an INST packet's op, such as "VMEM_LOAD"; NULL if it is not known. */
const char *sqtt_op_name(enum sqtt_layout layout, unsigned op);

/* What is known of a program's instructions, for finding their addresses in a trace. */
struct sqtt_code_inst {
  uint8_t bytes;     /* 0 if no instruction starts here */
  uint8_t class;     /* enum sqtt_class */
  bool silent;       /* the trace has no packet for it */
  bool barrier_wait; /* s_barrier_wait of gfx12: the trace may have no packet for it, depending on how it was started */
  bool indirect;     /* continues at an address that a register holds; the trace may contain it */
  int32_t jump;      /* for branches: bytes from this instruction to the target */
};
struct sqtt_code {
  uint64_t program;                /* address of the first instruction in the GPU's memory; 0: any program */
  uint32_t entry;                  /* its offset in the code, in bytes */
  uint32_t size;                   /* of the code in bytes */
  const struct sqtt_code_inst *at; /* size / 4 elements, one per dword */
};

#define SQTT_NONE UINT32_MAX

struct sqtt_inst {
  uint64_t time;     /* when it was issued; for class IMMEDIATE, when it finished; for END, when the wave ended */
  uint32_t wave;     /* index of the wave */
  uint32_t next;     /* the wave's next instruction, SQTT_NONE if it is the last one */
  uint32_t pc;       /* offset in the code, SQTT_NONE if it is not known */
  uint32_t stall;    /* clocks that the wave did not issue before it: since its previous instruction or its start */
  uint32_t duration; /* clocks from its issue until its unit began to execute it, SQTT_NONE if the trace has none */
  uint8_t type;      /* of the packet: VALUINST, INST, IMMEDIATE, IMMEDIATE_MASK or WAVEEND */
  uint8_t op;        /* of INST */
  uint8_t class;     /* enum sqtt_class */
};

struct sqtt_wave {
  uint64_t start, end;         /* if the packet is missing: the beginning or the end of the trace */
  uint64_t program;            /* address of the program, in the GPU's memory; 0 if the trace does not contain it */
  uint32_t first, last;        /* its instructions: insts[first], then insts[.next]; SQTT_NONE if it has none */
  uint32_t insts;              /* their number */
  uint8_t sa, wgp, simd, slot; /* where it ran; CDNA: sa is the SH, wgp the CU */
  uint8_t lanes;               /* number of active lanes at its start; 0 if it is not known */
  bool has_start, has_end;     /* whether the trace contains the packets */
  bool traced;                 /* it ran on the SIMD whose instructions the trace contains */
  uint32_t code;               /* index of its code, SQTT_NONE if there is none */
  uint32_t pc;                 /* offset of the instruction after the last one; SQTT_NONE if it is not known */
  uint32_t jump;               /* a jump to an address in a register whose NEW_PC has not come, or SQTT_NONE */
};

struct sqtt_trace {
  enum sqtt_layout layout;
  /* The SIMD whose instructions the trace contains. CDNA traces all SIMDs of a CU (wgp) of SH 0. */
  struct {
    uint8_t sa, wgp, simd;
  } traced;
  struct sqtt_wave *waves; /* in the order in which they started */
  uint32_t nwaves;
  struct sqtt_inst *insts; /* in the order of the trace */
  uint32_t ninsts;
  uint64_t clocks;            /* time at the end */
  unsigned cut;               /* nibbles of a last packet whose other nibbles were not written; 0 if there is none */
  uint64_t count[SQTT_TYPES]; /* number of packets */
  /* The 100 MHz counter at the first and the last mark. */
  struct {
    uint64_t time, counter;
  } mark[2];
  uint32_t marks;
  uint64_t lost;      /* CDNA: packets that say that packets were lost before them */
  uint32_t restarted; /* waves that start in a slot whose wave did not end: its end was lost */
  /* Waves whose packets do not agree with the code, so the addresses of their further instructions are not known; and
   * jumps to addresses in registers that the trace does not contain. */
  uint32_t out_of_step, not_followed;
  struct {
    uint64_t offset; /* in nibbles */
    uint32_t wave, pc;
  } first_out_of_step;
};

/* Decodes a whole trace. codes may be NULL; then no addresses are known. Waves of a program use the code with the same
 * address, or the one with address 0. Returns 0, or -EBADMSG, -ENOTSUP or -ENOMEM; then t contains what was decoded up
 * to the error. Free t with sqtt_free in any case. */
int sqtt_decode(struct sqtt_trace *t, const void *bytes, size_t size, const struct sqtt_code *codes, unsigned ncodes);
void sqtt_free(struct sqtt_trace *t);
/* The frequency of the clocks in MHz, from the trace's marks; 0 if it has fewer than two. */
double sqtt_mhz(const struct sqtt_trace *t);

#endif
