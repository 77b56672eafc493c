/* /dev/nvidiactl and /dev/nvidia0... from the point of view of an independent client: escapes, objects, controls,
 * memory, channels. */
#include "nv_client.h"

static int one_gpu(void **state) {
  nv_open_machine("sm_90");
  return 0;
}
static int two_gpus(void **state) {
  nv_open_machine("sm_90,sm_86");
  return 0;
}
static int close_machine(void **state) {
  nv_close_machine();
  return 0;
}

/* ---- nodes and escapes ---- */

static void names_known_gpus(void **state) {
  struct os *none = NULL;
  char err[200] = "";
  assert_int_equal(os_emulated("NV", "sm_75", &none, err, sizeof err), -EINVAL);
  assert_non_null(strstr(err, "sm_75"));
  assert_non_null(strstr(err, "sm_90"));
  assert_int_equal(os_emulated("NV", "", &none, err, sizeof err), -EINVAL);
  assert_int_equal(os_emulated("NV", "sm_90,", &none, err, sizeof err), -EINVAL);
  assert_null(none);
}

static int append_name(void *ctx, const char *name) {
  strcat(strcat(ctx, name), " ");
  return 0;
}
static void files(void **state) {
  char text[1024] = "";
  assert_int_equal(os->open(os, "/dev/nvidia2", O_RDWR), -ENOENT);
  assert_int_equal(os->open(os, "/dev/nvidia0x", O_RDWR), -ENOENT);
  assert_int_equal(os->open(os, "/dev/kfd", O_RDWR), -ENOENT);
  assert_int_equal(os->list_dir(os, "/dev", append_name, text), 0);
  assert_string_equal(text, "nvidiactl nvidia-uvm nvidia0 nvidia1 ");
  *text = 0;
  assert_int_equal(os->list_dir(os, "/proc/driver/nvidia/gpus", append_name, text), 0);
  assert_string_equal(text, "0000:41:00.0 0000:42:00.0 ");
  *text = 0;
  assert_int_equal(os->list_dir(os, "/", append_name, text), 0);
  assert_string_equal(text, "dev proc ");
  assert_int_equal(os->list_dir(os, "/sys", append_name, text), -ENOENT);
  assert_true(os->read_file(os, "/proc/driver/nvidia/version", text, sizeof text) > 0);
  assert_non_null(strstr(text, "  580.142  "));
  assert_true(os->read_file(os, "/proc/driver/nvidia/gpus/0000:42:00.0/information", text, sizeof text) > 0);
  assert_non_null(strstr(text, "NVIDIA GeForce RTX 3090\n"));
  assert_non_null(strstr(text, "Device Minor: \t 1\n"));
  assert_int_equal(os->read_file(os, "/proc/driver/nvidia/gpus/0000:42:00.0/xid", text, sizeof text), 0);
  assert_int_equal(os->read_file(os, "/dev/nvidia0", text, sizeof text), -EINVAL);
  assert_true(os->read_file(os, "/proc/driver/nvidia/params", text, sizeof text) > 0);
  assert_string_equal(text, "RmProfilingAdminOnly: 0\n");
  assert_int_equal(os->read_file(os, "/proc/driver/nvidia/suspend", text, sizeof text), -ENOENT);
}

static void escapes_are_strict(void **state) {
  static uint8_t arg[16384];
  int ctl = nv_open("/dev/nvidiactl"), gpu = nv_open("/dev/nvidia0");
  static const uint32_t refused[][2] = {
      /* request, on the GPU's node */
      {0xc0384627, 0}, {0xc0284627, 1}, {0xc010462a, 0}, {0xc020462a, 1}, {0xc028462b, 0},
      {0xc038464e, 1}, {0xc030464e, 0}, {0xc0384657, 0}, {0xc0284658, 0}, {0xc00446c9, 0},
      {0xc00846c9, 1}, {0xc04846d2, 1}, {0xc04446d2, 0}, {0xc02046ff, 0}, {0xc0204b2a, 0},
      {0xc00846da, 0}, {0xc00146c8, 0}, {0xc00046c8, 0}, {0xc00846d3, 0},
  };
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    if (os->ioctl(os, refused[i][1] ? gpu : ctl, refused[i][0], arg) != -EINVAL)
      fail_msg("request 0x%x was not refused", refused[i][0]);
  assert_int_equal(os->ioctl(os, ctl, 0xc020462a, NULL), -EFAULT);
  assert_int_equal(os->ioctl(os, ctl, 0xc020462a, (void *)0x10), -EFAULT);
  /* Large arguments are passed by reference. */
  struct rm_version v = {.cmd = '2'};
  struct rm_xfer x = {0xd2, sizeof v, (uintptr_t)&v};
  assert_int_equal(os->ioctl(os, ctl, 0xc01046d3, &x), 0);
  assert_string_equal(v.string, "580.142");
  x.ptr = 8;
  assert_int_equal(os->ioctl(os, ctl, 0xc01046d3, &x), -EFAULT);
  x = (struct rm_xfer){0xd3, sizeof x, (uintptr_t)&x};
  assert_int_equal(os->ioctl(os, ctl, 0xc01046d3, &x), -EINVAL);
}

static void version_check(void **state) {
  static const struct {
    uint32_t cmd;
    const char *mine;
    int rc;
  } cases[] = {{'2', "", 0},           {0, "580.142", 0},       {0, "580.95", -EINVAL},
               {'1', "580.95", 0},     {'1', "570.1", -EINVAL}, {'1', "58", -EINVAL},
               {3, "580.142", -EINVAL}};
  int ctl = nv_open("/dev/nvidiactl");
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct rm_version v = {.cmd = cases[i].cmd};
    strcpy(v.string, cases[i].mine);
    assert_int_equal(os->ioctl(os, ctl, 0xc04846d2, &v), cases[i].rc);
    if (cases[i].cmd == 3) continue;
    assert_int_equal(v.reply, 1);
    if (cases[i].rc || cases[i].cmd == '2') assert_string_equal(v.string, "580.142");
  }
}

static void cards(void **state) {
  struct rm_card_info card[64];
  int ctl = nv_open("/dev/nvidiactl");
  assert_int_equal(sizeof card, 0x1200);
  memset(card, 0xff, sizeof card);
  assert_int_equal(os->ioctl(os, ctl, 0xd20046c8, card), 0);
  assert_int_equal(card[0].valid, 1);
  assert_int_equal(card[1].valid, 1);
  assert_int_equal(card[2].valid, 0);
  assert_int_equal(card[0].gpu_id, 0x4100);
  assert_int_equal(card[0].pci_info.bus, 0x41);
  assert_int_equal(card[0].pci_info.vendor_id, 0x10de);
  assert_int_equal(card[0].pci_info.device_id, 0x2330);
  assert_int_equal(card[1].pci_info.device_id, 0x2204);
  assert_int_equal(card[1].minor, 1);
  assert_true(card[0].fb_size >= 80ull << 30);
  assert_int_equal(os->ioctl(os, ctl, 0xc90046c8, card), 0);
  assert_int_equal(os->ioctl(os, ctl, 0xc04846c8, card), -EINVAL); /* room for one */
}

static void registering_descriptors(void **state) {
  int ctl = nv_open("/dev/nvidiactl"), gpu = nv_open("/dev/nvidia0"), uvm = nv_open("/dev/nvidia-uvm");
  assert_int_equal(os->ioctl(os, gpu, 0xc00446c9, &(int32_t){-1}), -EINVAL);
  assert_int_equal(os->ioctl(os, gpu, 0xc00446c9, &(int32_t){uvm}), -EINVAL);
  assert_int_equal(os->ioctl(os, gpu, 0xc00446c9, &(int32_t){gpu}), -EINVAL);
  assert_int_equal(os->ioctl(os, gpu, 0xc00446c9, &(int32_t){ctl}), 0);
  assert_int_equal(os->ioctl(os, gpu, 0xc00446c9, &(int32_t){ctl}), -EINVAL);
  assert_reason("registered already");
}

