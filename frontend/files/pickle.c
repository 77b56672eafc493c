/* Pickles of PyTorch: a stack machine whose opcodes build objects. A pickle may name any function of Python to be
 * called; this reader has a short table of globals and refuses every other. The opcodes are those of protocols 2 to 5
 * (Lib/pickletools.py of CPython describes them). */
#include "pickle.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEY = 255 };
enum kind { NONE, NUMBER, OTHER, TEXT, TUPLE, LIST, DICT, GLOBAL, STORAGE, TENSOR, MARK };
enum role { MAKES_DICT, MAKES_TENSOR, MAKES_PARAMETER, MAKES_SIZE, STORAGE_OF, TYPE };
static const char *const kind_names[] = {"None",   "a number", "a value",   "a text",   "a tuple", "a list",
                                         "a dict", "a global", "a storage", "a tensor", "a mark"};

static const struct global {
  const char *name;
  enum role role;
  db_dtype dtype; /* STORAGE_OF, TYPE; DB_NONE: of bytes */
} globals[] = {
    {"collections.OrderedDict", MAKES_DICT, DB_NONE},
    {"torch._utils._rebuild_tensor_v2", MAKES_TENSOR, DB_NONE},
    {"torch._utils._rebuild_tensor_v3", MAKES_TENSOR, DB_NONE},
    {"torch._utils._rebuild_parameter", MAKES_PARAMETER, DB_NONE},
    {"torch.Size", MAKES_SIZE, DB_NONE},
    {"torch.storage.UntypedStorage", STORAGE_OF, DB_NONE},
    {"torch.BoolStorage", STORAGE_OF, DB_BOOL},
    {"torch.ByteStorage", STORAGE_OF, DB_U8},
    {"torch.CharStorage", STORAGE_OF, DB_I8},
    {"torch.ShortStorage", STORAGE_OF, DB_I16},
    {"torch.IntStorage", STORAGE_OF, DB_I32},
    {"torch.LongStorage", STORAGE_OF, DB_I64},
    {"torch.HalfStorage", STORAGE_OF, DB_F16},
    {"torch.BFloat16Storage", STORAGE_OF, DB_BF16},
    {"torch.FloatStorage", STORAGE_OF, DB_F32},
    {"torch.DoubleStorage", STORAGE_OF, DB_F64},
    {"torch.bool", TYPE, DB_BOOL},
    {"torch.uint8", TYPE, DB_U8},
    {"torch.int8", TYPE, DB_I8},
    {"torch.int16", TYPE, DB_I16},
    {"torch.uint16", TYPE, DB_U16},
    {"torch.int32", TYPE, DB_I32},
    {"torch.uint32", TYPE, DB_U32},
    {"torch.int64", TYPE, DB_I64},
    {"torch.uint64", TYPE, DB_U64},
    {"torch.float16", TYPE, DB_F16},
    {"torch.bfloat16", TYPE, DB_BF16},
    {"torch.float32", TYPE, DB_F32},
    {"torch.float64", TYPE, DB_F64},
    {"torch.float8_e4m3fn", TYPE, DB_F8E4M3},
    {"torch.float8_e5m2", TYPE, DB_F8E5M2},
};

struct node {
  enum kind kind;
  struct node *made; /* the node made before this one */
  int64_t number;    /* NUMBER; STORAGE: its number of elements */
  const char *text;  /* TEXT, and the key of a STORAGE: in the pickle */
  size_t length;
  const struct global *global; /* GLOBAL; STORAGE: its type */
  struct node **item;          /* TUPLE, LIST; DICT: keys and values in turn */
  size_t n, room;
  struct pickled_tensor *tensor; /* without name and key */
};
struct list {
  struct node **at;
  size_t n, room;
};
struct machine {
  const uint8_t *bytes;
  size_t size, at, opcode; /* opcode: the offset of the opcode that runs */
  struct node *made;
  struct list stack, memo;
  bool stopped;
  char *err;
  size_t errcap;
};

