// dlopen and dlsym. The libraries are those of Debian's packages, by the names that their interface has had
// since Ceph 10; a newer Ceph keeps the functions, since programs of that time are still linked to them.
//
// Nothing is unloaded again: their threads may run until the program ends. RTLD_LOCAL keeps what they bring
// along (another Boost, another fmt) away from this program's own.
#include "devices/array/tgt/ceph_library.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/base/attributes.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr char kExtension[] = "libcephsqlite.so";

absl::StatusOr<void*> LoadLibrary(const char* name) {
  void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  return absl::FailedPreconditionError(absl::StrCat(
      "load ", name, ": ", ::dlerror(), "; apt install librados2 librbd1 libsqlite3-mod-ceph tgt-rbd"));
}

// Looks functions up; the first one that is missing is kept.
class Functions {
 public:
  explicit Functions(void* library) : library_(library) {}
  template <class Function>
  void Find(const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(::dlsym(library_, name));
    if (*function == nullptr)
      status_.Update(absl::FailedPreconditionError(
          absl::StrCat("load Ceph's libraries: they have no ", name, "; want those of Ceph 16 or later")));
  }
  const absl::Status& status() const { return status_; }

 private:
  void* const library_;
  absl::Status status_;
};

#define LK_FIND(name) functions.Find(#name, &library->name)

absl::Status FindRados(void* handle, CephLibrary* library) {
  Functions functions(handle);
  LK_FIND(rados_create2);
  LK_FIND(rados_conf_read_file);
  LK_FIND(rados_conf_set);
  LK_FIND(rados_conf_get);
  LK_FIND(rados_connect);
  LK_FIND(rados_shutdown);
  LK_FIND(rados_getaddrs);
  LK_FIND(rados_cct);
  LK_FIND(rados_wait_for_latest_osdmap);
  LK_FIND(rados_ioctx_create);
  LK_FIND(rados_ioctx_destroy);
  LK_FIND(rados_ioctx_get_id);
  LK_FIND(rados_pool_lookup);
  LK_FIND(rados_mon_command);
  LK_FIND(rados_buffer_free);
  LK_FIND(rados_create_write_op);
  LK_FIND(rados_write_op_omap_set2);
  LK_FIND(rados_write_op_omap_rm_keys2);
  LK_FIND(rados_write_op_operate);
  LK_FIND(rados_release_write_op);
  LK_FIND(rados_aio_create_completion2);
  LK_FIND(rados_aio_write_op_operate);
  LK_FIND(rados_aio_is_complete);
  LK_FIND(rados_aio_get_return_value);
  LK_FIND(rados_aio_release);
  LK_FIND(rados_create_read_op);
  LK_FIND(rados_read_op_omap_get_vals2);
  LK_FIND(rados_read_op_operate);
  LK_FIND(rados_release_read_op);
  LK_FIND(rados_omap_get_next2);
  LK_FIND(rados_omap_get_end);
  LK_FIND(rados_write_op_create);
  LK_FIND(rados_write_op_cmpext);
  LK_FIND(rados_write_op_write_full);
  LK_FIND(rados_read);
  LK_FIND(rados_remove);
  LK_FIND(rados_list_lockers);
  LK_FIND(rados_break_lock);
  LK_FIND(rados_stat);
  return functions.status();
}

absl::Status FindRbd(void* handle, CephLibrary* library) {
  Functions functions(handle);
  LK_FIND(rbd_image_options_create);
  LK_FIND(rbd_image_options_destroy);
  LK_FIND(rbd_image_options_set_uint64);
  LK_FIND(rbd_create4);
  LK_FIND(rbd_clone3);
  LK_FIND(rbd_remove);
  LK_FIND(rbd_list2);
  LK_FIND(rbd_image_spec_list_cleanup);
  LK_FIND(rbd_open);
  LK_FIND(rbd_open_read_only);
  LK_FIND(rbd_close);
  LK_FIND(rbd_resize);
  LK_FIND(rbd_get_size);
  LK_FIND(rbd_get_id);
  LK_FIND(rbd_get_features);
  LK_FIND(rbd_get_modify_timestamp);
  LK_FIND(rbd_snap_create);
  LK_FIND(rbd_snap_remove);
  LK_FIND(rbd_snap_list);
  LK_FIND(rbd_snap_list_end);
  LK_FIND(rbd_diff_iterate2);
  LK_FIND(rbd_watchers_list);
  LK_FIND(rbd_watchers_list_cleanup);
  LK_FIND(rbd_config_image_list);
  LK_FIND(rbd_config_image_list_cleanup);
  return functions.status();
}

absl::StatusOr<const CephLibrary*> LoadLibraries() {
  static CephLibrary library;
  ASSIGN_OR_RETURN(void* const rados, LoadLibrary("librados.so.2"));
  RETURN_IF_ERROR(FindRados(rados, &library));
  ASSIGN_OR_RETURN(void* const rbd, LoadLibrary("librbd.so.1"));
  RETURN_IF_ERROR(FindRbd(rbd, &library));
  ASSIGN_OR_RETURN(void* const sqlite, LoadLibrary(kExtension));
  library.sqlite_extension = kExtension;
  Functions functions(sqlite);
  functions.Find("cephsqlite_setcct", &library.cephsqlite_setcct);
  RETURN_IF_ERROR(functions.status());
  return &library;
}

}  // namespace

absl::StatusOr<const CephLibrary*> LoadCephLibrary() {
  static const absl::StatusOr<const CephLibrary*> loaded = LoadLibraries();
  return loaded;
}

absl::Status CephError(const std::string& doing, int error) {
  const std::string message = absl::StrCat("ceph: ", doing, ": ", std::strerror(-error));
  switch (-error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case EEXIST:
      return absl::AlreadyExistsError(message);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(
          absl::StrCat(message, "; delete volumes, or give the pool more disks or a larger quota"));
    case ETIMEDOUT:
      return absl::UnavailableError(message);
    case ESHUTDOWN:
      return absl::UnavailableError(absl::StrCat(message, ": the cluster has shut this client out"));
    case EBUSY:
      return absl::FailedPreconditionError(absl::StrCat(message, ": somebody else has it open"));
    default:
      return absl::InternalError(message);
  }
}

}  // namespace lunkeeper