/* ---- objects ---- */

static void clients_and_handles(void **state) {
  int ctl = nv_open("/dev/nvidiactl"), other = nv_open("/dev/nvidiactl"), gpu = nv_open_gpu(ctl, 0);
  uint32_t a = 0, b = 0, mine = 0x1234;
  struct rm_alloc_short brief = {.class = 0};
  struct rm_device_alloc device = {.device_id = 0};
  assert_true(gpu >= 0);
  assert_int_equal(nv_alloc_full(ctl, 0, 0, &a, 0x41, NULL), 0);
  assert_int_equal(os->ioctl(os, ctl, 0xc020462b, &brief), 0); /* class 0 is treated as 0x41 */
  assert_int_equal(brief.status, 0);
  b = brief.object;
  assert_true(a && b && a != b);
  assert_int_equal(nv_alloc_full(ctl, 0, 0, &mine, 0x41, NULL), 0);
  assert_int_equal(mine, 0x1234);
  assert_int_equal(nv_alloc(ctl, 0, 0, 0x1234, 0x41, NULL), 0x19);

  assert_int_equal(nv_alloc(ctl, a, a, 1, 0xbeef, &device), 0x22);
  assert_int_equal(nv_alloc(ctl, 0x99, a, 1, 0x80, &device), 0x23);
  assert_int_equal(nv_alloc(other, a, a, 1, 0x80, &device), 0x23); /* made with another descriptor */
  assert_int_equal(nv_alloc(ctl, a, 0x77, 1, 0x80, &device), 0x57);
  assert_int_equal(nv_alloc(ctl, a, a, 1, 0x2080, NULL), 0x36);
  assert_int_equal(nv_alloc(ctl, a, a, 1, 0x80, NULL), 0x1f);
  assert_int_equal(nv_alloc(ctl, a, a, 1, 0x80, (void *)8), 0x1e);
  device.device_id = 7;
  assert_int_equal(nv_alloc(ctl, a, a, 1, 0x80, &device), 0x26);
  device.device_id = 0;
  assert_int_equal(nv_alloc(ctl, a, a, 1, 0x80, &device), 0);
  assert_int_equal(nv_alloc(ctl, a, a, 1, 0x80, &device), 0x19);
  assert_int_equal(nv_alloc(ctl, a, 1, 2, 0xcbc0, NULL), 0x36);
  assert_int_equal(nv_alloc(ctl, a, 1, 2, 0xc561, NULL), 0x36);
  assert_int_equal(nv_alloc(ctl, b, 1, 2, 0x2080, NULL), 0x57); /* another client's handle */

  assert_int_equal(nv_free(ctl, a, 5), 0x57);
  assert_int_equal(nv_free(ctl, 0x99, 5), 0x23);
  assert_int_equal(nv_alloc(ctl, a, 1, 2, 0x2080, NULL), 0);
  assert_int_equal(nv_free(ctl, a, 1), 0); /* with the subdevice below it */
  assert_int_equal(nv_free(ctl, a, 2), 0x57);
  assert_int_equal(nv_free(ctl, a, a), 0);
  assert_int_equal(nv_alloc(ctl, a, a, 1, 0x80, &device), 0x23);
  struct rm_alloc flagged = {.class = 0x41, .flags = 1};
  assert_int_equal(os->ioctl(os, ctl, 0xc030462b, &flagged), 0);
  assert_int_equal(flagged.status, 0x29);
}

/* A thousand handles make the tables grow and are found again. */
static void many_handles(void **state) {
  struct nv_client c = nv_connect();
  for (uint32_t i = 0; i < 1000; i++) assert_int_equal(nv_memory(&c, 0, 0x100000 + i * 64, 4096, true), 0);
  for (uint32_t i = 0; i < 1000; i += 2) assert_int_equal(nv_free(c.ctl, c.root, 0x100000 + i * 64), 0);
  for (uint32_t i = 0; i < 1000; i++) assert_int_equal(nv_free(c.ctl, c.root, 0x100000 + i * 64), i % 2 ? 0 : 0x57);
}

static void classes_of_the_gpu(void **state) {
  struct nv_client c = nv_connect();
  uint32_t list[64], n;
  nv_add_gpu(&c, 1);
  assert_int_equal(nv_alloc(c.ctl, c.root, at_gpu(SUBDEVICE, 1), 5, 0xc661, NULL), 0x22); /* Hopper's, on GA102 */
  assert_reason("GA102");
  assert_int_equal(nv_alloc(c.ctl, c.root, SUBDEVICE, 5, 0xc661, NULL), 0);

  struct rm_class_list p = {0};
  assert_int_equal(nv_control(c.ctl, c.root, DEVICE, 0x800201, &p, 16), 0);
  n = p.count;
  assert_true(n > 20 && n < 64);
  p = (struct rm_class_list){.count = n - 1, .list = (uintptr_t)list};
  assert_int_equal(nv_control(c.ctl, c.root, DEVICE, 0x800201, &p, 16), 0x3a);
  p = (struct rm_class_list){.count = n, .list = 16};
  assert_int_equal(nv_control(c.ctl, c.root, DEVICE, 0x800201, &p, 16), 0x1e);
  p = (struct rm_class_list){.count = n, .list = (uintptr_t)list};
  assert_int_equal(nv_control(c.ctl, c.root, DEVICE, 0x800201, &p, 16), 0);
  static const uint32_t hopper[] = {0xc661, 0xc86f, 0xcbc0, 0xc8b5, 0x90f1, 0x40, 0x3e, 0xa06c, 0x9067};
  for (size_t i = 0; i < sizeof hopper / sizeof hopper[0]; i++) {
    unsigned found = 0;
    for (uint32_t k = 0; k < n; k++) found += list[k] == hopper[i];
    assert_int_equal(found, 1);
  }
  struct rm_class_list_v2 v2 = {0};
  assert_int_equal(nv_control(c.ctl, c.root, DEVICE, 0x800292, &v2, 804), 0);
  assert_int_equal(v2.count, n);
  assert_memory_equal(v2.list, list, n * 4);
}

/* ---- controls ---- */

static void controls_are_strict(void **state) {
  struct nv_client c = nv_connect();
  struct rm_arch_info arch = {0};
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20801701, &arch, 16), 0);
  assert_int_equal(arch.architecture, 0x180);
  assert_int_equal(arch.implementation, 0);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20801701, &arch, 20), 0x1f);
  assert_reason("paramsSize is 20");
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20801701, &arch, 0), 0x1f);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20801701, NULL, 16), 0x1f);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20801701, (void *)16, 16), 0x1e);
  assert_int_equal(nv_control(c.ctl, c.root, DEVICE, 0x20801701, &arch, 16), 0x56);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x2080ffff, &arch, 16), 0x56);
  assert_int_equal(nv_control(c.ctl, c.root, 0x77, 0x20801701, &arch, 16), 0x57);
  assert_int_equal(nv_control(c.ctl, 0x77, SUBDEVICE, 0x20801701, &arch, 16), 0x23);
  struct rm_control flagged = {.client = c.root,
                               .object = SUBDEVICE,
                               .cmd = 0x20801701,
                               .flags = 2,
                               .params = (uintptr_t)&arch,
                               .params_size = 16};
  assert_int_equal(os->ioctl(os, c.ctl, 0xc020462a, &flagged), 0);
  assert_int_equal(flagged.status, 0x29);
}

static uint32_t gr_info(struct nv_client *c, unsigned gpu, uint32_t index) {
  struct rm_info info = {index, 0xdead};
  struct rm_gr_info p = {.count = 1, .list = (uintptr_t)&info};
  assert_int_equal(nv_control(c->ctl, c->root, at_gpu(SUBDEVICE, gpu), 0x20801201, &p, 32), 0);
  return info.data;
}

