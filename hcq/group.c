/* Several devices under one handle, for layers that place an object on all of them. A group has no memory and no
 * queues; requests for those fail as on a lost device. */
#include "backend.h"
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

static void group_destroy(struct hcq_object *object) {
  db_device *group = (db_device *)object;
  for (unsigned i = 0; i < group->nmembers; i++) db_close(group->members[i]);
  free(group->members);
  free(group);
}

db_device *db_group(db_device *const *devices, unsigned n) {
  if (!devices) return db_null_of("list of devices");
  if (!n || n > DB_GROUP_MAX) return db_fail_null(-EINVAL, "group: %u devices; a group has 1 to %d", n, DB_GROUP_MAX);
  for (unsigned i = 0; i < n; i++)
    for (unsigned k = 0; k < i; k++)
      if (devices[i] == devices[k]) return db_fail_null(-EINVAL, "group: devices %u and %u are the same", k, i);
  for (unsigned i = 0; i < n; i++)
    if (!devices[i] || devices[i]->nmembers)
      return db_fail_null(-EINVAL, "group: device %u is %s", i, devices[i] ? "a group" : "NULL");
  db_device *group = calloc(1, sizeof *group);
  if (group) group->members = calloc(n, sizeof(db_device *));
  if (!group || !group->members) {
    free(group);
    return db_fail_null(-ENOMEM, "group: out of memory");
  }
  hcq_object_init(&group->object, group_destroy);
  group->handles = 1;
  for (; group->nmembers < n; group->nmembers++)
    group->members[group->nmembers] = db_device_retain(devices[group->nmembers]);
  snprintf(group->name, sizeof group->name, "%u devices, %.100s to %.32s", n, devices[0]->name, devices[n - 1]->name);
  snprintf(group->arch, sizeof group->arch, "%s", devices[0]->arch);
  snprintf(group->description, sizeof group->description, "a group of %u devices", n);
  snprintf(group->lost_reason, sizeof group->lost_reason,
           "%s are a group, which has neither memory nor queues; use one of its devices", group->name);
  group->lost = -ENOTSUP;
  return group;
}

unsigned db_group_size(const db_device *dev) { return dev ? dev->nmembers : 0; }
db_device *db_group_device(const db_device *dev, unsigned i) {
  return dev && i < dev->nmembers ? dev->members[i] : NULL;
}
