/* Long prompts are evaluated in parts, so that the other texts do not wait for all of a prompt. */
#include "batch.h"
#include "../../hcq/error.h"
#include <errno.h>
#include <stdlib.h>

struct batch {
  struct llm *l;
  const struct tokenizer *t;
  unsigned texts, running;
  uint64_t joined; /* requests so far */
  float *logits;   /* of all texts */
  struct text {
    const struct batch_request *r; /* NULL: free */
    struct sampler sampler;
    uint64_t order;
    size_t done; /* tokens of the prompt */
    int64_t added;
    int32_t next; /* the token that was added last, if it is not evaluated */
  } text[LLM_TEXTS];
};

struct batch *batch_new(struct llm *l, const struct tokenizer *t, unsigned texts) {
  struct batch *b = calloc(1, sizeof *b);
  if (b) *b = (struct batch){l, t, texts, .logits = malloc(texts * (size_t)llm_vocabulary(l) * sizeof(float))};
  if (b && b->logits) return b;
  batch_free(b);
  db_fail(-ENOMEM, "out of memory");
  return NULL;
}
void batch_free(struct batch *b) {
  if (b) free(b->logits);
  free(b);
}
bool batch_has_room(const struct batch *b) { return b->running < b->texts; }
unsigned batch_running(const struct batch *b) { return b->running; }

void batch_add(struct batch *b, const struct batch_request *r) {
  struct text *x = b->text;
  while (x->r) x++;
  *x = (struct text){.r = r, .sampler = r->sampler, .order = b->joined++};
  b->running++;
}

static void end(struct batch *b, struct text *x, enum batch_end why, const char *message) {
  const struct batch_request *r = x->r;
  llm_truncate(b->l, (unsigned)(x - b->text), 0);
  x->r = NULL;
  b->running--;
  r->end(r->ctx, why, message);
}

/* Adds the token that the logits give. */
static void choose(struct batch *b, struct text *x, const float *logits) {
  int32_t id = sampler_choose(&x->sampler, logits, (size_t)llm_vocabulary(b->l));
  if (id < 0) {
    end(b, x, BATCH_FAILED, "out of memory");
  } else if (tokenizer_is_end(b->t, id)) {
    end(b, x, BATCH_STOP, NULL);
  } else if (llm_length(b->l, (unsigned)(x - b->text)) == llm_context(b->l)) {
    end(b, x, BATCH_LENGTH, NULL);
  } else {
    x->next = id;
    x->r->add(x->r->ctx, id);
    if (++x->added == x->r->most) end(b, x, BATCH_LENGTH, NULL);
  }
}

static void evaluate_prompt(struct batch *b) {
  struct text *x = NULL;
  size_t most = LLM_PART;
  for (struct text *y = b->text; y < b->text + b->texts; y++) {
    if (y->r && y->done < y->r->ntokens && (!x || y->order < x->order)) x = y;
    if (y->r && y->added) most = LLM_SHORT_PART;
  }
  if (!x) return;
  size_t left = x->r->ntokens - x->done, n = left < most ? left : most;
  if (llm_eval(b->l, (unsigned)(x - b->text), x->r->tokens + x->done, n, b->logits)) {
    end(b, x, BATCH_FAILED, db_error());
    return;
  }
  x->done += n;
  if (n == left) choose(b, x, b->logits);
}

static void evaluate_next(struct batch *b) {
  struct llm_next next[LLM_TEXTS];
  unsigned n = 0;
  for (unsigned i = 0; i < b->texts; i++)
    if (b->text[i].r && b->text[i].added) next[n++] = (struct llm_next){i, b->text[i].next};
  if (!n) return;
  bool good = !llm_eval_next(b->l, next, n, b->logits);
  for (unsigned i = 0; i < n; i++) {
    struct text *x = &b->text[next[i].text];
    if (good)
      choose(b, x, b->logits + i * (size_t)llm_vocabulary(b->l));
    else
      end(b, x, BATCH_FAILED, db_error());
  }
}

void batch_step(struct batch *b) {
  for (struct text *x = b->text; x < b->text + b->texts; x++)
    if (x->r && !x->r->wanted(x->r->ctx)) end(b, x, BATCH_UNWANTED, NULL);
  evaluate_next(b);
  evaluate_prompt(b);
}