static void what_the_gpus_are(void **state) {
  static const struct {
    uint32_t sm_version, warps, gpcs, tpcs_per_gpc, sms;
    uint64_t memory;
    const char *name;
  } gpus[] = {{0x900, 64, 8, 9, 132, 80ull << 20, "NVIDIA H100 80GB HBM3"},
              {0x806, 48, 7, 6, 82, 24ull << 20, "NVIDIA GeForce RTX 3090"}};
  struct nv_client c = nv_connect();
  char text[1024], uuid[64];
  nv_add_gpu(&c, 1);
  for (unsigned i = 0; i < 2; i++) {
    uint32_t sub = at_gpu(SUBDEVICE, i), sms = 0;
    assert_int_equal(gr_info(&c, i, 0xc), gpus[i].sm_version);
    assert_int_equal(gr_info(&c, i, 0xd), gpus[i].warps);
    assert_int_equal(gr_info(&c, i, 0x14), gpus[i].gpcs);
    assert_int_equal(gr_info(&c, i, 0x17), gpus[i].tpcs_per_gpc);
    assert_int_equal(gr_info(&c, i, 0x20), 2);
    struct rm_gpc_mask gpcs = {0};
    assert_int_equal(nv_control(c.ctl, c.root, sub, 0x2080122a, &gpcs, 24), 0);
    assert_int_equal(__builtin_popcount(gpcs.gpc_mask), gpus[i].gpcs);
    for (unsigned g = 0; g < gpus[i].gpcs; g++) {
      struct rm_tpc_mask tpcs = {.gpc_id = g};
      assert_int_equal(nv_control(c.ctl, c.root, sub, 0x2080122b, &tpcs, 24), 0);
      assert_true(tpcs.tpc_mask < 1u << gpus[i].tpcs_per_gpc);
      sms += 2 * (unsigned)__builtin_popcount(tpcs.tpc_mask);
    }
    assert_int_equal(sms, gpus[i].sms);
    struct rm_info fb = {8, 0};
    struct rm_fb_info list = {.count = 1, .list = (uintptr_t)&fb};
    assert_int_equal(nv_control(c.ctl, c.root, sub, 0x20801301, &list, 16), 0);
    assert_int_equal(fb.data, gpus[i].memory);
    struct rm_fb_info_v2 fb2 = {.count = 2, .list = {{0x9, 0}, {0x16, 0}}};
    assert_int_equal(nv_control(c.ctl, c.root, sub, 0x20801303, &fb2, 1028), 0);
    assert_int_equal(fb2.list[0].data, fb2.list[1].data); /* nothing is allocated */
    char name[132] = {0};
    assert_int_equal(nv_control(c.ctl, c.root, sub, 0x20800110, name, 132), 0);
    assert_string_equal(name + 4, gpus[i].name);
    /* The UUID in both forms, equal to the one in the file. */
    struct rm_gid_info gid = {.flags = 0};
    assert_int_equal(nv_control(c.ctl, c.root, sub, 0x2080014a, &gid, 268), 0);
    assert_int_equal(gid.length, 41);
    struct uvm_uuid binary = nv_uuid(&c, i);
    const uint8_t *b = binary.bytes;
    snprintf(uuid, sizeof uuid, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    assert_string_equal((char *)gid.data, uuid);
    snprintf(text, sizeof text, "/proc/driver/nvidia/gpus/0000:%02x:00.0/information", 0x41 + i);
    assert_true(os->read_file(os, text, text, sizeof text) > 0);
    assert_non_null(strstr(text, uuid));
  }
  struct uvm_uuid first = nv_uuid(&c, 0), second = nv_uuid(&c, 1);
  assert_memory_not_equal(&first, &second, sizeof first);
  struct rm_info bad = {0x7fff, 0};
  struct rm_gr_info p = {.count = 1, .list = (uintptr_t)&bad};
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20801201, &p, 32), 0x56);
  p.list = 1;
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20801201, &p, 32), 0x1e);
  p.count = 1u << 30;
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20801201, &p, 32), 0x1f);
}

static void system_queries(void **state) {
  struct nv_client c = nv_connect();
  struct rm_build_version v = {0};
  struct rm_gpu_id_info id = {.gpu_id = 0x4100};
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x13e, &v, 1032), 0);
  assert_string_equal(v.driver_version, "580.142");
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x205, &id, 32), 0);
  assert_int_equal(id.device_instance, 0);
  id.gpu_id = 0x4200; /* its node is not open */
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x205, &id, 32), 0x1f);
  struct rm_attached_ids attached;
  struct rm_probed_ids probed;
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x214, &probed, 384), 0);
  assert_int_equal(probed.gpu_ids[1], 0x4200);
  assert_int_equal(probed.gpu_ids[2], 0xffffffff);
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x201, &attached, 128), 0);
  assert_int_equal(attached.gpu_ids[1], 0xffffffff);
  struct rm_attach_ids attach = {.gpu_ids = {0x4200, 0xffffffff}};
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x215, &attach, 132), 0);
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x205, &id, 32), 0);
  assert_int_equal(id.device_instance, 1);
  attach.gpu_ids[0] = 0x5500;
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x215, &attach, 132), 0x1f);
  assert_int_equal(attach.failed_id, 0x5500);
  static struct rm_p2p_caps_v2 p2p;
  p2p = (struct rm_p2p_caps_v2){.gpu_ids = {0x4100, 0x4200}, .gpu_count = 2};
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x12b, &p2p, 8348), 0);
  assert_int_equal(p2p.caps & 3, 3);
  struct rm_ce_caps ce = {0};
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20802a0a, &ce, 136), 0);
  assert_int_equal(ce.present, 0x3ff);
  assert_int_equal(ce.caps[0][0] & 1, 1); /* a copy engine of the graphics runlist */
  assert_int_equal(ce.caps[9][0] & 1, 0);
  struct rm_engines_v2 engines = {0};
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20800170, &engines, 340), 0);
  assert_int_equal(engines.count, 11);
  assert_int_equal(engines.list[0], 1);
  assert_int_equal(engines.list[10], 0x12);
}

static void clocks_are_asked_for(void **state) {
  struct nv_client c = nv_connect();
  enum { GET = 0x2080206e, SET = 0x2080206f, OS = 3, LOCK = 3 };
  struct rm_rated_tdp ask = {.client = OS, .action = LOCK}, read = {.client = OS, .action = 99, .state = 99};
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, SET, &ask, 12), 0);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, GET, &read, 12), 0);
  assert_int_equal(read.action, LOCK);
  assert_int_equal(read.state, 0);
  read.client = 4;
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, GET, &read, 12), 0);
  assert_int_equal(read.action, 0);
  const struct rm_rated_tdp bad[] = {{0, LOCK, 0}, {5, LOCK, 0}, {OS, 5, 0}, {OS, LOCK, 2}};
  for (int i = 0; i < 4; i++) {
    ask = bad[i];
    assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, SET, &ask, 12), 0x1f);
  }
  read.client = 5;
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, GET, &read, 12), 0x1f);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, GET, &read, 8), 0x1f);
}

static void time_goes_on(void **state) {
  struct nv_client c = nv_connect();
  struct rm_timer_time a, b;
  struct rm_time_correlation t = {.cpu_clock = 3, .count = 2};
  nv_map_usermode(&c, 0, 0xc661);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20800403, &a, 8), 0);
  uint32_t low = c.usermode[0x80 / 4];
  for (int i = 0; i < 1000 && c.usermode[0x80 / 4] == low; i++) nanosleep(&(struct timespec){0, 1000000}, NULL);
  assert_int_not_equal(c.usermode[0x80 / 4], low);
  uint64_t page = (uint64_t)c.usermode[0x84 / 4] << 32 | c.usermode[0x80 / 4];
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20800403, &b, 8), 0);
  assert_true(a.ns < b.ns);
  assert_true(a.ns <= page && page <= b.ns);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20800406, &t, 264), 0);
  assert_true(b.ns <= t.samples[0].gpu_time && t.samples[0].gpu_time <= t.samples[1].gpu_time);
  assert_true(t.samples[0].cpu_time && t.samples[0].cpu_time <= t.samples[1].cpu_time);
  t.count = 17;
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20800406, &t, 264), 0x1f);
}

