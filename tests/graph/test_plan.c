/* The memory planner: random schedules whose kernels run in the planned memory, compared with separate memory for each
 * temporary. */
#include "tensor.h"
#include "graph/schedule/plan.h"

static int no_leftovers(void **state) {
  forget();
  return 0;
}

/* A schedule of items that name buffers: only the fields that the planner reads. */
static struct uop *temporary(struct schedule *s, unsigned device, int64_t n) {
  struct uop *size = uop_index(g, n);
  struct uop *b = uop_new(g, OP_BUFFER, DT_F32, 1, (union uop_arg){.i = next_buffer++}, device, &size, 1);
  s->temporaries = realloc(s->temporaries, (s->ntemporaries + 1) * sizeof *s->temporaries);
  return s->temporaries[s->ntemporaries++] = b;
}

static void item(struct schedule *s, unsigned device, unsigned n, struct uop *const *bufs) {
  s->items = realloc(s->items, (s->nitems + 1) * sizeof *s->items);
  struct schedule_item *i = &s->items[s->nitems++];
  *i = (struct schedule_item){.kind = SCHEDULE_KERNEL, .nbufs = n, .noutputs = 1, .device = device};
  i->bufs = malloc(n * sizeof *i->bufs);
  memcpy(i->bufs, bufs, n * sizeof *bufs);
}

static struct memory_plan planned(const struct schedule *s, size_t alignment, const uint8_t *queue) {
  struct memory_plan p;
  char err[200];
  struct plan_options o = {.alignment = alignment, .queue = queue};
  if (plan_memory(s, &o, &p, err, sizeof err)) fail_msg("%s", err);
  return p;
}

static void drop_schedule(struct schedule *s) {
  for (size_t i = 0; i < s->nitems; i++) free(s->items[i].bufs);
  free(s->items);
  free(s->temporaries);
  *s = (struct schedule){0};
}

/* In a -> b -> c -> ... two buffers are live at a time, for every length. */
static void a_chain_needs_two(void **state) {
  start();
  struct schedule s = {0};
  struct uop *last = NULL;
  for (int i = 0; i < 50; i++) {
    struct uop *b = temporary(&s, 0, 1000);
    item(&s, 0, last ? 2 : 1, (struct uop *[]){b, last});
    last = b;
  }
  struct memory_plan p = planned(&s, 256, NULL);
  assert_int_equal(p.narenas, 1);
  assert_int_equal(p.unshared, 50 * 4096);
  assert_int_equal(p.peak, 2 * 4096);
  assert_int_equal(p.buffers[0].free_since, PLAN_NEVER);
  assert_int_equal(p.buffers[2].free_since, 1);
  plan_free(&p);
  drop_schedule(&s);
}

/* Adjacent freed blocks merge into one. */
static void neighbours_merge(void **state) {
  start();
  struct schedule s = {0};
  struct uop *small[4], *big = temporary(&s, 0, 1024);
  for (int i = 0; i < 4; i++) item(&s, 0, 1, (struct uop *[]){small[i] = temporary(&s, 0, 256)});
  item(&s, 0, 2, (struct uop *[]){small[1], small[3]});
  item(&s, 0, 2, (struct uop *[]){small[0], small[2]});
  item(&s, 0, 1, (struct uop *[]){big});
  struct memory_plan p = planned(&s, 256, NULL);
  assert_int_equal(p.peak, 4096);
  assert_int_equal(p.unshared, 8192);
  assert_int_equal(p.buffers[0].free_since, 5);
  plan_free(&p);
  drop_schedule(&s);
}

static void devices_have_their_own(void **state) {
  start();
  struct schedule s = {0};
  struct uop *a = temporary(&s, 0, 100), *b = temporary(&s, 1, 100), *unused = temporary(&s, 0, 9);
  item(&s, 0, 1, &a);
  item(&s, 1, 2, (struct uop *[]){b, a});
  struct memory_plan p = planned(&s, 64, NULL);
  assert_int_equal(p.narenas, 2);
  assert_int_equal(p.buffers[1].free_since, PLAN_NEVER);
  assert_int_equal(p.buffers[2].first, PLAN_NEVER);
  assert_int_equal(p.peak, 2 * 448);
  assert_non_null(unused);
  plan_free(&p);
  drop_schedule(&s);
}

static void nothing_to_plan(void **state) {
  struct schedule s = {0};
  struct memory_plan p = planned(&s, 256, NULL);
  assert_int_equal(p.peak, 0);
  assert_int_equal(p.narenas, 0);
  plan_free(&p);
}

/* Checks that no two temporaries share a byte if they are live at the same time or used by items of different queues.
 */
