/* An emulated machine with NVIDIA GPUs: the state that the kernel modules nvidia.ko and nvidia-uvm.ko keep for the one
 * process that uses them. channel.h declares the engines of the channels.
 *
 * Locks, outermost first: nv_machine.lock (every call; held while a group is stopped, so the engines' threads never
 * take it) > event_lock > nv_gpu.log_lock, reason_lock. */
#ifndef DOORBELL_EMU_NV_NV_H
#define DOORBELL_EMU_NV_NV_H
#include <stdatomic.h>
#include <stdbool.h>
#include "../../../hcq/nv/rm_wire.h"
#include "../../heap.h"
#include "../../machine.h"
#include "../../pool.h"
#include "../../user.h"
#include "../../vm.h"
#include "../engines/channel.h"

enum { NV_PAGE = 4096, NV_MAX_GPUS = 16, NV_GRCES = 2, NV_RUNLISTS = 16, NV_CHANNELS = 4096 };
#define NV_CONTEXT_BYTES (24ull << 20) /* size of a graphics channel's context buffers */

struct nv_machine;
struct nv_gpu;
struct rm_object;

/* ---- models.c ---- */

const struct nv_model *nv_model_find(const char *name, size_t length);
void nv_model_names(char *buf, size_t cap); /* names of all models, comma separated */
bool nv_model_has(const struct nv_model *m, uint32_t class);
uint32_t nv_model_tpc_mask(const struct nv_model *m, unsigned gpc);

/* ---- reference-counted objects; the counts are guarded by the machine's lock ---- */

enum rm_place { RM_PLACE_VIDMEM, RM_PLACE_SYSMEM, RM_PLACE_USER, RM_PLACE_REGISTERS };
/* Memory, shared by all handles, mappings and channels that refer to it. */
struct rm_memory {
  unsigned refs;
  enum rm_place place;
  struct nv_gpu *gpu; /* for vidmem and registers */
  struct heap *heap;  /* the heap that it was allocated from, or NULL */
  uint64_t offset;    /* offset in the heap */
  uint64_t size;
  uint8_t *host;
  int fd;         /* client mappings map this file at offset; -1 if it cannot be mapped */
  bool read_only; /* for the GPU */
  bool user_read_only;
};
struct rm_memory *nv_rm_memory_get(struct rm_memory *mem);
void nv_rm_memory_put(struct rm_memory *mem);

/* A GPU's virtual address space. */
struct rm_vas {
  unsigned refs;
  struct nv_gpu *gpu;
  struct vm *vm;
  bool external; /* UVM maps it, RM does not */
  uint64_t base, end;
  struct rm_span { /* address ranges that RM allocated */
    struct rm_span *next;
    uint64_t va, size;
  } *spans; /* sorted by address */
};
struct rm_vas *nv_rm_vas_new(struct nv_gpu *gpu, bool external, uint64_t base, uint64_t end);
struct rm_vas *nv_rm_vas_get(struct rm_vas *vas);
void nv_rm_vas_put(struct rm_vas *vas);

/* ---- objects ---- */

enum rm_kind {
  RM_KIND_CLIENT,
  RM_KIND_DEVICE,
  RM_KIND_SUBDEVICE,
  RM_KIND_USERMODE,
  RM_KIND_MEMORY,
  RM_KIND_VIRTUAL,
  RM_KIND_VASPACE,
  RM_KIND_GROUP,
  RM_KIND_CTXSHARE,
  RM_KIND_CHANNEL,
  RM_KIND_ENGINE,
  RM_KIND_DEBUGGER,
  RM_KIND_EVENT,
  RM_KIND_CC,
  RM_KIND_PROFILER,
  RM_KINDS,
};

