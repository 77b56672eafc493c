/* Kernels that the user brings, as operations on tensors. */
#include "call.h"
#include "size.h"
#include "../run/custom.h"
#include "../run/launch.h"
#include "../../graph/custom.h"
#include <stdlib.h>
#include <string.h>

static const char op[] = "custom";

struct launch {
  struct call c;
  db_program *program;
  const db_kernel_arg *arg;
  unsigned n, ninputs, nresults;
  db_tensor *in[MAX_KERNEL_ARGS];
  struct {
    unsigned rank;
    int64_t dim[MAX_RANK];
    enum dtype dtype;
  } result[MAX_KERNEL_ARGS];
  uint32_t grid[3], block[3];
};

static bool is_tensor(const db_kernel_arg *a) { return a->kind != DB_ARG_OUT && a->in.kind == DB_OPERAND_TENSOR; }

/* Reads one to three numbers of a grid or block. */
static bool read_dims(struct launch *l, const char *what, db_list list, uint32_t *out) {
  out[0] = out[1] = out[2] = 1;
  if (!list_ok(&l->c, list)) return false;
  if (list.n < 1 || list.n > 3) return call_fail(&l->c, "the %s has %u numbers, not 1 to 3", what, list.n), false;
  for (unsigned i = 0; i < list.n; i++) {
    if (dim_is_symbolic(list.v[i]))
      return call_fail(&l->c, "not supported: number %u of the %s is a symbolic size", i + 1, what), false;
    if (list.v[i] < 1 || list.v[i] > UINT32_MAX)
      return call_fail(&l->c, "number %u of the %s is %lld", i + 1, what, (long long)list.v[i]), false;
    out[i] = (uint32_t)list.v[i];
  }
  return true;
}

/* Stores the type and shape of the result that argument i is. */
static bool read_result(struct launch *l, unsigned i) {
  const db_kernel_arg *a = &l->arg[i];
  unsigned k = l->nresults++;
  if (a->kind == DB_ARG_INOUT) {
    const db_tensor *x = a->in.t;
    l->result[k].dtype = x->dtype, l->result[k].rank = x->rank;
    memcpy(l->result[k].dim, x->dim, x->rank * sizeof *x->dim);
  } else {
    if (!db_dtype_size(a->dtype))
      return call_fail(&l->c, "argument %u: %d is not an element type", i, (int)a->dtype), false;
    if (!call_shape(&l->c, a->shape, l->result[k].dim)) return false;
    l->result[k].dtype = (enum dtype)a->dtype, l->result[k].rank = a->shape.n;
  }
  if (dims_numel(l->result[k].rank, l->result[k].dim) > 0) return true;
  return call_fail(&l->c, "not supported: argument %u has no elements", i), false;
}

/* The bits of a number for a parameter of `size` bytes. */
static bool number_bits(db_operand o, uint32_t size, uint64_t *bits) {
  *bits = (uint64_t)o.i;
  if (o.kind == DB_OPERAND_FLOAT && size == 4) {
    float f = (float)o.f;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    *bits = u;
    return true;
  }
  if (o.kind == DB_OPERAND_FLOAT) return memcpy(bits, &o.f, sizeof o.f), size == 8;
  if (size == 8) return true;
  int64_t range = size && size < 8 ? INT64_C(1) << (8 * size) : 0;
  return o.kind == DB_OPERAND_INT && o.i < range && o.i >= -range / 2;
}

/* Checks that argument i fits its parameter. */
static bool check_argument(struct launch *l, unsigned i, const struct db_param *p) {
  static const char *const kinds[] = {"a buffer", "a value", "local memory"};
  const db_kernel_arg *a = &l->arg[i];
  uint64_t bits;
  if ((unsigned)a->kind > DB_ARG_INOUT)
    return call_fail(&l->c, "argument %u has the unknown kind %d", i, (int)a->kind), false;
  if (a->kind != DB_ARG_OUT && a->in.kind == DB_OPERAND_TENSOR && !a->in.t)
    return call_fail(&l->c, "argument %u is NULL", i), false;
  bool buffer = a->kind == DB_ARG_OUT || a->in.kind == DB_OPERAND_TENSOR;
  if (a->kind == DB_ARG_INOUT && !buffer) return call_fail(&l->c, "argument %u is a number, not a tensor", i), false;
  if (buffer != (p->kind == DB_PARAM_BUFFER))
    return call_fail(&l->c, "argument %u is a %s, but parameter %u of kernel %s is %s", i, buffer ? "tensor" : "number",
                     i, db_program_name(l->program), kinds[p->kind]),
           false;
  if (!buffer && a->in.kind == DB_OPERAND_INT && dim_is_symbolic(a->in.i))
    return call_fail(&l->c, "not supported: argument %u is a symbolic size; db_size_tensor makes a tensor of it", i),
           false;
  if (p->kind == DB_PARAM_LOCAL && (a->in.kind != DB_OPERAND_INT || a->in.i < 0))
    return call_fail(&l->c, "argument %u is not a number of bytes of local memory", i), false;
  uint32_t size = p->kind == DB_PARAM_LOCAL ? 4 : p->size;
  if (buffer || number_bits(a->in, size, &bits)) return true;
  return call_fail(&l->c, "argument %u, the %s number %.17g, is not a value of %u bytes, as kernel %s needs", i,
                   a->in.kind == DB_OPERAND_FLOAT ? "floating-point" : "whole",
                   a->in.kind == DB_OPERAND_FLOAT ? a->in.f : (double)a->in.i, size, db_program_name(l->program)),
         false;
}

