/* Bit fields of hardware words, named by their positions.
 *
 * A field F is two constants, F_SHIFT and F_WIDTH, which the tables of wire formats generate (BITS_ENUM). No C bit
 * fields: their layout is the compiler's business. */
#ifndef DOORBELL_HCQ_BITS_H
#define DOORBELL_HCQ_BITS_H
#include <stdint.h>

/* Table rows give a field as the documents print it: field[hi:lo]. */
#define BITS_ENUM(name, hi, lo) name##_SHIFT = (lo), name##_WIDTH = (hi) - (lo) + 1,
#define BITS_SPAN(hi, lo)       (((hi) - (lo) == 31 ? ~0u : ((1u << (((hi) - (lo) + 1) & 31)) - 1)) << (lo))

#define BITS_MAX(field)  (field##_WIDTH == 32 ? ~0u : (1u << (field##_WIDTH & 31)) - 1)
#define BITS_MASK(field) (BITS_MAX(field) << field##_SHIFT)
/* value placed in its field; bits that do not fit are dropped, so encoders check ranges first. */
#define BITS(field, value)           (((uint32_t)(value) & BITS_MAX(field)) << field##_SHIFT)
#define BITS_GET(field, word)        (((uint32_t)(word) >> field##_SHIFT) & BITS_MAX(field))
#define BITS_SET(field, word, value) (((uint32_t)(word) & ~BITS_MASK(field)) | BITS(field, value))

#endif