struct rm_client {
  struct nv_file *owner; /* the control file that the client was created with */
  struct rm_object **table;
  size_t slots, count;
  uint32_t next_handle;
};
struct rm_device {
  struct rm_vas *vas; /* the default address space, created when first needed */
};
struct rm_memory_object {
  struct rm_memory *memory;
  struct rm_cpu_map { /* a MAP_MEMORY mapping, until UNMAP_MEMORY */
    struct rm_cpu_map *next;
    uint64_t address;
  } *maps;
};
struct rm_virtual {
  struct rm_vas *vas;
  bool reserved; /* owns an address range (NV50_MEMORY_VIRTUAL) */
  uint64_t va, size;
};
struct rm_group {
  struct nv_channel_group *group;
  struct rm_vas *vas; /* address space of channels without a context share, or NULL */
  uint32_t engine_type, id;
  unsigned runlist, channels;
  bool shares, scheduled; /* shares: its channels have context shares */
};
struct rm_ctxshare {
  struct rm_vas *vas;
  uint32_t id;
};
struct rm_channel {
  struct nv_channel *channel;
  struct rm_group *group;
  struct rm_group own; /* the group of a channel that has no group object */
  struct rm_vas *vas;
  struct rm_memory *userd, *notifier;
  uint64_t userd_offset;
  uint32_t id, token, notifiers; /* notifiers: number of entries in the notifier memory */
  uint32_t token_index;
  bool bound, cleared; /* cleared: SM errors were cleared */
  struct uvm_channel *registered;
};
struct rm_profiler {
  uint32_t context; /* handle of a channel or a channel group; 0: none */
  bool bound;
  struct rm_memory *buffer, *bytes; /* of its stream */
  uint64_t bytes_offset;
};
struct rm_event_object {
  struct nv_file *file; /* the file that polls for the event */
  struct rm_object *source;
  uint32_t index;
  uint64_t seen; /* number of GPU errors that it has reported */
};

struct rm_object {
  struct rm_object *hash_next, *parent, *children, *next, *prev; /* next, prev: siblings, newest first */
  struct rm_object *client;
  uint32_t handle;
  const struct rm_type *type;
  struct nv_gpu *gpu; /* NULL for a client */
  union {
    struct rm_client root;
    struct rm_device device;
    struct rm_memory_object memory;
    struct rm_virtual virtual;
    struct rm_vas *vas;
    struct rm_group group;
    struct rm_ctxshare ctxshare;
    struct rm_channel channel;
    struct rm_event_object event;
    struct rm_profiler profiler;
    struct rm_object *target;  /* the debugger's engine object */
    uint32_t subdevice_events; /* action of EVENT_SET_NOTIFICATION */
  };
};

/* One call and its caller. */
struct rm_call {
  struct nv_machine *m;
  struct nv_file *ctl; /* the control file of the descriptor, or the one that it is registered with */
};

/* A class that can be allocated. */
struct rm_type {
  uint32_t class;
  const char *name;
  enum rm_kind kind;
  uint32_t parents;      /* one bit per rm_kind */
  uint16_t size, branch; /* size of the parameters; branch: offset of the size in struct rm_branch if it differs per
                            branch, or 0 */
  bool required, listed; /* required: parameters must be given; listed: the class must be in the GPU's class list */
  /* params: the newest version of the structure, zero after the caller's bytes; written back afterwards. */
  uint32_t (*construct)(struct rm_call *c, struct rm_object *o, void *params);
};
extern const struct rm_type nv_rm_types[];
const struct rm_type *nv_rm_type_find(uint32_t class);

/* ---- rm_object.c ---- */

uint32_t nv_rm_object_alloc(struct rm_call *c, uint32_t root, uint32_t parent, uint32_t *handle, uint32_t class,
                            uint64_t params);
/* Creates an object of a type and adds it to its parent. The caller then does the work of construct, and deletes the
 * object if that fails. */
uint32_t nv_rm_object_new(struct rm_call *c, uint32_t client, uint32_t parent, uint32_t handle,
                          const struct rm_type *type, struct rm_object **out);
uint32_t nv_rm_object_free(struct rm_call *c, uint32_t root, uint32_t handle);
void nv_rm_object_delete(struct nv_machine *m, struct rm_object *o);
uint32_t nv_rm_object_dup(struct rm_call *c, struct rm_dup_object *p);
/* Returns the client of a handle if the caller may use it, else NULL. */
struct rm_object *nv_rm_client_find(struct rm_call *c, uint32_t handle);
struct rm_object *nv_rm_find(struct rm_object *client, uint32_t handle);
/* Returns the object if it is of one of kinds (bits). Otherwise it stores the reason and *status. what: the name of the
 * field, for the reason. */
struct rm_object *nv_rm_find_kind(struct nv_machine *m, struct rm_object *client, uint32_t handle, uint32_t kinds,
                                  const char *what, uint32_t *status);
static inline struct rm_object *rm_ancestor(struct rm_object *o, enum rm_kind kind) {
  while (o && o->type->kind != kind) o = o->parent;
  return o;
}
/* Frees the clients that were created with a control file. */
void nv_rm_clients_close(struct nv_machine *m, struct nv_file *ctl);

/* ---- rm_memory.c ---- */

