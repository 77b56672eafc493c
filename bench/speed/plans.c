/* Prints the kernels of a tensor that is not realized yet: their plans of optimization steps and their main loops. */
#include "speed.h"
#include "frontend/tensor/call.h"
#include <stdlib.h>

void print_plans(db_tensor *t, const char *arch) {
  char err[512] = "";
  struct schedule s;
  struct uop *u = value_node(t->value),
             *root = uop_new(rt.graph, OP_CONTIGUOUS, u->dtype, 1, (union uop_arg){0}, 0, &u, 1);
  int64_t next = rt.next_buffer;
  if (graph_schedule_on(slot_machine, &root, 1, &next, &s, err, sizeof err)) {
    printf("    %s\n", err);
    return;
  }
  for (size_t i = 0; i < s.nitems; i++) {
    if (s.items[i].kind != SCHEDULE_KERNEL) continue;
    const struct kernel *k = compiler_compile(rt.compiler, target_find(arch), s.items[i].ast, err, sizeof err);
    struct code_loop loop;
    printf("    %s: %s\n", k ? k->name : "no kernel", k ? (k->plan ? k->plan : "no plan") : err);
    if (!k || !code_main_loop(k->image, k->image_size, arch, &loop)) continue;
    printf(
        "      main loop: %u %s%s; %u other instructions (%.1f for each of these), %u of them load or store registers",
        loop.matrix, loop.name, loop.mixed ? " and others" : "", loop.instructions - loop.matrix,
        (double)(loop.instructions - loop.matrix) / loop.matrix, loop.memory);
    if (loop.vector)
      printf("; %.0f %% of the vector instructions are matrix instructions", 100.0 * loop.matrix / loop.vector);
    printf("\n");
  }
  schedule_free(&s);
}