static int refuse(struct machine *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int refuse(struct machine *m, const char *fmt, ...) {
  int n = snprintf(m->err, m->errcap, "byte %zu of the pickle: ", m->opcode);
  va_list ap;
  va_start(ap, fmt);
  if (n > 0 && (size_t)n < m->errcap) vsnprintf(m->err + n, m->errcap - (size_t)n, fmt, ap);
  va_end(ap);
  return -EINVAL;
}

/* ---- memory: every opcode adds at most one element to a list, so its bytes bound the memory ---- */

static bool add(struct node ***at, size_t *n, size_t *room, struct node *x) {
  if (*n == *room) {
    size_t more = *room ? 2 * *room : 4;
    struct node **p = realloc(*at, more * sizeof(struct node *));
    if (!p) return false;
    *at = p, *room = more;
  }
  (*at)[(*n)++] = x;
  return true;
}

static int push(struct machine *m, struct node *x) {
  return add(&m->stack.at, &m->stack.n, &m->stack.room, x) ? 0 : refuse(m, "out of memory");
}

static struct node *make(struct machine *m, enum kind kind) {
  struct node *x = calloc(1, sizeof *x);
  if (!x) return refuse(m, "out of memory"), NULL;
  x->kind = kind, x->made = m->made;
  return m->made = x;
}

static int push_new(struct machine *m, enum kind kind, struct node **out) {
  struct node *x = make(m, kind);
  if (out) *out = x;
  return x ? push(m, x) : -EINVAL;
}

static struct node *pop(struct machine *m) {
  if (!m->stack.n) return refuse(m, "the stack is empty"), NULL;
  return m->stack.at[--m->stack.n];
}
/* Pops a node of this kind. */
static struct node *pop_kind(struct machine *m, enum kind kind) {
  struct node *x = pop(m);
  if (x && x->kind != kind) return refuse(m, "%s where %s is needed", kind_names[x->kind], kind_names[kind]), NULL;
  return x;
}

/* Reads a number of `bytes` bytes, little-endian. */
static int read_number(struct machine *m, unsigned bytes, uint64_t *out) {
  if (m->size - m->at < bytes) return refuse(m, "the pickle ends inside an operand");
  *out = 0;
  for (unsigned i = 0; i < bytes; i++) *out |= (uint64_t)m->bytes[m->at++] << (8 * i);
  return 0;
}

/* ---- opcodes: the operand is the one of the table ---- */

static int op_skip(struct machine *m, int bytes) {
  uint64_t v;
  return read_number(m, (unsigned)bytes, &v);
}
static int op_stop(struct machine *m, int unused) { return m->stopped = true, 0; }
static int op_new(struct machine *m, int kind) { return push_new(m, (enum kind)kind, NULL); }
static int op_number(struct machine *m, int value) {
  struct node *x;
  int err = push_new(m, NUMBER, &x);
  if (!err) x->number = value;
  return err;
}
static int op_float(struct machine *m, int bytes) {
  int err = op_skip(m, bytes);
  return err ? err : push_new(m, OTHER, NULL);
}

/* An integer of this many bytes, signed if it has 4; 0: the length is the next byte, and it is signed. */
static int op_integer(struct machine *m, int bytes) {
  uint64_t v, length = (uint64_t)bytes;
  struct node *x;
  int err = bytes ? 0 : read_number(m, 1, &length);
  if (!err && length > 8) return refuse(m, "not supported: an integer of %llu bytes", (unsigned long long)length);
  if (!err) err = read_number(m, (unsigned)length, &v);
  if (!err) err = push_new(m, NUMBER, &x);
  if (err) return err;
  unsigned unused = !length || (bytes && bytes < 4) ? 0 : 64 - 8 * (unsigned)length;
  x->number = (int64_t)(v << unused) >> unused;
  return 0;
}

/* A text whose length has this many bytes. */
static int op_text(struct machine *m, int bytes) {
  uint64_t n;
  struct node *x;
  int err = read_number(m, (unsigned)bytes, &n);
  if (err) return err;
  if (n > m->size - m->at) return refuse(m, "a text of %llu bytes is longer than the pickle", (unsigned long long)n);
  if ((err = push_new(m, TEXT, &x))) return err;
  x->text = (const char *)m->bytes + m->at, x->length = (size_t)n;
  m->at += (size_t)n;
  return 0;
}

/* Moves the stack's nodes from index `first` on to x. */
static int take_items(struct machine *m, struct node *x, size_t first) {
  for (size_t i = first; i < m->stack.n; i++)
    if (!add(&x->item, &x->n, &x->room, m->stack.at[i])) return refuse(m, "out of memory");
  m->stack.n = first;
  return 0;
}
/* Stores the index after the topmost mark. */
static int find_mark(struct machine *m, size_t *first) {
  for (size_t i = m->stack.n; i-- > 0;)
    if (m->stack.at[i]->kind == MARK) return *first = i + 1, 0;
  return refuse(m, "there is no mark on the stack");
}

/* A tuple or a list of the topmost n nodes; n < 0: of all above a mark. */
static int op_tuple(struct machine *m, int n) {
  size_t first = 0;
  int err = n < 0 ? find_mark(m, &first) : 0;
  if (!err && n >= 0 && m->stack.n < (size_t)n) err = refuse(m, "the stack is empty");
  if (err) return err;
  if (n >= 0) first = m->stack.n - (size_t)n;
  struct node *x = make(m, TUPLE);
  if (!x || (err = take_items(m, x, first))) return err ? err : -EINVAL;
  if (n < 0) m->stack.n--;
  return push(m, x);
}

/* Adds items to the container below them: those above a mark, or `count` ones. */
static int add_items(struct machine *m, enum kind kind, int count) {
  size_t first = 0;
  int err = count ? 0 : find_mark(m, &first);
  if (err) return err;
  if (count && m->stack.n < (size_t)count) return refuse(m, "the stack is empty");
  if (count) first = m->stack.n - (size_t)count;
  size_t below = first - !count;
  struct node *to = below ? m->stack.at[below - 1] : NULL;
  if (!to || to->kind != kind)
    return refuse(m, "items for %s, but the stack has %s", kind_names[kind], to ? kind_names[to->kind] : "nothing");
  if (kind == DICT && (m->stack.n - first) % 2) return refuse(m, "a key without a value");
  if (!(err = take_items(m, to, first))) m->stack.n = below;
  return err;
}
static int op_append(struct machine *m, int count) { return add_items(m, LIST, count); }
static int op_set(struct machine *m, int count) { return add_items(m, DICT, count); }

static int op_pop(struct machine *m, int to_mark) {
  size_t first = 0;
  if (!to_mark) return pop(m) ? 0 : -EINVAL;
  int err = find_mark(m, &first);
  if (!err) m->stack.n = first - 1;
  return err;
}

/* Stores the topmost node under a number of this many bytes; 0: under the next number. */
static int op_put(struct machine *m, int bytes) {
  uint64_t at = m->memo.n;
  int err = bytes ? read_number(m, (unsigned)bytes, &at) : 0;
  if (err) return err;
  if (!m->stack.n) return refuse(m, "the stack is empty");
  if (at > m->size) return refuse(m, "memo %llu of a pickle of %zu bytes", (unsigned long long)at, m->size);
  while (m->memo.n <= at)
    if (!add(&m->memo.at, &m->memo.n, &m->memo.room, NULL)) return refuse(m, "out of memory");
  m->memo.at[at] = m->stack.at[m->stack.n - 1];
  return 0;
}
static int op_get(struct machine *m, int bytes) {
  uint64_t at = 0;
  int err = read_number(m, (unsigned)bytes, &at);
  if (err) return err;
  if (at >= m->memo.n || !m->memo.at[at]) return refuse(m, "memo %llu is empty", (unsigned long long)at);
  return push(m, m->memo.at[at]);
}

/* ---- globals and what they make ---- */

static int push_global(struct machine *m, const char *module, size_t nmodule, const char *name, size_t nname) {
  struct node *x;
  for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
    const char *known = globals[i].name;
    if (strlen(known) != nmodule + 1 + nname || memcmp(known, module, nmodule) != 0 || known[nmodule] != '.' ||
        memcmp(known + nmodule + 1, name, nname) != 0)
      continue;
    int err = push_new(m, GLOBAL, &x);
    if (!err) x->global = &globals[i];
    return err;
  }
  return refuse(m, "refused: the global '%.*s.%.*s'; only tensors, numbers, texts and containers are loaded",
                (int)(nmodule < 80 ? nmodule : 80), module, (int)(nname < 80 ? nname : 80), name);
}

