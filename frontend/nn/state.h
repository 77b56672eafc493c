/* What checkpoints save and restore of optimizers and averages, and how a tensor from a file is assigned. */
#ifndef DOORBELL_FRONTEND_NN_STATE_H
#define DOORBELL_FRONTEND_NN_STATE_H
#include "../nn.h"

/* State i of o or e, and its name; NULL past the end. */
db_tensor *optim_state(const db_optim *o, unsigned i, char *name, size_t cap);
db_tensor *ema_state(const db_ema *e, unsigned i, char *name, size_t cap);

/* ---- load.c ---- */
/* Assigns a tensor from a file, and realizes the result. A target of another float type takes the type of t, unless
 * convert is set. Returns 0, or a negative errno with a message that begins with name. */
int assign_loaded(const char *name, db_tensor *target, db_tensor *t, bool convert);
/* Adds a name to a list for a message, which says how many did not fit. */
struct names {
  char text[300];
  unsigned n, shown;
};
void add_name(struct names *l, const char *name);
const char *names_text(struct names *l);
#endif
