#pragma once
// Who has an image of an array on a real Ceph open beside its tgtd (on_ceph.h). For one test.

#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "devices/array/tgt/gateway_record.h"
#include "devices/array/tgt/testing/on_ceph.h"
#include "devices/array/tgt/testing/replaced_call.h"

namespace lunkeeper::testing {

struct WithSharedVolume : OnCeph {
  explicit WithSharedVolume(int tgtds = 2) : OnCeph(tgtds) {}
  Grant Acquire(const VolumeId& volume, const NodeId& node) {
    const auto grant = cluster->grants().AcquireGrant(
        {.volume = volume, .node = node, .access = Access::kSharedWrite}, absl::ZeroDuration());
    REQUIRE(grant.status() == absl::OkStatus());
    return *grant;
  }
};

struct OfOneTgtd : WithSharedVolume {
  OfOneTgtd() : WithSharedVolume(1) {}
};

// Another gateway has had the array, and this host's tgtd is started anew.
struct WithTakeover : OnCeph {
  void TakeOver(const std::function<void(GatewayRecord&)>& change = [](GatewayRecord&) {}) {
    cluster.reset();
    array.reset();
    const auto pool = ConnectToCeph();
    const auto record = ReadGatewayRecord(*pool, options.name).value();
    GatewayRecord next = *record;
    next.holder = "another.boot";
    ++next.counter;
    change(next);
    REQUIRE(ReplaceGatewayRecord(*pool, options.name, record, next) == absl::OkStatus());
    REQUIRE(Open() == absl::OkStatus());
    cluster = Cluster();
  }
};

// As a program of somebody else that has the image open.
struct Stranger {
  Stranger(const OnCeph& on, const VolumeId& volume)
      : pool(CephPool::Connect(on.options.ceph).value()),
        key("lunkeeper.test." + on.options.name),
        image(pool->OpenImage(on.ImageOf(volume).substr(3), "", /*read_only=*/false).value()) {}
  void Close() { image.reset(); }
  bool CanWrite() const { return pool->WriteKey(key, "k", "v").ok(); }
  bool IsNamed(const absl::Status& status) const {
    return absl::IsFailedPrecondition(status) && absl::StrContains(status.message(), pool->address());
  }

  std::unique_ptr<CephPool> pool;
  const std::string key;
  std::optional<RbdImage> image;
};

// By the grant that the volume has now: whether its node can log in anew, and write.
inline std::function<bool()> WriterOf(const OnCeph& on, const VolumeId& volume) {
  const Connection connection = on.cluster->grants().ListGrants({volume, {}})->front().connection;
  return [connection] { return CanWrite(connection, 0, 'b'); };
}

inline std::set<ClientAddress> NamedOf(const OnCeph& on, const VolumeId& volume) {
  const auto record = ReadGatewayRecord(*ConnectToCeph(), on.options.name);
  REQUIRE(record.status() == absl::OkStatus());
  const auto found = (*record)->images.find(on.ImageOf(volume));
  return found == (*record)->images.end() ? std::set<ClientAddress>() : found->second;
}

// While it lives, a list of who has an image open shows each as this says; an empty text: not at all.
class ShownAs {
 public:
  using Show = std::function<ClientAddress(const ClientAddress&)>;
  explicit ShownAs(Show show) : list_(Library().rbd_watchers_list, List) {
    const absl::MutexLock lock(&mu_);
    show_ = std::move(show);
  }

 private:
  static int List(CephLibrary::Handle image, CephLibrary::Watcher* watchers, size_t* most) {
    const int listed = real_(image, watchers, most);
    const absl::MutexLock lock(&mu_);  // the array looks too, at its ticks
    size_t left = 0;
    for (size_t i = 0; listed >= 0 && i < *most; ++i) {
      const ClientAddress shown = show_(watchers[i].address);
      std::free(watchers[i].address);
      if (shown.empty()) continue;
      watchers[left] = watchers[i];
      watchers[left++].address = strdup(shown.c_str());
    }
    if (listed >= 0) *most = left;
    return listed;
  }

  inline static const auto real_ = Library().rbd_watchers_list;
  inline static absl::Mutex mu_;
  inline static Show show_ ABSL_GUARDED_BY(mu_);
  const ReplacedCall<decltype(CephLibrary::rbd_watchers_list)> list_;
};

// Ends one by SIGKILL, and waits for the next one.
inline void KillTgtd(const OnCeph& on, int control_port) {
  const pid_t killed = TgtdProcess(control_port);
  REQUIRE(killed > 0);
  ::kill(killed, SIGKILL);
  REQUIRE(Eventually([&] {
    const pid_t now = TgtdProcess(control_port);
    return now > 0 && now != killed && on.array->CheckTgtd().ok();
  }));
}

}  // namespace lunkeeper::testing
