// Part of rbd_array_test: needs a Ceph. What cannot be removed at once goes later, by itself.

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/captured_log.h"
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

// The real calls, and how many found the mark of what they make.
decltype(CephLibrary::rbd_create4) real_create;
decltype(CephLibrary::rbd_snap_create) real_snap_create;
decltype(CephLibrary::rbd_clone3) real_clone;
std::string get_mark, snapped;
int found_marks = 0;
void LookForMark(const std::string& name) {
  if (std::system((get_mark + name + " /dev/null").c_str()) == 0) ++found_marks;
}
int CreateMarked(void* pool, const char* name, uint64_t size, void* how) {
  LookForMark(name);
  return real_create(pool, name, size, how);
}
int SnapMarked(void* image, const char* name) {
  LookForMark(absl::StrCat(snapped, "@", name));
  return real_snap_create(image, name);
}
int CloneMarked(void* from, const char* name, const char* snapshot, void* to, const char* child, void* how) {
  LookForMark(child);
  return real_clone(from, name, snapshot, to, child, how);
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

TEST_CASE_METHOD(Removals, "on Ceph: what a person has made beside or of an image stays over a restart") {
  const std::string image = ImageOf(Make("v")), copy = image + ".before-upgrade";
  Rbd("snap create " + image + "@before-upgrade");
  Rbd("cp " + image + " " + copy);
  Reopen();
  absl::SleepFor(absl::Seconds(3));  // removals are looked for each second
  CHECK(array->ListOrphans()->empty());
  CHECK(absl::StrContains(Rbd("snap ls " + image), "before-upgrade"));
  CHECK(absl::StrContains(Rbd("ls lk"), ".before-upgrade"));
  Rbd("snap rm " + image + "@before-upgrade");
  Rbd("rm " + copy);
}

TEST_CASE_METHOD(Removals, "on Ceph: a deleted volume that a person's snapshot keeps is told of") {
  const VolumeId volume = Make("v");
  const std::string image = ImageOf(volume);
  Rbd("snap create " + image + "@before-upgrade");
  const CapturedLog log(directory / "log");
  CHECK(cluster->volumes().DeleteVolume(volume) == absl::OkStatus());
  CHECK(Eventually([&] { return absl::StrContains(log.Text(), "@before-upgrade"); }));
  Rbd("snap rm " + image + "@before-upgrade");
  CHECK(AllGone());
}

// So that what a kill leaves is known as this array's.
TEST_CASE_METHOD(Removals, "on Ceph: what is made is marked before it is there") {
  snapped = ImageOf(Make("v")).substr(3);
  get_mark = absl::StrCat("rados --conf ", Conf(), " -p lk getomapval lunkeeper.", options.name, ".images ");
  real_create = Library().rbd_create4, real_snap_create = Library().rbd_snap_create;
  real_clone = Library().rbd_clone3;
  const ReplacedCall create(Library().rbd_create4, CreateMarked);
  const ReplacedCall snap_create(Library().rbd_snap_create, SnapMarked);
  const ReplacedCall clone(Library().rbd_clone3, CloneMarked);
  const VolumeId volume(snapped.substr(snapped.rfind('.') + 1));
  Make("w");
  MakeFrom("of-snapshot", Snap("s", volume), {});
  MakeFrom("of-volume", {}, volume);
  CHECK(found_marks == 5);  // of three images and two snapshots
}

TEST_CASE_METHOD(Removals, "on Ceph: where all marks are lost, an image without a row is set aside") {
  const VolumeId volume = Make("v");
  const std::string newer = absl::StrCat("lunkeeper.", options.name, ".", options.name, "-v00000000000000aa");
  Rbd("create --size 4M lk/" + newer);
  Run(absl::StrCat("rados --conf ", Conf(), " -p lk rm lunkeeper.", options.name, ".images"));
  Reopen();
  REQUIRE(array->ListOrphans()->size() == 1);
  CHECK(array->ListOrphans()->front().name == newer);
  CHECK(cluster->volumes().DeleteVolume(volume) == absl::OkStatus());
  CHECK(array->DeleteOrphan(newer) == absl::OkStatus());
  CHECK(AllGone());
}

}  // namespace lunkeeper::testing
