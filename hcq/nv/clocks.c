/* Stable clocks: RM locks a GPU's clocks to those at its rated power while a client of its arbiter asks for it.
 * NVIDIA's headers reserve the client OS for profilers. Any user may ask, unless the GPU is partitioned (MIG). RM does
 * not say that it takes the request back when the process ends, so a process that is killed may leave the clocks locked
 * until the next measurement ends. Source: NVIDIA open-gpu-kernel-modules, ctrl2080perf.h and kern_perf_pwr.c. */
#include "nv.h"
#include "rm.h"

int nv_stable_clocks(db_device *base, bool on) {
  struct nv_device *dev = (struct nv_device *)base;
  struct rm_rated_tdp p = {.client = RM_CLOCKS_OS, .action = on ? RM_CLOCKS_LOCK : RM_CLOCKS_DEFAULT};
  int rc = rm_ctrl(dev->machine, dev->subdevice, RM_CTRL_RATED_TDP_SET, &p, dev->machine->branch.rated_tdp);
  if (!rc) return 0;
  if (!on) return rm_error(base->name, rc, "unlocking the clocks; `nvidia-smi --reset-gpu-clocks` unlocks them");
  return rm_error(base->name, rc,
                  "the clocks are not stable, so times and cycles vary; the administrator can lock them with "
                  "`nvidia-smi --lock-gpu-clocks`");
}
