// Part of rbd_array_test: needs a Ceph. What an image that answers nobody costs others.

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "devices/array/tgt/testing/on_ceph.h"
#include "devices/array/tgt/testing/replaced_call.h"

namespace lunkeeper::testing {
namespace {

std::string silent_image;
std::atomic<bool> is_asked_for = false, may_answer = false;
decltype(CephLibrary::rbd_open_read_only) open_for_real;

int OpenUnlessSilent(CephLibrary::Handle context, const char* name, CephLibrary::Handle* image,
                     const char* snapshot) {
  if (silent_image == name) is_asked_for = true;
  while (silent_image == name && !may_answer) absl::SleepFor(absl::Milliseconds(10));
  return open_for_real(context, name, image, snapshot);
}

// Of one image the placement group of the header is down, say.
struct WithSilentImage : OnCeph {
  WithSilentImage() { is_asked_for = may_answer = false; }
  ~WithSilentImage() { may_answer = true; }
  const VolumeId volume = Make("silent");
  const std::string name = silent_image = ImageOf(volume).substr(3);  // without the pool
  CephLibrary& ceph = Library();
  const ReplacedCall<decltype(CephLibrary::rbd_open_read_only)> open{
      ceph.rbd_open_read_only, (open_for_real = ceph.rbd_open_read_only, OpenUnlessSilent)};
};

}  // namespace

TEST_CASE_METHOD(WithSilentImage, "on Ceph: no call waits for the deletion of a volume that is silent") {
  absl::Status deleted;
  std::jthread deletion([&] { deleted = cluster->volumes().DeleteVolume(volume); });
  CHECK(Eventually([&] { return is_asked_for.load(); }));
  std::atomic<bool> has_begun = false;
  std::jthread term([&] { has_begun = cluster->fences().BeginTerm("leader").ok(); });
  CHECK(Eventually([&] { return has_begun.load(); }, absl::Seconds(10)));
  may_answer = true;
  deletion.join();
  CHECK(deleted == absl::OkStatus());
}

TEST_CASE_METHOD(WithSilentImage, "on Ceph: who has gone while an image was silent is granted nothing") {
  std::atomic<bool> has_gone = false;
  absl::Status acquired;
  std::jthread call([&] {
    GrantRequest request{.volume = volume, .node = kA};
    request.abandoned = [&] { return has_gone.load(); };
    acquired = cluster->grants().AcquireGrant(request, absl::Minutes(1)).status();
  });
  CHECK(Eventually([&] { return is_asked_for.load(); }));
  has_gone = true;
  may_answer = true;
  call.join();
  CHECK(absl::IsCancelled(acquired));
  CHECK(cluster->grants().ListGrants({volume, {}})->empty());
}

}  // namespace lunkeeper::testing
