/* Windows that slide over the last axes of a tensor: what convolutions and pools have in common. */
#ifndef DOORBELL_FRONTEND_WINDOW_H
#define DOORBELL_FRONTEND_WINDOW_H
#include "../tensor/call.h"

enum { WINDOW_AXES = 3 };

struct window {
  unsigned n; /* spatial axes, the last of the tensor */
  int64_t in[WINDOW_AXES], kernel[WINDOW_AXES], stride[WINDOW_AXES], dilation[WINDOW_AXES];
  int64_t before[WINDOW_AXES], after[WINDOW_AXES]; /* padding */
  int64_t out[WINDOW_AXES];
};

/* One number for all n axes or one for each, none meaning otherwise, each at least least and at most INT32_MAX. False
 * once the call has failed. */
bool window_list(struct call *c, const char *what, db_list list, unsigned n, int64_t otherwise, int64_t least,
                 int64_t *out);
/* The same for padding, where two numbers an axis are before and after. */
bool window_padding(struct call *c, db_list list, unsigned n, int64_t *before, int64_t *after);
/* Whether x has n spatial axes behind its channels, with a batch or without; takes their sizes. False once the call has
 * failed. */
bool window_input(struct call *c, struct window *w, const db_tensor *x, unsigned n);
/* The sizes of the output from the rest; ceil: windows may start inside the padding and reach past its end. False once
 * the call has failed. */
bool window_output(struct call *c, struct window *w, bool ceil);
/* How many elements an axis has from its first to behind the last that a window reads, padding included. */
int64_t window_reach(const struct window *w, unsigned axis);

/* x with w->before and w->after more elements on its last axes. */
struct expr window_pad(const struct window *w, struct expr x);
/* [..., padded sizes] as [..., outputs, kernel]: an index is output * stride + kernel * dilation. Out of x it is 0. */
struct expr window_slide(const struct window *w, struct expr x);
#endif
