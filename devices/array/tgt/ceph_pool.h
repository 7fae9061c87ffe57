#pragma once
// A connection to one pool of a Ceph cluster, with its errors in words.
//
// Thread-safe. Connecting ends within some ten seconds; later calls wait for the cluster for as long as it
// takes, as those to a disk do: a write that was given up could land later. Failure: NOT_FOUND,
// ALREADY_EXISTS, RESOURCE_EXHAUSTED (the pool, or its quota, is full), FAILED_PRECONDITION (what an operator
// has to change, with how), UNAVAILABLE (no answer, or this client was shut out), INTERNAL.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/array/tgt/ceph_library.h"
#include "devices/array/tgt/ceph_options.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

// An open image, or a snapshot of one.
class RbdImage {
 public:
  RbdImage(const CephLibrary& ceph, CephLibrary::Handle handle) : ceph_(&ceph), handle_(handle) {}
  ~RbdImage() {
    if (handle_ != nullptr) ceph_->rbd_close(handle_);
  }
  RbdImage(RbdImage&& other) noexcept : ceph_(other.ceph_), handle_(other.handle_) {
    other.handle_ = nullptr;
  }
  RbdImage& operator=(RbdImage&&) = delete;
  CephLibrary::Handle get() const { return handle_; }

 private:
  const CephLibrary* ceph_;
  CephLibrary::Handle handle_;
};

class CephPool {
 public:
  // FAILED_PRECONDITION: the libraries, the conf, the key or the pool is missing or wrong, the rights are too
  // small, or writes would be cached; nothing was made.
  static absl::StatusOr<std::unique_ptr<CephPool>> Connect(const CephOptions& options);
  ~CephPool();
  CephPool(const CephPool&) = delete;
  CephPool& operator=(const CephPool&) = delete;

  const CephLibrary& library() const { return ceph_; }
  CephLibrary::Handle context() const { return context_; }
  CephLibrary::Handle cluster() const { return cluster_; }
  const CephOptions& options() const { return options_; }

  // With `read_only` it has no watch and no lock.
  absl::StatusOr<RbdImage> OpenImage(const std::string& name, const std::string& snapshot,
                                     bool read_only) const;
  // Every image of the pool, anybody's.
  absl::StatusOr<std::vector<std::string>> ListImages() const;
  absl::StatusOr<std::vector<std::string>> ListSnapshots(const std::string& image) const;
  // The addresses of others that have the image open for writing.
  absl::StatusOr<std::vector<std::string>> ListWatchers(const RbdImage& image) const;
  // FAILED_PRECONDITION: this image's own settings, or its pool's, turn a cache on; or it has an object map.
  // A client keeps that in memory, and answers reads of what is not in it with zeroes, without asking an OSD:
  // also after it was shut out, when another gateway has long written there.
  absl::Status CheckCacheOf(const RbdImage& image, const std::string& name) const;
  // Keys and values of one object. NOT_FOUND never: an object that is not there has none.
  absl::StatusOr<std::map<std::string, std::string>> ReadKeys(const std::string& object) const;
  // What sets a key of an object, or removes it if the value is empty. The caller releases it.
  CephLibrary::Handle NewKeyWrite(const std::string& key, const std::string& value) const;
  // One change, lasting when it returns. An empty value removes its key.
  absl::Status WriteKey(const std::string& object, const std::string& key, const std::string& value) const;
  absl::StatusOr<PoolCapacity> MeasureCapacity() const;
  struct Locker {
    std::string client, cookie, address;  // all empty: there is none
  };
  // Who holds this lock of an object.
  absl::StatusOr<Locker> FindLocker(const std::string& object, const std::string& lock) const;
  // OK when it is gone.
  absl::Status BreakLock(const std::string& object, const std::string& lock, const Locker& locker) const;

  // This client's address, which it alone ever has.
  const std::string& address() const { return address_; }
  // Has the cluster refuse this client from now on. May be repeated. See WaitForMap. An hour, Ceph's default,
  // is too short for a host that was paused.
  absl::Status BlockClient(const std::string& address, absl::Duration lasts = absl::Hours(365 * 24)) const;
  // Until this client knows the cluster's map as it is now. An operation that it begins then is done after
  // no more operation of clients that were blocked.
  absl::Status WaitForMap() const;
  // OK if the pool still has its name, by which tgtd looks for it, while this client keeps to the pool
  // itself. Two that somebody has swapped, as when one is replaced by its copy, would share the array's
  // writes.
  absl::Status CheckName() const;
  absl::StatusOr<bool> HasObject(const std::string& name) const;
  // All of a small object; nothing: there is none.
  absl::StatusOr<std::optional<std::string>> ReadObject(const std::string& name) const;
  // One change, from exactly these contents, or from no object, to those. ABORTED: it has others, or the
  // cluster has shut this client out. PERMISSION_DENIED: its user has lost the right.
  absl::Status ReplaceObject(const std::string& name, const std::optional<std::string>& from,
                             const std::string& to) const;

  // What the monitors answer to a command (JSON). `doing`: for an error.
  absl::StatusOr<std::string> AskMonitors(const std::string& command, const std::string& doing) const;

 private:
  CephPool(const CephLibrary& ceph, CephOptions options) : ceph_(ceph), options_(std::move(options)) {}
  absl::Status ConnectCluster();
  absl::Status CheckCache() const;
  absl::Status CheckRights() const;
  absl::Status ExplainRefusal(const std::string& doing, int error) const;

  const CephLibrary& ceph_;
  const CephOptions options_;
  CephLibrary::Handle cluster_ = nullptr, context_ = nullptr;
  std::string address_;
  std::string nonce_;  // the end of the address, "/NUMBER"
};

}  // namespace lunkeeper