/* Checks the program and the kinds of the arguments, and collects the tensors. */
static bool check_arguments(struct launch *l, DB_AT, db_list grid, db_list block) {
  unsigned n;
  char why[512];
  snprintf(why, sizeof why, "%s", db_error());
  if (!call_begin(&l->c, op, file, line, 0, NULL)) return false;
  if (!l->program)
    return call_fail(&l->c, "the program is NULL%s%s", *why ? "; the last failure was: " : "", why), false;
  const struct db_param *p = db_program_params(l->program, &n);
  const char *name = db_program_name(l->program);
  if (n != l->n)
    return call_fail(&l->c, "kernel %s has %u parameters, but %u arguments were given", name, n, l->n), false;
  if (n > MAX_KERNEL_ARGS)
    return call_fail(&l->c, "not supported: kernel %s has more than %d parameters", name, MAX_KERNEL_ARGS), false;
  if (!l->arg && n) return call_fail(&l->c, "the array of %u arguments is NULL", n), false;
  if (!read_dims(l, "grid", grid, l->grid) || !read_dims(l, "block", block, l->block)) return false;
  for (unsigned i = 0; i < n; i++) {
    if (!check_argument(l, i, &p[i])) return false;
    if (is_tensor(&l->arg[i])) l->in[l->ninputs++] = l->arg[i].in.t;
  }
  call_leave(&l->c);
  return true;
}

/* Checks one after the other that the tensors are on the device of the program. */
static bool check_devices(struct launch *l, DB_AT) {
  for (unsigned i = 0; i < l->n; i++) {
    if (!is_tensor(&l->arg[i])) continue;
    db_tensor *x = l->arg[i].in.t;
    if (!call_begin(&l->c, op, file, line, 1, &x)) return false;
    if (slot_group(l->c.slot)) return call_fail(&l->c, "not supported: argument %u is on several devices", i), false;
    if (slot_device(l->c.slot) != custom_device(l->program))
      return call_fail(&l->c, "argument %u is on %s, but the program is on %s; move the tensor with db_to", i,
                       db_device_name(slot_device(l->c.slot)), db_device_name(custom_device(l->program))),
             false;
    if (!dims_numel(x->rank, x->dim)) return call_fail(&l->c, "not supported: argument %u has no elements", i), false;
    call_leave(&l->c);
  }
  return true;
}

/* The numbers of parameter i. *input and *result count the tensors and results before it. */
static void param_numbers(const struct launch *l, unsigned i, unsigned *input, unsigned *result, struct uop **to) {
  const db_kernel_arg *a = &l->arg[i];
  const struct db_param *p = &db_program_params(l->program, NULL)[i];
  enum custom_param kind = CUSTOM_PARAM_VALUE;
  uint64_t what = 0;
  if (a->kind == DB_ARG_INOUT)
    kind = CUSTOM_PARAM_UPDATED, what = (uint64_t)(*input)++ << 32 | (*result)++;
  else if (a->kind == DB_ARG_OUT)
    kind = CUSTOM_PARAM_RESULT, what = (*result)++;
  else if (is_tensor(a))
    kind = CUSTOM_PARAM_INPUT, what = (*input)++;
  else
    number_bits(a->in, p->kind == DB_PARAM_LOCAL ? 4 : p->size, &what);
  to[0] = uop_index(rt.graph, kind);
  to[1] = uop_index(rt.graph, (int64_t)what);
}

