// arch: sm_80
#include "grid_sync.cu"