uint32_t nv_rm_memory_physical(struct rm_call *c, struct rm_object *o, void *params);
uint32_t nv_rm_memory_reserve(struct rm_call *c, struct rm_object *o, void *params);
uint32_t nv_rm_memory_window(struct rm_call *c, struct rm_object *o, void *params);
uint32_t nv_rm_usermode(struct rm_call *c, struct rm_object *o, void *params);
uint32_t nv_rm_vaspace(struct rm_call *c, struct rm_object *o, void *params);
uint32_t nv_rm_memory_import(struct rm_call *c, struct rm_alloc_memory *p);
uint32_t rm_memory_dup(struct rm_call *c, struct rm_object *o, struct rm_object *from);
void nv_rm_memory_object_fini(struct nv_machine *m, struct rm_object *o);
void nv_rm_virtual_fini(struct nv_machine *m, struct rm_object *o);
/* Allocates zeroed sysmem or, if gpu is not NULL, its vidmem. Returns NULL if there is no room. */
struct rm_memory *nv_rm_memory_new(struct nv_machine *m, struct nv_gpu *gpu, uint64_t size);
struct rm_memory *nv_rm_memory_of(struct rm_object *o); /* of a memory, usermode or channel object, or NULL */
/* Returns the address space of a handle (0: the device's default one) with a reference taken. On failure it returns
 * NULL and sets *status. */
struct rm_vas *nv_rm_vas_find(struct rm_call *c, struct rm_object *o, uint32_t handle, uint32_t *status);

/* ---- rm_map.c ---- */

uint32_t nv_rm_map_cpu(struct rm_call *c, struct rm_map_memory *p, int fd);
uint32_t nv_rm_unmap_cpu(struct rm_call *c, const struct rm_unmap_memory *p);
uint32_t nv_rm_map_dma(struct rm_call *c, struct rm_map_memory_dma *p);
uint32_t nv_rm_unmap_dma(struct rm_call *c, const struct rm_unmap_memory_dma *p);
/* Removes the RM mappings of a memory object, or those in a virtual one. */
void nv_rm_dma_forget(struct nv_machine *m, const struct rm_object *o);
void *nv_rm_mmap(struct nv_file *file, void *addr, size_t len, int prot, int flags, uint64_t off);
bool nv_rm_span_take(struct rm_vas *vas, uint64_t *va, uint64_t size, uint64_t align, bool fixed);
void nv_rm_span_drop(struct rm_vas *vas, uint64_t va);

/* ---- rm_channel.c ---- */

uint32_t nv_rm_channel_group(struct rm_call *c, struct rm_object *o, void *params);
uint32_t nv_rm_ctxshare(struct rm_call *c, struct rm_object *o, void *params);
uint32_t nv_rm_channel(struct rm_call *c, struct rm_object *o, void *params);
uint32_t nv_rm_compute(struct rm_call *c, struct rm_object *o, void *params);
uint32_t nv_rm_copy(struct rm_call *c, struct rm_object *o, void *params);
void nv_rm_channel_fini(struct nv_machine *m, struct rm_object *o);
void nv_rm_group_fini(struct nv_machine *m, struct rm_object *o);
uint32_t nv_rm_schedule(struct nv_machine *m, struct rm_object *o, bool on);
void nv_rm_token_notify(struct rm_channel *ch);
/* Returns the copy engine of an NV2080_ENGINE_TYPE, or -1. */
int nv_rm_copy_engine(const struct nv_gpu *gpu, uint32_t engine_type);

/* ---- rm_control.c and the handlers that it calls ---- */

typedef uint32_t rm_handler(struct rm_call *c, struct rm_object *o, void *params, uint32_t size);
struct rm_control_type {
  uint32_t cmd, kinds;
  uint16_t size, branch; /* as in rm_type */
  rm_handler *handler;
};
uint32_t nv_rm_control_call(struct rm_call *c, const struct rm_control *p);
extern const struct rm_control_type nv_rm_query_controls[], nv_rm_channel_controls[], nv_rm_debug_controls[],
    nv_rm_profiler_controls[];

/* ---- rm_profiler.c ---- */

uint32_t nv_rm_profiler(struct rm_call *c, struct rm_object *o, void *params);
void nv_rm_profiler_fini(struct nv_machine *m, struct rm_object *o);

/* ---- rm_event.c ---- */

