/* The compiled versions of *.simd.c, and which one this host uses. The Makefile compiles these files once for each
 * level in its SIMD_LEVELS, from the least to the most capable, and defines SIMD_LEVEL_<level> for each. */
#ifndef DOORBELL_EMU_SIMD_LEVEL_H
#define DOORBELL_EMU_SIMD_LEVEL_H

#ifdef SIMD_LEVEL_base
#define SIMD_LEVEL_BASE_(X) X(base)
#else
#define SIMD_LEVEL_BASE_(X)
#endif
#ifdef SIMD_LEVEL_v2
#define SIMD_LEVEL_V2_(X) X(v2)
#else
#define SIMD_LEVEL_V2_(X)
#endif
#ifdef SIMD_LEVEL_v3
#define SIMD_LEVEL_V3_(X) X(v3)
#else
#define SIMD_LEVEL_V3_(X)
#endif
#ifdef SIMD_LEVEL_v4
#define SIMD_LEVEL_V4_(X) X(v4)
#else
#define SIMD_LEVEL_V4_(X)
#endif
/* X(level) for each compiled level, the least capable first. */
#define SIMD_LEVELS(X) SIMD_LEVEL_BASE_(X) SIMD_LEVEL_V2_(X) SIMD_LEVEL_V3_(X) SIMD_LEVEL_V4_(X)

/* Returns the index in SIMD_LEVELS of the best level that this host supports. Level 0 is assumed to be supported. */
unsigned simd_level(void);
#endif