/* Structures have the size and the offsets of the module's branch. */
static void other_branches(void **state) {
  struct nv_client c;
  uint8_t buffer[8400] = {0};
  assert_int_equal(nv_machine_version(os, "999.1"), -EINVAL);
  assert_int_equal(nv_machine_version(os, "535.261.03"), 0);
  c = nv_connect();
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x13e, buffer, 1032), 0x1f);
  assert_int_equal(nv_control(c.ctl, c.root, c.root, 0x13e, buffer, 776), 0);
  assert_string_equal((char *)buffer, "535.261.03");
  assert_non_null(strstr((char *)buffer + 512, "535.261.03"));
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20802a0a, buffer, 136), 0x1f);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20802a0a, buffer, 68), 0);
  assert_int_equal(*(uint32_t *)(buffer + 64), 0x3ff);
  assert_int_equal(os->ioctl(os, c.ctl, 0xc0404657, buffer), -EINVAL);
  assert_int_equal(os->ioctl(os, c.ctl, 0xc0304658, buffer), -EINVAL);
  assert_int_equal(os->ioctl(os, c.ctl, 0xc0384657, buffer), 0);
  assert_int_equal(os->ioctl(os, c.ctl, 0xc0284658, buffer), 0);
  assert_int_equal(*(uint32_t *)(buffer + 32), 0x23); /* NVOS47's status in 535 */
  assert_int_equal(os->ioctl(os, c.gpu, 0xc00846da, buffer), -EINVAL);
  nv_close_machine();
  nv_open_machine("sm_90");
  assert_int_equal(nv_machine_version(os, "595.45.04"), 0);
  c = nv_connect();
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20800110, buffer, 132), 0x1f);
  memset(buffer, 0, 4);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x20800110, buffer, 68), 0);
  assert_string_equal((char *)buffer + 4, "NVIDIA H100 80GB HBM3");
}

/* ---- memory ---- */

static uint64_t heap_free(struct nv_client *c) {
  struct rm_info fb = {0x16, 0};
  struct rm_fb_info list = {.count = 1, .list = (uintptr_t)&fb};
  assert_int_equal(nv_control(c->ctl, c->root, SUBDEVICE, 0x20801301, &list, 16), 0);
  return (uint64_t)fb.data << 10;
}

static void allocations(void **state) {
  struct nv_client c = nv_connect();
  struct rm_memory_alloc good = {.flags = 0x1c101, .attr = 3u << 27 | 3u << 23, .attr2 = 1u << 20, .size = 3 << 20},
                         p = good;
  uint64_t before = heap_free(&c);
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, 0x10, 0x40, &p), 0);
  assert_int_equal(p.size, 4 << 20); /* two large pages */
  assert_int_equal(p.limit, (4 << 20) - 1);
  assert_int_equal(before - heap_free(&c), 4 << 20);
  static const struct {
    size_t at;
    uint64_t value;
    size_t bytes;
    uint32_t status;
  } bad[] = {
      {offsetof(struct rm_memory_alloc, size), 0, 8, 0x1f},
      {offsetof(struct rm_memory_alloc, size), 1ull << 40, 8, 0x51},
      {offsetof(struct rm_memory_alloc, size), UINT64_MAX, 8, 0x51},
      {offsetof(struct rm_memory_alloc, alignment), 12288, 8, 0x1f},
      {offsetof(struct rm_memory_alloc, attr), 1u << 25, 4, 0x1f}, /* in system memory */
      {offsetof(struct rm_memory_alloc, attr), 7u << 29, 4, 0x1f},
      {offsetof(struct rm_memory_alloc, flags), 0x80000, 4, 0x1f}, /* virtual */
      {offsetof(struct rm_memory_alloc, flags), 0x10, 4, 0x56},    /* at a fixed address */
      {offsetof(struct rm_memory_alloc, flags), 1u << 31, 4, 0x29},
      {offsetof(struct rm_memory_alloc, type), 99, 4, 0x1f},
      {offsetof(struct rm_memory_alloc, va_space), VAS, 4, 0x1f},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    p = good;
    memcpy((char *)&p + bad[i].at, &bad[i].value, bad[i].bytes);
    assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, 0x11, 0x40, &p), bad[i].status);
  }
  p = good; /* attributes of system memory, but in video memory */
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, 0x11, 0x3e, &p), 0x1f);
  assert_int_equal(nv_free(c.ctl, c.root, 0x10), 0);
  assert_int_equal(heap_free(&c), before);

  /* Closing a client's descriptor frees everything that the client left. */
  struct nv_client other = {.ctl = nv_open("/dev/nvidiactl"), .root = 0x77};
  assert_int_equal(nv_alloc(other.ctl, 0, 0, 0x77, 0x41, NULL), 0);
  nv_add_gpu(&other, 0);
  assert_int_equal(nv_memory(&other, 0, 0x10, 1 << 20, false), 0);
  assert_int_equal(before - heap_free(&c), 1 << 20);
  os->close(os, other.gpu); /* it holds the control descriptor open */
  os->close(os, other.ctl);
  assert_int_equal(heap_free(&c), before);
}

static void cpu_mappings(void **state) {
  struct nv_client c = nv_connect();
  uint64_t address;
  nv_add_gpu(&c, 1);
  assert_int_equal(nv_memory(&c, 0, 0x10, 0x10000, false), 0);
  assert_int_equal(nv_memory(&c, 0, 0x11, 0x10000, true), 0);
  uint32_t *a = nv_map(&c, 0, 0x10, 0x10000, false), *b = nv_map(&c, 0, 0x10, 0x10000, false);
  assert_int_equal(a[100], 0);
  a[100] = 77;
  assert_int_equal(b[100], 77);
  uint32_t *s = nv_map(&c, 0, 0x11, 0x10000, true);
  assert_int_equal(s[100], 0);
  s[100] = 78;
  os->munmap(os, b, 0x10000);

  int gpu = nv_open_gpu(c.ctl, 0), other = nv_open_gpu(c.ctl, 1), ctl = nv_open("/dev/nvidiactl");
  int fresh = nv_open("/dev/nvidia0"), uvm = nv_open("/dev/nvidia-uvm");
  assert_true(os_map_failed(os->mmap(os, NULL, 4096, PROT_READ, MAP_SHARED, gpu, 0)));
  assert_int_equal(nv_map_fd(&c, 0, 0x10, 0, 4096, 0, ctl, NULL), 0x1f);
  assert_int_equal(nv_map_fd(&c, 0, 0x10, 0, 4096, 0, other, NULL), 0x1f);
  assert_int_equal(nv_map_fd(&c, 0, 0x10, 0, 4096, 0, fresh, NULL), 0x1f);
  assert_reason("REGISTER_FD");
  assert_int_equal(nv_map_fd(&c, 0, 0x10, 0, 4096, 0, uvm, NULL), 0x1f);
  assert_int_equal(nv_map_fd(&c, 0, 0x10, 0, 4096, 0, -1, NULL), 0x1f);
  assert_int_equal(nv_map_fd(&c, 0, 0x11, 0, 4096, 0, gpu, NULL), 0x1f);
  assert_int_equal(nv_map_fd(&c, 0, 0x10, 0x10000, 4096, 0, gpu, NULL), 0x1f);
  assert_int_equal(nv_map_fd(&c, 0, 0x10, 0, 0x10001, 0, gpu, NULL), 0x1f);
  assert_int_equal(nv_map_fd(&c, 0, 0x10, 8, 4096, 0, gpu, NULL), 0x1f);
  assert_int_equal(nv_map_fd(&c, 0, 0x10, UINT64_MAX & ~0xfffull, 4096, 0, gpu, NULL), 0x1f);
  assert_int_equal(nv_map_fd(&c, 0, 0x12, 0, 4096, 0, gpu, NULL), 0x33);
  assert_int_equal(nv_map_fd(&c, 0, SUBDEVICE, 0, 4096, 0, gpu, NULL), 0x33);
  assert_int_equal(nv_map_fd(&c, 1, 0x10, 0, 4096, 0, gpu, NULL), 0x36);
  assert_int_equal(nv_map_fd(&c, 0, 0x10, 0x1000, 0x2000, 1, gpu, &address), 0); /* read-only */
  assert_int_equal(nv_map_fd(&c, 0, 0x10, 0, 4096, 0, gpu, NULL), 0x63);         /* one mapping per descriptor */
  assert_int_equal((intptr_t)os->mmap(os, NULL, 0x2000, PROT_READ | PROT_WRITE, MAP_SHARED, gpu, 0), -EACCES);
  assert_int_equal((intptr_t)os->mmap(os, NULL, 0x3000, PROT_READ, MAP_SHARED, gpu, 0), -EINVAL);
  assert_int_equal((intptr_t)os->mmap(os, NULL, 0x1000, PROT_READ, MAP_SHARED, gpu, 0x1000), -EINVAL);
  a[0x1000 / 4] = 79;
  uint32_t *r = os->mmap(os, NULL, 0x2000, PROT_READ, MAP_SHARED, gpu, 0);
  assert_false(os_map_failed(r));
  assert_int_equal(r[0], 79);

  struct rm_unmap_memory u = {.client = c.root, .device = DEVICE, .memory = 0x10, .address = address};
  assert_int_equal(os->ioctl(os, c.ctl, 0xc020464f, &u), 0);
  assert_int_equal(u.status, 0);
  assert_int_equal(os->ioctl(os, c.ctl, 0xc020464f, &u), 0);
  assert_int_equal(u.status, 0x31);
  /* Freed memory is zeroed when it is allocated again. */
  assert_int_equal(nv_free(c.ctl, c.root, 0x10), 0);
  assert_int_equal(nv_memory(&c, 0, 0x10, 0x10000, false), 0);
  uint32_t *again = nv_map(&c, 0, 0x10, 0x10000, false);
  for (unsigned i = 0; i < 0x10000 / 4; i++) assert_int_equal(again[i], 0);
}

