/* Kernels that the user brings: their launches, as kernels of executables. */
#include "custom.h"
#include "launch.h"
#include "../../graph/custom.h"
#include "../../hcq/object.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct custom_kernel {
  struct kernel kernel;
  uint32_t refs;
  db_program *program;                /* a reference: it has the names and the image */
  struct kernel_argument arguments[]; /* followed by the parameters */
};

db_device *custom_device(const db_program *program) { return program->dev; }

/* The buffer that an INDEX reads or writes. */
static uint64_t buffer_of(const struct uop *index) { return (uint64_t)index->src[0]->arg.i; }

/* Argument i of the launch. The stores of the ast are its results. */
static struct kernel_argument argument_of(const struct uop *ast, unsigned i) {
  const struct uop *launch = ast->src[0]->src[1];
  unsigned at = custom_param_at(launch, i);
  uint64_t what = (uint64_t)custom_number(launch, at + 1);
  switch ((enum custom_param)custom_number(launch, at)) {
  case CUSTOM_PARAM_INPUT: return (struct kernel_argument){true, buffer_of(launch->src[what]->src[0])};
  case CUSTOM_PARAM_RESULT:
  case CUSTOM_PARAM_UPDATED: return (struct kernel_argument){true, buffer_of(ast->src[what & UINT32_MAX]->src[0])};
  case CUSTOM_PARAM_VALUE: break;
  }
  return (struct kernel_argument){false, what};
}

const struct kernel *custom_kernel(const struct schedule_item *item, db_program *program) {
  const struct uop *launch = item->ast->src[0]->src[1];
  unsigned n = (unsigned)custom_number(launch, CUSTOM_PARAMS);
  struct custom_kernel *c = calloc(1, sizeof *c + n * (sizeof *c->arguments + sizeof(struct kernel_param)));
  if (!c) return NULL;
  struct kernel_param *params = (struct kernel_param *)(c->arguments + n);
  c->refs = 1;
  c->program = db_program_retain(program);
  snprintf(c->kernel.name, sizeof c->kernel.name, "%s", db_program_name(program));
  c->kernel.entry = db_program_name(program);
  c->kernel.image = program->image, c->kernel.image_size = program->image_size;
  for (unsigned d = 0; d < 3; d++) {
    c->kernel.grid[d] = (uint32_t)custom_number(launch, CUSTOM_GRID + d);
    c->kernel.block[d] = (uint32_t)custom_number(launch, CUSTOM_BLOCK + d);
  }
  for (unsigned i = 0; i < n; i++) {
    const struct db_param *p = &program->params[i];
    c->arguments[i] = argument_of(item->ast, i);
    params[i] =
        (struct kernel_param){p->offset, p->size, p->kind == DB_PARAM_BUFFER, p->kind == DB_PARAM_LOCAL, p->name};
  }
  for (unsigned k = 0; k < item->nbufs; k++)
    c->kernel.bytes += (uint64_t)item->bufs[k]->src[0]->arg.i * dtype_info[item->bufs[k]->dtype].size;
  c->kernel.arguments = c->arguments, c->kernel.params = params;
  c->kernel.nparams = n;
  return &c->kernel;
}

static struct custom_kernel *made(const struct kernel *k) {
  return (struct custom_kernel *)((char *)k - offsetof(struct custom_kernel, kernel));
}
void kernel_retain(const struct kernel *k) {
  if (k && k->arguments) made(k)->refs++;
}
void kernel_release(const struct kernel *k) {
  if (!k || !k->arguments || --made(k)->refs) return;
  db_program_release(made(k)->program);
  free(made(k));
}

unsigned kernel_arguments(const struct kernel *k, struct db_arg *args, unsigned n) {
  struct db_arg given[MAX_KERNEL_ARGS];
  if (!k->arguments) return n;
  memcpy(given, args, n * sizeof *args);
  for (unsigned i = 0; i < k->nparams; i++) {
    const struct kernel_argument *a = &k->arguments[i];
    args[i] = a->is_buffer ? given[a->value] : (struct db_arg){.bits = a->value};
  }
  return k->nparams;
}
