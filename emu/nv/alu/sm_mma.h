/* How builders pass the shapes of matrix operations to the operations. */
#ifndef DOORBELL_EMU_NV_SM_MMA_H
#define DOORBELL_EMU_NV_SM_MMA_H

enum sm_mma_type { SM_MMA_F16, SM_MMA_BF16, SM_MMA_TF32, SM_MMA_E4M3, SM_MMA_E5M2 };
/* arg: the elements of A and B; number of blocks of eight rows; number of blocks of 128 bits along k. */
#define SM_MMA_SHAPE(type_a, type_b, rows, k) ((type_a) | (type_b) << 4 | (uint32_t)(rows) << 8 | (uint32_t)(k) << 12)
#define SM_MMA_TYPE_A(arg)                    ((enum sm_mma_type)((arg) & 15))
#define SM_MMA_TYPE_B(arg)                    ((enum sm_mma_type)((arg) >> 4 & 15))
#define SM_MMA_ROWS(arg)                      ((int)((arg) >> 8 & 15))
#define SM_MMA_K(arg)                         ((int)((arg) >> 12 & 15))
/* imm of sparse operations: byte offset of the metadata's row, and the first of the four lanes that hold metadata. */
#define SM_MMA_SPARSE(row, lane) ((uint32_t)(row) | (uint64_t)(lane) << 32)
/* flag, in addition to those of sm_rowop.h */
enum { SM_MMA_NO_C = 1 << 16, SM_MMA_A_SHARED = 1 << 17, SM_MMA_TURN_A = 1 << 18, SM_MMA_TURN_B = 1 << 19 };
#endif
