// arch: sm_80
#include "atomics.cu"
