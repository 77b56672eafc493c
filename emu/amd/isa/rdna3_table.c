/* The rows of rdna3.def as data. */
#include "rdna3.h"

#define A(field, kind, bits, type) {RDNA3_FIELD_##field, RDNA3_KIND_##kind, RDNA3_TYPE_##type, bits}

#define NONE                                             {0}
#define ROW(...)                                         {__VA_ARGS__}
#define OP(format, opcode, name, operands, flags, bytes) {#name, opcode, RDNA3_##format, bytes, flags, ROW operands},
const struct rdna3_op rdna3_ops[RDNA3_ROW_COUNT] = {
#include "rdna3.def"
};

#define X(n) #n,
const char *const rdna3_format_names[RDNA3_FORMAT_COUNT] = {RDNA3_FORMATS(X)};

#undef OP
#define M(format, opcode, takes, prints, op_sel, dpp) [RDNA3_##format][opcode] = {takes, prints, op_sel, dpp, true},
static const struct rdna3_modifiers modifiers[RDNA3_VOP3P + 1][1024] = {
#include "rdna3_modifiers.def"
};
#undef M

const struct rdna3_modifiers *rdna3_modifiers(unsigned format, unsigned opcode) {
  return &modifiers[format == RDNA3_VOP3SD ? RDNA3_VOP3 : format][opcode];
}