static void check_plan(const struct schedule *s, const struct memory_plan *p, size_t alignment, const uint8_t *queue) {
  struct need {
    int64_t first, last;
    unsigned queues;
  } *need = calloc(s->ntemporaries + 1, sizeof *need);
  for (size_t t = 0; t < s->ntemporaries; t++) {
    need[t].first = -1;
    for (size_t i = 0; i < s->nitems; i++)
      for (unsigned k = 0; k < s->items[i].nbufs; k++)
        if (s->items[i].bufs[k] == s->temporaries[t]) {
          if (need[t].first < 0) need[t].first = (int64_t)i;
          need[t].last = (int64_t)i;
          need[t].queues |= 1u << (queue ? queue[i] : 0);
        }
  }
  size_t most = 0, all = 0;
  for (size_t a = 0; a < s->ntemporaries; a++) {
    const struct plan_buffer *x = &p->buffers[a];
    if (need[a].first < 0) continue;
    assert_int_equal(x->first, need[a].first);
    assert_int_equal(x->last, need[a].last);
    assert_int_equal(x->offset % alignment, 0);
    assert_true(x->bytes >= 4 * (size_t)s->temporaries[a]->src[0]->arg.i);
    assert_true(x->offset + x->bytes <= p->arenas[x->arena].bytes);
    assert_int_equal(p->arenas[x->arena].device, s->temporaries[a]->aux);
    all += x->bytes;
    for (size_t b = 0; b < s->ntemporaries; b++) {
      const struct plan_buffer *y = &p->buffers[b];
      if (a == b || need[b].first < 0 || x->arena != y->arena || !x->bytes || !y->bytes) continue;
      if (x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset) continue;
      bool apart = need[a].last < need[b].first || need[b].last < need[a].first;
      bool one_queue = need[a].queues == need[b].queues && !(need[a].queues & (need[a].queues - 1));
      if (!apart || !one_queue) fail_msg("temporaries %zu and %zu share memory", a, b);
      if (need[b].last < need[a].first) assert_true(x->free_since >= need[b].last);
    }
  }
  for (unsigned i = 0; i < p->narenas; i++) most += p->arenas[i].bytes;
  assert_int_equal(p->peak, most);
  assert_int_equal(p->unshared, all);
  assert_true(p->peak <= p->unshared);
  free(need);
}

static void random_schedules(void **state) {
  for (int round = 0; round < 300; round++) {
    start();
    struct schedule s = {0};
    unsigned devices = (unsigned)pick(1, 3), n = (unsigned)pick(1, 60), queues = (unsigned)pick(1, 3);
    uint8_t queue[64];
    for (unsigned i = 0; i < n; i++) {
      struct uop *bufs[5];
      unsigned device = (unsigned)pick(0, devices - 1), k = 0;
      bufs[k++] = temporary(&s, device, pick(0, 4) ? pick(1, 3000) : pick(0, 100000));
      if (pick(0, 4) == 0) bufs[k++] = temporary(&s, device, pick(1, 3000));
      for (unsigned j = 0; j < 3 && s.ntemporaries > k; j++) { /* mostly recent temporaries */
        size_t back = (size_t)pick(0, pick(0, 5) ? 6 : 60);
        if (back < s.ntemporaries) bufs[k++] = s.temporaries[s.ntemporaries - 1 - back];
      }
      queue[i] = (uint8_t)pick(0, queues - 1);
      item(&s, device, k, bufs);
    }
    size_t alignment = (size_t)1 << pick(0, 10);
    struct memory_plan p = planned(&s, alignment, NULL), q = planned(&s, alignment, queue);
    check_plan(&s, &p, alignment, NULL);
    check_plan(&s, &q, alignment, queue);
    plan_free(&p);
    plan_free(&q);
    drop_schedule(&s);
  }
}

/* A real schedule of a chain of products: the plan reuses the memory that the kernels release. */
static void a_schedule_of_products(void **state) {
  start();
  struct uop *x = TENSOR(16, 16);
  for (int i = 0; i < 10; i++) x = matmul(x, TENSOR(16, 16));
  struct uop *root = contiguous(x);
  struct schedule s;
  char err[300];
  if (graph_schedule(&root, 1, &next_buffer, &s, err, sizeof err)) fail_msg("%s", err);
  assert_int_equal(s.nitems, 10);
  struct memory_plan p = planned(&s, 256, NULL);
  check_plan(&s, &p, 256, NULL);
  assert_int_equal(p.unshared, 9 * 1024);
  assert_int_equal(p.peak, 2 * 1024);
  plan_free(&p);
  schedule_free(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_chain_needs_two), cmocka_unit_test(neighbours_merge), cmocka_unit_test(devices_have_their_own),
      cmocka_unit_test(nothing_to_plan),   cmocka_unit_test(random_schedules), cmocka_unit_test(a_schedule_of_products),
  };
  return cmocka_run_group_tests_name("plan", tests, NULL, no_leftovers);
}
