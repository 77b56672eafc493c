#include "samples.h"
#include "../../error.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 32 };

/* Reasons by the number in a sample. Source: tinygrad, which compared its samples with CUPTI's. Numbers that it does
 * not name are DB_STALL_OTHER. */
static const struct layout {
  unsigned bytes;
  uint8_t reason[KEYS];
} layouts[] = {
    [PMA_SAMPLES_8] = {8,
                       {[1] = DB_STALL_MEMORY_THROTTLE,
                        [PMA_STALL_CONSTANT] = DB_STALL_CONSTANT,
                        [PMA_STALL_BARRIER] = DB_STALL_SYNC,
                        [6] = DB_STALL_FETCH,
                        [PMA_STALL_SHORT_SCOREBOARD] = DB_STALL_EXECUTION,
                        [PMA_STALL_LONG_SCOREBOARD] = DB_STALL_MEMORY,
                        [PMA_STALL_WAIT] = DB_STALL_EXECUTION,
                        [11] = DB_STALL_FETCH,
                        [12] = DB_STALL_PIPE,
                        [15] = DB_STALL_MEMORY_THROTTLE,
                        [PMA_STALL_SELECTED] = DB_STALL_NONE}},
    [PMA_SAMPLES_9] = {9,
                       {[1] = DB_STALL_MEMORY_THROTTLE,
                        [2] = DB_STALL_SYNC,
                        [5] = DB_STALL_FETCH,
                        [6] = DB_STALL_EXECUTION,
                        [8] = DB_STALL_MEMORY,
                        [9] = DB_STALL_EXECUTION,
                        [10] = DB_STALL_FETCH,
                        [11] = DB_STALL_PIPE,
                        [14] = DB_STALL_MEMORY_THROTTLE,
                        [15] = DB_STALL_PIPE,
                        [17] = DB_STALL_NONE}},
};
_Static_assert(DB_STALL_OTHER == 0, "reasons without a row");

static uint64_t bits(const uint8_t *bytes, unsigned at, unsigned n) {
  uint64_t v = 0;
  for (unsigned i = 0; i < n; i++) v |= (uint64_t)(bytes[(at + i) / 8] >> (at + i) % 8 & 1) << i;
  return v;
}

static struct db_pc_sample read_sample(const uint8_t *b, enum pma_format format, uint32_t id) {
  struct db_pc_sample s = {.gpc = (uint8_t)(id >> 5), .tpc = (uint8_t)(id >> 1 & 15), .sm = (uint8_t)(id & 1)};
  uint64_t key;
  if (format == PMA_SAMPLES_8) {
    s.pc = bits(b, 0, 45) << PMA_PC_SHIFT;
    key = bits(b, 45, 5);
    s.warp = (uint8_t)bits(b, 50, 6);
    s.issued = bits(b, 62, 1);
  } else {
    s.pc = bits(b, 8, 53) << PMA_PC_SHIFT;
    key = bits(b, 0, 6);
    s.warp = (uint8_t)(bits(b, 6, 2) << 4 | bits(b, 68, 4));
    s.issued = bits(b, 67, 1);
  }
  s.reason = key < KEYS ? layouts[format].reason[key] : DB_STALL_OTHER;
  return s;
}

/* Appends the data of a record to that of its id. There is room for every sample that it completes. */
static void add_data(struct pma_samples *out, struct pma_rest *rest, const uint8_t *record, unsigned bytes, uint32_t id,
                     enum pma_format format) {
  for (unsigned i = 0; i < bytes; i++) {
    rest->byte[rest->n++] = record[i < PMA_HEADER_AT ? i : i + 4];
    if (rest->n < layouts[format].bytes) continue;
    out->sample[out->n++] = read_sample(rest->byte, format, id);
    rest->n = 0;
  }
}

static int decode_records(struct pma_samples *out, struct pma_rest *rest, const uint8_t *stream, size_t size,
                          enum pma_format format, const uint8_t *known) {
  for (size_t at = 0; at < size; at += PMA_RECORD_BYTES) {
    uint32_t header;
    memcpy(&header, stream + at + PMA_HEADER_AT, sizeof header);
    unsigned bytes = BITS_GET(PMA_BYTES, header);
    uint32_t id = BITS_GET(PMA_ID_L, header) | BITS_GET(PMA_ID_H, header) << 8;
    if (id == PMA_RECORD_OF_PMA) continue;
    if (bytes > PMA_DATA_BYTES)
      return db_fail(-EBADMSG, "PC samples: the record at offset 0x%zx has %u bytes of data; %d are possible", at,
                     bytes, PMA_DATA_BYTES);
    if (!(known[id / 8] >> id % 8 & 1))
      return db_fail(-EBADMSG, "PC samples: the record at offset 0x%zx is of SM 0x%x, which was not set up", at, id);
    out->dropped += BITS_GET(PMA_DROPPED_L, header) | BITS_GET(PMA_DROPPED_H, header) << 3;
    if (BITS_GET(PMA_SD, header)) rest[id].n = 0;
    add_data(out, &rest[id], stream + at, bytes, id, format);
  }
  return 0;
}

int pma_decode(struct pma_samples *out, struct pma_rest rest[PMA_IDS], const void *stream, size_t size,
               enum pma_format format, const uint8_t known[PMA_IDS / 8]) {
  *out = (struct pma_samples){0};
  if (size % PMA_RECORD_BYTES)
    return db_fail(-EBADMSG, "PC samples: the record at offset 0x%zx is cut off",
                   size / PMA_RECORD_BYTES * PMA_RECORD_BYTES);
  /* the first sample of a record may have begun before */
  size_t most = size / PMA_RECORD_BYTES * (PMA_DATA_BYTES / layouts[format].bytes + 1);
  out->sample = malloc((most + 1) * sizeof *out->sample);
  int err = out->sample ? decode_records(out, rest, stream, size, format, known)
                        : db_fail(-ENOMEM, "PC samples: out of host memory");
  if (err) memset(rest, 0, PMA_IDS * sizeof *rest);
  return err;
}

void pma_samples_free(struct pma_samples *s) {
  free(s->sample);
  *s = (struct pma_samples){0};
}
