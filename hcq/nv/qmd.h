/* Queue meta data (QMD) blocks: reads and writes their fields with the table in qmd.def.
 *
 * Wire format only, shared by encoder, emulator and tests. */
#ifndef DOORBELL_HCQ_NV_QMD_H
#define DOORBELL_HCQ_NV_QMD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The compute class determines the layout: V03 on sm_80 to sm_89, V04 on sm_90, V05 on sm_100 and sm_120. */
enum qmd_version { QMD_V03, QMD_V04, QMD_V05, QMD_VERSIONS };
#define QMD_MAX_WORDS 96u
#define QMD_ALIGN     256u
static inline unsigned qmd_words(enum qmd_version v) { return v == QMD_V03 ? 64 : 96; }
static inline unsigned qmd_major(enum qmd_version v) { return 3 + (unsigned)v; }

enum qmd_field {
#define QMD_FIELD(name, n, v3, v4, v5) QMD_##name,
#include "qmd.def"
#undef QMD_FIELD
  QMD_FIELDS
};

/* Values of the fields, the same in every layout (open-gpu-doc clcbc0qmd.h). */
enum {
  QMD_TYPE_QUEUE = 0,
  QMD_TYPE_GRID_NULL = 1,
  QMD_TYPE_GRID_CTA = 2,
  QMD_TYPE_GRID_GPC_CGA = 3,
  QMD_TYPE_GRID_GPU_CGA = 4,
  QMD_TYPE_GRID_GPU_GPC_CGA = 5,

  QMD_MEMBAR_L1_NONE = 0,
  QMD_MEMBAR_L1_SYSMEMBAR = 1,
  QMD_MEMBAR_L1_MEMBAR = 3,

  QMD_RELEASE_FOUR_WORDS = 0, /* payload, and the time at byte 8 */
  QMD_RELEASE_ONE_WORD = 1,
  QMD_RELEASE_TWO_WORDS = 2,
  QMD_RELEASE_FE_SYSMEMBAR = 1,
  QMD_REDUCTION_ADD = 0,
  QMD_REDUCTION_MIN = 1,
  QMD_REDUCTION_MAX = 2,
  QMD_REDUCTION_INC = 3,
  QMD_REDUCTION_DEC = 4,
  QMD_REDUCTION_AND = 5,
  QMD_REDUCTION_OR = 6,
  QMD_REDUCTION_XOR = 7,

  QMD_DEPENDENT_INCREMENT_PUT = 0,
  QMD_DEPENDENT_SCHEDULE = 1,
  QMD_DEPENDENT_INVALIDATE_COPY_SCHEDULE = 3,
  QMD_DEPENDENT_DECREMENT_DEPENDENCE = 4,

  QMD_CALL_LIMIT_NO_CHECK = 1,
};

struct qmd_place {
  uint16_t hi, lo;       /* bits of element 0; hi is 0xffff if the layout has no such field */
  uint8_t stride, shift; /* bits between elements; the field stores value >> shift */
};
struct qmd_field_info {
  const char *name;
  unsigned count; /* elements */
  struct qmd_place place[QMD_VERSIONS];
};

static inline const struct qmd_field_info *qmd_field_info(enum qmd_field f) {
#define AT(hi, lo)                     {hi, lo, 0, 0}
#define SHIFTED(hi, lo, shift)         {hi, lo, 0, shift}
#define ARRAY(hi, lo, stride, shift)   {hi, lo, stride, shift}
#define NONE                           {0xffff, 0, 0, 0}
#define QMD_FIELD(name, n, v3, v4, v5) {#name, n, {v3, v4, v5}},
  static const struct qmd_field_info fields[QMD_FIELDS] = {
#include "qmd.def"
  };
#undef QMD_FIELD
#undef AT
#undef SHIFTED
#undef ARRAY
#undef NONE
  return &fields[f];
}