rm_handler nv_rm_event_enable;
uint32_t nv_rm_event_new(struct rm_call *c, struct rm_object *o, void *params);
uint32_t nv_rm_os_event_alloc(struct rm_call *c, const struct rm_os_event *p);
uint32_t nv_rm_os_event_free(struct rm_call *c, const struct rm_os_event *p);
uint32_t nv_rm_event_data(struct nv_file *file, struct rm_get_event_data *p);
int nv_rm_event_poll(struct nv_file *file, short events, int timeout_ms);
/* Drops references of events to a file or an object that is about to be freed. */
void nv_rm_events_forget(struct nv_machine *m, const struct nv_file *file, const struct rm_object *source);

/* ---- rm_escape.c ---- */

int nv_rm_ioctl(struct nv_file *file, unsigned long request, void *arg);

/* ---- uvm.c, uvm_map.c ---- */

struct uvm_space;
int nv_uvm_ioctl(struct nv_file *file, unsigned long request, void *arg);
void nv_uvm_close(struct nv_machine *m, struct uvm_space *s);
/* Called when the channel is freed. */
void nv_uvm_channel_gone(struct uvm_channel *ch);

/* ---- machine.c ---- */

struct nv_gpu {
  struct nv_machine *machine;
  unsigned index;
  const struct nv_model *model;
  uint32_t gpu_id, minor;
  uint8_t bus;
  struct uvm_uuid uuid;
  struct heap vram;
  int usermode_fd;
  _Atomic uint32_t *usermode;
  struct nv_engines *engines;
  bool attached;
  uint32_t groups; /* number of groups created */
  uint64_t channel_ids[NV_RUNLISTS][NV_CHANNELS / 64];
  pthread_mutex_t log_lock;
  char xid[512];   /* message of the last error */
  uint64_t errors; /* guarded by event_lock */
  struct {         /* the profiler that has each, or NULL */
    struct rm_object *monitors, *sampler, *stream;
  } profiling;
  struct {
    uint32_t action, state;
  } clocks[RM_CLOCK_CLIENTS]; /* what each client asks for; the emulated clocks are always stable */
};

enum nv_file_kind { NV_FILE_CTL, NV_FILE_GPU, NV_FILE_UVM };
struct nv_file {
  struct emu_file file;
  struct nv_machine *machine;
  enum nv_file_kind kind;
  struct nv_gpu *gpu;       /* for NV_FILE_GPU */
  struct nv_file *ctl;      /* the control file that a GPU's file is registered with; holds a reference */
  struct rm_memory *mapped; /* the memory that mmap maps; holds a reference */
  uint64_t map_offset, map_length;
  bool map_read_only;
  uint32_t event_client; /* ALLOC_OS_EVENT was called with */
  bool has_event;
  struct uvm_space *uvm;
  bool uvm_helper; /* MM_INITIALIZE was called */
};
/* Returns the file of a descriptor of this machine with a reference taken, or NULL. */
struct nv_file *nv_file_get(struct nv_machine *m, int fd);
void nv_file_put(struct nv_file *file);

struct nv_machine {
  struct emu_machine base;
  pthread_mutex_t lock;
  char version[32];
  struct rm_branch branch;
  struct nv_gpu *gpus;
  unsigned ngpus;
  struct heap sysmem;
  struct pool *pool;
  struct rm_object **clients;
  size_t nclients;
  uint32_t next_client;
  uint64_t next_map;  /* address of the next MAP_MEMORY */
  struct rm_dma *dma; /* RM_MAP_MEMORY_DMA */
  struct rm_object **events;
  size_t nevents;
  pthread_mutex_t event_lock;
  pthread_cond_t event_cond;
  atomic_bool detail, annotate;
  bool restricted; /* profiling is for administrators, and the process is none */
};

struct nv_gpu *nv_gpu_of_id(struct nv_machine *m, uint32_t gpu_id);
struct nv_gpu *nv_gpu_of_uuid(struct nv_machine *m, const struct uvm_uuid *uuid);
void nv_uuid_text(const struct uvm_uuid *uuid, char text[41]); /* GPU-xxxxxxxx-... */
/* Returns a status and stores the reason. */
#define RM_REFUSE(m, status, ...) (emu_refuse(&(m)->base, (int)(status), __VA_ARGS__), (uint32_t)(status))
/* Returns the size of a structure in this driver branch. */
static inline uint32_t nv_branch_size(const struct nv_machine *m, uint16_t size, uint16_t branch) {
  return branch ? *(const uint16_t *)((const char *)&m->branch + branch) : size;
}
#endif
