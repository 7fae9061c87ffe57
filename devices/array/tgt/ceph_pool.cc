// How a connection is made, each step with its own error, since a wrong one of them is all that most people
// ever see of Ceph's errors: the conf is read; a monitor answers and takes the key; the cache is off; the
// pool is there; and this user may write to it, which is tried with an object that is removed again.
#include "devices/array/tgt/ceph_pool.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/units.h"

namespace lunkeeper {
namespace {

constexpr char kConnectSeconds[] = "10", kCommandSeconds[] = "30";
constexpr uint64_t kLargestImage = 64ull << 40;
constexpr uint64_t kMostKeys = 1000;  // of one look
constexpr size_t kSmallObject = 1 << 20;
// Of <rados/librados.h>: LIBRADOS_CREATE_EXCLUSIVE; and what it answers to contents that differ, less where.
constexpr int kExclusive = 1, kDiffers = -4095;
constexpr uint64_t kObjectMap = 8;  // of <rbd/features.h>

}  // namespace

absl::StatusOr<std::unique_ptr<CephPool>> CephPool::Connect(const CephOptions& options) {
  ASSIGN_OR_RETURN(const CephLibrary* const ceph, LoadCephLibrary());
  std::unique_ptr<CephPool> pool(new CephPool(*ceph, options));
  RETURN_IF_ERROR(pool->ConnectCluster());
  const int found = ceph->rados_ioctx_create(pool->cluster_, options.pool.c_str(), &pool->context_);
  if (found == -ENOENT) {
    return absl::FailedPreconditionError(
        absl::StrCat("ceph: there is no pool ", options.pool,
                     ": if it was renamed, give it its name again; for a new array, ",
                     "`ceph osd pool create ", options.pool, " && rbd pool init ", options.pool, "`"));
  }
  if (found < 0) return pool->ExplainRefusal("open pool " + options.pool, found);
  RETURN_IF_ERROR(pool->CheckRights());
  return pool;
}

CephPool::~CephPool() {
  if (context_ != nullptr) ceph_.rados_ioctx_destroy(context_);
  if (cluster_ != nullptr) ceph_.rados_shutdown(cluster_);
}

absl::Status CephPool::ConnectCluster() {
  const std::string user = "client." + options_.user;
  const int made = ceph_.rados_create2(&cluster_, "ceph", user.c_str(), 0);
  if (made < 0) return CephError("begin as " + user, made);
  const int read = ceph_.rados_conf_read_file(cluster_, options_.conf.c_str());
  if (read < 0) {
    return absl::FailedPreconditionError(absl::StrCat("ceph: read ", options_.conf, ": ",
                                                      std::strerror(-read),
                                                      "; name the cluster's conf with --ceph-conf"));
  }
  // A gateway that monitors do not answer cannot shut out the one before, and must not keep the array. OSDs
  // have no limit, whatever the conf says: a write that was given up may land later.
  ceph_.rados_conf_set(cluster_, "client_mount_timeout", kConnectSeconds);
  ceph_.rados_conf_set(cluster_, "rados_mon_op_timeout", kCommandSeconds);
  ceph_.rados_conf_set(cluster_, "rados_osd_op_timeout", "0");
  const int connected = ceph_.rados_connect(cluster_);
  if (connected < 0) return ExplainRefusal("connect", connected);
  char* address = nullptr;
  const int told = ceph_.rados_getaddrs(cluster_, &address);
  if (told < 0) return CephError("ask for this client's address", told);
  address_ = address;
  ceph_.rados_buffer_free(address);
  nonce_ = address_.substr(std::min(address_.rfind('/'), address_.size()));
  return CheckCache();
}

// Only now, since the monitors may have settings for clients too; an image's or a pool's own override them
// (CheckCacheOf). With a write-back cache tgtd's answers would be lost with its host.
absl::Status CephPool::CheckCache() const {
  char value[16] = "";
  const int read = ceph_.rados_conf_get(cluster_, "rbd_cache", value, sizeof(value));
  if (read == 0 && std::strcmp(value, "false") == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("ceph: ", options_.conf,
                   " leaves rbd's write-back cache on, which acknowledges writes that "
                   "a dead gateway loses; put `rbd_cache = false` into its section [client]"));
}

// Ceph's own text for most of these is one word. ENOENT without a pool is librados's way to say that it found
// no keyring; EACCES and EPERM come from monitors for a wrong key, and from OSDs for a small right.
absl::Status CephPool::ExplainRefusal(const std::string& doing, int error) const {
  const std::string start = absl::StrCat("ceph: ", doing, " as client.", options_.user, ": ");
  if (error == -ETIMEDOUT) {
    return absl::UnavailableError(absl::StrCat(start, "no monitor has answered; see that the mon_host of ",
                                               options_.conf, " is right and can be reached from here"));
  }
  if (error == -ENOENT) {
    return absl::FailedPreconditionError(
        absl::StrCat(start, "there is no key of this user; put it where the keyring of ", options_.conf,
                     " says, or into /etc/ceph/ceph.client.", options_.user, ".keyring"));
  }
  if (error == -EACCES || error == -EPERM) {
    return absl::FailedPreconditionError(
        absl::StrCat(start,
                     "the cluster refuses it: the key is missing or wrong, or its rights are too small; "
                     "`ceph auth get client.",
                     options_.user, "` shows both, and `ceph auth caps client.", options_.user,
                     " mon 'profile rbd' mgr 'profile rbd' osd 'profile rbd pool=", options_.pool,
                     "'` gives what is needed"));
  }
  return CephError(absl::StrCat(doing, " as client.", options_.user), error);
}

// An omap key needs what everything else here needs too: reads, writes and classes in this pool. The name is
// new each time: two agents may start at once.
absl::Status CephPool::CheckRights() const {
  const std::string object = "lunkeeper.rights." + RandomHexDigits();
  const CephLibrary::Handle op = ceph_.rados_create_write_op();
  const char* const key = "tried";
  const size_t size = std::strlen(key);
  ceph_.rados_write_op_omap_set2(op, &key, &key, &size, &size, 1);
  const int written = ceph_.rados_write_op_operate(op, context_, object.c_str(), nullptr, 0);
  ceph_.rados_release_write_op(op);
  if (written < 0) return ExplainRefusal("write to pool " + options_.pool, written);
  const int removed = ceph_.rados_remove(context_, object.c_str());
  if (removed < 0) return ExplainRefusal("remove from pool " + options_.pool, removed);
  size_t none = 0;
  const int listed = ceph_.rbd_list2(context_, nullptr, &none);
  if (listed < 0 && listed != -ERANGE && listed != -ENOENT)
    return ExplainRefusal("list the images of pool " + options_.pool, listed);
  return absl::OkStatus();
}

absl::StatusOr<RbdImage> CephPool::OpenImage(const std::string& name, const std::string& snapshot,
                                             bool read_only) const {
  CephLibrary::Handle image = nullptr;
  const char* const at = snapshot.empty() ? nullptr : snapshot.c_str();
  const int opened = read_only ? ceph_.rbd_open_read_only(context_, name.c_str(), &image, at)
                               : ceph_.rbd_open(context_, name.c_str(), &image, at);
  if (opened < 0) return CephError(absl::StrCat("open image ", name, at ? "@" : "", snapshot), opened);
  return RbdImage(ceph_, image);
}

absl::StatusOr<std::vector<std::string>> CephPool::ListImages() const {
  size_t most = 256;
  std::vector<CephLibrary::ImageSpec> specs;
  const int listed = ListWithRoom(
      specs, most, [this](auto* room, size_t* count) { return ceph_.rbd_list2(context_, room, count); });
  if (listed < 0) return CephError("list images of pool " + options_.pool, listed);
  std::vector<std::string> names;
  for (size_t i = 0; i < most; ++i) names.emplace_back(specs[i].name);
  ceph_.rbd_image_spec_list_cleanup(specs.data(), most);
  return names;
}

absl::StatusOr<std::vector<std::string>> CephPool::ListSnapshots(const std::string& image) const {
  ASSIGN_OR_RETURN(const RbdImage opened, OpenImage(image, "", /*read_only=*/true));
  int most = 64;
  std::vector<CephLibrary::SnapshotInfo> infos;
  const int listed = ListWithRoom(
      infos, most, [&](auto* room, int* count) { return ceph_.rbd_snap_list(opened.get(), room, count); });
  if (listed < 0) return CephError("list snapshots of image " + image, listed);
  std::vector<std::string> names;
  for (size_t i = 0; i < static_cast<size_t>(listed); ++i) names.emplace_back(infos[i].name);
  if (listed > 0) ceph_.rbd_snap_list_end(infos.data());
  return names;
}

absl::StatusOr<std::vector<std::string>> CephPool::ListWatchers(const RbdImage& image) const {
  size_t most = 16;
  std::vector<CephLibrary::Watcher> watchers;
  const int listed = ListWithRoom(watchers, most, [&](auto* room, size_t* count) {
    return ceph_.rbd_watchers_list(image.get(), room, count);
  });
  if (listed < 0) return CephError("list who has an image open", listed);
  std::vector<std::string> addresses;
  for (size_t i = 0; i < most; ++i) {
    if (!absl::EndsWith(watchers[i].address, nonce_)) addresses.emplace_back(watchers[i].address);
  }
  ceph_.rbd_watchers_list_cleanup(watchers.data(), most);
  return addresses;
}

absl::Status CephPool::CheckCacheOf(const RbdImage& image, const std::string& name) const {
  uint64_t features = 0;
  const int read = ceph_.rbd_get_features(image.get(), &features);
  if (read < 0) return CephError("read the features of image " + name, read);
  if ((features & kObjectMap) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("image ", name,
                                                      " has an object map, from which a dead gateway could "
                                                      "answer reads with old data: `rbd feature disable ",
                                                      options_.pool, "/", name, " object-map`"));
  }
  int most = 256;
  std::vector<CephLibrary::ConfigOption> options;
  const int listed = ListWithRoom(options, most, [&](auto* room, int* count) {
    return ceph_.rbd_config_image_list(image.get(), room, count);
  });
  if (listed < 0) return CephError("read the settings of image " + name, listed);
  bool cached = false;
  for (int i = 0; i < most; ++i) {
    const CephLibrary::ConfigOption& option = options[static_cast<size_t>(i)];
    cached |= std::string(option.name) == "rbd_cache" && std::string(option.value) != "false";
  }
  ceph_.rbd_config_image_list_cleanup(options.data(), most);
  if (!cached) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "image ", name,
      ": its own settings, or its pool's, turn rbd's write-back cache on, which acknowledges "
      "writes that a dead gateway loses: `rbd config image rm ",
      options_.pool, "/", name, " rbd_cache` or `rbd config pool rm ", options_.pool, " rbd_cache`"));
}