static inline bool qmd_has(enum qmd_version v, enum qmd_field f) { return qmd_field_info(f)->place[v].hi != 0xffff; }
/* Width of the field in bits. */
static inline unsigned qmd_width(enum qmd_version v, enum qmd_field f) {
  const struct qmd_place *p = &qmd_field_info(f)->place[v];
  return p->hi - p->lo + 1u;
}

/* Value of element i of field f, shifted back; 0 if the layout does not have it. */
static inline uint64_t qmd_get(const uint32_t *qmd, enum qmd_version v, enum qmd_field f, unsigned i) {
  const struct qmd_field_info *info = qmd_field_info(f);
  const struct qmd_place *p = &info->place[v];
  if (p->hi == 0xffff || i >= info->count) return 0;
  unsigned bit = p->lo + i * p->stride, width = p->hi - p->lo + 1u;
  uint32_t value = qmd[bit / 32] >> bit % 32;
  if (width < 32) value &= (1u << width) - 1;
  return (uint64_t)value << p->shift;
}

/* Sets element i of field f. Returns false and writes nothing if the layout does not have the field and value is not 0,
 * if the shift would drop set bits of value, or if value does not fit. */
static inline bool qmd_set(uint32_t *qmd, enum qmd_version v, enum qmd_field f, unsigned i, uint64_t value) {
  const struct qmd_field_info *info = qmd_field_info(f);
  const struct qmd_place *p = &info->place[v];
  if (i >= info->count) return false;
  if (p->hi == 0xffff) return !value;
  unsigned bit = p->lo + i * p->stride, width = p->hi - p->lo + 1u;
  uint32_t max = width == 32 ? ~0u : (1u << width) - 1;
  if (value & ((1ull << p->shift) - 1) || value >> p->shift > max) return false;
  uint32_t *w = &qmd[bit / 32];
  *w = (*w & ~(max << bit % 32)) | (uint32_t)(value >> p->shift) << bit % 32;
  return true;
}

/* The same for a value split into X_LOWER and X_UPPER. */
static inline uint64_t qmd_get_pair(const uint32_t *qmd, enum qmd_version v, enum qmd_field lower, unsigned i) {
  unsigned shift = qmd_field_info(lower)->place[v].shift;
  return qmd_get(qmd, v, lower, i) | qmd_get(qmd, v, (enum qmd_field)(lower + 1), i) >> shift << (32 + shift);
}
static inline bool qmd_set_pair(uint32_t *qmd, enum qmd_version v, enum qmd_field lower, unsigned i, uint64_t value) {
  const struct qmd_field_info *info = qmd_field_info(lower);
  unsigned shift = info->place[v].shift;
  if (!qmd_has(v, lower) || i >= info->count) return false;
  uint64_t stored = value >> shift;
  if (value & ((1ull << shift) - 1) || stored >> 32 >> qmd_width(v, (enum qmd_field)(lower + 1))) return false;
  return qmd_set(qmd, v, lower, i, (stored & 0xffffffff) << shift) &&
         qmd_set(qmd, v, (enum qmd_field)(lower + 1), i, stored >> 32 << shift);
}

/* The lowest set bit that does not belong to a field, or -1. */
static inline int qmd_reserved_bit(const uint32_t *qmd, enum qmd_version v) {
  uint32_t rest[QMD_MAX_WORDS];
  for (unsigned i = 0; i < qmd_words(v); i++) rest[i] = qmd[i];
  for (unsigned f = 0; f < QMD_FIELDS; f++) {
    const struct qmd_field_info *info = qmd_field_info((enum qmd_field)f);
    const struct qmd_place *p = &info->place[v];
    if (p->hi == 0xffff) continue;
    unsigned width = p->hi - p->lo + 1u;
    uint32_t max = width == 32 ? ~0u : (1u << width) - 1;
    for (unsigned i = 0; i < info->count; i++) {
      unsigned bit = p->lo + i * p->stride;
      rest[bit / 32] &= ~(max << bit % 32);
    }
  }
  for (unsigned i = 0; i < qmd_words(v); i++)
    if (rest[i]) return (int)(i * 32) + __builtin_ctz(rest[i]);
  return -1;
}

#endif
