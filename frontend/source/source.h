/* Code that people bring: source text, which installed compilers and ptxas make an image of, and clang's offload
 * bundles.
 */
#ifndef DOORBELL_FRONTEND_SOURCE_H
#define DOORBELL_FRONTEND_SOURCE_H
#include "../interop.h"

enum { SOURCE_TIMEOUT_S = 120 }; /* for a compiler or ptxas */

/* ---- compile.c ---- */
/* Stores the language of a file: PTX is found by its text, others by the file's extension. Returns false if it is no
 * source. */
bool source_language(const char *file, const void *text, size_t size, enum db_language *l);
/* Whether a source file can only be for an NVIDIA GPU. */
bool source_is_nvidia(enum db_language l, const char *text, size_t size);
/* Compiles source to a code object or a cubin for arch. If file is not NULL, the compiler reads that file, so that
 * relative includes work; for PTX, and if file is NULL, it reads text. The caller frees *image. Returns 0, or a
 * negative errno with the compiler's message in err. */
int source_compile(enum db_language l, const char *file, const void *text, size_t size, const char *arch, void **image,
                   size_t *image_size, char *err, size_t cap);

/* ---- ptx.c ---- */
bool source_is_ptx(const void *bytes, size_t size);
bool source_is_cubin(const void *bytes, size_t size);
/* $PTXAS, or ptxas on PATH or in the default location. The caller frees it. NULL if there is none. */
char *source_ptxas(void);
/* Assembles PTX text to a cubin for arch; the caller frees *image. Returns 0, or -1 with ptxas's message in err. */
int source_assemble_ptx(const char *arch, const void *text, size_t size, void **image, size_t *image_size, char *err,
                        size_t errcap);

/* ---- bundle.c: clang's offload bundles ---- */
bool bundle_is(const void *bytes, size_t size);
/* Extracts the code object for arch (NULL: the only one for an AMD GPU); the caller frees *image. Returns 0, or a
 * negative errno with the reason in err. */
int bundle_extract(const void *bytes, size_t size, const char *arch, void **image, size_t *image_size, char *err,
                   size_t cap);
#endif
