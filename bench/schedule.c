/* Prints the number of kernels that known programs become, and the memory that their schedules need. */
#include "models.h"
#include <stdio.h>
#include "graph/schedule/plan.h"

static int worst;

static void print_schedule(const char *name, db_tensor *const *t, unsigned n, size_t most, double per) {
  struct uop **roots = calloc(n, sizeof *roots);
  struct schedule s;
  struct memory_plan plan = {0};
  char err[512];
  int64_t next = rt.next_buffer;
  for (unsigned i = 0; i < n; i++)
    if (!t[i] || !t[i]->value) {
      printf("%s: %s\n", name, t[i] ? db_poison(t[i]) : db_error());
      worst = 1;
      free(roots);
      return;
    }
  to_nodes(t, n, roots);
  if (graph_schedule(roots, n, &next, &s, err, sizeof err)) {
    printf("%s: %s\n", name, err);
    worst = 1;
  } else {
    size_t reason[64] = {0};
    if (plan_memory(&s, &(struct plan_options){.alignment = 256}, &plan, err, sizeof err)) plan.peak = 0;
    printf("%-44s %7zu %8.2f  %s %-6zu %9.1f MB %9.1f MB\n", name, s.nitems, (double)s.nitems / per,
           (double)s.nitems <= (double)most * per ? "at most" : "MISSES ", most, (double)plan.peak * 1e-6,
           (double)(plan.unshared - plan.peak) * 1e-6);
    worst |= (double)s.nitems > (double)most * per;
    for (size_t i = 0; i < s.nitems; i++)
      for (unsigned k = 0; k < s.items[i].noutputs; k++) reason[s.items[i].why[k]]++;
    for (unsigned i = 0; i <= SCHEDULE_OVERWRITTEN; i++)
      if (reason[i]) printf("    %5zu buffers: %s\n", reason[i], schedule_reason_text((enum schedule_reason)i));
    if (getenv("KERNELS"))
      for (size_t i = 0; i < s.nitems; i++) {
        char text[600];
        printf("  %zu (%u outputs) %s\n", i, s.items[i].noutputs,
               s.items[i].ast ? uop_expr(s.items[i].ast, text, sizeof text) : "copy");
      }
    schedule_free(&s);
  }
  plan_free(&plan);
  free(roots);
}

int main(void) {
  db_tensor *out[3 * MAX_PARAMETERS + 1];
  printf("%-44s %7s %8s  %-14s %12s %12s\n", "program", "kernels", "per part", "", "peak", "reuse saved");
  {
    DB_SCOPED;
    struct model m = {0};
    out[0] = resnet50(&m, without_memory(DB_F32, DB_LIST(64, 3, 224, 224)), false);
    print_schedule("ResNet-50, batch 64, forward", out, 1, 56, 1); /* 53 convolutions, two pools, the last layer */
  }
  {
    DB_SCOPED;
    struct model m = {0};
    db_tensor *x = resnet50(&m, without_memory(DB_F32, DB_LIST(64, 3, 224, 224)), true);
    unsigned n = sgd_step(&m, db_cross_entropy(x, without_memory(DB_I32, DB_LIST(64))), out);
    print_schedule("ResNet-50, batch 64, SGD with momentum", out, n, 500, 1);
  }
  {
    DB_SCOPED;
    struct model m = {0};
    out[0] = gpt2(&m, without_memory(DB_I32, DB_LIST(1024)));
    print_schedule("GPT-2 124M, 1024 tokens, forward (12 blocks)", out, 1, 12, 12);
  }
  {
    DB_SCOPED;
    struct model m = {0};
    db_tensor *x = gpt2(&m, without_memory(DB_I32, DB_LIST(1024)));
    unsigned n = adamw_step(&m, db_cross_entropy(x, without_memory(DB_I32, DB_LIST(1024))), NULL, out);
    /* 98 sums of columns take two kernels each */
    print_schedule("GPT-2 124M, 1024 tokens, AdamW step", out, n, 610, 1);
  }
  {
    DB_SCOPED;
    struct model m = {0};
    db_tensor *grad[100];
    for (int i = 0; i < 100; i++) {
      int64_t rows = 8 + i, columns = 16 + 3 * i;
      parameter(&m, DB_LIST(rows, columns), 0, 0);
      grad[i] = without_memory(DB_F32, DB_LIST(rows, columns));
    }
    unsigned n = adamw_step(&m, NULL, grad, out);
    print_schedule("Adam step of 100 parameters", out, n, 12, 1);
  }
  return worst;
}