// A thousand at a time, each time after the last one's key. Nobody else changes the object meanwhile.
absl::StatusOr<std::map<std::string, std::string>> CephPool::ReadKeys(const std::string& object) const {
  std::map<std::string, std::string> keys;
  std::string after;
  unsigned char more = 1;
  while (more != 0) {
    const CephLibrary::Handle op = ceph_.rados_create_read_op();
    CephLibrary::Handle iterator = nullptr;
    int result = 0;
    ceph_.rados_read_op_omap_get_vals2(op, after.c_str(), "", kMostKeys, &iterator, &more, &result);
    const int read = ceph_.rados_read_op_operate(op, context_, object.c_str(), 0);
    char *key = nullptr, *value = nullptr;
    size_t key_size = 0, value_size = 0;
    while (read == 0 && ceph_.rados_omap_get_next2(iterator, &key, &value, &key_size, &value_size) == 0 &&
           key != nullptr) {
      after.assign(key, key_size);
      keys[after] = std::string(value, value_size);
    }
    if (iterator != nullptr) ceph_.rados_omap_get_end(iterator);
    ceph_.rados_release_read_op(op);
    if (read == -ENOENT) return keys;
    if (read < 0) return CephError("read object " + object, read);
  }
  return keys;
}

CephLibrary::Handle CephPool::NewKeyWrite(const std::string& key, const std::string& value) const {
  const CephLibrary::Handle op = ceph_.rados_create_write_op();
  const char *const key_text = key.data(), *const value_text = value.data();
  const size_t key_size = key.size(), value_size = value.size();
  if (value.empty())
    ceph_.rados_write_op_omap_rm_keys2(op, &key_text, &key_size, 1);
  else
    ceph_.rados_write_op_omap_set2(op, &key_text, &value_text, &key_size, &value_size, 1);
  return op;
}