static int op_global(struct machine *m, int from_stack) {
  if (from_stack) {
    const struct node *name = pop_kind(m, TEXT), *module = name ? pop_kind(m, TEXT) : NULL;
    return module ? push_global(m, module->text, module->length, name->text, name->length) : -EINVAL;
  }
  const char *line[2];
  size_t length[2];
  for (int i = 0; i < 2; i++) {
    const uint8_t *end = memchr(m->bytes + m->at, '\n', m->size - m->at);
    if (!end) return refuse(m, "the pickle ends inside a name");
    line[i] = (const char *)m->bytes + m->at, length[i] = (size_t)(end - m->bytes) - m->at;
    m->at += length[i] + 1;
  }
  return push_global(m, line[0], length[0], line[1], length[1]);
}

/* A storage: ('storage', its type, its key, a device, the number of elements). */
static int op_storage(struct machine *m, int unused) {
  const struct node *id = pop_kind(m, TUPLE);
  if (!id) return -EINVAL;
  bool good = id->n == 5 && id->item[0]->kind == TEXT && id->item[1]->kind == GLOBAL && id->item[2]->kind == TEXT &&
              id->item[4]->kind == NUMBER && id->item[0]->length == 7 && !memcmp(id->item[0]->text, "storage", 7);
  if (!good || id->item[1]->global->role != STORAGE_OF) return refuse(m, "an external object that is not a storage");
  if (id->item[2]->length > MOST_KEY) /* each of its tensors has a copy */
    return refuse(m, "not supported: a storage's key of %zu bytes", id->item[2]->length);
  struct node *x;
  int err = push_new(m, STORAGE, &x);
  if (err) return err;
  x->global = id->item[1]->global, x->number = id->item[4]->number;
  x->text = id->item[2]->text, x->length = id->item[2]->length;
  return 0;
}

