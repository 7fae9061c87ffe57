#include "devices/datapath/limit_setter.h"

#include <catch2/catch.hpp>
#include <map>

namespace lunkeeper {
namespace {

const VolumeId kA("a"), kB("b");

Device DeviceOf(const VolumeId& volume, uint64_t version) {
  Device device;
  device.volume = volume;
  device.limits.version = version;
  return device;
}

VolumeLimits Iops(uint64_t iops, uint64_t version) { return {.iops = iops, .version = version}; }

struct Setting {
  std::map<VolumeId, VolumeLimits> set;
  int calls = 0;
  absl::Status answer;
  LimitSetter setter{[this](const VolumeId& volume, const VolumeLimits& limits) {
    ++calls;
    if (answer.ok()) set[volume] = limits;
    return answer;
  }};
};

}  // namespace

TEST_CASE_METHOD(Setting, "a device with older limits gets the new ones, and no other does") {
  CHECK(setter.Report({{kA, Iops(200, 3)}, {kB, Iops(300, 3)}}));
  setter.Apply({DeviceOf(kA, 2), DeviceOf(kB, 3)});
  CHECK(set == std::map<VolumeId, VolumeLimits>{{kA, Iops(200, 3)}});
  setter.Apply({DeviceOf(kA, 3), DeviceOf(kB, 3)});
  CHECK(calls == 1);
}

TEST_CASE_METHOD(Setting, "a replica that knows only older limits changes nothing") {
  CHECK(setter.Report({{kA, Iops(200, 3)}}));
  CHECK_FALSE(setter.Report({{kA, Iops(100, 2)}}));
  CHECK_FALSE(setter.Report({{kA, Iops(200, 3)}}));
  setter.Apply({DeviceOf(kA, 1)});
  CHECK(set.at(kA) == Iops(200, 3));
}

TEST_CASE_METHOD(Setting, "what cannot be set now is set later") {
  answer = absl::UnavailableError("the data path does not answer");
  setter.Report({{kA, Iops(200, 1)}});
  setter.Apply({DeviceOf(kA, 0)});
  setter.Apply({DeviceOf(kA, 0)});
  CHECK(calls == 2);
  answer = absl::OkStatus();
  setter.Apply({DeviceOf(kA, 0)});
  CHECK(set.at(kA) == Iops(200, 1));
}

TEST_CASE_METHOD(Setting, "a data path that does not answer is asked once, not for each volume") {
  answer = GENERATE(absl::UnavailableError("away"), absl::DeadlineExceededError("hangs"));
  setter.Report({{kA, Iops(200, 1)}, {kB, Iops(300, 1)}});
  setter.Apply({DeviceOf(kA, 0), DeviceOf(kB, 0)});
  CHECK(calls == 1);
  answer = absl::FailedPreconditionError("refused");  // of that volume alone
  setter.Apply({DeviceOf(kA, 0), DeviceOf(kB, 0)});
  CHECK(calls == 3);
}

TEST_CASE_METHOD(Setting, "what is known of volumes without a device is forgotten") {
  setter.Report({{kA, Iops(200, 1)}});
  setter.Apply({});
  setter.Apply({DeviceOf(kA, 0)});
  CHECK(calls == 0);
  CHECK(setter.Report({{kA, Iops(200, 1)}}));
}

}  // namespace lunkeeper