absl::Status CephPool::WriteKey(const std::string& object, const std::string& key,
                                const std::string& value) const {
  const CephLibrary::Handle op = NewKeyWrite(key, value);
  const int written = ceph_.rados_write_op_operate(op, context_, object.c_str(), nullptr, 0);
  ceph_.rados_release_write_op(op);
  if (written < 0 && !(written == -ENOENT && value.empty()))
    return CephError("write object " + object, written);
  return absl::OkStatus();
}

absl::StatusOr<std::string> CephPool::AskMonitors(const std::string& command,
                                                  const std::string& doing) const {
  const char* list[] = {command.c_str()};
  char *out = nullptr, *text = nullptr;
  size_t out_size = 0, text_size = 0;
  const int asked = ceph_.rados_mon_command(cluster_, list, 1, "", 0, &out, &out_size, &text, &text_size);
  std::string answer(out == nullptr ? "" : out, out_size);
  ceph_.rados_buffer_free(out);
  ceph_.rados_buffer_free(text);
  if (asked < 0) return ExplainRefusal(doing, asked);
  return answer;
}

absl::Status CephPool::BlockClient(const std::string& address, absl::Duration lasts) const {
  const nlohmann::json command = {{"prefix", "osd blocklist"},
                                  {"blocklistop", "add"},
                                  {"addr", address},
                                  {"expire", absl::ToDoubleSeconds(lasts)}};
  return AskMonitors(command.dump(), "shut out client " + address).status();
}

