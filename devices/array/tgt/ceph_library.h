#pragma once
// Ceph's client libraries, loaded when an array asks for them: the program carries and links none of it, so
// that a node plugin is no larger for it. The names, arguments and results are those of <rados/librados.h>
// and <rbd/librbd.h>, whose structures are repeated here; both are stable C interfaces. Results below 0 are
// negative errnos.

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lunkeeper {

struct CephLibrary {
  using Handle = void*;  // rados_t, rados_ioctx_t, rbd_image_t and the like
  using Progress = int (*)(uint64_t offset, size_t length, int exists, void* context);
  struct ImageSpec {
    char* id;
    char* name;
  };
  struct SnapshotInfo {
    uint64_t id;
    uint64_t size;
    const char* name;
  };
  struct Watcher {
    char* address;
    int64_t id;
    uint64_t cookie;
  };
  struct ConfigOption {
    char* name;
    char* value;
    int source;
  };

  int (*rados_create2)(Handle* cluster, const char* name, const char* user, uint64_t flags);
  int (*rados_conf_read_file)(Handle cluster, const char* path);
  int (*rados_conf_set)(Handle cluster, const char* option, const char* value);
  int (*rados_conf_get)(Handle cluster, const char* option, char* value, size_t length);
  int (*rados_connect)(Handle cluster);
  void (*rados_shutdown)(Handle cluster);
  int (*rados_getaddrs)(Handle cluster, char** addresses);
  Handle (*rados_cct)(Handle cluster);
  int (*rados_wait_for_latest_osdmap)(Handle cluster);
  int (*rados_ioctx_create)(Handle cluster, const char* pool, Handle* context);
  void (*rados_ioctx_destroy)(Handle context);
  int64_t (*rados_ioctx_get_id)(Handle context);
  int64_t (*rados_pool_lookup)(Handle cluster, const char* pool);
  int (*rados_mon_command)(Handle cluster, const char** command, size_t commands, const char* in,
                           size_t in_size, char** out, size_t* out_size, char** text, size_t* text_size);
  void (*rados_buffer_free)(char* buffer);
  Handle (*rados_create_write_op)();
  void (*rados_write_op_omap_set2)(Handle op, const char* const* keys, const char* const* values,
                                   const size_t* key_sizes, const size_t* value_sizes, size_t count);
  void (*rados_write_op_omap_rm_keys2)(Handle op, const char* const* keys, const size_t* sizes, size_t count);
  int (*rados_write_op_operate)(Handle op, Handle context, const char* object, time_t* changed, int flags);
  void (*rados_release_write_op)(Handle op);
  int (*rados_aio_create_completion2)(void* argument, void (*called)(Handle completion, void* argument),
                                      Handle* completion);
  int (*rados_aio_write_op_operate)(Handle op, Handle context, Handle completion, const char* object,
                                    time_t* changed, int flags);
  int (*rados_aio_is_complete)(Handle completion);
  int (*rados_aio_get_return_value)(Handle completion);
  void (*rados_aio_release)(Handle completion);
  Handle (*rados_create_read_op)();
  void (*rados_read_op_omap_get_vals2)(Handle op, const char* after, const char* prefix, uint64_t most,
                                       Handle* iterator, unsigned char* more, int* result);
  int (*rados_read_op_operate)(Handle op, Handle context, const char* object, int flags);
  void (*rados_release_read_op)(Handle op);
  int (*rados_omap_get_next2)(Handle iterator, char** key, char** value, size_t* key_size,
                              size_t* value_size);
  void (*rados_omap_get_end)(Handle iterator);
  void (*rados_write_op_create)(Handle op, int exclusive, const char* category);
  void (*rados_write_op_cmpext)(Handle op, const char* expected, size_t length, uint64_t offset, int* result);
  void (*rados_write_op_write_full)(Handle op, const char* contents, size_t length);
  int (*rados_read)(Handle context, const char* object, char* contents, size_t most, uint64_t offset);
  int (*rados_remove)(Handle context, const char* object);
  ssize_t (*rados_list_lockers)(Handle context, const char* object, const char* lock, int* exclusive,
                                char* tag, size_t* tag_size, char* clients, size_t* clients_size,
                                char* cookies, size_t* cookies_size, char* addresses, size_t* addresses_size);
  int (*rados_break_lock)(Handle context, const char* object, const char* lock, const char* client,
                          const char* cookie);
  int (*rados_stat)(Handle context, const char* object, uint64_t* size, time_t* changed);

  void (*rbd_image_options_create)(Handle* options);
  void (*rbd_image_options_destroy)(Handle options);
  int (*rbd_image_options_set_uint64)(Handle options, int option, uint64_t value);
  int (*rbd_create4)(Handle context, const char* name, uint64_t size, Handle options);
  int (*rbd_clone3)(Handle from, const char* name, const char* snapshot, Handle to, const char* child,
                    Handle options);
  int (*rbd_remove)(Handle context, const char* name);
  int (*rbd_list2)(Handle context, ImageSpec* images, size_t* most);
  void (*rbd_image_spec_list_cleanup)(ImageSpec* images, size_t count);
  int (*rbd_open)(Handle context, const char* name, Handle* image, const char* snapshot);
  int (*rbd_open_read_only)(Handle context, const char* name, Handle* image, const char* snapshot);
  int (*rbd_close)(Handle image);
  int (*rbd_resize)(Handle image, uint64_t size);
  int (*rbd_get_size)(Handle image, uint64_t* size);
  int (*rbd_get_id)(Handle image, char* id, size_t length);
  int (*rbd_get_features)(Handle image, uint64_t* features);
  int (*rbd_get_modify_timestamp)(Handle image, timespec* changed);
  int (*rbd_snap_create)(Handle image, const char* name);
  int (*rbd_snap_remove)(Handle image, const char* name);
  int (*rbd_snap_list)(Handle image, SnapshotInfo* snapshots, int* most);
  void (*rbd_snap_list_end)(SnapshotInfo* snapshots);
  int (*rbd_diff_iterate2)(Handle image, const char* from, uint64_t offset, uint64_t length,
                           uint8_t include_parent, uint8_t whole_object, Progress each, void* context);
  int (*rbd_watchers_list)(Handle image, Watcher* watchers, size_t* most);
  void (*rbd_watchers_list_cleanup)(Watcher* watchers, size_t count);
  int (*rbd_config_image_list)(Handle image, ConfigOption* options, int* most);
  void (*rbd_config_image_list_cleanup)(ConfigOption* options, int count);

  // SQLite's extension, by its path, and the call that gives it a client's configuration.
  const char* sqlite_extension;
  int (*cephsqlite_setcct)(Handle configuration, char** address);
};

// Once; it stays loaded. FAILED_PRECONDITION: the libraries are not installed.
absl::StatusOr<const CephLibrary*> LoadCephLibrary();

// `error`: a negative errno of Ceph's.
absl::Status CephError(const std::string& doing, int error);

// Lists with room for `count` entries, and with more for as long as there are more (-ERANGE; the library then
// sets `count`). What the last call of `list(entries, &count)` returned.
template <typename Entry, typename Count, typename List>
int ListWithRoom(std::vector<Entry>& entries, Count& count, List list) {
  int listed = -ERANGE;
  while (listed == -ERANGE) {
    entries.resize(static_cast<size_t>(count));
    listed = list(entries.data(), &count);
  }
  return listed;
}

}  // namespace lunkeeper
