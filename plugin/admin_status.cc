// On the thread of the call that asks. Each part says what it knows, and leaves out what it does not: an
// operator asks when something is broken.
#include "plugin/admin_status.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tls.h"

namespace lunkeeper {
namespace {

// A data path that is gone, or too old to count, leaves the devices without it.
void FillDeviceIo(const Backends& backends, admin::v1::StatusResponse* out) {
  if (!backends.list_statistics) return;
  const auto counted = backends.list_statistics();
  if (!counted.ok()) return;
  std::map<std::string, const Device*> by_volume;
  for (const Device& device : *counted) by_volume[device.volume.value()] = &device;
  for (auto& status : *out->mutable_devices()) {
    const auto found = by_volume.find(status.volume());
    if (found == by_volume.end()) continue;
    const IoCounters& counters = found->second->counters;
    const DeviceStatistics& statistics = found->second->statistics;
    auto* io = status.mutable_io();
    io->set_reads(counters.reads);
    io->set_writes(counters.writes);
    io->set_read_bytes(counters.read_bytes);
    io->set_written_bytes(counters.written_bytes);
    io->set_read_microseconds(statistics.reads.microseconds);
    io->set_write_microseconds(statistics.writes.microseconds);
    status.set_path_moves(statistics.path_moves);
    if (statistics.path_since != absl::InfinitePast())
      status.set_path_since_unix_seconds(absl::ToUnixSeconds(statistics.path_since));
  }
}

}  // namespace

// As the watch saw them last: nobody is asked anew, since a gateway that has just died would not answer.
void FillGateways(const Backends& backends, admin::v1::StatusResponse* out) {
  if (backends.gateways == nullptr) return;
  for (const WatchedGateway& gateway : backends.gateways->ListGateways()) {
    auto* status = out->add_gateways();
    status->set_array(gateway.array);
    status->set_host(gateway.state.host);
    status->set_since_unix_seconds(absl::ToUnixSeconds(gateway.state.since));
    status->set_epoch(gateway.state.epoch);
    status->set_description(
        absl::StrCat(DescribeGateway(gateway), gateway.answers ? "" : "; none of its agents answers now"));
    status->set_change(ToText(gateway.state.change));
  }
}

void FillCertificates(const Backends& backends, admin::v1::StatusResponse* out) {
  for (const auto& peer : backends.peers) out->add_peers(peer);
  for (const auto& files : backends.certificates)
    for (const std::string& file : files()) {
      auto* status = out->add_certificates();
      status->set_file(file);
      const auto end = CertificateEnds(file);
      if (end.ok()) status->set_end_unix_seconds(absl::ToUnixSeconds(*end));
      status->set_trouble(std::string(end.status().message()));
    }
}

absl::Status FillDevices(const Backends& backends, admin::v1::StatusResponse* out) {
  ASSIGN_OR_RETURN(const std::vector<Device> devices, backends.prober->List());
  for (const Device& device : devices) {
    auto* status = out->add_devices();
    status->set_volume(device.volume.value());
    status->set_path(device.path);
    status->set_size_bytes(device.size_bytes);
    status->set_health(ToString(device.health));
    status->set_reason(device.reason);
    status->set_portal(device.portal);
    status->set_used_portal(device.used_portal);
  }
  FillDeviceIo(backends, out);
  return absl::OkStatus();
}

}  // namespace lunkeeper