absl::Status CephPool::WaitForMap() const {
  const int waited = ceph_.rados_wait_for_latest_osdmap(cluster_);
  return waited < 0 ? CephError("wait for the cluster's map", waited) : absl::OkStatus();
}

absl::Status CephPool::CheckName() const {
  const int64_t found = ceph_.rados_pool_lookup(cluster_, options_.pool.c_str());
  if (found == ceph_.rados_ioctx_get_id(context_)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "ceph: the pool that this agent serves is not ", options_.pool,
      " any more, and tgtd would find another one there, or none: was it renamed? `ceph osd pool ls detail` "
      "shows it; `ceph osd pool rename` gives it its name again"));
}

// As the cluster reckons: what the pool may still take, replicas and quota counted. It is some seconds old.
absl::StatusOr<PoolCapacity> CephPool::MeasureCapacity() const {
  ASSIGN_OR_RETURN(const std::string answer,
                   AskMonitors(R"({"prefix": "df", "format": "json"})", "measure pool " + options_.pool));
  const nlohmann::json parsed = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json pools = parsed.is_object() ? parsed.value("pools", nlohmann::json::array()) : "";
  for (const auto& pool : pools) {
    if (!pool.is_object() || pool.value("name", "") != options_.pool) continue;
    const nlohmann::json stats = pool.value("stats", nlohmann::json::object());
    const auto left = stats.value("max_avail", uint64_t{0}), stored = stats.value("stored", uint64_t{0});
    return PoolCapacity{.total_bytes = stored + left,
                        .available_bytes = left,
                        .smallest_volume_bytes = kMiB,
                        .largest_volume_bytes = kLargestImage};
  }
  return absl::UnavailableError(
      absl::StrCat("ceph: measure pool ", options_.pool, ": the cluster says nothing of it"));
}

