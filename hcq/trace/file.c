/* Trace files: events as bytes, and bytes as events. */
#include "trace.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define STREAM_MAX (1ull << 30) /* bytes of the uncompressed stream */

#define KIND_INFO(enumerator, ...) [TRACE_##enumerator] = {KIND_INFO_(__VA_ARGS__)},
#define KIND_INFO_(name, numbers, number_args, least, most, blob_args, ...)                                            \
  name, numbers, number_args, least, most, blob_args, { __VA_ARGS__ }
const struct os_trace_kind_info os_trace_kinds[TRACE_KIND_COUNT] = {TRACE_KINDS(KIND_INFO)};

/* ---- writing ---- */

void os_trace_append(struct os_trace_bytes *b, const void *bytes, size_t n) {
  if (b->n + n > b->cap && !b->failed) {
    size_t cap = (b->n + n) * 2;
    uint8_t *p = realloc(b->p, cap);
    if (p)
      b->p = p, b->cap = cap;
    else
      b->failed = true;
  }
  if (b->failed || !n) return;
  memcpy(b->p + b->n, bytes, n);
  b->n += n;
}

struct os_trace_writer {
  gzFile file;
  struct os_trace_bytes record;
  int err;
};

static void write_bytes(struct os_trace_writer *w, const void *bytes, size_t n) {
  if (w->err) return;
  if (n && gzwrite(w->file, bytes, (unsigned)n) != (int)n) w->err = errno ? -errno : -EIO;
}

int os_trace_create(const char *file, const struct os_trace_header *header, struct os_trace_writer **out) {
  struct os_trace_writer *w = calloc(1, sizeof *w);
  if (!w) return -ENOMEM;
  errno = 0;
  w->file = gzopen(file, "wbe6");
  if (!w->file) {
    int err = errno ? -errno : -ENOMEM;
    free(w);
    return err;
  }
  uint32_t version = TRACE_VERSION;
  write_bytes(w, TRACE_MAGIC, 8);
  write_bytes(w, &version, 4);
  write_bytes(w, header->vendor, sizeof header->vendor);
  write_bytes(w, &header->index, 4);
  *out = w;
  return w->err;
}

void os_trace_write(struct os_trace_writer *w, const struct os_trace_event *e) {
  struct os_trace_bytes *r = &w->record;
  uint8_t kind = (uint8_t)e->kind;
  r->n = 0;
  os_trace_append(r, &kind, 1);
  os_trace_append(r, e->numbers, os_trace_kinds[e->kind].numbers * 8u);
  for (unsigned i = 0; i < e->nblobs; i++) {
    os_trace_append(r, &e->blobs[i].size, 4);
    os_trace_append(r, e->blobs[i].bytes, e->blobs[i].size);
  }
  uint32_t length = (uint32_t)r->n;
  if (r->failed || r->n > STREAM_MAX) w->err = -ENOMEM;
  write_bytes(w, &length, 4);
  write_bytes(w, r->p, r->n);
}

int os_trace_finish(struct os_trace_writer *w) {
  os_trace_write(w, &(struct os_trace_event){.kind = TRACE_END});
  int closed = gzclose(w->file), err = w->err ? w->err : closed == Z_OK ? 0 : -EIO;
  free(w->record.p);
  free(w);
  return err;
}

/* ---- reading ---- */

struct cursor {
  const uint8_t *p;
  size_t n, at;
  char *err;
  size_t errcap;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct cursor *c, const char *fmt, ...) {
  char text[160];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  snprintf(c->err, c->errcap, "not a trace: %s at byte %zu of the uncompressed stream", text, c->at);
  return -EINVAL;
}

static bool read_bytes(struct cursor *c, void *out, size_t n) {
  if (n > c->n - c->at) return false;
  memcpy(out, c->p + c->at, n);
  c->at += n;
  return true;
}