/* Copies a tuple of numbers that are not negative. */
static int read_sizes(struct machine *m, const struct node *x, int64_t *out, unsigned *rank) {
  if (x->kind != TUPLE || x->n > 32) return refuse(m, "the shape of a tensor is not a tuple of at most 32 numbers");
  for (size_t i = 0; i < x->n; i++) {
    if (x->item[i]->kind != NUMBER || x->item[i]->number < 0) return refuse(m, "a size or stride is not a number");
    out[i] = x->item[i]->number;
  }
  *rank = (unsigned)x->n;
  return 0;
}

/* Checks that all elements are in the storage, and that there are not more of them than there. */
static int check_extent(struct machine *m, struct pickled_tensor *t) {
  int64_t last = t->first, step;
  t->count = 1;
  for (unsigned i = 0; i < t->rank; i++)
    if (!t->dim[i]) return t->count = 0, 0;
  for (unsigned i = 0; i < t->rank; i++)
    if (__builtin_mul_overflow(t->count, t->dim[i], &t->count) ||
        __builtin_mul_overflow(t->dim[i] - 1, t->stride[i], &step) || __builtin_add_overflow(last, step, &last))
      return refuse(m, "a tensor is too large");
  if (t->first < 0 || last >= t->stored)
    return refuse(m, "a tensor needs element %lld of a storage of %lld elements", (long long)last,
                  (long long)t->stored);
  return t->count <= t->stored ? 0 : refuse(m, "not supported: a tensor has more elements than its storage");
}