/* The node of result k. */
static struct uop *result_node(const struct launch *l, int64_t program, unsigned k) {
  struct uop *src[MAX_KERNEL_ARGS + MAX_RANK + CUSTOM_NUMBERS + 4 * MAX_KERNEL_ARGS];
  unsigned n = 0, input = 0, result = 0, rank = l->result[k].rank;
  for (; n < l->ninputs; n++) src[n] = value_node(l->in[n]->value);
  for (unsigned i = 0; i < rank; i++) src[n++] = uop_index(rt.graph, l->result[k].dim[i]);
  struct uop **number = src + n;
  number[CUSTOM_RESULT] = uop_index(rt.graph, k);
  number[CUSTOM_RESULTS] = uop_index(rt.graph, l->nresults);
  number[CUSTOM_PARAMS] = uop_index(rt.graph, l->n);
  for (unsigned d = 0; d < 3; d++) {
    number[CUSTOM_GRID + d] = uop_index(rt.graph, l->grid[d]);
    number[CUSTOM_BLOCK + d] = uop_index(rt.graph, l->block[d]);
  }
  n += CUSTOM_NUMBERS;
  for (unsigned i = 0; i < l->nresults; i++) {
    src[n++] = uop_index(rt.graph, l->result[i].dtype);
    src[n++] = uop_index(rt.graph, dims_numel(l->result[i].rank, l->result[i].dim));
  }
  for (unsigned i = 0; i < l->n; i++, n += 2) param_numbers(l, i, &input, &result, src + n);
  return uop_new(rt.graph, OP_CUSTOM, l->result[k].dtype, 1, custom_arg(program, l->ninputs, rank), l->c.slot, src, n);
}

/* Makes result k, or the poisoned tensor that stands for it. */
static db_tensor *make_result(struct launch *l, DB_AT, unsigned k) {
  if (!call_begin(&l->c, op, file, line, l->ninputs, l->in)) return l->c.result;
  if (!call_device(&l->c, custom_device(l->program))) return l->c.result;
  int64_t program = slot_custom_number(l->c.slot, l->program);
  if (!program) return call_fail(&l->c, "out of memory");
  struct uop *node = result_node(l, program, k);
  if (graph_error(rt.graph)) return call_fail(&l->c, "%s", graph_error(rt.graph));
  return call_end_value(&l->c, value_new(node, l->c.slot, l->in, l->ninputs), l->result[k].dtype, l->result[k].rank,
                        l->result[k].dim);
}

/* Checks everything and describes the results. */
static bool prepare(struct launch *l, DB_AT, db_list grid, db_list block, bool all) {
  if (!check_arguments(l, file, line, grid, block) || !check_devices(l, file, line)) return false;
  if (!call_begin(&l->c, op, file, line, l->ninputs, l->in)) return false;
  for (unsigned i = 0; i < l->n; i++)
    if (l->arg[i].kind != DB_ARG_IN && !read_result(l, i)) return false;
  if (!l->nresults) return call_fail(&l->c, "no argument is a result; DB_OUT and DB_INOUT make results"), false;
  if (l->ninputs + l->nresults > MAX_KERNEL_ARGS)
    return call_fail(&l->c, "not supported: %u inputs and results, more than %d; a DB_INOUT is both",
                     l->ninputs + l->nresults, MAX_KERNEL_ARGS),
           false;
  if (l->nresults > 1 && !all) return call_fail(&l->c, "the array for %u results is NULL", l->nresults), false;
  call_leave(&l->c);
  return true;
}

db_tensor *db_custom_at(DB_AT, db_program *program, db_list grid, db_list block, db_tensor **results,
                        const db_kernel_arg *args, unsigned n) {
  struct launch *l = calloc(1, sizeof *l);
  struct call c;
  db_tensor *first;
  if (!l) return call_begin(&c, op, file, line, 0, NULL) ? call_fail(&c, "out of memory") : c.result;
  l->program = program, l->arg = args, l->n = n;
  bool good = prepare(l, file, line, grid, block, results != NULL);
  first = good ? make_result(l, file, line, 0) : l->c.result;
  if (results && (good || n)) results[0] = first;
  unsigned made = 1;
  for (unsigned i = 0, k = 0; args && results && i < n; i++) {
    if (args[i].kind == DB_ARG_IN || !k++) continue;
    if (good)
      results[made++] = make_result(l, file, line, k - 1);
    else /* poisoned like the first */
      results[made++] = call_begin(&c, op, file, line, 1, &first) ? call_same(&c, first) : c.result;
  }
  free(l);
  return first;
}
