/* RM_CONTROL: finds the handler of a command, checks the size exactly, and implements the debugger's controls. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "nv.h"

enum { PARAMS_ON_STACK = 1024, PARAMS_MAX = 16384 };

static const struct rm_control_type *find_control(uint32_t cmd) {
  const struct rm_control_type *const tables[] = {nv_rm_query_controls, nv_rm_channel_controls, nv_rm_debug_controls,
                                                  nv_rm_profiler_controls};
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
    for (const struct rm_control_type *t = tables[i]; t->handler; t++)
      if (t->cmd == cmd) return t;
  return NULL;
}

uint32_t nv_rm_control_call(struct rm_call *c, const struct rm_control *p) {
  struct nv_machine *m = c->m;
  uint64_t stack[PARAMS_ON_STACK / 8];
  struct rm_object *client = nv_rm_client_find(c, p->client);
  if (!client)
    return RM_REFUSE(m, RM_INVALID_CLIENT, "RM_CONTROL 0x%x: no client 0x%x of this descriptor", p->cmd, p->client);
  struct rm_object *o = nv_rm_find(client, p->object);
  if (!o) return RM_REFUSE(m, RM_OBJECT_NOT_FOUND, "RM_CONTROL 0x%x: no object 0x%x", p->cmd, p->object);
  if (!p->cmd) return RM_OK; /* every class accepts the NULL command */
  const struct rm_control_type *t = find_control(p->cmd);
  if (!t) return RM_REFUSE(m, RM_NOT_SUPPORTED, "not supported: RM_CONTROL 0x%x", p->cmd);
  if (!(t->kinds & 1u << o->type->kind))
    return RM_REFUSE(m, RM_NOT_SUPPORTED, "RM_CONTROL 0x%x is not one of 0x%x (%s)", p->cmd, p->object, o->type->name);
  uint32_t size = nv_branch_size(m, t->size, t->branch);
  if (p->params_size != size || (size && !p->params))
    return RM_REFUSE(m, RM_INVALID_ARGUMENT, "RM_CONTROL 0x%x: paramsSize is %u; driver %s has %u", p->cmd,
                     p->params_size, m->version, size);
  if (p->flags) return RM_REFUSE(m, RM_INVALID_FLAGS, "RM_CONTROL 0x%x: flags 0x%x", p->cmd, p->flags);
  /* Handlers get at least the newest version of their structure, zero-filled. */
  size_t room = t->size > size ? t->size : size;
  void *params = room <= sizeof stack ? stack : malloc(room);
  if (!params) return RM_NO_MEMORY;
  memset(params, 0, room);
  uint32_t status = RM_OK;
  if (user_read(params, p->params, size))
    status = RM_REFUSE(m, RM_INVALID_ADDRESS, "RM_CONTROL 0x%x: parameters at 0x%" PRIx64, p->cmd, p->params);
  if (!status) {
    status = t->handler(c, o, params, size);
    if (user_write(p->params, params, size) && !status)
      status = RM_REFUSE(m, RM_INVALID_ADDRESS, "RM_CONTROL 0x%x: parameters at 0x%" PRIx64, p->cmd, p->params);
  }
  if (params != stack) free(params);
  return status;
}

/* ---- the error that stopped a channel ---- */

enum { FAULT_PTE = 2, FAULT_RO_VIOLATION = 6, ACCESS_READ = 0, ACCESS_WRITE = 1 };

static struct rm_object *target_channel(struct rm_call *c, struct rm_object *o, uint32_t handle, uint32_t *status) {
  struct rm_object *ch = nv_rm_find_kind(c->m, o->client, handle, 1u << RM_KIND_CHANNEL, "hTargetChannel", status);
  if (ch && ch != o->target->parent && ch->channel.group != o->target->parent->channel.group) {
    *status = RM_REFUSE(c->m, RM_INVALID_OBJECT_PARENT, "hTargetChannel 0x%x is not the debugged one", handle);
    return NULL;
  }
  return ch;
}

static bool page_fault(struct rm_object *ch, struct nv_channel_error *e, uint32_t *type) {
  struct vm_range r;
  if (!nv_channel_error(ch->channel.channel, e) || e->fault.kind != FAULT_PAGE) return false;
  *type =
      vm_find(ch->channel.vas->vm, e->fault.address, &r) && e->fault.access & VM_WRITE ? FAULT_RO_VIOLATION : FAULT_PTE;
  return true;
}

static uint32_t mmu_fault_info(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  struct rm_mmu_fault_info *p = params;
  struct nv_channel_error e;
  memset(p, 0, sizeof *p);
  if (!page_fault(o, &e, &p->fault_type)) return RM_OK;
  p->addr_hi = (uint32_t)(e.fault.address >> 32);
  p->addr_lo = (uint32_t)e.fault.address;
  memcpy(p->fault_string, p->fault_type == FAULT_PTE ? "FAULT_PTE" : "FAULT_RO_VIOLATION",
         p->fault_type == FAULT_PTE ? sizeof "FAULT_PTE" : sizeof "FAULT_RO_VIOLATION");
  p->shader_program_va[0] = e.fault.pc;
  return RM_OK;
}

