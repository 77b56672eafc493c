/* RM's OS events: a client's descriptor becomes readable when a channel or a GPU has an error.
 *
 * An engine's thread only counts errors and wakes the pollers. The polling thread then finds the events concerned,
 * under the machine's lock. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include "nv.h"

enum { CHANNEL_RC = 0, SUBDEVICE_EVENTS = 199 };

uint32_t nv_rm_os_event_alloc(struct rm_call *c, const struct rm_os_event *p) {
  struct nv_machine *m = c->m;
  struct nv_file *file = nv_file_get(m, (int)p->fd);
  uint32_t status = RM_OK;
  if (!file || file->kind == NV_FILE_UVM)
    status = RM_REFUSE(m, RM_INVALID_ARGUMENT, "ALLOC_OS_EVENT: descriptor %d", (int)p->fd);
  else if (!nv_rm_client_find(c, p->client))
    status = RM_REFUSE(m, RM_INVALID_CLIENT, "ALLOC_OS_EVENT: no client 0x%x", p->client);
  else if (file->has_event)
    status = RM_REFUSE(m, RM_INVALID_ARGUMENT, "ALLOC_OS_EVENT: descriptor %d has an event already", (int)p->fd);
  else
    file->has_event = true, file->event_client = p->client;
  if (file) nv_file_put(file);
  return status;
}

uint32_t nv_rm_os_event_free(struct rm_call *c, const struct rm_os_event *p) {
  struct nv_file *file = nv_file_get(c->m, (int)p->fd);
  uint32_t status = RM_OK;
  if (!file || !file->has_event || file->event_client != p->client)
    status = RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "FREE_OS_EVENT: descriptor %d has no event of client 0x%x",
                       (int)p->fd, p->client);
  else
    file->has_event = false;
  if (file) nv_file_put(file);
  return status;
}

uint32_t nv_rm_event_new(struct rm_call *c, struct rm_object *o, void *params) {
  struct nv_machine *m = c->m;
  const struct rm_event_alloc *p = params;
  uint32_t index = p->notify_index & 0xffff, status = RM_OK;
  if (p->class != RM_CLASS_EVENT_OS)
    return RM_REFUSE(m, RM_INVALID_CLASS, "RM_ALLOC of EVENT_OS: hClass 0x%x", p->class);
  if (p->parent_client != o->client->handle)
    return RM_REFUSE(m, RM_INVALID_CLIENT, "RM_ALLOC of EVENT_OS: hParentClient 0x%x", p->parent_client);
  struct rm_object *source = nv_rm_find(o->client, p->src_resource);
  if (!source)
    return RM_REFUSE(m, RM_INVALID_OBJECT_HANDLE, "RM_ALLOC of EVENT_OS: hSrcResource 0x%x", p->src_resource);
  if ((source->type->kind != RM_KIND_CHANNEL || index != CHANNEL_RC) &&
      (source->type->kind != RM_KIND_SUBDEVICE || index != RM_EVENT_RC_ERROR))
    return RM_REFUSE(m, RM_NOT_SUPPORTED, "not supported: events of a %s with index %u", source->type->name, index);
  struct nv_file *file = nv_file_get(m, (int)p->data);
  struct rm_object **events = realloc(m->events, (m->nevents + 1) * sizeof(struct rm_object *));
  if (events) m->events = events;
  if (!events)
    status = RM_NO_MEMORY;
  else if (!file || !file->has_event)
    status = RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_ALLOC of EVENT_OS: ALLOC_OS_EVENT was not called for descriptor %d",
                       (int)p->data);
  else {
    pthread_mutex_lock(&m->event_lock);
    o->event = (struct rm_event_object){.file = file, .source = source, .index = index, .seen = o->gpu->errors};
    pthread_mutex_unlock(&m->event_lock);
    m->events[m->nevents++] = o;
  }
  if (file) nv_file_put(file);
  return status;
}

uint32_t nv_rm_event_enable(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  const struct rm_event_set_notification *p = params;
  if (p->event >= SUBDEVICE_EVENTS || p->action > 2)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "EVENT_SET_NOTIFICATION: event %u, action %u", p->event, p->action);
  if (p->event != RM_EVENT_RC_ERROR)
    return RM_REFUSE(c->m, RM_NOT_SUPPORTED, "not supported: EVENT_SET_NOTIFICATION of event %u", p->event);
  o->subdevice_events = p->action;
  return RM_OK;
}

void nv_rm_events_forget(struct nv_machine *m, const struct nv_file *file, const struct rm_object *source) {
  for (size_t i = m->nevents; i-- > 0;) {
    struct rm_object *o = m->events[i];
    if (o->event.file != file && o->event.source != source && o != source) continue;
    m->events[i] = m->events[--m->nevents];
    o->event.file = NULL;
    o->event.source = NULL;
  }
}

static bool is_due(struct nv_machine *m, const struct rm_object *o) {
  struct nv_channel_error e;
  pthread_mutex_lock(&m->event_lock);
  bool news = o->gpu->errors != o->event.seen;
  pthread_mutex_unlock(&m->event_lock);
  if (!news) return false;
  if (o->event.source->type->kind == RM_KIND_CHANNEL) return nv_channel_error(o->event.source->channel.channel, &e);
  return o->event.source->subdevice_events != 0;
}

static struct rm_object *next_due(const struct nv_file *file) {
  struct nv_machine *m = file->machine;
  for (size_t i = 0; i < m->nevents; i++)
    if (m->events[i]->event.file == file && is_due(m, m->events[i])) return m->events[i];
  return NULL;
}

uint32_t nv_rm_event_data(struct nv_file *file, struct rm_get_event_data *p) {
  struct nv_machine *m = file->machine;
  struct rm_object *o = next_due(file);
  if (!o) return RM_REFUSE(m, RM_GENERIC, "GET_EVENT_DATA: no event is pending");
  struct nv_channel_error e = {0};
  bool channel = o->event.source->type->kind == RM_KIND_CHANNEL;
  if (channel) nv_channel_error(o->event.source->channel.channel, &e);
  struct rm_event event = {.object = o->handle, .notify_index = o->event.index, .info32 = e.xid};
  if (user_write(p->event, &event, sizeof event))
    return RM_REFUSE(m, RM_INVALID_ADDRESS, "GET_EVENT_DATA: pEvent 0x%" PRIx64, p->event);
  pthread_mutex_lock(&m->event_lock);
  o->event.seen = o->gpu->errors;
  pthread_mutex_unlock(&m->event_lock);
  if (!channel && o->event.source->subdevice_events == 1) o->event.source->subdevice_events = 0;
  p->more_events = next_due(file) != NULL;
  return RM_OK;
}

static uint64_t all_errors(const struct nv_machine *m) {
  uint64_t n = 0;
  for (unsigned i = 0; i < m->ngpus; i++) n += m->gpus[i].errors;
  return n;
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int nv_rm_event_poll(struct nv_file *file, short events, int timeout_ms) {
  enum { SLICE_MS = 1000 };
  struct nv_machine *m = file->machine;
  int64_t end = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;
  for (bool late = false;;) {
    pthread_mutex_lock(&m->event_lock);
    uint64_t seen = all_errors(m);
    pthread_mutex_unlock(&m->event_lock);
    pthread_mutex_lock(&m->lock);
    bool ready = next_due(file) != NULL;
    pthread_mutex_unlock(&m->lock);
    if (ready) return events & (POLLIN | POLLPRI);
    if (late) return 0;
    int64_t wake = now_ms() + SLICE_MS;
    if (wake >= end) wake = end, late = true;
    struct timespec t = {.tv_sec = wake / 1000, .tv_nsec = wake % 1000 * 1000000l};
    pthread_mutex_lock(&m->event_lock);
    int rc = 0;
    while (!rc && all_errors(m) == seen) rc = pthread_cond_timedwait(&m->event_cond, &m->event_lock, &t);
    if (rc != ETIMEDOUT) late = false;
    pthread_mutex_unlock(&m->event_lock);
  }
}
