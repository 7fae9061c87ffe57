// What is opened anew after somebody has shut clients out, without a tgtd and a Ceph.
#include "devices/array/tgt/image_reopener.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <string>

#include "base/testing/test_host.h"
#include "devices/array/tgt/testing/bare_store.h"

namespace lunkeeper::testing {
namespace {

// Of whose one image a client is shut out, until its clients have ended.
class ShutOutStore final : public BareStore {
 public:
  std::string VolumePath(const VolumeId& id) const override { return "lk/" + id.value(); }
  absl::Status ConfirmHeld() const override { return absl::OkStatus(); }
  std::set<std::string> ListClients(const std::string&) const override { return {"shut out", "other"}; }
  void EndClients(const std::string&, const std::set<std::string>& clients) const override {
    ended = clients.size();
  }
  absl::StatusOr<std::set<std::string>> FindShutOut() const override {
    ++looks;
    if (ended > 0) return std::set<std::string>();
    return std::set<std::string>{"lk/a1-v"};
  }

  mutable std::atomic<size_t> looks = 0, ended = 0;
};

// Two nodes share its volume.
struct Reopening {
  Reopening() { AddSharedVolume(*catalogue, {"a.1", "b.1"}); }
  absl::Status Check(const GrantRow& grant) const {
    return hangs && grant.node == NodeId("b.1") ? absl::UnavailableError("its tgtd hangs") : absl::OkStatus();
  }

  const TempDir directory;
  std::unique_ptr<Catalogue> catalogue = Catalogue::Open(directory / "catalogue.db", "a1").value();
  ShutOutStore store;
  VolumeGates gates;
  std::atomic<bool> hangs = false;
  std::atomic<int> reopened = 0;
  ImageReopener reopener{*catalogue, store, gates, [this](const GrantRow& grant) { return Check(grant); },
                         [this](const GrantRow& grant) {
                           ++reopened;
                           return Check(grant);
                         }};
};

}  // namespace

TEST_CASE_METHOD(Reopening,
                 "an image of which a client is shut out is opened anew for each of its nodes, once") {
  reopener.StartLooking();
  CHECK(Eventually([&] { return store.ended == 2; }));
  const size_t looks = store.looks;
  CHECK(Eventually([&] { return store.looks > looks; }));
  reopener.StopLooking();
  CHECK(reopened == 2);
}

TEST_CASE_METHOD(Reopening, "a healthy grant of a shut out image is not cut beside one that hangs") {
  hangs = true;
  reopener.StartLooking();
  CHECK(Eventually([&] { return store.looks == 3; }));
  CHECK(reopened == 0);
  CHECK(store.ended == 0);
  hangs = false;
  CHECK(Eventually([&] { return store.ended == 2; }));
  reopener.StopLooking();
  CHECK(reopened == 2);
}

}  // namespace lunkeeper::testing