bool os_trace_next_run(const struct os_trace_blob *list, size_t *at, uint64_t *address, struct os_trace_blob *bytes) {
  if (list->size - *at < 12) return false;
  memcpy(address, list->bytes + *at, 8);
  memcpy(&bytes->size, list->bytes + *at + 8, 4);
  *at += 12;
  if (bytes->size > list->size - *at || !bytes->size) return false;
  bytes->bytes = list->bytes + *at;
  *at += bytes->size;
  return true;
}

static bool has_text(const struct os_trace_blob *b) { return b->size && memchr(b->bytes, 0, b->size); }

static bool well_formed(const struct os_trace_event *e) {
  size_t at = 0;
  uint64_t address;
  struct os_trace_blob run;
  switch (e->kind) {
  case TRACE_OPEN:
  case TRACE_UNSUPPORTED:
  case TRACE_READ_FILE: return has_text(&e->blobs[0]);
  case TRACE_LIST_DIR: return has_text(&e->blobs[0]) && (!e->blobs[1].size || !e->blobs[1].bytes[e->blobs[1].size - 1]);
  case TRACE_IOCTL:
    if (e->nblobs % 2) return false;
    for (unsigned i = 0; i < e->nblobs; i += 2)
      if (e->blobs[i].size != e->blobs[i + 1].size) return false;
    return true;
  case TRACE_HOST:
  case TRACE_DEVICE:
    while (os_trace_next_run(&e->blobs[0], &at, &address, &run)) {}
    return at == e->blobs[0].size;
  default: return true;
  }
}

static int parse_event(struct cursor *c, struct os_trace_event *e) {
  uint32_t length;
  uint8_t kind;
  *e = (struct os_trace_event){.offset = c->at};
  if (!read_bytes(c, &length, 4)) return refuse(c, "it ends within an event");
  if (length > c->n - c->at) return refuse(c, "an event of %u bytes, %zu are left", length, c->n - c->at);
  size_t end = c->at + length;
  if (!length || !read_bytes(c, &kind, 1) || kind >= TRACE_KIND_COUNT) return refuse(c, "an event of an unknown kind");
  const struct os_trace_kind_info *info = &os_trace_kinds[kind];
  e->kind = (enum os_trace_kind)kind;
  if (info->numbers * 8u > end - c->at) return refuse(c, "a short event (%s)", info->name);
  read_bytes(c, e->numbers, info->numbers * 8u);
  for (; c->at < end; e->nblobs++) {
    uint32_t size = 0;
    if (e->nblobs == TRACE_BLOBS || end - c->at < 4) return refuse(c, "a malformed event (%s)", info->name);
    read_bytes(c, &size, 4);
    if (size > end - c->at) return refuse(c, "%u bytes in an event (%s) that is shorter", size, info->name);
    e->blobs[e->nblobs] = (struct os_trace_blob){c->p + c->at, size};
    c->at += size;
  }
  if (e->nblobs < info->least_blobs || e->nblobs > info->most_blobs || !well_formed(e))
    return refuse(c, "a malformed event (%s)", info->name);
  return 0;
}

