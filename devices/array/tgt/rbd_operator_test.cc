// Part of rbd_array_test: needs a Ceph. What an operator does to the pool while the array is served.

#include <signal.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "devices/array/tgt/gateway_record.h"
#include "devices/array/tgt/testing/on_ceph.h"

namespace lunkeeper::testing {
namespace {

// As where a pool is replaced by its copy, which gets its name. While it lives.
struct WithSwappedPools : OnCeph {
  WithSwappedPools() {
    options.ceph.user = "admin";  // the rights of the other one name the pool
    Reopen();
    volume = Make("v");
    initiator = Login(volume);
    REQUIRE(initiator->Write(0, 'a'));
  }
  ~WithSwappedPools() { SwapBack(); }
  void Swap() {
    swapped = true;
    Ceph("osd pool rename lk lk-of-before");
    Ceph("osd pool create lk 8");
    Ceph("osd pool application enable lk rbd");
    const std::string image = ImageOf(volume).substr(3);
    Rbd(absl::StrCat("cp lk-of-before/", image, " lk/", image));
  }
  void SwapBack() {
    if (!swapped) return;
    swapped = false;
    Ceph("osd pool delete lk lk --yes-i-really-really-mean-it");
    Ceph("osd pool rename lk-of-before lk");
  }
  static void Ceph(const std::string& words) {
    Run(absl::StrCat("ceph --conf ", Conf(), " ", words, " > /dev/null 2>&1"));
  }

  VolumeId volume;
  std::unique_ptr<PlainInitiator> initiator;
  bool swapped = false;
};

// As one takes it for that of a dead program. Ceph then refuses all that its client asks.
void RemoveLock(const OnCeph& on, const VolumeId& volume) {
  const std::string image = on.ImageOf(volume);
  const nlohmann::json locks = nlohmann::json::parse(on.Rbd("lock ls --format json " + image));
  REQUIRE(locks.size() == 1);
  const auto text = [&](const char* key) { return locks.front().at(key).get<std::string>(); };
  on.Rbd(absl::StrCat("lock rm ", image, " '", text("id"), "' ", text("locker")));
}

}  // namespace

TEST_CASE_METHOD(OnCeph, "on Ceph: an image whose lock an operator removes is opened anew") {
  const VolumeId volume = Make("v"), other = Make("other");
  const auto goes_on = Login(other);
  REQUIRE(goes_on->Write(0, 'a'));
  REQUIRE(Login(volume)->Write(0, 'a'));
  const pid_t tgtd = TgtdProcess(options.control_port);
  const auto pool = ConnectToCeph();
  const auto clients = [&] {
    return ReadGatewayRecord(*pool, options.name).value()->images.at(ImageOf(volume));
  };
  const std::set<ClientAddress> before = clients();
  RemoveLock(*this, volume);
  CHECK(Eventually([&] {
    const auto now = clients();
    return now.size() == 1 && now != before;
  }));
  const auto initiator = Login(volume);
  CHECK(initiator->Read(0) == 'a');
  CHECK(initiator->Write(0, 'b'));
  CHECK(goes_on->Write(1, 'a'));  // by the session of before
  CHECK(TgtdProcess(options.control_port) == tgtd);
}

// The agent goes on in the pool itself, and tgtd would open the copy: a write that was acknowledged after the
// copy was made would be gone.
TEST_CASE_METHOD(WithSwappedPools,
                 "on Ceph: no volume is served from another pool that got the pool's name") {
  Swap();
  REQUIRE(initiator->Write(0, 'b'));
  const absl::Status grown = cluster->volumes().ExpandVolume(volume, 32 << 20).status();
  CHECK(absl::IsFailedPrecondition(grown));
  CHECK(absl::StrContains(grown.message(), "was it renamed?"));
  CHECK(initiator->Write(1, 'b'));  // it has not been closed for that
  const pid_t tgtd = TgtdProcess(options.control_port);
  ::kill(tgtd, SIGKILL);
  REQUIRE(Eventually([&] {
    const pid_t now = TgtdProcess(options.control_port);
    return now != 0 && now != tgtd && array->CheckTgtd().ok();
  }));
  const auto connection = cluster->grants().ListGrants({volume, {}})->front().connection;
  const absl::Status refused = PlainInitiator::Login(connection).status();
  CHECK_FALSE(refused.ok());
  CHECK_FALSE(absl::IsPermissionDenied(refused));  // which is for good
  SwapBack();
  CHECK(Eventually([&] {
    const auto again = PlainInitiator::Login(connection);
    return again.ok() && (*again)->Read(0) == 'b' && (*again)->Read(1) == 'b';
  }));
}

}  // namespace lunkeeper::testing
