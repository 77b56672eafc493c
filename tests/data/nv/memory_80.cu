// arch: sm_80
#include "memory.cu"
