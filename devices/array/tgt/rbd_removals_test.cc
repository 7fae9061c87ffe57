// Part of rbd_array_test: needs a Ceph. What cannot be removed at once goes later, by itself.

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/testing/on_ceph.h"
#include "devices/array/tgt/testing/replaced_call.h"

namespace lunkeeper::testing {
namespace {

int FailToRemove(void*, const char*) { return -EIO; }
int FailToResize(void*, uint64_t) { return -EIO; }

// The real calls, slower than the thread comes back, and whether two of them ran at once.
std::atomic<int> under_way = 0, most_at_once = 0;
decltype(CephLibrary::rbd_remove) real_remove;
decltype(CephLibrary::rbd_snap_remove) real_snap_remove;
template <class Call>
int RunSlowly(Call call) {
  const int now = ++under_way;
  if (now > most_at_once) most_at_once = now;
  absl::SleepFor(absl::Milliseconds(1500));
  const int result = call();
  --under_way;
  return result;
}
int RemoveSlowly(void* context, const char* name) {
  return RunSlowly([&] { return real_remove(context, name); });
}
int RemoveSnapshotSlowly(void* image, const char* name) {
  return RunSlowly([&] { return real_snap_remove(image, name); });
}

struct Removals : OnCeph {
  bool AllGone() {
    return Eventually([&] { return !HasImages(); });
  }
};

}  // namespace

TEST_CASE_METHOD(Removals,
                 "on Ceph: an image that could not be removed is removed later, and holds up no other") {
  const VolumeId a = Make("a"), b = Make("b");
  {
    const ReplacedCall fails(Library().rbd_remove, FailToRemove);
    CHECK(cluster->volumes().DeleteVolume(a) == absl::OkStatus());
  }
  CHECK(cluster->volumes().DeleteVolume(b) == absl::OkStatus());
  CHECK(AllGone());
}

TEST_CASE_METHOD(Removals, "on Ceph: an image that cannot be removed keeps no array from starting") {
  const VolumeId volume = Make("v");
  const ReplacedCall fails(Library().rbd_remove, FailToRemove);
  cluster->volumes().DeleteVolume(volume).IgnoreError();
  Reopen();
  Make("w");
}

TEST_CASE_METHOD(Removals, "on Ceph: half a clone that could not be removed is removed later") {
  const VolumeId volume = Make("v");
  {
    const ReplacedCall remove(Library().rbd_remove, FailToRemove);
    const ReplacedCall resize(Library().rbd_resize, FailToResize);
    VolumeSpec spec = Spec("c", 32);
    spec.source_volume = volume;
    CHECK(!cluster->volumes().CreateVolume(spec).ok());
  }
  CHECK(cluster->volumes().DeleteVolume(volume) == absl::OkStatus());
  CHECK(AllGone());
}

TEST_CASE_METHOD(Removals, "on Ceph: a snapshot that stood for a clone, and stayed, keeps no image") {
  const VolumeId volume = Make("v");
  VolumeId copy;
  {
    const ReplacedCall fails(Library().rbd_snap_remove, FailToRemove);
    copy = MakeFrom("c", {}, volume);
  }
  for (const VolumeId& each : {volume, copy})
    CHECK(cluster->volumes().DeleteVolume(each) == absl::OkStatus());
  CHECK(AllGone());
}

// Also where the thread comes back while a call removes a clone or the snapshot below it.
TEST_CASE_METHOD(Removals, "on Ceph: one thing is removed at a time") {
  const VolumeId volume = Make("v");
  VolumeId copy;
  {
    const ReplacedCall fails(Library().rbd_snap_remove, FailToRemove);
    copy = MakeFrom("c", {}, volume);
  }
  real_remove = Library().rbd_remove, real_snap_remove = Library().rbd_snap_remove;
  {
    const ReplacedCall remove(Library().rbd_remove, RemoveSlowly);
    const ReplacedCall snap_remove(Library().rbd_snap_remove, RemoveSnapshotSlowly);
    for (const VolumeId& each : {copy, volume})
      CHECK(cluster->volumes().DeleteVolume(each) == absl::OkStatus());
    CHECK(AllGone());
    cluster.reset();
    array.reset();  // and its thread
  }
  CHECK(most_at_once == 1);
}

}  // namespace lunkeeper::testing