static uint32_t import(struct nv_client *c, uint32_t handle, void *p, uint64_t size, uint32_t flags) {
  struct rm_alloc_memory_fd a = {.params = {.root = c->root,
                                            .parent = DEVICE,
                                            .object = handle,
                                            .class = 0x71,
                                            .flags = flags,
                                            .memory = (uintptr_t)p,
                                            .limit = size - 1},
                                 .fd = -1};
  assert_int_equal(os->ioctl(os, c->gpu, 0xc0384627, &a), 0);
  return a.params.status;
}

static void imported_pages(void **state) {
  struct nv_client c = nv_connect();
  uint8_t *p = mmap(NULL, 0x4000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_int_equal(import(&c, 0x20, p, 0x4000, 0x40001010), 0);
  assert_int_equal(import(&c, 0x20, p, 0x4000, 0x40001010), 0x19);
  assert_int_equal(import(&c, 0, p, 0x4000, 0x40001010), 0x33);
  assert_int_equal(import(&c, 0x21, p + 8, 0x1000, 0x40001010), 0x1e);
  assert_int_equal(import(&c, 0x21, p, 0x1001, 0x40001010), 0x1e);
  assert_int_equal(import(&c, 0x21, p, 0, 0x40001010), 0x1e);
  assert_int_equal(import(&c, 0x21, NULL, 0x1000, 0x40001010), 0x1e);
  assert_int_equal(import(&c, 0x21, p, 0x4000, 0x40001000), 0x29); /* contiguous */
  assert_int_equal(import(&c, 0x21, p, 0x4000, 0x40001210), 0x29); /* in video memory */
  mprotect(p, 0x1000, PROT_READ);
  assert_int_equal(import(&c, 0x21, p, 0x4000, 0x40001010), 0x1e);
  assert_int_equal(import(&c, 0x21, p, 0x4000, 0x40001010 | 1 << 22), 0); /* the device reads only */
  munmap(p, 0x4000);
  assert_int_equal(import(&c, 0x22, p, 0x4000, 0x40001010), 0x1e);
  /* The memory is the caller's and cannot be mapped again. */
  int ctl = nv_open("/dev/nvidiactl");
  assert_int_equal(nv_map_fd(&c, 0, 0x20, 0, 0x1000, 0, ctl, NULL), 0x56);
  assert_int_equal(nv_free(c.ctl, c.root, 0x20), 0);
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, 0x23, 0x71, NULL), 0x22);
}

static void duplicates(void **state) {
  struct nv_client c = nv_connect();
  uint64_t before = heap_free(&c);
  assert_int_equal(nv_memory(&c, 0, 0x10, 0x10000, false), 0);
  uint32_t *a = nv_map(&c, 0, 0x10, 0x10000, false);
  struct rm_dup_object d = {
      .client = c.root, .parent = DEVICE, .object = 0x11, .client_src = c.root, .object_src = 0x10};
  assert_int_equal(os->ioctl(os, c.ctl, 0xc01c4634, &d), 0);
  assert_int_equal(d.status, 0);
  a[1] = 5;
  assert_int_equal(nv_free(c.ctl, c.root, 0x10), 0);
  uint32_t *b = nv_map(&c, 0, 0x11, 0x10000, false);
  assert_int_equal(b[1], 5);
  assert_int_equal(before - heap_free(&c), 0x10000);
  assert_int_equal(nv_free(c.ctl, c.root, 0x11), 0);
  assert_int_equal(heap_free(&c), before);
  d.object_src = SUBDEVICE;
  assert_int_equal(os->ioctl(os, c.ctl, 0xc01c4634, &d), 0);
  assert_int_equal(d.status, 0x56);
  d.object_src = 0x55;
  assert_int_equal(os->ioctl(os, c.ctl, 0xc01c4634, &d), 0);
  assert_int_equal(d.status, 0x57);
}

/* ---- address spaces that RM owns, and channels in them ---- */

static uint32_t reserve(struct nv_client *c, uint32_t handle, uint32_t vas, uint64_t *va, uint64_t size, bool fixed) {
  struct rm_memory_alloc p = {.flags = 0x84001 | (fixed ? 0x10u : 0),
                              .attr = 1u << 25 | 1u << 27,
                              .size = size,
                              .alignment = 0x10000,
                              .va_space = vas,
                              .offset = fixed ? *va : 0};
  uint32_t status = nv_alloc(c->ctl, c->root, DEVICE, handle, 0x50a0, &p);
  if (!status) *va = p.offset;
  return status;
}
static uint32_t map_dma(struct nv_client *c, uint32_t window, uint32_t memory, uint64_t offset, uint64_t length,
                        uint32_t flags, uint64_t *va) {
  struct rm_map_memory_dma p = {.client = c->root,
                                .device = DEVICE,
                                .dma = window,
                                .memory = memory,
                                .offset = offset,
                                .length = length,
                                .flags = flags,
                                .dma_offset = *va};
  assert_int_equal(os->ioctl(os, c->ctl, 0xc0404657, &p), 0);
  if (!p.status) *va = p.dma_offset;
  return p.status;
}
static uint32_t unmap_dma(struct nv_client *c, uint32_t window, uint32_t memory, uint64_t va) {
  struct rm_unmap_memory_dma p = {
      .client = c->root, .device = DEVICE, .dma = window, .memory = memory, .dma_offset = va};
  assert_int_equal(os->ioctl(os, c->ctl, 0xc0304658, &p), 0);
  return p.status;
}

