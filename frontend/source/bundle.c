/* Offload bundles: files in which clang stores code objects for several targets, possibly compressed. Source: clang's
 * documentation, "Clang Offload Bundler". */
#include "source.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const char magic[] = "__CLANG_OFFLOAD_BUNDLE__", compressed_magic[] = "CCOB";
enum { MAGIC = sizeof magic - 1, COMPRESSED_MAGIC = sizeof compressed_magic - 1, MOST_UNPACKED = 1 << 30 };

struct bundle {
  const uint8_t *bytes;
  size_t size;
  uint8_t *unpacked; /* owns bytes if the file was compressed */
};
struct entry {
  const uint8_t *code, *id; /* id: "hipv4-amdgcn-amd-amdhsa--gfx1100:xnack-" */
  uint64_t size, id_size;
};

bool bundle_is(const void *bytes, size_t size) {
  return (size >= MAGIC && !memcmp(bytes, magic, MAGIC)) ||
         (size >= COMPRESSED_MAGIC && !memcmp(bytes, compressed_magic, COMPRESSED_MAGIC));
}

static uint64_t number(const uint8_t *p, unsigned bytes) {
  uint64_t v = 0;
  memcpy(&v, p, bytes);
  return v;
}

/* Decompresses the bundle. The header of a compressed bundle: version, method, file size (from version 2), uncompressed
 * size, a hash of 64 bits. Sizes have 32 bits before version 3. Returns 0, or a negative errno with the reason in
 * err. */
static int unpack(struct bundle *b, char *err, size_t cap) {
  enum { ZLIB, ZSTD, HASH = 8 };
  if (b->size < COMPRESSED_MAGIC || memcmp(b->bytes, compressed_magic, COMPRESSED_MAGIC)) return 0;
  unsigned version = b->size >= 8 ? (unsigned)number(b->bytes + 4, 2) : 0, width = version >= 3 ? 8 : 4;
  size_t header = 8 + (version >= 2 ? 2 : 1) * width + HASH;
  if (version < 1 || version > 3 || b->size < header)
    return snprintf(err, cap, "not supported: a compressed offload bundle of version %u", version), -ENOTSUP;
  unsigned method = (unsigned)number(b->bytes + 6, 2);
  uint64_t size = number(b->bytes + header - HASH - width, width);
  if (method != ZLIB)
    return snprintf(err, cap,
                    "not supported: an offload bundle compressed with %s; unpack it with "
                    "clang-offload-bundler -unbundle, or build with --no-offload-compress",
                    method == ZSTD ? "zstd" : "an unknown method"),
           -ENOTSUP;
  uLongf length = (uLongf)size;
  if (size > MOST_UNPACKED || !(b->unpacked = malloc(size ? size : 1)))
    return snprintf(err, cap, "an offload bundle of %llu bytes is too large for the memory", (unsigned long long)size),
           -ENOMEM;
  if (uncompress(b->unpacked, &length, b->bytes + header, (uLong)(b->size - header)) != Z_OK || length != size)
    return snprintf(err, cap, "the offload bundle's compressed data is damaged"), -EINVAL;
  b->bytes = b->unpacked;
  b->size = size;
  return 0;
}

/* Reads the entry of the table at *at. Returns false if the file is truncated. */
static bool next_entry(const struct bundle *b, size_t *at, struct entry *e) {
  enum { FIXED = 24 };
  if (b->size - *at < FIXED) return false;
  const uint8_t *p = b->bytes + *at;
  uint64_t offset = number(p, 8);
  *e = (struct entry){.size = number(p + 8, 8), .id_size = number(p + 16, 8), .id = p + FIXED};
  if (e->id_size > b->size - *at - FIXED || offset > b->size || e->size > b->size - offset) return false;
  e->code = b->bytes + offset;
  *at += FIXED + (size_t)e->id_size;
  return true;
}

/* The processor in an entry's name, "gfx..." without features; NULL for a host entry. */
static const char *processor(const struct entry *e, char *buf, size_t cap) {
  snprintf(buf, cap, "%.*s", (int)(e->id_size < cap ? e->id_size : cap - 1), (const char *)e->id);
  char *at = strstr(buf, "amdgcn");
  if (!at || !(at = strstr(at, "gfx"))) return NULL;
  at[strcspn(at, ":")] = 0;
  return at;
}

int bundle_extract(const void *bytes, size_t size, const char *arch, void **image, size_t *image_size, char *err,
                   size_t cap) {
  struct bundle b = {.bytes = bytes, .size = size};
  struct entry e, found = {0};
  char name[160], others[256] = "";
  size_t at = MAGIC + 8, named = 0;
  unsigned fits = 0;
  int rc = unpack(&b, err, cap);
  if (rc) goto out;
  rc = -EINVAL;
  if (b.size < at || memcmp(b.bytes, magic, MAGIC)) {
    snprintf(err, cap, "the offload bundle is damaged");
    goto out;
  }
  uint64_t count = number(b.bytes + MAGIC, 8);
  for (uint64_t i = 0; i < count; i++) {
    if (!next_entry(&b, &at, &e)) {
      snprintf(err, cap, "the offload bundle is cut off in entry %llu of %llu", (unsigned long long)i + 1,
               (unsigned long long)count);
      goto out;
    }
    const char *gpu = processor(&e, name, sizeof name);
    if (!gpu || !e.size) continue;
    if (named < sizeof others)
      named += (size_t)snprintf(others + named, sizeof others - named, "%s%s", named ? ", " : "", gpu);
    if (arch && strcmp(gpu, arch) != 0) continue;
    found = e;
    fits++;
  }
  rc = -ENOENT;
  if (!fits)
    snprintf(err, cap, "the offload bundle has no code object for %s%s%s", arch ? arch : "a GPU of AMD",
             named ? "; there is " : "", others);
  else if (fits > 1)
    snprintf(err, cap, "the offload bundle has %u code objects: %s; --arch chooses one", fits, others);
  else if (!(*image = malloc(found.size)))
    rc = -ENOMEM, snprintf(err, cap, "out of memory for %llu bytes", (unsigned long long)found.size);
  else
    rc = 0, *image_size = found.size, memcpy(*image, found.code, found.size);
out:
  free(b.unpacked);
  return rc;
}
