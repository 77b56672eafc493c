/* RM's objects: clients with their handle tables, allocation by class, duplication, and freeing of subtrees. Rules as
 * in NVIDIA open-gpu-kernel-modules (resserv/, rmapi/alloc_free.c). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "nv.h"

enum { CLIENT_SLOTS = 64, PARAMS_MAX = RM_ALLOC_PARAMS_MIN };

/* ---- the class table ---- */

#define IN(kind) (1u << RM_KIND_##kind)
static uint32_t make_client(struct rm_call *c, struct rm_object *o, void *params);
static uint32_t make_device(struct rm_call *c, struct rm_object *o, void *params);
static uint32_t make_subdevice(struct rm_call *c, struct rm_object *o, void *params);
static uint32_t make_debugger(struct rm_call *c, struct rm_object *o, void *params);
static uint32_t make_nothing(struct rm_call *c, struct rm_object *o, void *params) { return RM_OK; }
static uint32_t import_only(struct rm_call *c, struct rm_object *o, void *params) {
  return RM_REFUSE(c->m, RM_INVALID_CLASS, "RM_ALLOC: class 0x71 is allocated by RM_ALLOC_MEMORY");
}

#define BRANCH(member)                     sizeof(struct rm_##member), offsetof(struct rm_branch, member)
#define T(class, kind, parents, size, ...) {RM_CLASS_##class, #class, RM_KIND_##kind, parents, size, 0, __VA_ARGS__}
#define TB(class, kind, parents, member, ...)                                                                          \
  {RM_CLASS_##class, #class, RM_KIND_##kind, parents, BRANCH(member), __VA_ARGS__}
#define USERMODE(gen)                                                                                                  \
  T(USERMODE_##gen, USERMODE, IN(SUBDEVICE), sizeof(struct rm_usermode_alloc), false, true, nv_rm_usermode)
#define GPFIFO(gen)  TB(GPFIFO_##gen, CHANNEL, IN(GROUP) | IN(DEVICE), channel_alloc, true, true, nv_rm_channel)
#define COMPUTE(gen) T(COMPUTE_##gen, ENGINE, IN(CHANNEL), sizeof(struct rm_gr_alloc), false, true, nv_rm_compute)
#define COPY(gen)    T(COPY_##gen, ENGINE, IN(CHANNEL), sizeof(struct rm_copy_alloc), false, true, nv_rm_copy)
const struct rm_type nv_rm_types[] = {
    TB(CLIENT, CLIENT, 0, client_alloc, false, false, make_client),
    T(DEVICE, DEVICE, IN(CLIENT), sizeof(struct rm_device_alloc), true, false, make_device),
    T(SUBDEVICE, SUBDEVICE, IN(DEVICE), sizeof(struct rm_subdevice_alloc), false, false, make_subdevice),
    T(EVENT_OS, EVENT, ~IN(EVENT), sizeof(struct rm_event_alloc), true, false, nv_rm_event_new),
    TB(MEMORY_SYSTEM, MEMORY, IN(DEVICE), memory_alloc, true, true, nv_rm_memory_physical),
    TB(MEMORY_LOCAL, MEMORY, IN(DEVICE), memory_alloc, true, true, nv_rm_memory_physical),
    T(OS_DESCRIPTOR, MEMORY, IN(DEVICE), 0, false, false, import_only),
    TB(MEMORY_VA, VIRTUAL, IN(DEVICE), memory_alloc, true, true, nv_rm_memory_reserve),
    T(MEMORY_VIRTUAL, VIRTUAL, IN(DEVICE), sizeof(struct rm_memory_virtual_alloc), true, true, nv_rm_memory_window),
    TB(VASPACE, VASPACE, IN(DEVICE), vaspace_alloc, true, true, nv_rm_vaspace),
    T(CHANNEL_GROUP, GROUP, IN(DEVICE), sizeof(struct rm_channel_group_alloc), true, true, nv_rm_channel_group),
    T(CTXSHARE, CTXSHARE, IN(GROUP), sizeof(struct rm_ctxshare_alloc), true, true, nv_rm_ctxshare),
    T(DEBUGGER, DEBUGGER, IN(DEVICE), sizeof(struct rm_debugger_alloc), true, true, make_debugger),
    T(PROFILER, PROFILER, IN(SUBDEVICE), sizeof(struct rm_profiler_alloc), true, false, nv_rm_profiler),
    T(CONFIDENTIAL_COMPUTE, CC, IN(CLIENT), sizeof(uint32_t), true, false, make_nothing),
    USERMODE(VOLTA),
    USERMODE(TURING),
    USERMODE(AMPERE),
    USERMODE(HOPPER),
    GPFIFO(VOLTA),
    GPFIFO(TURING),
    GPFIFO(AMPERE),
    GPFIFO(HOPPER),
    COMPUTE(AMPERE_A),
    COMPUTE(AMPERE_B),
    COMPUTE(ADA),
    COMPUTE(HOPPER),
    T(COUNTERS, ENGINE, IN(CHANNEL), 0, false, false, nv_rm_compute),
    T(INLINE_TO_MEMORY, ENGINE, IN(CHANNEL), sizeof(struct rm_gr_alloc), false, true, nv_rm_compute),
    COPY(AMPERE_A),
    COPY(AMPERE_B),
    COPY(HOPPER),
};
enum { NTYPES = sizeof nv_rm_types / sizeof nv_rm_types[0] };

const struct rm_type *nv_rm_type_find(uint32_t class) {
  if (class == RM_CLASS_ROOT || class == RM_CLASS_ROOT_NON_PRIV) class = RM_CLASS_CLIENT;
  if (class == RM_CLASS_EVENT) class = RM_CLASS_EVENT_OS;
  for (size_t i = 0; i < NTYPES; i++)
    if (nv_rm_types[i].class == class) return &nv_rm_types[i];
  return NULL;
}

static const char *const kind_names[RM_KINDS] = {
    [RM_KIND_CLIENT] = "client",         [RM_KIND_DEVICE] = "device",           [RM_KIND_SUBDEVICE] = "subdevice",
    [RM_KIND_USERMODE] = "usermode",     [RM_KIND_MEMORY] = "memory",           [RM_KIND_VIRTUAL] = "virtual memory",
    [RM_KIND_VASPACE] = "address space", [RM_KIND_GROUP] = "channel group",     [RM_KIND_CTXSHARE] = "context share",
    [RM_KIND_CHANNEL] = "channel",       [RM_KIND_ENGINE] = "engine",           [RM_KIND_DEBUGGER] = "debugger",
    [RM_KIND_EVENT] = "event",           [RM_KIND_CC] = "confidential compute", [RM_KIND_PROFILER] = "profiler",
};

/* ---- handle tables ---- */

static size_t slot_of(const struct rm_client *r, uint32_t handle) { return handle * 2654435761u >> 7 & (r->slots - 1); }

struct rm_object *nv_rm_find(struct rm_object *client, uint32_t handle) {
  const struct rm_client *r = &client->root;
  struct rm_object *o = r->table[slot_of(r, handle)];
  while (o && o->handle != handle) o = o->hash_next;
  return o;
}

static bool table_grow(struct rm_client *r) {
  struct rm_client grown = *r;
  grown.slots = r->slots ? r->slots * 2 : CLIENT_SLOTS;
  grown.table = calloc(grown.slots, sizeof *grown.table);
  if (!grown.table) return false;
  for (size_t i = 0; i < r->slots; i++)
    for (struct rm_object *o = r->table[i], *next; o; o = next) {
      next = o->hash_next;
      struct rm_object **slot = &grown.table[slot_of(&grown, o->handle)];
      o->hash_next = *slot;
      *slot = o;
    }
  free(r->table);
  *r = grown;
  return true;
}

static bool table_add(struct rm_object *client, struct rm_object *o) {
  struct rm_client *r = &client->root;
  if (r->count >= r->slots && !table_grow(r)) return false;
  struct rm_object **slot = &r->table[slot_of(r, o->handle)];
  o->hash_next = *slot;
  *slot = o;
  r->count++;
  return true;
}

static void table_remove(struct rm_object *client, struct rm_object *o) {
  struct rm_client *r = &client->root;
  struct rm_object **at = &r->table[slot_of(r, o->handle)];
  while (*at && *at != o) at = &(*at)->hash_next;
  if (!*at) return;
  *at = o->hash_next;
  r->count--;
}

struct rm_object *nv_rm_client_find(struct rm_call *c, uint32_t handle) {
  for (size_t i = 0; i < c->m->nclients; i++)
    if (c->m->clients[i]->handle == handle && c->m->clients[i]->root.owner == c->ctl) return c->m->clients[i];
  return NULL;
}

struct rm_object *nv_rm_find_kind(struct nv_machine *m, struct rm_object *client, uint32_t handle, uint32_t kinds,
                                  const char *what, uint32_t *status) {
  struct rm_object *o = nv_rm_find(client, handle);
  if (o && kinds & 1u << o->type->kind) return o;
  *status = o ? RM_REFUSE(m, RM_INVALID_OBJECT_HANDLE, "%s 0x%x is a %s", what, handle, kind_names[o->type->kind])
              : RM_REFUSE(m, RM_INVALID_OBJECT_HANDLE, "%s 0x%x: no such object", what, handle);
  return NULL;
}

/* ---- freeing ---- */

static void unlink_object(struct nv_machine *m, struct rm_object *o) {
  if (o->type->kind == RM_KIND_CLIENT) {
    size_t i = 0;
    while (i < m->nclients && m->clients[i] != o) i++;
    if (i < m->nclients) m->clients[i] = m->clients[--m->nclients];
    return;
  }
  if (o->prev)
    o->prev->next = o->next;
  else
    o->parent->children = o->next;
  if (o->next) o->next->prev = o->prev;
  table_remove(o->client, o);
}

static void finish_object(struct nv_machine *m, struct rm_object *o) {
  switch (o->type->kind) {
  case RM_KIND_CLIENT: free(o->root.table); break;
  case RM_KIND_DEVICE: nv_rm_vas_put(o->device.vas); break;
  case RM_KIND_MEMORY:
  case RM_KIND_USERMODE: nv_rm_memory_object_fini(m, o); break;
  case RM_KIND_VIRTUAL: nv_rm_virtual_fini(m, o); break;
  case RM_KIND_VASPACE: nv_rm_vas_put(o->vas); break;
  case RM_KIND_GROUP: nv_rm_group_fini(m, o); break;
  case RM_KIND_CTXSHARE: nv_rm_vas_put(o->ctxshare.vas); break;
  case RM_KIND_CHANNEL: nv_rm_channel_fini(m, o); break;
  case RM_KIND_PROFILER: nv_rm_profiler_fini(m, o); break;
  default: break;
  }
}

/* Deleting an object also deletes events and debuggers elsewhere in the tree that refer to it. */
static struct rm_object *find_debugger(struct rm_object *o, const struct rm_object *target) {
  if (o->type->kind == RM_KIND_DEBUGGER && o->target == target) return o;
  for (struct rm_object *child = o->children; child; child = child->next) {
    struct rm_object *found = find_debugger(child, target);
    if (found) return found;
  }
  return NULL;
}

void nv_rm_object_delete(struct nv_machine *m, struct rm_object *o) {
  /* Each call removes its object from the parent's list; clang-tidy does not see that. */
  // NOLINTBEGIN(clang-analyzer-unix.Malloc)
  while (o->children) nv_rm_object_delete(m, o->children);
  if (o->type->kind == RM_KIND_ENGINE)
    for (struct rm_object *d; (d = find_debugger(o->client, o));) nv_rm_object_delete(m, d);
  // NOLINTEND(clang-analyzer-unix.Malloc)
  nv_rm_events_forget(m, NULL, o);
  unlink_object(m, o);
  finish_object(m, o);
  free(o);
}

uint32_t nv_rm_object_free(struct rm_call *c, uint32_t root, uint32_t handle) {
  struct rm_object *client = nv_rm_client_find(c, root);
  if (!client) return RM_REFUSE(c->m, RM_INVALID_CLIENT, "RM_FREE: no client 0x%x of this descriptor", root);
  struct rm_object *o = nv_rm_find(client, handle);
  if (!o) return RM_REFUSE(c->m, RM_OBJECT_NOT_FOUND, "RM_FREE: no object 0x%x", handle);
  nv_rm_object_delete(c->m, o);
  return RM_OK;
}

void nv_rm_clients_close(struct nv_machine *m, struct nv_file *ctl) {
  for (size_t i = m->nclients; i-- > 0;)
    if (m->clients[i]->root.owner == ctl) nv_rm_object_delete(m, m->clients[i]);
}

/* ---- allocating ---- */

static bool free_handle(struct rm_object *client, uint32_t *handle) {
  if (*handle) return !nv_rm_find(client, *handle);
  do *handle = 0xcaf00000u + client->root.next_handle++;
  while (nv_rm_find(client, *handle));
  return true;
}

static bool client_taken(const struct nv_machine *m, uint32_t handle) {
  for (size_t i = 0; i < m->nclients; i++)
    if (m->clients[i]->handle == handle) return true;
  return false;
}

static uint32_t make_client(struct rm_call *c, struct rm_object *o, void *params) {
  struct rm_client_alloc *p = params;
  p->client = o->handle;
  return RM_OK;
}

static uint32_t alloc_client(struct rm_call *c, uint32_t handle, struct rm_object **out) {
  struct nv_machine *m = c->m;
  if (!c->ctl)
    return RM_REFUSE(m, RM_INVALID_CLIENT, "RM_ALLOC of CLIENT: REGISTER_FD was not called for this descriptor");
  if (handle && client_taken(m, handle))
    return RM_REFUSE(m, RM_INSERT_DUPLICATE_NAME, "RM_ALLOC: client 0x%x exists already", handle);
  while (!handle || client_taken(m, handle)) handle = m->next_client++;
  struct rm_object **clients = realloc(m->clients, (m->nclients + 1) * sizeof(struct rm_object *));
  struct rm_object *o = calloc(1, sizeof *o);
  if (clients) m->clients = clients;
  if (!clients || !o) return free(o), (uint32_t)RM_NO_MEMORY;
  o->handle = handle;
  o->client = o;
  o->type = nv_rm_type_find(RM_CLASS_CLIENT);
  o->root.owner = c->ctl;
  if (!table_grow(&o->root) || !table_add(o, o)) return free(o->root.table), free(o), (uint32_t)RM_NO_MEMORY;
  m->clients[m->nclients++] = o;
  *out = o;
  return RM_OK;
}

uint32_t nv_rm_object_new(struct rm_call *c, uint32_t root, uint32_t parent, uint32_t handle,
                          const struct rm_type *type, struct rm_object **out) {
  struct nv_machine *m = c->m;
  if (type->kind == RM_KIND_CLIENT) return alloc_client(c, handle, out);
  struct rm_object *client = nv_rm_client_find(c, root);
  if (!client) return RM_REFUSE(m, RM_INVALID_CLIENT, "RM_ALLOC: no client 0x%x of this descriptor", root);
  struct rm_object *above = nv_rm_find(client, parent);
  if (!above) return RM_REFUSE(m, RM_OBJECT_NOT_FOUND, "RM_ALLOC of %s: no parent 0x%x", type->name, parent);
  if (!(type->parents & 1u << above->type->kind))
    return RM_REFUSE(m, RM_INVALID_OBJECT_PARENT, "RM_ALLOC of %s: its parent 0x%x is a %s", type->name, parent,
                     kind_names[above->type->kind]);
  if (type->listed && !nv_model_has(above->gpu->model, type->class) && type->class != RM_CLASS_OS_DESCRIPTOR)
    return RM_REFUSE(m, RM_INVALID_CLASS, "RM_ALLOC: %s has no class 0x%x (%s)", above->gpu->model->codename,
                     type->class, type->name);
  if (!free_handle(client, &handle))
    return RM_REFUSE(m, RM_INSERT_DUPLICATE_NAME, "RM_ALLOC of %s: handle 0x%x is taken", type->name, handle);
  struct rm_object *o = calloc(1, sizeof *o);
  if (!o) return RM_NO_MEMORY;
  o->client = client;
  o->parent = above;
  o->handle = handle;
  o->type = type;
  o->gpu = above->gpu;
  if (!table_add(client, o)) return free(o), (uint32_t)RM_NO_MEMORY;
  o->next = above->children;
  if (o->next) o->next->prev = o;
  above->children = o;
  *out = o;
  return RM_OK;
}

uint32_t nv_rm_object_alloc(struct rm_call *c, uint32_t root, uint32_t parent, uint32_t *handle, uint32_t class,
                            uint64_t params) {
  struct nv_machine *m = c->m;
  const struct rm_type *type = nv_rm_type_find(class);
  union {
    uint64_t align;
    uint8_t bytes[PARAMS_MAX];
  } p = {0};
  struct rm_object *o = NULL;
  if (!type) return RM_REFUSE(m, RM_INVALID_CLASS, "RM_ALLOC: class 0x%x is not known", class);
  uint32_t size = nv_branch_size(m, type->size, type->branch);
  if (!params && type->required)
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of %s: it needs parameters", type->name);
  if (params && user_read(p.bytes, params, size))
    return RM_REFUSE(m, RM_INVALID_ADDRESS, "RM_ALLOC of %s: parameters at 0x%" PRIx64, type->name, params);
  uint32_t status = nv_rm_object_new(c, root, parent, *handle, type, &o);
  if (status) return status;
  status = type->construct(c, o, p.bytes);
  if (!status && params && user_write(params, p.bytes, size))
    status = RM_REFUSE(m, RM_INVALID_ADDRESS, "RM_ALLOC of %s: parameters at 0x%" PRIx64, type->name, params);
  if (status) {
    nv_rm_object_delete(m, o);
    return status;
  }
  *handle = o->handle;
  return RM_OK;
}

uint32_t nv_rm_object_dup(struct rm_call *c, struct rm_dup_object *p) {
  struct nv_machine *m = c->m;
  struct rm_object *from_client = nv_rm_client_find(c, p->client_src), *o = NULL;
  if (!from_client) return RM_REFUSE(m, RM_INVALID_CLIENT, "RM_DUP_OBJECT: no client 0x%x", p->client_src);
  struct rm_object *from = nv_rm_find(from_client, p->object_src);
  if (!from) return RM_REFUSE(m, RM_OBJECT_NOT_FOUND, "RM_DUP_OBJECT: no object 0x%x", p->object_src);
  if (from->type->kind != RM_KIND_MEMORY && from->type->kind != RM_KIND_VASPACE)
    return RM_REFUSE(m, RM_NOT_SUPPORTED, "RM_DUP_OBJECT: 0x%x is a %s", p->object_src, kind_names[from->type->kind]);
  uint32_t status = nv_rm_object_new(c, p->client, p->parent, p->object, from->type, &o);
  if (status) return status;
  if (from->type->kind == RM_KIND_MEMORY)
    o->memory.memory = nv_rm_memory_get(from->memory.memory);
  else
    o->vas = nv_rm_vas_get(from->vas);
  if (o->gpu != from->gpu && from->type->kind == RM_KIND_VASPACE) {
    nv_rm_object_delete(m, o);
    return RM_REFUSE(m, RM_INVALID_OBJECT_PARENT, "RM_DUP_OBJECT: address space 0x%x is another GPU's", p->object_src);
  }
  p->object = o->handle;
  return RM_OK;
}

/* ---- plain objects ---- */

static uint32_t make_device(struct rm_call *c, struct rm_object *o, void *params) {
  const struct rm_device_alloc *p = params;
  if (p->device_id >= c->m->ngpus || !c->m->gpus[p->device_id].attached)
    return RM_REFUSE(c->m, RM_INVALID_DEVICE, "RM_ALLOC of DEVICE: no attached instance %u", p->device_id);
  o->gpu = &c->m->gpus[p->device_id];
  for (struct rm_object *other = o->parent->children; other; other = other->next)
    if (other != o && other->type->kind == RM_KIND_DEVICE && other->gpu == o->gpu)
      return RM_REFUSE(c->m, RM_STATE_IN_USE, "RM_ALLOC of DEVICE: the client has instance %u already", p->device_id);
  return RM_OK;
}

static uint32_t make_subdevice(struct rm_call *c, struct rm_object *o, void *params) {
  const struct rm_subdevice_alloc *p = params;
  return p->sub_device_id
             ? RM_REFUSE(c->m, RM_INVALID_DEVICE, "RM_ALLOC of SUBDEVICE: no instance %u", p->sub_device_id)
             : RM_OK;
}

static uint32_t make_debugger(struct rm_call *c, struct rm_object *o, void *params) {
  const struct rm_debugger_alloc *p = params;
  uint32_t status = RM_OK;
  struct rm_object *client = nv_rm_client_find(c, p->app_client);
  if (!client) return RM_REFUSE(c->m, RM_INVALID_CLIENT, "RM_ALLOC of DEBUGGER: no client 0x%x", p->app_client);
  o->target = nv_rm_find_kind(c->m, client, p->object, IN(ENGINE), "RM_ALLOC of DEBUGGER: object", &status);
  if (o->target && client != o->client)
    return RM_REFUSE(c->m, RM_NOT_SUPPORTED, "not supported: a debugger of another client's object");
  return status;
}
