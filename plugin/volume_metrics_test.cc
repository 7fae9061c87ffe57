#include "plugin/volume_metrics.h"

#include <catch2/catch.hpp>

#include "base/metrics.h"

namespace lunkeeper {
namespace {

using Catch::Contains;

Device MakeDevice(const std::string& id, DeviceHealth health = DeviceHealth::kHealthy) {
  Device device;
  device.volume = VolumeId(id);
  device.health = health;
  return device;
}

TEST_CASE("a volume's I/O is a histogram for each kind, with buckets that add up") {
  Device device = MakeDevice("rack1-v1");
  device.statistics.writes = {.buckets = {1, 2, 0, 0, 0, 0, 0, 0, 4}, .microseconds = 1'500'000};
  device.counters.written_bytes = 4096;
  const std::string text = WriteVolumeMetrics(std::vector{device});
  const auto line = [](const std::string& suffix, const std::string& labels, const char* value) {
    return Contains("lunkeeper_volume_io_seconds_" + suffix + "{volume=\"rack1-v1\"," + labels + "} " +
                    value + "\n");
  };
  CHECK_THAT(text, line("bucket", "op=\"write\",le=\"0.00025\"", "1") &&
                       line("bucket", "op=\"write\",le=\"0.001\"", "3") &&
                       line("bucket", "op=\"write\",le=\"10\"", "3") &&
                       line("bucket", "op=\"write\",le=\"+Inf\"", "7") &&
                       line("count", "op=\"write\"", "7") && line("sum", "op=\"write\"", "1.5") &&
                       line("count", "op=\"read\"", "0") && line("count", "op=\"flush\"", "0"));
  CHECK_THAT(text, Contains("lunkeeper_volume_io_bytes_total{volume=\"rack1-v1\",op=\"write\"} 4096\n"));
  CHECK_THAT(text, Contains("# TYPE lunkeeper_volume_io_seconds histogram\n"));
}

TEST_CASE("a volume is in one state, and its errors, reconnects and age are told") {
  Device device = MakeDevice("rack1-v1", DeviceHealth::kReconnecting);
  device.counters.errors = 3;
  device.statistics.reconnects = 2;
  device.statistics.digest_errors = 1;
  device.statistics.attached = absl::FromUnixSeconds(1'700'000'000);
  const std::string text = WriteVolumeMetrics(std::vector{device, MakeDevice("rack1-old")});
  for (const char* line : {"lunkeeper_volume_health{volume=\"rack1-v1\",state=\"healthy\"} 0\n",
                           "lunkeeper_volume_health{volume=\"rack1-v1\",state=\"reconnecting\"} 1\n",
                           "lunkeeper_volume_health{volume=\"rack1-v1\",state=\"failed\"} 0\n",
                           "lunkeeper_volume_io_errors_total{volume=\"rack1-v1\"} 3\n",
                           "lunkeeper_volume_reconnects_total{volume=\"rack1-v1\"} 2\n",
                           "lunkeeper_volume_digest_errors_total{volume=\"rack1-v1\"} 1\n",
                           "lunkeeper_volume_attached_seconds{volume=\"rack1-v1\"} 1700000000\n"})
    CHECK_THAT(text, Contains(line));
  // An older worker made that connection: no age is better than a wrong one.
  CHECK_THAT(text, !Contains("lunkeeper_volume_attached_seconds{volume=\"rack1-old\"}"));
}

TEST_CASE("the portal that a volume's I/O goes by is told, with its moves, where the data path knows them") {
  Device device = MakeDevice("rack1-v1");
  device.used_portal = "10.0.1.5:3260";
  device.statistics.path_since = absl::FromUnixSeconds(1'700'000'000);
  device.statistics.path_moves = 3;
  const std::string text = WriteVolumeMetrics(std::vector{device, MakeDevice("rack1-old")});
  for (const char* line :
       {"lunkeeper_volume_path_since_seconds{volume=\"rack1-v1\",portal=\"10.0.1.5:3260\"} 1700000000\n",
        "lunkeeper_volume_path_moves_total{volume=\"rack1-v1\"} 3\n"})
    CHECK_THAT(text, Contains(line));
  CHECK_THAT(text, !Contains("lunkeeper_volume_path_since_seconds{volume=\"rack1-old\"") &&
                       !Contains("lunkeeper_volume_path_moves_total{volume=\"rack1-old\""));
}

TEST_CASE("devices are counted by health, and those that are set aside on their own") {
  Device set_aside = MakeDevice("rack1-v1", DeviceHealth::kFailed);
  set_aside.set_aside = true;
  const std::string text =
      WriteVolumeMetrics(std::vector{MakeDevice("rack1-v2"), set_aside, MakeDevice("rack1-v3"),
                                     MakeDevice("rack1-v4", DeviceHealth::kFailed)});
  for (const char* line :
       {"lunkeeper_node_devices{health=\"healthy\"} 2\n",
        "lunkeeper_node_devices{health=\"reconnecting\"} 0\n",
        "lunkeeper_node_devices{health=\"failed\"} 1\n", "lunkeeper_node_devices{health=\"set_aside\"} 1\n"})
    CHECK_THAT(text, Contains(line));
  CHECK_THAT(WriteVolumeMetrics(std::vector<Device>()),
             Contains("lunkeeper_node_devices{health=\"healthy\"} 0\n"));
}

TEST_CASE("a data path that does not answer is told, and no volume of it") {
  const std::string text = WriteVolumeMetrics(absl::UnavailableError("nobody listens"));
  CHECK_THAT(text, Contains("\nlunkeeper_node_datapath_answers 0\n") && !Contains("lunkeeper_volume_") &&
                       !Contains("lunkeeper_node_devices"));
  CHECK_THAT(WriteVolumeMetrics(std::vector<Device>()),
             Contains("\nlunkeeper_node_datapath_answers 1\n") && !Contains("volume=\""));
}

TEST_CASE("the series of a volume end when it is detached") {
  std::vector<Device> attached = {MakeDevice("rack1-v1"), MakeDevice("rack1-v2")};
  Metrics metrics("node");
  metrics.AddSource([&] { return WriteVolumeMetrics(attached); });
  CHECK_THAT(metrics.ToText(), Contains("lunkeeper_build_info{") && Contains("volume=\"rack1-v1\"") &&
                                   Contains("volume=\"rack1-v2\""));
  attached.erase(attached.begin());
  CHECK_THAT(metrics.ToText(), !Contains("volume=\"rack1-v1\"") && Contains("volume=\"rack1-v2\""));
}

}  // namespace
}  // namespace lunkeeper