/* (storage, first element, sizes, strides, ...); version 3 has the type as element 6. */
static int make_tensor(struct machine *m, const struct node *args, bool typed) {
  if (args->n < (typed ? 7 : 4) || args->item[0]->kind != STORAGE || args->item[1]->kind != NUMBER)
    return refuse(m, "a tensor without storage, offset, sizes and strides");
  const struct node *storage = args->item[0], *type = typed ? args->item[6] : storage;
  if (typed && (type->kind != GLOBAL || type->global->role != TYPE))
    return refuse(m, "the type of a tensor is missing");
  struct node *x;
  struct pickled_tensor *t;
  int err = push_new(m, TENSOR, &x);
  if (err) return err;
  if (!(t = x->tensor = calloc(1, sizeof *t))) return refuse(m, "out of memory");
  unsigned rank = 0;
  x->text = storage->text, x->length = storage->length;
  t->dtype = type->global->dtype, t->first = args->item[1]->number, t->stored = storage->number;
  if (t->dtype == DB_NONE) return refuse(m, "the type of a tensor is missing");
  if (typed) t->stored /= (int64_t)db_dtype_size(t->dtype); /* counts bytes */
  if ((err = read_sizes(m, args->item[2], t->dim, &t->rank)) || (err = read_sizes(m, args->item[3], t->stride, &rank)))
    return err;
  return rank == t->rank ? check_extent(m, t) : refuse(m, "a tensor has %u sizes, but %u strides", t->rank, rank);
}

static int op_reduce(struct machine *m, int unused) {
  const struct node *args = pop_kind(m, TUPLE), *f = args ? pop_kind(m, GLOBAL) : NULL;
  if (!f) return -EINVAL;
  const char *name = f->global->name;
  switch (f->global->role) {
  case MAKES_DICT: return args->n ? refuse(m, "not supported: a call of %s with arguments", name) : op_new(m, DICT);
  case MAKES_TENSOR: return make_tensor(m, args, name[strlen(name) - 1] == '3');
  case MAKES_PARAMETER:
  case MAKES_SIZE:
    if (args->n && args->item[0]->kind == (f->global->role == MAKES_SIZE ? TUPLE : TENSOR))
      return push(m, args->item[0]);
    return refuse(m, "a call of %s without its argument", name);
  default: return refuse(m, "refused: a call of %s", name);
  }
}

/* The attributes of an OrderedDict are not needed. Other objects are not made, so they have none. */
static int op_build(struct machine *m, int unused) {
  if (!pop(m)) return -EINVAL;
  if (m->stack.n && m->stack.at[m->stack.n - 1]->kind == DICT) return 0;
  return refuse(m, "refused: attributes of %s", m->stack.n ? kind_names[m->stack.at[m->stack.n - 1]->kind] : "nothing");
}

static const struct opcode {
  int (*run)(struct machine *m, int operand);
  int operand;
} opcodes[256] = {
    [0x80] = {op_skip, 1},   [0x95] = {op_skip, 8},   ['.'] = {op_stop, 0},     ['('] = {op_new, MARK},
    ['}'] = {op_new, DICT},  [']'] = {op_new, LIST},  [')'] = {op_new, TUPLE},  ['N'] = {op_new, NONE},
    [0x88] = {op_number, 1}, [0x89] = {op_number, 0}, ['G'] = {op_float, 8},    ['J'] = {op_integer, 4},
    ['K'] = {op_integer, 1}, ['M'] = {op_integer, 2}, [0x8a] = {op_integer, 0}, ['X'] = {op_text, 4},
    [0x8c] = {op_text, 1},   [0x8d] = {op_text, 8},   ['B'] = {op_text, 4},     ['C'] = {op_text, 1},
    [0x8e] = {op_text, 8},   ['T'] = {op_text, 4},    ['U'] = {op_text, 1},     ['t'] = {op_tuple, -1},
    [0x85] = {op_tuple, 1},  [0x86] = {op_tuple, 2},  [0x87] = {op_tuple, 3},   ['a'] = {op_append, 1},
    ['e'] = {op_append, 0},  ['s'] = {op_set, 2},     ['u'] = {op_set, 0},      ['0'] = {op_pop, 0},
    ['1'] = {op_pop, 1},     ['q'] = {op_put, 1},     ['r'] = {op_put, 4},      [0x94] = {op_put, 0},
    ['h'] = {op_get, 1},     ['j'] = {op_get, 4},     ['c'] = {op_global, 0},   [0x93] = {op_global, 1},
    ['Q'] = {op_storage, 0}, ['R'] = {op_reduce, 0},  ['b'] = {op_build, 0},
};

