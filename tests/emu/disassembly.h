/* Compares rdna3_decode and rdna3_print with LLVM's disassembler, word for word. */
#ifndef DOORBELL_TESTS_DISASSEMBLY_H
#define DOORBELL_TESTS_DISASSEMBLY_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>

#include "emu/amd/isa/rdna3.h"

/* The leading bits of each format's first word, and their number. Formats that the decoder does not support are left
 * out. */
static const struct {
  const char *name;
  uint32_t value;
  unsigned bits;
  int format; /* format of the rows, whose opcode is in bits [low, low + width) */
  unsigned low, width;
} encodings[] = {
    {"SOP2", 2, 2, RDNA3_SOP2, 23, 7},      {"SOPK", 0xb, 4, RDNA3_SOPK, 23, 5},
    {"SOP1", 0x17d, 9, RDNA3_SOP1, 8, 8},   {"SOPC", 0x17e, 9, RDNA3_SOPC, 16, 7},
    {"SOPP", 0x17f, 9, RDNA3_SOPP, 16, 7},  {"SMEM", 0x3d, 6, RDNA3_SMEM, 18, 8},
    {"VOP2", 0, 1, RDNA3_VOP2, 25, 6},      {"VOP1", 0x3f, 7, RDNA3_VOP1, 9, 8},
    {"VOPC", 0x3e, 7, RDNA3_VOPC, 17, 8},   {"VOP3", 0x35, 6, RDNA3_VOP3, 16, 10},
    {"VOP3P", 0xcc, 8, RDNA3_VOP3P, 16, 7}, {"VOPD", 0x32, 6, RDNA3_VOPD_X, 22, 4},
    {"DS", 0x36, 6, RDNA3_DS, 18, 8},       {"FLAT", 0x37, 6, RDNA3_FLAT, 18, 7},
    {"MUBUF", 0x38, 6, RDNA3_MUBUF, 18, 8}, {"MTBUF", 0x3a, 6, RDNA3_MTBUF, 15, 4},
};
enum { ENCODINGS = sizeof encodings / sizeof *encodings };

static LLVMDisasmContextRef disassembler(bool wave64) {
  LLVMInitializeAMDGPUTargetInfo();
  LLVMInitializeAMDGPUTargetMC();
  LLVMInitializeAMDGPUDisassembler();
  LLVMDisasmContextRef d = LLVMCreateDisasmCPUFeatures(
      "amdgcn-amd-amdhsa", "gfx1100", wave64 ? "+wavefrontsize64,-wavefrontsize32" : "", NULL, 0, NULL, NULL);
  assert_non_null(d);
  return d;
}

static uint64_t random_state;
static uint32_t random32(void) {
  random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(random_state >> 32) ^ (uint32_t)(random_state >> 11);
}

/* Random words of encoding e. In half of them fields are likely to be valid: small register numbers, constants, few
 * modifiers. */
static void random_words(unsigned e, uint32_t dw[4]) {
  for (int i = 0; i < 4; i++) dw[i] = random32();
  uint32_t how = random32();
  if (how & 1) dw[1] &= 0x00ffffff | random32();
  if (how & 2) dw[1] &= random32();
  if (how & 4) dw[0] &= ~0xf800u | random32();
  if (how & 8) dw[1] = (dw[1] & ~0x007f0000u) | 124u << 16;
  unsigned shift = 32 - encodings[e].bits;
  dw[0] = encodings[e].value << shift | (dw[0] & ((1u << shift) - 1));
  /* Source fields of vector formats sometimes select literals and DPP markers. */
  static const uint16_t marks[] = {255, 250, 233, 234, 253, 124, 106, 128, 240, 254, 251, 239, 126, 235, 248, 193};
  bool e32 =
      encodings[e].format == RDNA3_VOP1 || encodings[e].format == RDNA3_VOP2 || encodings[e].format == RDNA3_VOPC;
  if (how & 16) {
    uint32_t mark = how & 32 ? marks[how >> 8 & 15] : 256 + (how >> 8 & 127);
    if (e32 || encodings[e].format == RDNA3_VOPD_X) dw[0] = (dw[0] & ~0x1ffu) | mark;
    if (encodings[e].format == RDNA3_VOP3 || encodings[e].format == RDNA3_VOP3P) dw[1] = (dw[1] & ~0x1ffu) | mark;
  }
  /* Literals that equal inline constants. */
  static const uint32_t values[] = {0,      1,          64,     65,     0xfffffff0, 0x3f800000, 0x3c00, 0x3ff00000,
                                    0x3118, 0x3e22f983, 0xffff, 0xfff5, 0xbc00,     0xc0000000, 0x7f,   0x40100000};
  if (how & 1024) dw[e32 || encodings[e].value < 0xc ? 1 : 2] = values[how >> 11 & 15];
  if ((how & 0x30000) == 0x30000 && (encodings[e].format == RDNA3_VOP3 || encodings[e].format == RDNA3_VOP3P))
    dw[1] = (dw[1] & ~0x07fffe00u) | (uint32_t)marks[how >> 18 & 15] << 9 | (uint32_t)marks[how >> 22 & 15] << 18;
  else if (how & 64 && (encodings[e].format == RDNA3_VOP3 || encodings[e].format == RDNA3_VOP3P))
    dw[1] = (dw[1] & ~0x07fffe00u) | (256 + (how >> 16 & 255)) << 9 | (uint32_t)(256 + (how >> 24 & 255)) << 18;
}

/* Whether the words have a literal and a DPP word, which no instruction has room for. LLVM reads the word after the
 * instruction (also for a literal offset of a buffer instruction). */
static bool literal_and_dpp(const uint32_t dw[4]) {
  uint32_t src0 = dw[1] & 0x1ff, src1 = dw[1] >> 9 & 0x1ff, src2 = dw[1] >> 18 & 0x1ff;
  bool vop3 = dw[0] >> 26 == 0x35 || dw[0] >> 24 == 0xcc;
  return vop3 && (src0 == 250 || src0 == 233 || src0 == 234) && (src1 == 255 || src2 == 255);
}

/* Returns 0 if both agree, otherwise prints the difference into text. */
static int compare(LLVMDisasmContextRef d, bool wave64, const uint32_t dw[4], char *text, size_t cap) {
  char theirs[512] = "", ours[512];
  size_t size = LLVMDisasmInstruction(d, (uint8_t *)(uintptr_t)dw, 16, 0, theirs, sizeof theirs);
  struct rdna3_inst in;
  unsigned got = rdna3_decode_listing(dw, 4, 0, wave64, &in);
  rdna3_print(&in, ours, sizeof ours);
  if (!strncmp(ours, ".long", 5)) got = 0;
  bool buffer = dw[0] >> 26 == 0x38 || dw[0] >> 26 == 0x3a;
  if (literal_and_dpp(dw) || (buffer && dw[1] >> 24 == 255 && strchr(theirs, 0x2c))) size = 0;
  const char *t = theirs + (theirs[0] == '\t');
  /* LLVM marks in a comment what no assembler would accept: operands that do not exist, scalar registers that are not
   * aligned. Treat this as an invalid instruction. */
  if (strstr(t, "/*Invalid") || strstr(t, "/* Invalid") || strstr(t, "is not supported") || strstr(t, "Warning:"))
    size = 0;
  if (!size && !got) return 0;
  if (size == got && !strcmp(t, ours)) return 0;
  snprintf(text, cap, "%08x %08x %08x: LLVM %zu '%s', here %u '%s'", dw[0], dw[1], dw[2], size, t, got, ours);
  return 1;
}
#endif
