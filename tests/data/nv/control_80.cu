// arch: sm_80
#include "control.cu"
