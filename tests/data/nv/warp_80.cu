// arch: sm_80
#include "warp.cu"
