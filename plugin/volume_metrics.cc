// Written family by family rather than kept in the registry: a node with 200 volumes has 8,000 series, for
// which the registry would need several times the memory of the rest of the plugin.
#include "plugin/volume_metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <chrono>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

namespace lunkeeper {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<std::string, std::string>>;

// One family at a time, into one text.
class FamilyWriter {
 public:
  void Begin(const char* name, const char* help, MetricType type) { family_ = {name, help, type, {}}; }
  void AddValue(const Labels& labels, double value) {
    ClientMetric& metric = AddMetric(labels);
    // The serializer takes the one that belongs to the family's type.
    metric.counter.value = metric.gauge.value = value;
  }
  void AddLatency(const Labels& labels, const LatencyCounts& counts) {
    ClientMetric::Histogram& histogram = AddMetric(labels).histogram;
    for (size_t i = 0; i < kLatencyBuckets; ++i) {
      // Prometheus' buckets are cumulative: each one contains the smaller ones.
      histogram.sample_count += counts.buckets[i];
      const double bound = i < kLatencyBounds.size()
                               ? std::chrono::duration<double>(kLatencyBounds[i]).count()
                               : std::numeric_limits<double>::infinity();
      histogram.bucket.push_back({histogram.sample_count, bound});
    }
    histogram.sample_sum = static_cast<double>(counts.microseconds) / 1e6;
  }
  void WriteOut() {
    prometheus::TextSerializer().Serialize(text_, {family_});
    family_ = {};
  }
  std::string Take() { return std::move(text_).str(); }

 private:
  ClientMetric& AddMetric(const Labels& labels) {
    ClientMetric& metric = family_.metric.emplace_back();
    for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    return metric;
  }

  MetricFamily family_;
  std::ostringstream text_;
};

void WriteIo(const std::vector<Device>& devices, FamilyWriter& writer) {
  writer.Begin("lunkeeper_volume_io_seconds", "How long I/O that succeeded took", MetricType::Histogram);
  for (const Device& device : devices) {
    const std::string& id = device.volume.value();
    writer.AddLatency({{"volume", id}, {"op", "read"}}, device.statistics.reads);
    writer.AddLatency({{"volume", id}, {"op", "write"}}, device.statistics.writes);
    writer.AddLatency({{"volume", id}, {"op", "flush"}}, device.statistics.flushes);
  }
  writer.WriteOut();
  writer.Begin("lunkeeper_volume_io_bytes_total", "Bytes read and written", MetricType::Counter);
  for (const Device& device : devices) {
    const std::string& id = device.volume.value();
    writer.AddValue({{"volume", id}, {"op", "read"}}, static_cast<double>(device.counters.read_bytes));
    writer.AddValue({{"volume", id}, {"op", "write"}}, static_cast<double>(device.counters.written_bytes));
  }
  writer.WriteOut();
}

void WriteTroubles(const std::vector<Device>& devices, FamilyWriter& writer) {
  writer.Begin("lunkeeper_volume_io_errors_total", "I/O that was answered with an error",
               MetricType::Counter);
  for (const Device& device : devices)
    writer.AddValue({{"volume", device.volume.value()}}, static_cast<double>(device.counters.errors));
  writer.WriteOut();
  writer.Begin("lunkeeper_volume_reconnects_total", "Logins after the first one", MetricType::Counter);
  for (const Device& device : devices)
    writer.AddValue({{"volume", device.volume.value()}}, static_cast<double>(device.statistics.reconnects));
  writer.WriteOut();
  writer.Begin("lunkeeper_volume_digest_errors_total", "What came from the array with a wrong digest",
               MetricType::Counter);
  for (const Device& device : devices)
    writer.AddValue({{"volume", device.volume.value()}},
                    static_cast<double>(device.statistics.digest_errors));
  writer.WriteOut();
}

// Of data paths that say which portal they use.
void WritePaths(const std::vector<Device>& devices, FamilyWriter& writer) {
  const auto knows = [](const Device& device) {
    return !device.used_portal.empty() && device.statistics.path_since != absl::InfinitePast();
  };
  writer.Begin("lunkeeper_volume_path_moves_total", "How often I/O went on at another portal",
               MetricType::Counter);
  for (const Device& device : devices)
    if (knows(device))
      writer.AddValue({{"volume", device.volume.value()}}, static_cast<double>(device.statistics.path_moves));
  writer.WriteOut();
  writer.Begin("lunkeeper_volume_path_since_seconds", "Since when I/O goes by this portal, in Unix time",
               MetricType::Gauge);
  for (const Device& device : devices)
    if (knows(device))
      writer.AddValue({{"volume", device.volume.value()}, {"portal", device.used_portal}},
                      static_cast<double>(absl::ToUnixSeconds(device.statistics.path_since)));
  writer.WriteOut();
}

void WriteStates(const std::vector<Device>& devices, FamilyWriter& writer) {
  writer.Begin("lunkeeper_volume_health", "1 for the state that the device is in", MetricType::Gauge);
  for (const Device& device : devices) {
    for (const auto health : {DeviceHealth::kHealthy, DeviceHealth::kReconnecting, DeviceHealth::kFailed})
      writer.AddValue({{"volume", device.volume.value()}, {"state", ToString(health)}},
                      device.health == health ? 1 : 0);
  }
  writer.WriteOut();
  writer.Begin("lunkeeper_volume_attached_seconds", "Since when it is attached, in Unix time",
               MetricType::Gauge);
  for (const Device& device : devices) {
    // Its first login is still to come, or its data path is too old to say when that was.
    if (device.statistics.attached == absl::InfinitePast()) continue;
    writer.AddValue({{"volume", device.volume.value()}},
                    static_cast<double>(absl::ToUnixSeconds(device.statistics.attached)));
  }
  writer.WriteOut();
}

// All states, also one that no device is in, so that an alert finds a 0 rather than nothing.
void WriteCounts(const std::vector<Device>& devices, FamilyWriter& writer) {
  std::map<std::string, int> counts = {{"healthy", 0}, {"reconnecting", 0}, {"failed", 0}, {"set_aside", 0}};
  for (const Device& device : devices) ++counts[device.set_aside ? "set_aside" : ToString(device.health)];
  writer.Begin("lunkeeper_node_devices", "Block devices of this node, by health", MetricType::Gauge);
  for (const auto& [health, count] : counts) writer.AddValue({{"health", health}}, count);
  writer.WriteOut();
}

}  // namespace

std::string WriteVolumeMetrics(const absl::StatusOr<std::vector<Device>>& devices) {
  FamilyWriter writer;
  writer.Begin("lunkeeper_node_datapath_answers", "Whether the data path of this node answers",
               MetricType::Gauge);
  writer.AddValue({}, devices.ok() ? 1 : 0);
  writer.WriteOut();
  if (devices.ok()) {
    WriteCounts(*devices, writer);
    WriteIo(*devices, writer);
    WriteTroubles(*devices, writer);
    WritePaths(*devices, writer);
    WriteStates(*devices, writer);
  }
  return writer.Take();
}

}  // namespace lunkeeper
