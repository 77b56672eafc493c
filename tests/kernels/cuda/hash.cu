/* hash.h for every element. */
#include "hash.h"

HASH(BODY_KERNEL)