/* ---- the tensors of the result ---- */

enum { DEEPEST = 64 };
struct walk {
  struct machine *m;
  struct pickle *out;
  size_t visits, room;
  char name[1024];
};

static int add_tensor(struct walk *w, const struct node *x) {
  if (w->out->n == w->room) {
    size_t more = w->room ? 2 * w->room : 16;
    struct pickled_tensor *p = realloc(w->out->tensor, more * sizeof *p);
    if (!p) return refuse(w->m, "out of memory");
    w->out->tensor = p, w->room = more;
  }
  struct pickled_tensor *t = &w->out->tensor[w->out->n];
  *t = *x->tensor;
  t->name = strdup(w->name), t->key = strndup(x->text, x->length);
  if (t->name && t->key) return w->out->n++, 0;
  free(t->name), free(t->key);
  return refuse(w->m, "out of memory");
}

static int walk(struct walk *w, const struct node *x, size_t end, unsigned depth) {
  int err = 0;
  if (x->kind == TENSOR) return add_tensor(w, x);
  bool dict = x->kind == DICT;
  if (!dict && x->kind != TUPLE && x->kind != LIST) return 0;
  if (depth == DEEPEST) return refuse(w->m, "not supported: more than %d containers inside each other", DEEPEST);
  for (size_t i = 0; i < x->n && !err; i += 1 + dict) {
    const struct node *key = x->item[i];
    size_t room = sizeof w->name - end;
    const char *dot = end ? "." : "";
    int n;
    /* each item was made by at least a byte; a container that occurs many times is not worth more */
    if (w->visits++ > w->m->size) return refuse(w->m, "not supported: containers that occur too often");
    if (dict && key->kind == TEXT)
      n = snprintf(w->name + end, room, "%s%.*s", dot, (int)(key->length < room ? key->length : room), key->text);
    else
      n = snprintf(w->name + end, room, "%s%lld", dot, dict ? (long long)key->number : (long long)i);
    if (n < 0 || (size_t)n >= room) return refuse(w->m, "not supported: a name of more than %zu bytes", sizeof w->name);
    err = walk(w, x->item[i + dict], end + (size_t)n, depth + 1);
  }
  return err;
}

void pickle_free(struct pickle *p) {
  for (size_t i = 0; i < p->n; i++) free(p->tensor[i].name), free(p->tensor[i].key);
  free(p->tensor);
  *p = (struct pickle){0};
}

int pickle_parse(const void *bytes, size_t size, struct pickle *out, char *err, size_t errcap) {
  struct machine m = {.bytes = bytes, .size = size, .err = err, .errcap = errcap};
  int status = 0;
  *out = (struct pickle){0};
  while (!status && !m.stopped) {
    m.opcode = m.at;
    if (m.at == size) {
      status = refuse(&m, "the pickle ends without a result");
      break;
    }
    const struct opcode *o = &opcodes[m.bytes[m.at++]];
    status = o->run ? o->run(&m, o->operand) : refuse(&m, "refused: the opcode 0x%02x", m.bytes[m.opcode]);
  }
  struct walk w = {.m = &m, .out = out};
  if (!status && !m.stack.n) status = refuse(&m, "there is no result");
  if (!status) status = walk(&w, m.stack.at[m.stack.n - 1], 0, 0);
  if (status) pickle_free(out);
  for (struct node *x = m.made, *next; x; x = next) {
    next = x->made;
    free(x->item);
    free(x->tensor);
    free(x);
  }
  free(m.stack.at);
  free(m.memo.at);
  return status;
}
