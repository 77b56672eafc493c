/* doorbell prof --html: one file with the page of frontend/prof/page and the data of a session. The data are JSON,
 * compressed and in base64, so no text of a record can be taken for markup. */
#define _GNU_SOURCE
#include "cli.h"
#include "../prof/prof.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

extern const struct embedded page_files[] __attribute__((visibility("hidden")));

static const struct embedded *find_file(const char *name, size_t n) {
  const struct embedded *e = page_files;
  while (e->name && (strlen(e->name) != n || memcmp(e->name, name, n) != 0)) e++;
  return e->name ? e : NULL;
}

static void write_base64(FILE *f, const uint8_t *bytes, size_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < n; i += 3) {
    uint32_t word = (uint32_t)bytes[i] << 16;
    if (i + 1 < n) word |= (uint32_t)bytes[i + 1] << 8;
    if (i + 2 < n) word |= bytes[i + 2];
    fputc(digits[word >> 18], f);
    fputc(digits[word >> 12 & 63], f);
    fputc(i + 1 < n ? digits[word >> 6 & 63] : '=', f);
    fputc(i + 2 < n ? digits[word & 63] : '=', f);
  }
}

static bool write_data(FILE *f, const struct prof_session *s, const json_t *report) {
  char *text = NULL;
  size_t n = 0;
  FILE *memory = open_memstream(&text, &n);
  if (!memory) return false;
  prof_page_write(memory, s, report);
  bool good = !ferror(memory);
  good &= !fclose(memory);
  uLongf size = compressBound(n);
  uint8_t *compressed = good ? malloc(size) : NULL;
  good = compressed && compress2(compressed, &size, (const Bytef *)text, n, Z_DEFAULT_COMPRESSION) == Z_OK;
  if (good) write_base64(f, compressed, size);
  free(compressed);
  free(text);
  return good;
}

/* Returns the file that a line of the page includes by an attribute, src or href, or NULL. */
static const struct embedded *included(const char *line, size_t n, const char *attribute) {
  const char *begin = memmem(line, n, attribute, strlen(attribute));
  if (!begin) return NULL;
  begin += strlen(attribute);
  const char *end = memchr(begin, '"', n - (size_t)(begin - line));
  return end ? find_file(begin, (size_t)(end - begin)) : NULL;
}

static void write_file(FILE *f, const char *tag, const struct embedded *e) {
  fprintf(f, "<%s>\n", tag);
  fwrite(e->begin, 1, (size_t)(e->end - e->begin), f);
  fprintf(f, "</%s>\n", tag);
}

/* Replaces the lines that include files by the files, and fills the element of the data. */
static bool write_page(FILE *f, const struct prof_session *s, const json_t *report) {
  static const char data[] = "<script id=\"data\" type=\"application/octet-stream\">";
  const struct embedded *page = find_file("page.html", strlen("page.html")), *file;
  for (const char *line = (const char *)page->begin, *last = (const char *)page->end; line < last;) {
    const char *end = memchr(line, '\n', (size_t)(last - line));
    size_t n = end ? (size_t)(end - line) + 1 : (size_t)(last - line);
    if ((file = included(line, n, "<script src=\""))) {
      write_file(f, "script", file);
    } else if ((file = included(line, n, "<link rel=\"stylesheet\" href=\""))) {
      write_file(f, "style", file);
    } else if (n > sizeof data && !memcmp(line, data, sizeof data - 1)) {
      fputs(data, f);
      if (!write_data(f, s, report)) return false;
      fputs("</script>\n", f);
    } else {
      fwrite(line, 1, n, f);
    }
    line += n;
  }
  return true;
}

int prof_html_save(const struct command *self, const char *path, const struct prof_session *s, const json_t *report) {
  struct replacement r;
  int err = replace_begin(&r, path);
  if (err) return fail_work(self, "--html %s: %s", path, strerror(-err));
  bool made = write_page(r.file, s, report);
  err = replace_end(&r, made && !ferror(r.file));
  if (!made) return fail_work(self, "--html %s: out of memory", path);
  return err ? fail_work(self, "--html %s: %s", path, strerror(-err)) : EXIT_DONE;
}