static void ranges_and_mappings(void **state) {
  struct nv_client c = nv_connect();
  uint64_t va = 0, other = 0, at;
  assert_int_equal(nv_vaspace(&c, 0, VAS, 0), 0);
  assert_int_equal(nv_vaspace(&c, 0, VAS + 1, 1 << 3), 0); /* externally owned */
  assert_int_equal(nv_vaspace(&c, 0, VAS + 2, 1u << 31), 0x29);
  assert_int_equal(nv_memory(&c, 0, 0x10, 0x10000, false), 0);
  assert_int_equal(reserve(&c, 0x30, VAS + 1, &va, 0x10000, false), 0x1f);
  assert_int_equal(reserve(&c, 0x30, 0x10, &va, 0x10000, false), 0x33);
  assert_int_equal(reserve(&c, 0x30, VAS, &va, 0x20000, false), 0);
  assert_int_equal(reserve(&c, 0x31, VAS, &other, 0x20000, false), 0);
  assert_true(va && va % 0x10000 == 0 && (va + 0x20000 <= other || other + 0x20000 <= va));
  at = va + 0x10000;
  assert_int_equal(reserve(&c, 0x32, VAS, &at, 0x10000, true), 0x51); /* taken */
  at = other + 0x100000;
  assert_int_equal(reserve(&c, 0x32, VAS, &at, 0x10000, true), 0);
  assert_int_equal(at, other + 0x100000);

  at = 0x1000; /* from the start of the range */
  assert_int_equal(map_dma(&c, 0x30, 0x10, 0, 0x8000, 0, &at), 0);
  assert_int_equal(at, va + 0x1000);
  at = va + 0xa000; /* absolute */
  assert_int_equal(map_dma(&c, 0x30, 0x10, 0x4000, 0x4000, 1 << 15, &at), 0);
  at = va + 0x8000;
  assert_int_equal(map_dma(&c, 0x30, 0x10, 0, 0x1000, 1 << 15, &at), 0x63); /* mapped */
  at = 0x1f000;
  assert_int_equal(map_dma(&c, 0x30, 0x10, 0, 0x2000, 0, &at), 0x37); /* past the end */
  at = va - 0x1000;
  assert_int_equal(map_dma(&c, 0x30, 0x10, 0, 0x1000, 1 << 15, &at), 0x37);
  at = 0x10001;
  assert_int_equal(map_dma(&c, 0x30, 0x10, 0, 0x1000, 0, &at), 0x37);
  at = 0x10000;
  assert_int_equal(map_dma(&c, 0x30, 0x10, 0xf000, 0x2000, 0, &at), 0x1f);
  assert_int_equal(map_dma(&c, VAS, 0x10, 0, 0x1000, 0, &at), 0x33); /* the range, never the space */
  assert_int_equal(map_dma(&c, 0x30, 0x99, 0, 0x1000, 0, &at), 0x33);
  assert_int_equal(unmap_dma(&c, 0x30, 0x10, va), 0x37);
  assert_int_equal(unmap_dma(&c, 0x30, 0x10, va + 0x1000), 0);
  assert_int_equal(unmap_dma(&c, 0x30, 0x10, va + 0x1000), 0x37);
  /* Freeing the memory removes its remaining mappings. */
  assert_int_equal(nv_free(c.ctl, c.root, 0x10), 0);
  assert_int_equal(unmap_dma(&c, 0x30, 0x10, va + 0xa000), 0x37);

  /* A window over the device's own address space chooses addresses, or uses the requested ones. */
  struct rm_memory_virtual_alloc window = {.limit = 0x1ffffffffffff};
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, 0x33, 0x70, &window), 0);
  assert_int_equal(nv_memory(&c, 0, 0x10, 0x10000, true), 0);
  at = 0, other = 0;
  assert_int_equal(map_dma(&c, 0x33, 0x10, 0, 0x10000, 0, &at), 0);
  assert_int_equal(map_dma(&c, 0x33, 0x10, 0, 0x10000, 0, &other), 0);
  assert_true(at && other && at != other);
  other = at;
  assert_int_equal(map_dma(&c, 0x33, 0x10, 0, 0x1000, 1 << 15, &other), 0x51);
  assert_int_equal(unmap_dma(&c, 0x33, 0x10, at), 0);
  assert_int_equal(map_dma(&c, 0x33, 0x10, 0, 0x1000, 1 << 15, &other), 0);
}

enum { AREA_MEMORY = 0x100, NOTIFIER = 0x101, DATA = 0x102, RANGE = 0x110, SHARE = 0x9067, CHANNEL = 0x200 };
/* Makes a group for the graphics engine or a copy engine, in an address space of RM's, with an area for a channel at
 * va. The channel writes test data at *data. */
static struct nv_test_channel set_up(struct nv_client *c, uint32_t engine, uint64_t *data, uint32_t **shown) {
  struct nv_test_channel ch = {.c = c};
  struct rm_channel_group_alloc group = {.va_space = VAS, .engine_type = engine};
  uint64_t at = 0;
  nv_map_usermode(c, 0, 0xc661);
  assert_int_equal(nv_vaspace(c, 0, VAS, 0), 0);
  assert_int_equal(nv_memory(c, 0, AREA_MEMORY, AREA, false), 0);
  assert_int_equal(nv_memory(c, 0, NOTIFIER, 0x1000, true), 0);
  assert_int_equal(nv_memory(c, 0, DATA, 0x1000, true), 0);
  assert_int_equal(reserve(c, RANGE, VAS, &ch.va, 2 * AREA, false), 0);
  assert_int_equal(map_dma(c, RANGE, AREA_MEMORY, 0, AREA, 0, &at), 0);
  *data = AREA;
  assert_int_equal(map_dma(c, RANGE, DATA, 0, 0x1000, 1 << 4, data), 0);
  ch.area = nv_map(c, 0, AREA_MEMORY, AREA, false);
  ch.notifier = nv_map(c, 0, NOTIFIER, 0x1000, true);
  *shown = nv_map(c, 0, DATA, 0x1000, true);
  assert_int_equal(nv_alloc(c->ctl, c->root, DEVICE, GROUP, 0xa06c, &group), 0);
  return ch;
}

static void channel_writes_memory(void **state) {
  struct nv_client c = nv_connect();
  uint64_t data;
  uint32_t *shown;
  struct nv_test_channel ch = set_up(&c, 1, &data, &shown);
  assert_int_equal(nv_channel(&ch, 0, GROUP, CHANNEL, 0xc86f, AREA_MEMORY, NOTIFIER, 0), 0);
  nv_token(&ch);
  assert_int_equal(ch.token & 0xfff, 0);
  assert_int_equal(ch.notifier[1].info32, ch.token);
  nv_release(&ch, data, 11);
  assert_false(nv_becomes(shown, 11, 20)); /* it is not scheduled yet */
  assert_int_equal(nv_schedule(&c, GROUP, true), 0);
  nv_ring(&ch); /* the earlier doorbell write was lost */
  assert_true(nv_becomes(shown, 11, 5000));
  nv_release(&ch, data + 4, 12);
  assert_true(nv_becomes(shown + 1, 12, 5000));
  assert_int_equal(nv_schedule(&c, GROUP, false), 0);
  nv_release(&ch, data + 8, 13);
  assert_false(nv_becomes(shown + 2, 13, 20));
  assert_int_equal(nv_schedule(&c, GROUP, true), 0);
  nv_ring(&ch);
  assert_true(nv_becomes(shown + 2, 13, 5000));
  assert_int_equal(ch.notifier[0].status, 0);
  assert_int_equal(nv_free(c.ctl, c.root, CHANNEL), 0);
  assert_int_equal(nv_channel(&ch, 0, GROUP, CHANNEL, 0xc86f, AREA_MEMORY, NOTIFIER, 0), 0);
}

