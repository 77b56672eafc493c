/* Windows that slide over the last axes of a tensor, for convolutions and pools. */
#ifndef DOORBELL_FRONTEND_WINDOW_H
#define DOORBELL_FRONTEND_WINDOW_H
#include "../tensor/call.h"

enum { WINDOW_AXES = 3 };

struct window {
  unsigned n; /* number of spatial axes, which are the last axes of the tensor */
  int64_t in[WINDOW_AXES], kernel[WINDOW_AXES], stride[WINDOW_AXES], dilation[WINDOW_AXES];
  int64_t before[WINDOW_AXES], after[WINDOW_AXES]; /* padding */
  int64_t out[WINDOW_AXES];
};

/* Reads a list with one number for all n axes or one per axis; an empty list means `otherwise`. Each number is from
 * `least` to INT32_MAX. Returns false if the call has failed. */
bool window_list(struct call *c, const char *what, db_list list, unsigned n, int64_t otherwise, int64_t least,
                 int64_t *out);
/* The same for padding, which may have two numbers per axis, before and after. */
bool window_padding(struct call *c, db_list list, unsigned n, int64_t *before, int64_t *after);
/* Checks that x has n spatial axes after its channels, with or without a batch, and stores their sizes in w. Returns
 * false if the call has failed. */
bool window_input(struct call *c, struct window *w, const db_tensor *x, unsigned n);
/* Computes w->out from the other fields. With ceil, a window may extend past the end of the padding if it starts inside
 * the input or the padding before it. Returns false if the call has failed. */
bool window_output(struct call *c, struct window *w, bool ceil);
/* The number of elements along an axis from the first to the last that a window reads, including padding. */
int64_t window_reach(const struct window *w, unsigned axis);

/* x padded by w->before and w->after on its last axes. */
struct expr window_pad(const struct window *w, struct expr x);
/* Turns [..., padded sizes] into [..., outputs, kernel], which reads x at output * stride + kernel * dilation; 0
 * outside of x. */
struct expr window_slide(const struct window *w, struct expr x);
#endif
