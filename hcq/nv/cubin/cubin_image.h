/* Shared by cubin.c and cubin_image.c. */
#ifndef DOORBELL_HCQ_NV_CUBIN_IMAGE_H
#define DOORBELL_HCQ_NV_CUBIN_IMAGE_H
#include "cubin.h"

/* Computes the layout: size and placed. */
int cubin_place(struct cubin *c);
/* Whether the section is named ".nv.constantN" (*kernel is then NULL) or ".nv.constantN.KERNEL". */
bool cubin_bank_of(const char *section, unsigned *bank, const char **kernel);

#endif