static void errors_are_told(void **state) {
  struct nv_client c = nv_connect();
  uint64_t data;
  uint32_t *shown;
  char text[600], want[32];
  struct nv_test_channel ch = set_up(&c, 1, &data, &shown);
  assert_int_equal(nv_channel(&ch, 0, GROUP, CHANNEL, 0xc86f, AREA_MEMORY, NOTIFIER, 0), 0);
  struct nv_test_channel sibling = ch;
  assert_int_equal(nv_memory(&c, 0, NOTIFIER + 0x50, 0x1000, true), 0);
  sibling.notifier = nv_map(&c, 0, NOTIFIER + 0x50, 0x1000, true);
  assert_int_equal(nv_channel(&sibling, 0, GROUP, CHANNEL + 1, 0xc86f, AREA_MEMORY, NOTIFIER + 0x50, 0), 0);
  assert_int_equal(nv_alloc(c.ctl, c.root, CHANNEL, 0x300, 0xcbc0, NULL), 0);
  struct rm_debugger_alloc debug = {.app_client = c.root, .object = 0x300};
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, 0x301, 0x83de, &debug), 0);

  /* An OS event on the channel's error. */
  int fd = nv_open("/dev/nvidiactl");
  struct rm_os_event e = {c.root, DEVICE, (uint32_t)fd, 99};
  struct rm_event_alloc event = {
      .parent_client = c.root, .src_resource = CHANNEL, .class = 0x79, .notify_index = 0, .data = (uint32_t)fd};
  assert_int_equal(nv_alloc(c.ctl, c.root, CHANNEL, 0x302, 0x79, &event), 0x1f); /* ALLOC_OS_EVENT comes first */
  assert_int_equal(os->ioctl(os, c.ctl, 0xc01046ce, &e), 0);
  assert_int_equal(e.status, 0);
  event.notify_index = 2;
  assert_int_equal(nv_alloc(c.ctl, c.root, CHANNEL, 0x302, 0x79, &event), 0x56);
  event.notify_index = 0;
  assert_int_equal(nv_alloc(c.ctl, c.root, CHANNEL, 0x302, 0x79, &event), 0);
  assert_int_equal(os->poll(os, fd, 1, 0), 0);

  nv_token(&ch);
  struct rm_mmu_fault_info fault = {0};
  assert_int_equal(nv_control(c.ctl, c.root, CHANNEL, 0x906f0106, &fault, 104), 0);
  assert_int_equal(fault.addr_lo, 0);
  assert_int_equal(nv_schedule(&c, GROUP, true), 0);
  nv_release(&ch, 0x123456000, 1);
  for (int i = 0; i < 50000 && ch.notifier[0].status != 0xffff; i++) nanosleep(&(struct timespec){0, 100000}, NULL);
  assert_int_equal(ch.notifier[0].status, 0xffff);
  assert_int_equal(ch.notifier[0].info32, 31);
  assert_int_equal(os->poll(os, fd, 1, 5000), 1);
  assert_int_equal(sibling.notifier[0].status, 0xffff);
  struct rm_event got = {0};
  struct rm_get_event_data get = {.event = (uintptr_t)&got};
  assert_int_equal(os->ioctl(os, fd, 0xc0104652, &get), 0);
  assert_int_equal(get.status, 0);
  assert_int_equal(got.object, 0x302);
  assert_int_equal(got.info32, 31);
  assert_int_equal(get.more_events, 0);
  assert_int_equal(os->poll(os, fd, 1, 0), 0);

  assert_int_equal(nv_control(c.ctl, c.root, CHANNEL, 0x906f0106, &fault, 104), 0);
  assert_int_equal((uint64_t)fault.addr_hi << 32 | fault.addr_lo, 0x123456000);
  assert_int_equal(fault.fault_type, 2); /* PTE */
  struct rm_debug_mmu_fault entries = {0};
  assert_int_equal(nv_control(c.ctl, c.root, 0x301, 0x83de0328, &entries, 72), 0);
  assert_int_equal(entries.count, 1);
  assert_int_equal(entries.entries[0].fault_address, 0x123456000);
  assert_int_equal(entries.entries[0].access_type, 1);
  static struct rm_sm_error_states states;
  states = (struct rm_sm_error_states){.target_channel = CHANNEL, .num_sms = 100};
  assert_int_equal(nv_control(c.ctl, c.root, 0x301, 0x83de030c, &states, 4824), 0);
  assert_int_equal(states.mmu_fault.valid, 1);
  for (int i = 0; i < 100; i++) assert_int_equal(states.states[i].warp_esr, 0);
  states.starting_sm = 100; /* the remaining ones of 132, and beyond the last one */
  assert_int_equal(nv_control(c.ctl, c.root, 0x301, 0x83de030c, &states, 4824), 0);
  states.starting_sm = 132;
  assert_int_equal(nv_control(c.ctl, c.root, 0x301, 0x83de030c, &states, 4824), 0x1f);
  states.starting_sm = 0, states.num_sms = 101;
  assert_int_equal(nv_control(c.ctl, c.root, 0x301, 0x83de030c, &states, 4824), 0x1f);

  assert_true(os->read_file(os, "/proc/driver/nvidia/gpus/0000:41:00.0/xid", text, sizeof text) > 0);
  snprintf(want, sizeof want, "Xid 31");
  assert_non_null(strstr(text, want));
  /* The debugger and the events are freed with their objects. */
  assert_int_equal(nv_free(c.ctl, c.root, CHANNEL), 0);
  assert_int_equal(nv_free(c.ctl, c.root, 0x301), 0x57);
  assert_int_equal(nv_free(c.ctl, c.root, 0x302), 0x57);
  assert_int_equal(os->ioctl(os, c.ctl, 0xc01046cf, &e), 0);
  assert_int_equal(e.status, 0);
}

/* Each row makes one field of valid parameters invalid. */
static void refuse_bad_channels(struct nv_client *c, const struct rm_channel_alloc *good) {
  static const struct {
    size_t at, bytes;
    uint64_t value;
    uint32_t status;
  } bad[] = {
      {offsetof(struct rm_channel_alloc, gpfifo_entries), 4, 0, 0x1f},
      {offsetof(struct rm_channel_alloc, gpfifo_entries), 4, 100, 0x1f},
      {offsetof(struct rm_channel_alloc, gpfifo_va), 8, 1ull << 57, 0x1f},
      {offsetof(struct rm_channel_alloc, gpfifo_va), 8, 0x1004, 0x1f},
      {offsetof(struct rm_channel_alloc, userd_offset), 8, 0x1080, 0x1f},
      {offsetof(struct rm_channel_alloc, userd_offset), 8, AREA, 0x1f},
      {offsetof(struct rm_channel_alloc, userd_memory), 4, 0x999, 0x33},
      {offsetof(struct rm_channel_alloc, userd_memory), 4, GROUP, 0x33},
      {offsetof(struct rm_channel_alloc, error_memory), 4, VAS, 0x33},
      {offsetof(struct rm_channel_alloc, va_space), 4, VAS, 0x1f},
      {offsetof(struct rm_channel_alloc, ctxshare), 4, 0x999, 0x33},
      {offsetof(struct rm_channel_alloc, engine_type), 4, 9, 0x1f},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    struct rm_channel_alloc p = *good;
    memcpy((char *)&p + bad[i].at, &bad[i].value, bad[i].bytes);
    if (nv_alloc(c->ctl, c->root, GROUP, CHANNEL, 0xc86f, &p) != bad[i].status)
      fail_msg("case %zu: %s", i, nv_reason());
  }
}

/* Allocates CHANNEL in GROUP with a context share, and a share of the group after it. */
static void share_contexts(struct nv_client *c, const struct rm_channel_alloc *good) {
  struct rm_ctxshare_alloc share = {.va_space = VAS, .flags = 1};
  assert_int_equal(nv_alloc(c->ctl, c->root, DEVICE, SHARE, 0x9067, &share), 0x36);
  assert_int_equal(nv_alloc(c->ctl, c->root, GROUP, SHARE, 0x9067, &share), 0);
  assert_int_equal(nv_alloc(c->ctl, c->root, GROUP + 1, SHARE + 1, 0x9067, &share), 0);
  struct rm_channel_alloc p = *good;
  p.ctxshare = SHARE + 1;
  assert_int_equal(nv_alloc(c->ctl, c->root, GROUP, CHANNEL, 0xc86f, &p), 0x36);
  p.ctxshare = SHARE;
  assert_int_equal(nv_alloc(c->ctl, c->root, GROUP, CHANNEL, 0xc86f, &p), 0);
  p.ctxshare = 0;
  assert_int_equal(nv_alloc(c->ctl, c->root, GROUP, CHANNEL + 1, 0xc86f, &p), 0x40);
}