absl::StatusOr<CephPool::Locker> CephPool::FindLocker(const std::string& object,
                                                      const std::string& lock) const {
  int exclusive = 0;
  char tag[256] = "", clients[1024] = "", cookies[1024] = "", addresses[1024] = "";
  size_t tag_size = sizeof tag, clients_size = sizeof clients, cookies_size = sizeof cookies,
         addresses_size = sizeof addresses;
  const ssize_t found =
      ceph_.rados_list_lockers(context_, object.c_str(), lock.c_str(), &exclusive, tag, &tag_size, clients,
                               &clients_size, cookies, &cookies_size, addresses, &addresses_size);
  if (found == 0 || found == -ENOENT) return Locker{};
  if (found < 0) return CephError("look who has locked object " + object, static_cast<int>(found));
  // The first of them: each ends with a zero byte. "v1:" is not in the address that a client has of itself.
  return Locker{clients, cookies, std::string(absl::StripPrefix(addresses, "v1:"))};
}

absl::Status CephPool::BreakLock(const std::string& object, const std::string& lock,
                                 const Locker& locker) const {
  const int broken = ceph_.rados_break_lock(context_, object.c_str(), lock.c_str(), locker.client.c_str(),
                                            locker.cookie.c_str());
  if (broken >= 0 || broken == -ENOENT) return absl::OkStatus();
  return CephError(absl::StrCat("break the lock ", lock, " of object ", object), broken);
}

absl::StatusOr<bool> CephPool::HasObject(const std::string& name) const {
  uint64_t size = 0;
  time_t changed = 0;
  const int found = ceph_.rados_stat(context_, name.c_str(), &size, &changed);
  if (found == -ENOENT) return false;
  if (found < 0) return CephError("look at object " + name, found);
  return true;
}

absl::StatusOr<std::optional<std::string>> CephPool::ReadObject(const std::string& name) const {
  std::string contents(kSmallObject, '\0');
  const int read = ceph_.rados_read(context_, name.c_str(), contents.data(), contents.size(), 0);
  if (read == -ENOENT) return std::nullopt;
  if (read < 0) return CephError("read object " + name, read);
  if (static_cast<size_t>(read) == contents.size())
    return absl::InternalError(absl::StrCat("ceph: read object ", name, ": it is larger than it can be"));
  contents.resize(static_cast<size_t>(read));
  return contents;
}

// One operation, which its OSD does as a whole or not at all. Sent again after a broken connection, it is
// answered as it was the first time.
absl::Status CephPool::ReplaceObject(const std::string& name, const std::optional<std::string>& from,
                                     const std::string& to) const {
  const CephLibrary::Handle op = ceph_.rados_create_write_op();
  int compared = 0;
  if (from) {
    ceph_.rados_write_op_cmpext(op, from->data(), from->size(), 0, &compared);
  } else {
    ceph_.rados_write_op_create(op, kExclusive, nullptr);
  }
  ceph_.rados_write_op_write_full(op, to.data(), to.size());
  const int written = ceph_.rados_write_op_operate(op, context_, name.c_str(), nullptr, 0);
  ceph_.rados_release_write_op(op);
  if (written >= 0) return absl::OkStatus();
  if (written == -ESHUTDOWN)
    return absl::AbortedError(absl::StrCat("ceph: change object ", name, ": this client was shut out"));
  if (written == -EPERM || written == -EACCES)
    return absl::PermissionDeniedError(absl::StrCat("ceph: change object ", name, ": the rights of client.",
                                                    options_.user,
                                                    " do not allow it any more; was the pool renamed?"));
  if (written <= kDiffers || written == -EEXIST || written == -ENOENT)
    return absl::AbortedError(absl::StrCat("ceph: change object ", name, ": somebody else has changed it"));
  return CephError("change object " + name, written);
}

}  // namespace lunkeeper
