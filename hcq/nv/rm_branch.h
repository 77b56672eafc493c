/* Differences between driver branches: sizes of structures, and the branches where a structure has another layout.
 *
 * Source: NVIDIA open-gpu-kernel-modules 535.261.03, 545.29.06, 550.163.01, 555.58.02, 560.35.03, 565.77, 570.211.01,
 * 575.64.05, 580.65.06, 580.82.07, 580.142, 590.48.01 and 595.45.04, whose headers were compiled and compared. */
#ifndef DOORBELL_HCQ_NV_RM_BRANCH_H
#define DOORBELL_HCQ_NV_RM_BRANCH_H
#include <stddef.h>
#include <stdint.h>

/* X(structure, size in 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595) */
#define RM_BRANCH_SIZES(X)                                                                                             \
  /* calls */                                                                                                          \
  X(map_memory_dma, 56, 56, 56, 56, 56, 56, 56, 56, 64, 64, 64)                                                        \
  X(unmap_memory_dma, 40, 40, 48, 48, 48, 48, 48, 48, 48, 48, 48)                                                      \
  /* allocation parameters; shorter ones are the longer one's beginning */                                             \
  X(client_alloc, 108, 108, 108, 108, 108, 108, 120, 120, 120, 120, 120)                                               \
  X(vaspace_alloc, 48, 48, 48, 48, 48, 48, 48, 48, 56, 56, 56)                                                         \
  X(memory_alloc, 120, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128)                                               \
  X(channel_alloc, 360, 360, 360, 360, 360, 360, 368, 368, 368, 368, 368)                                              \
  /* controls */                                                                                                       \
  X(build_version, 776, 776, 776, 776, 1032, 1032, 1032, 1032, 1032, 1032, 1032)                                       \
  X(probed_ids, 256, 256, 256, 256, 256, 256, 256, 256, 384, 384, 384)                                                 \
  X(p2p_caps_v2, 4252, 4252, 8348, 8348, 8348, 8348, 8348, 8348, 8348, 8348, 8348)                                     \
  X(cc_capabilities, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6)                                                                  \
  X(class_list_v2, 644, 644, 700, 404, 404, 404, 404, 404, 804, 804, 804)                                              \
  X(name_string, 132, 132, 132, 132, 132, 132, 132, 132, 132, 132, 68)                                                 \
  X(gpu_info_v2, 516, 524, 524, 524, 524, 524, 524, 532, 564, 564, 564)                                                \
  X(engines_v2, 252, 256, 260, 260, 340, 340, 340, 340, 340, 340, 340)                                                 \
  X(gr_info_v2, 448, 472, 472, 472, 472, 472, 488, 488, 488, 496, 496)                                                 \
  X(fb_info_v2, 436, 444, 444, 444, 460, 460, 460, 460, 1028, 1028, 1028)                                              \
  X(ce_caps, 68, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136)                                                     \
  X(rated_tdp, 8, 8, 8, 8, 12, 12, 12, 12, 12, 12, 12)                                                                 \
  X(gpfifo_schedule, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3)                                                                  \
  /* UVM, whose requests carry no size */                                                                              \
  X(uvm_unregister_channel, 28, 28, 28, 28, 28, 28, 28, 28, 28, 12, 12)                                                \
  X(uvm_map_external_allocation, 1200, 1200, 9264, 9264, 9264, 9264, 9264, 9264, 9264, 9264, 9264)                     \
  X(uvm_free, 24, 24, 24, 24, 24, 24, 24, 24, 24, 16, 16)

enum { RM_BRANCHES = 11 };
#define RM_BRANCH_NAMES "535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595"

struct rm_branch {
  unsigned major;
#define RM_BRANCH_MEMBER(name, ...) uint16_t name;
  RM_BRANCH_SIZES(RM_BRANCH_MEMBER)
#undef RM_BRANCH_MEMBER
};

/* The branch with that index (0 to RM_BRANCHES - 1). */
static inline struct rm_branch rm_branch_at(unsigned i) {
  static const unsigned majors[RM_BRANCHES] = {535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595};
  struct rm_branch b = {.major = majors[i]};
#define RM_BRANCH_FILL(name, ...) b.name = ((const uint16_t[RM_BRANCHES]){__VA_ARGS__})[i];
  RM_BRANCH_SIZES(RM_BRANCH_FILL)
#undef RM_BRANCH_FILL
  return b;
}

/* The branch of a driver's major version; its major is 0 if the version is not supported. */
static inline struct rm_branch rm_branch_find(unsigned major) {
  for (unsigned i = 0; i < RM_BRANCHES; i++) {
    struct rm_branch b = rm_branch_at(i);
    if (b.major == major) return b;
  }
  return (struct rm_branch){0};
}

/* Branches where the layout differs. */
static inline int rm_branch_uvm_many_gpus(const struct rm_branch *b) {
  return b->major >= 550;
} /* 256 GPUs, before that 32 */
static inline int rm_branch_uvm_short(const struct rm_branch *b) {
  return b->major >= 590;
} /* uvm_free_590, uvm_unregister_channel_590 */

#endif