static struct nv_channel_error sm_error(const struct rm_object *ch) {
  struct nv_channel_error e = {0};
  if (ch->channel.cleared || !nv_channel_error(ch->channel.channel, &e)) e.esr = 0;
  return e;
}

static void sm_state(const struct nv_channel_error *e, uint32_t sm, struct rm_sm_error_state *s) {
  memset(s, 0, sizeof *s);
  if (!e->esr || e->sm != sm) return;
  s->warp_esr = e->esr;
  s->warp_esr_pc = (uint32_t)e->fault.pc;
  s->warp_esr_pc64 = e->fault.pc;
  s->esr_addr = e->fault.address;
}

static uint32_t sm_error_one(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  struct rm_sm_error_one *p = params;
  uint32_t status = RM_OK;
  struct rm_object *ch = target_channel(c, o, p->target_channel, &status);
  if (!ch) return status;
  if (p->sm >= o->gpu->model->sms)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "READ_SINGLE_SM_ERROR_STATE: SM %u", p->sm);
  struct nv_channel_error e = sm_error(ch);
  sm_state(&e, p->sm, &p->state);
  return RM_OK;
}

static uint32_t sm_error_states(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  enum { STATES = 100 };
  struct rm_sm_error_states *p = params;
  uint32_t status = RM_OK, type;
  struct rm_object *ch = target_channel(c, o, p->target_channel, &status);
  if (!ch) return status;
  if (p->num_sms > STATES || p->starting_sm >= o->gpu->model->sms)
    return RM_REFUSE(c->m, RM_INVALID_ARGUMENT, "READ_ALL_SM_ERROR_STATES: SMs %u+%u of %u, %d at a time",
                     p->starting_sm, p->num_sms, o->gpu->model->sms, STATES);
  struct nv_channel_error e = sm_error(ch);
  for (uint32_t i = 0; i < p->num_sms; i++) sm_state(&e, p->starting_sm + i, &p->states[i]);
  p->mmu_fault.valid = page_fault(ch, &e, &type);
  p->mmu_fault.fault_info = p->mmu_fault_info = p->mmu_fault.valid ? type : 0;
  return RM_OK;
}

static uint32_t debug_mmu_fault(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  struct rm_debug_mmu_fault *p = params;
  struct nv_channel_error e;
  uint32_t type;
  memset(p, 0, sizeof *p);
  if (!page_fault(o->target->parent, &e, &type)) return RM_OK;
  p->count = 1;
  p->entries[0] = (struct rm_debug_mmu_fault_entry){
      e.fault.address, type, e.fault.access & VM_WRITE ? (uint32_t)ACCESS_WRITE : (uint32_t)ACCESS_READ};
  return RM_OK;
}

static uint32_t clear_sm_errors(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) {
  uint32_t handle, status = RM_OK;
  memcpy(&handle, params, sizeof handle);
  struct rm_object *ch = target_channel(c, o, handle, &status);
  if (ch) ch->channel.cleared = true;
  return status;
}

/* Errors are always reported immediately and never deferred, so modes and masks have no effect. */
static uint32_t accept_any(struct rm_call *c, struct rm_object *o, void *params, uint32_t size) { return RM_OK; }

#define DEBUGGER 1u << RM_KIND_DEBUGGER
const struct rm_control_type nv_rm_debug_controls[] = {
    {0x906f0106, 1u << RM_KIND_CHANNEL, sizeof(struct rm_mmu_fault_info), 0, mmu_fault_info},
    {0x83de0307, DEBUGGER, 4, 0, accept_any}, /* SET_MODE_MMU_DEBUG */
    {0x83de0309, DEBUGGER, 4, 0, accept_any}, /* SET_EXCEPTION_MASK */
    {0x83de030b, DEBUGGER, sizeof(struct rm_sm_error_one), 0, sm_error_one},
    {0x83de030c, DEBUGGER, sizeof(struct rm_sm_error_states), 0, sm_error_states},
    {0x83de030f, DEBUGGER, 8, 0, clear_sm_errors}, /* CLEAR_SINGLE_SM_ERROR_STATE: only one SM has an error */
    {0x83de0310, DEBUGGER, 8, 0, clear_sm_errors}, /* CLEAR_ALL_SM_ERROR_STATES */
    {0x83de031f, DEBUGGER, 4, 0, accept_any},      /* SET_MODE_ERRBAR_DEBUG */
    {0x83de0328, DEBUGGER, sizeof(struct rm_debug_mmu_fault), 0, debug_mmu_fault},
    {0},
};