int os_trace_parse(uint8_t *stream, size_t size, struct os_trace *out, char *err, size_t errcap) {
  struct cursor c = {stream, size, 0, err, errcap};
  char magic[8];
  uint32_t version = 0;
  size_t cap = 0;
  int rc = 0;
  *out = (struct os_trace){.stream = stream};
  if (!read_bytes(&c, magic, 8) || memcmp(magic, TRACE_MAGIC, 8) != 0)
    rc = refuse(&c, "it does not begin with DBTRACE");
  else if (!read_bytes(&c, &version, 4) || version != TRACE_VERSION)
    rc = refuse(&c, "version %u, supported is %d", version, TRACE_VERSION);
  else if (!read_bytes(&c, out->header.vendor, 8) || !read_bytes(&c, &out->header.index, 4) || out->header.vendor[7])
    rc = refuse(&c, "a malformed header");
  while (!rc && (!out->nevents || out->events[out->nevents - 1].kind != TRACE_END)) {
    if (out->nevents == cap) {
      cap = cap ? cap * 2 : 256;
      struct os_trace_event *more = realloc(out->events, cap * sizeof *more);
      if (!more) {
        snprintf(err, errcap, "out of host memory");
        rc = -ENOMEM;
        break;
      }
      out->events = more;
    }
    rc = parse_event(&c, &out->events[out->nevents]);
    out->nevents += !rc;
  }
  if (!rc && c.at != c.n) rc = refuse(&c, "bytes after the end event");
  for (size_t i = 0; !rc && i < out->nevents; i++)
    if (out->events[i].kind == TRACE_UNSUPPORTED) {
      snprintf(err, errcap, "not supported: %.*s", (int)out->events[i].blobs[0].size,
               (const char *)out->events[i].blobs[0].bytes);
      rc = -ENOTSUP;
    }
  if (rc) os_trace_free(out);
  return rc;
}

void os_trace_free(struct os_trace *t) {
  free(t->events);
  free(t->stream);
  *t = (struct os_trace){0};
}

/* Reads the whole file. The gzip header that gzwrite makes has no fields outside the checksum, so its bytes must match
 * exactly. */
static int read_whole(const char *file, uint8_t **out, size_t *size, char *err, size_t errcap) {
  FILE *f = fopen(file, "rbe");
  long n = -1;
  *out = NULL;
  if (f && !fseek(f, 0, SEEK_END)) n = ftell(f);
  if (n >= 0 && (unsigned long)n <= STREAM_MAX) *out = malloc((size_t)n + 1);
  *size = *out && !fseek(f, 0, SEEK_SET) ? fread(*out, 1, (size_t)n, f) : 0;
  int rc = !f ? -errno : !*out ? -EINVAL : *size != (size_t)n ? -EIO : 0;
  if (rc) snprintf(err, errcap, "cannot read it: %s", strerror(-rc));
  if (f) fclose(f);
  if (!rc && (*size < 18 || memcmp(*out, "\x1f\x8b\x08\0\0\0\0\0\0\x03", 10) != 0)) {
    snprintf(err, errcap, "not a trace: the gzip header differs at byte 0 of the file");
    rc = -EINVAL;
  }
  if (rc) free(*out);
  return rc;
}

int os_trace_load(const char *file, struct os_trace *out, char *err, size_t errcap) {
  uint8_t *packed;
  size_t size = 0;
  int rc = read_whole(file, &packed, &size, err, errcap);
  if (rc) return rc;
  z_stream z = {.next_in = packed, .avail_in = (unsigned)size};
  struct os_trace_bytes stream = {0};
  uint8_t piece[1 << 16];
  int end = inflateInit2(&z, 15 + 16);
  while (end == Z_OK && stream.n <= STREAM_MAX && !stream.failed) {
    z.next_out = piece;
    z.avail_out = sizeof piece;
    end = inflate(&z, Z_NO_FLUSH);
    os_trace_append(&stream, piece, sizeof piece - z.avail_out);
    if (end == Z_BUF_ERROR || (end == Z_OK && !z.avail_in && z.avail_out)) break;
  }
  if (end != Z_STREAM_END || z.avail_in || stream.failed) {
    const char *why = end == Z_DATA_ERROR     ? "damaged"
                      : end == Z_STREAM_END   ? "followed by other bytes"
                      : stream.n > STREAM_MAX ? "too long"
                      : stream.failed         ? "too long for the host's memory"
                                              : "truncated";
    snprintf(err, errcap, "the gzip stream is %s at byte %lu of the file", why, z.total_in);
    rc = -EINVAL;
  }
  inflateEnd(&z);
  free(packed);
  if (rc) {
    free(stream.p);
    return rc;
  }
  return os_trace_parse(stream.p, stream.n, out, err, errcap);
}
