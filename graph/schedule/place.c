/* Scheduling: expressions of constants have no device and are computed where they are used. If several devices use one,
 * each gets its own copy of the nodes here. A value of such an expression that must be in memory is then in each
 * device's memory: a kernel does not read another device's memory. */
#include "scheduler.h"
#include <stdlib.h>

enum { MOST_DEVICES = 64 };

struct placing {
  struct uop **order;
  size_t n;
  uint32_t *at;                  /* by node id: index in order */
  uint8_t *device;               /* by index in order; MOST_DEVICES if none */
  uint64_t *users;               /* mask of the devices that use a node without a device */
  struct uop **copy_of;          /* for each node and device number: the node's copy for that device */
  uint8_t number[MOST_DEVICES];  /* numbers of the used devices */
  uint8_t devices[MOST_DEVICES]; /* the device with each number */
  unsigned ndevices;
};

/* Returns false if a device slot is too large for the masks. */
static bool find_devices(struct placing *p) {
  uint64_t seen = 0;
  for (size_t i = 0; i < p->n; i++) {
    const struct uop *u = p->order[i];
    p->at[u->id] = (uint32_t)i;
    p->device[i] = MOST_DEVICES;
    if (uop_names_device(u)) {
      if (u->aux >= MOST_DEVICES) return false;
      p->device[i] = u->aux;
    }
    for (unsigned k = 0; k < schedule_nsources(u) && p->device[i] == MOST_DEVICES; k++)
      p->device[i] = p->device[p->at[u->src[k]->id]];
    if (p->device[i] < MOST_DEVICES) seen |= UINT64_C(1) << p->device[i];
  }
  for (unsigned d = 0; d < MOST_DEVICES; d++)
    if (seen >> d & 1) p->number[d] = (uint8_t)p->ndevices, p->devices[p->ndevices++] = (uint8_t)d;
  return true;
}

/* Makes the copy of u for a device, over the sources' copies. IOTAs, and the RESHAPE or EXPAND that first gives a
 * number a shape, get an arg that nothing else uses, so that the copies differ. */
static struct uop *make_copy(struct scheduler *s, struct placing *p, struct uop *u, unsigned d, bool apart) {
  struct uop *few[2 * MAX_RANK + 1], **src = u->nsrc <= 2 * MAX_RANK + 1 ? few : malloc(u->nsrc * sizeof *src);
  union uop_arg arg = u->arg;
  if (!src) return NULL;
  for (unsigned k = 0; k < u->nsrc; k++)
    src[k] = k < schedule_nsources(u) ? p->copy_of[p->at[u->src[k]->id] * p->ndevices + d] : u->src[k];
  bool shapes = (u->op == OP_RESHAPE || u->op == OP_EXPAND) && op_info[u->src[0]->op].cls == OPCLASS_LEAF;
  if (apart && (u->op == OP_IOTA || shapes)) arg.i = p->devices[d] + 1;
  struct uop *v = uop_new(s->graph, u->op, u->dtype, u->lanes, arg, u->aux, src, u->nsrc);
  if (src != few) free(src);
  return v;
}

bool schedule_place_constants(struct scheduler *s, struct uop **roots, unsigned nroots) {
  struct placing p = {0};
  bool ok = false;
  p.order = uop_toposort(roots, nroots, &p.n);
  p.at = calloc(graph_node_count(s->graph) + 1, sizeof *p.at);
  p.device = malloc(p.n + 1);
  p.users = calloc(p.n + 1, sizeof *p.users);
  if (!p.order || !p.at || !p.device || !p.users) goto out;
  if ((ok = !find_devices(&p) || p.ndevices < 2)) goto out;
  for (size_t i = p.n; i-- > 0;)
    for (unsigned k = 0; k < schedule_nsources(p.order[i]); k++) {
      bool placed = p.device[i] < MOST_DEVICES;
      p.users[p.at[p.order[i]->src[k]->id]] |= placed ? UINT64_C(1) << p.device[i] : p.users[i];
    }
  p.copy_of = calloc((p.n + 1) * p.ndevices, sizeof *p.copy_of);
  if (!p.copy_of) goto out;
  for (size_t i = 0; i < p.n; i++) {
    bool placed = p.device[i] < MOST_DEVICES, apart = !placed && p.users[i] & (p.users[i] - 1);
    unsigned one = placed ? p.number[p.device[i]] : p.users[i] ? p.number[__builtin_ctzll(p.users[i])] : 0;
    struct uop **made = p.copy_of + i * p.ndevices;
    for (unsigned d = 0; d < p.ndevices; d++) {
      bool mine = apart ? p.users[i] >> p.devices[d] & 1 : d == one;
      if (mine && !(made[d] = make_copy(s, &p, p.order[i], d, apart))) goto out;
    }
    for (unsigned d = 0; d < p.ndevices && !apart; d++) made[d] = made[one];
  }
  for (unsigned i = 0; i < nroots; i++) {
    struct uop *const *made = p.copy_of + p.at[roots[i]->id] * p.ndevices;
    for (unsigned d = 0; d < p.ndevices; d++)
      if (made[d]) roots[i] = made[d], d = p.ndevices;
  }
  ok = !graph_error(s->graph);
out:
  if (!ok) schedule_no_memory(s);
  free(p.order);
  free(p.at);
  free(p.device);
  free(p.users);
  free(p.copy_of);
  return ok;
}