/* Allocates engine objects on CHANNEL, and on CHANNEL + 2 of the other group. */
static void allocate_engines(struct nv_client *c, struct nv_test_channel *ch, const struct rm_channel_alloc *good) {
  ch->handle = CHANNEL;
  nv_token(ch);
  uint32_t graphics = ch->token;
  struct rm_copy_alloc copy = {1, 9 + 5};
  assert_int_equal(nv_alloc(c->ctl, c->root, CHANNEL, 0x300, 0xc8b5, &copy), 0x1f); /* not an engine of this runlist */
  assert_int_equal(nv_alloc(c->ctl, c->root, CHANNEL, 0x300, 0xc8b5, NULL), 0);
  assert_int_equal(nv_alloc(c->ctl, c->root, CHANNEL, 0x301, 0xcbc0, NULL), 0);
  struct rm_channel_alloc p = *good;
  p.ctxshare = SHARE + 1;
  assert_int_equal(nv_alloc(c->ctl, c->root, GROUP + 1, CHANNEL + 2, 0xc86f, &p), 0);
  assert_int_equal(nv_alloc(c->ctl, c->root, CHANNEL + 2, 0x302, 0xcbc0, NULL), 0x22);
  assert_int_equal(nv_alloc(c->ctl, c->root, CHANNEL + 2, 0x302, 0xc8b5, &copy), 0);
  copy.engine_type = 9 + 6;
  assert_int_equal(nv_alloc(c->ctl, c->root, CHANNEL + 2, 0x303, 0xc8b5, &copy), 0x1f);
  ch->handle = CHANNEL + 2;
  nv_token(ch);
  assert_int_not_equal(ch->token, graphics);
  assert_int_equal(ch->token & 0xfff, 0); /* each runlist numbers its channels */
  assert_int_not_equal(ch->token >> 16 & 0x7f, graphics >> 16 & 0x7f);
}

/* A channel without a group: bind, then schedule; with USERD allocated by RM. */
static void schedule_without_group(struct nv_client *c, uint64_t va) {
  struct rm_channel_alloc p = (struct rm_channel_alloc){.gpfifo_va = va, .gpfifo_entries = 64, .va_space = VAS};
  assert_int_equal(nv_alloc(c->ctl, c->root, DEVICE, CHANNEL + 3, 0xc86f, &p), 0x1f); /* without an engine */
  p.engine_type = 9 + 2;
  assert_int_equal(nv_alloc(c->ctl, c->root, DEVICE, CHANNEL + 3, 0xc86f, &p), 0);
  struct rm_gpfifo_schedule on = {.enable = 1};
  struct rm_work_submit_token token;
  assert_int_equal(nv_control(c->ctl, c->root, CHANNEL + 3, 0xa06f0103, &on, 3), 0x40);
  assert_int_equal(nv_control(c->ctl, c->root, CHANNEL + 3, 0xc36f0108, &token, 4), 0x40);
  assert_int_equal(nv_control(c->ctl, c->root, CHANNEL + 3, 0xa06f0104, &(uint32_t){1}, 4), 0x1f);
  assert_int_equal(nv_control(c->ctl, c->root, CHANNEL + 3, 0xa06f0104, &(uint32_t){9 + 2}, 4), 0);
  assert_int_equal(nv_control(c->ctl, c->root, CHANNEL + 3, 0xa06f0103, &on, 3), 0);
  assert_int_equal(nv_control(c->ctl, c->root, CHANNEL + 3, 0xc36f0108, &token, 4), 0);
  volatile uint32_t *userd = nv_map(c, 0, CHANNEL + 3, 0x1000, false);
  assert_int_equal(userd[0x88 / 4], 0);
}

static void channel_rules(void **state) {
  struct nv_client c = nv_connect();
  uint64_t data;
  uint32_t *shown;
  struct nv_test_channel ch = set_up(&c, 1, &data, &shown);
  struct rm_channel_group_alloc group = {.engine_type = 0};
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, GROUP + 1, 0xa06c, &group), 0x1f);
  group.engine_type = 0x13; /* a video decoder, which this GPU does not have */
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, GROUP + 1, 0xa06c, &group), 0x1f);
  group.engine_type = 9 + 5;
  assert_int_equal(nv_alloc(c.ctl, c.root, DEVICE, GROUP + 1, 0xa06c, &group), 0);

  struct rm_channel_alloc good = {.error_memory = NOTIFIER,
                                  .gpfifo_va = ch.va,
                                  .gpfifo_entries = 64,
                                  .userd_memory = {AREA_MEMORY},
                                  .userd_offset = {0x1000}};
  refuse_bad_channels(&c, &good);
  share_contexts(&c, &good);
  allocate_engines(&c, &ch, &good);
  schedule_without_group(&c, ch.va);
  struct rm_gpfifo_schedule on = {.enable = 1};
  /* A group's controls cannot be used on a channel. */
  assert_int_equal(nv_control(c.ctl, c.root, CHANNEL, 0xa06c0101, &on, 3), 0x56);
  assert_int_equal(nv_control(c.ctl, c.root, GROUP, 0xa06c0101, &on, 2), 0x1f);
  assert_int_equal(nv_control(c.ctl, c.root, GROUP, 0xa06c0103, &(uint64_t){2000}, 8), 0);
  assert_int_equal(nv_control(c.ctl, c.root, GROUP, 0xa06c0103, &(uint64_t){0}, 8), 0x1f);
}

static void channels_are_disabled(void **state) {
  struct nv_client c = nv_connect();
  uint64_t data;
  uint32_t *shown;
  struct nv_test_channel ch = set_up(&c, 1, &data, &shown);
  struct {
    uint8_t disable, pad[3];
    uint32_t count;
    uint8_t only, rewind, pad2[6];
    uint64_t event;
    uint32_t clients[64], channels[64];
  } p = {.disable = 1, .count = 1, .clients = {c.root}, .channels = {CHANNEL}};
  assert_int_equal(sizeof p, 536);
  assert_int_equal(nv_channel(&ch, 0, GROUP, CHANNEL, 0xc86f, AREA_MEMORY, NOTIFIER, 0), 0);
  nv_token(&ch);
  assert_int_equal(nv_schedule(&c, GROUP, true), 0);
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x2080110b, &p, 536), 0);
  nv_release(&ch, data, 5);
  assert_false(nv_becomes(shown, 5, 20));
  p.disable = 0;
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x2080110b, &p, 536), 0);
  nv_ring(&ch);
  assert_true(nv_becomes(shown, 5, 5000));
  p.channels[0] = 0x999;
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x2080110b, &p, 536), 0x33);
  p.count = 65;
  assert_int_equal(nv_control(c.ctl, c.root, SUBDEVICE, 0x2080110b, &p, 536), 0x1f);
}

#define ONE(f) cmocka_unit_test_setup_teardown(f, one_gpu, close_machine)
#define TWO(f) cmocka_unit_test_setup_teardown(f, two_gpus, close_machine)
int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_known_gpus),
      TWO(files),
      ONE(escapes_are_strict),
      ONE(version_check),
      TWO(cards),
      ONE(registering_descriptors),
      ONE(clients_and_handles),
      ONE(many_handles),
      TWO(classes_of_the_gpu),
      ONE(controls_are_strict),
      TWO(what_the_gpus_are),
      TWO(system_queries),
      ONE(clocks_are_asked_for),
      ONE(time_goes_on),
      ONE(other_branches),
      ONE(allocations),
      TWO(cpu_mappings),
      ONE(imported_pages),
      ONE(duplicates),
      ONE(ranges_and_mappings),
      ONE(channel_writes_memory),
      ONE(errors_are_told),
      ONE(channel_rules),
      ONE(channels_are_disabled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
