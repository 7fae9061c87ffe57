// A connection for each call, closed with its answer. The data path may be restarted between two calls
// without being noticed here, a call that its caller gave up leaves nothing behind, and no thread waits for
// another's answer. Connecting to a unix socket takes some ten microseconds.
//
// A data path that is dead is answered for here, as its successor would: what it has left are orphans. So
// unmounting and releasing what it served need not wait until another one starts.

#include "devices/datapath/user_initiator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/connection_message.h"
#include "devices/datapath/attachment_records.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/datapath_lock.h"
#include "devices/datapath/limits_message.h"
#include "devices/datapath/loop_tag.h"
#include "devices/datapath/orphaned_devices.h"

namespace lunkeeper {
namespace {

// The data path gives up first, so that its reason is what the caller reads.
constexpr absl::Duration kMargin = absl::Seconds(2);
// A predecessor hangs up once, and a successor that is succeeded itself once more.
constexpr int kRepeats = 2;
constexpr absl::Duration kAskAgain = absl::Milliseconds(20);

// A data path of another version may have other buckets than we: then none are shown rather than wrong ones.
LatencyCounts ToCounts(const datapath::Latency& from) {
  LatencyCounts counts;
  if (static_cast<size_t>(from.buckets_size()) != kLatencyBuckets) return counts;
  std::copy(from.buckets().begin(), from.buckets().end(), counts.buckets.begin());
  counts.microseconds = from.microseconds();
  return counts;
}

DeviceStatistics ToStatistics(const datapath::Device& from) {
  DeviceStatistics statistics = {.reads = ToCounts(from.read_latency()),
                                 .writes = ToCounts(from.write_latency()),
                                 .flushes = ToCounts(from.flush_latency()),
                                 .reconnects = from.reconnects(),
                                 .digest_errors = from.digest_errors(),
                                 .path_moves = from.path_moves()};
  if (from.attached_unix_seconds() != 0)
    statistics.attached = absl::FromUnixSeconds(from.attached_unix_seconds());
  if (from.path_since_unix_seconds() != 0)
    statistics.path_since = absl::FromUnixSeconds(from.path_since_unix_seconds());
  return statistics;
}

Device ToDevice(const datapath::Device& from) {
  Device device;
  device.volume = VolumeId(from.volume());
  device.path = from.path();
  device.size_bytes = from.size_bytes();
  device.read_only = from.read_only();
  device.target = Iqn(from.target());
  device.portal = from.portal();
  device.used_portal = from.used_portal();
  device.other_portals = {from.other_portals().begin(), from.other_portals().end()};
  device.health = from.health() == datapath::Device::HEALTHY        ? DeviceHealth::kHealthy
                  : from.health() == datapath::Device::RECONNECTING ? DeviceHealth::kReconnecting
                                                                    : DeviceHealth::kFailed;
  device.reason = from.reason();
  device.set_aside = from.set_aside();
  device.limits = FromMessage(from.limits());
  device.counters = {.reads = from.reads(),
                     .writes = from.writes(),
                     .flushes = from.flushes(),
                     .read_bytes = from.read_bytes(),
                     .written_bytes = from.written_bytes(),
                     .errors = from.errors()};
  device.statistics = ToStatistics(from);
  return device;
}

datapath::Attach ToMessage(const AttachRequest& request) {
  datapath::Attach message;
  message.set_volume(request.volume.value());
  message.set_serial(request.serial);
  message.set_size_bytes(request.size_bytes);
  message.set_read_only(request.read_only);
  *message.mutable_limits() = ToMessage(request.limits);
  *message.mutable_connection() = ToMessage(request.connection);
  return message;
}

// How a data path ended a call without the whole answer.
enum class HungUp { kNo, kAtOnce, kMidway };

absl::StatusOr<std::vector<Device>> CallOnce(const std::string& socket_path, SteadyDeadline deadline,
                                             datapath::Request request, HungUp* hung_up) {
  request.set_timeout_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(deadline.left())));
  ASSIGN_OR_RETURN(const UniqueFd socket, ConnectTo(socket_path));
  RETURN_IF_ERROR(SendMessage(socket.get(), request));
  std::vector<Device> devices;
  datapath::Response response;
  do {  // a list of many devices comes in several messages
    const absl::Status received =
        ReceiveMessage(socket.get(), absl::Now() + deadline.left() + kMargin, &response);
    if (!received.ok()) {
      if (absl::IsUnavailable(received) && devices.empty())
        // Only before any device was read may the call be made again: a repeated list would have some twice.
        *hung_up = response.more() ? HungUp::kMidway : HungUp::kAtOnce;
      return absl::Status(received.code(), absl::StrCat("the data path at ", socket_path, ": ",
                                                        std::string(received.message())));
    }
    if (response.code() != 0) {
      return absl::Status(static_cast<absl::StatusCode>(response.code()), response.message());
    }
    for (const auto& device : response.devices()) devices.push_back(ToDevice(device));
  } while (response.more());
  return devices;
}

// A data path whose successor serves hangs up, and the successor answers the repeated call.
absl::StatusOr<std::vector<Device>> CallDatapath(const std::string& socket_path, absl::Duration timeout,
                                                 const datapath::Request& request) {
  const SteadyDeadline deadline(timeout);
  for (int repeats = 0;; ++repeats) {
    HungUp hung_up = HungUp::kNo;
    auto devices = CallOnce(socket_path, deadline, request, &hung_up);
    if (hung_up == HungUp::kNo || repeats == kRepeats || deadline.IsOver()) return devices;
  }
}

class UserInitiator final : public Initiator {
 public:
  UserInitiator(std::string socket_path, absl::Duration timeout)
      : socket_path_(std::move(socket_path)), records_(socket_path_), timeout_(timeout) {}

  absl::StatusOr<Device> Attach(const AttachRequest& request) override {
    datapath::Request message;
    *message.mutable_attach() = ToMessage(request);
    return CallForDevice(message,
                         std::clamp(request.deadline - absl::Now(), absl::Milliseconds(1), timeout_));
  }

  absl::Status Detach(const VolumeId& volume) override {
    datapath::Request message;
    message.mutable_detach()->set_volume(volume.value());
    const SteadyDeadline deadline(timeout_);
    HungUp hung_up = HungUp::kNo;
    absl::Status status = CallOnce(socket_path_, deadline, message, &hung_up).status();
    // Before it said that all is written back.
    const bool cut_off = hung_up == HungUp::kAtOnce && IsServedNoMore(volume, deadline);
    if (hung_up != HungUp::kNo) status = CallDatapath(socket_path_, deadline.left(), message).status();
    if (IsWithoutDatapath(status)) status = LetGoOfOrphan(volume);
    if (!cut_off || !status.ok()) return status;
    return absl::DataLossError(
        absl::StrCat("volume ", volume.value(),
                     ": the data path died while it detached it: what was written and not synced may be "
                     "lost. A repeated call finds it detached"));
  }

  absl::Status Fail(const VolumeId& volume, const Iqn& target, const std::string& reason) override {
    datapath::Request message;
    message.mutable_fail()->set_volume(volume.value());
    message.mutable_fail()->set_target(target.value());
    message.mutable_fail()->set_reason(reason);
    const absl::Status status = CallDatapath(socket_path_, timeout_, message).status();
    return IsWithoutDatapath(status) ? absl::OkStatus() : status;  // all its I/O fails already
  }

  absl::Status SetLimits(const VolumeId& volume, const VolumeLimits& limits) override {
    datapath::Request message;
    message.mutable_set_limits()->set_volume(volume.value());
    *message.mutable_set_limits()->mutable_limits() = ToMessage(limits);
    const absl::Status status = CallDatapath(socket_path_, timeout_, message).status();
    return IsWithoutDatapath(status) ? absl::OkStatus() : status;
  }

  absl::StatusOr<Device> Resize(const VolumeId& volume) override {
    datapath::Request message;
    message.mutable_resize()->set_volume(volume.value());
    return CallForDevice(message, timeout_);
  }

  absl::StatusOr<std::vector<Device>> List() override {
    datapath::Request message;
    message.mutable_list();
    return CallOrFindOrphans(message, "");
  }

  absl::StatusOr<std::optional<Device>> Find(const VolumeId& volume) override {
    datapath::Request message;
    message.mutable_find()->set_volume(volume.value());
    ASSIGN_OR_RETURN(std::vector<Device> devices, CallOrFindOrphans(message, volume.value()));
    if (devices.empty()) return std::nullopt;
    return std::move(devices[0]);
  }

  bool IsOfAnyDatapath(dev_t number) override { return IsMarkedLoop(number); }

 private:
  absl::StatusOr<Device> CallForDevice(const datapath::Request& message, absl::Duration timeout) const {
    ASSIGN_OR_RETURN(std::vector<Device> devices, CallDatapath(socket_path_, timeout, message));
    if (devices.size() != 1) return absl::InternalError("the data path answered without a device");
    return std::move(devices[0]);
  }

  bool IsWithoutDatapath(const absl::Status& status) const {
    return absl::IsUnavailable(status) && IsDatapathDead(socket_path_);
  }

  absl::StatusOr<std::vector<Device>> CallOrFindOrphans(const datapath::Request& message,
                                                        const std::string& volume) const {
    auto devices = CallDatapath(socket_path_, timeout_, message);
    if (!IsWithoutDatapath(devices.status())) return devices;
    devices = std::vector<Device>();
    for (const datapath::Device& orphan : FindOrphans(socket_path_, volume)) {
      devices->push_back(ToDevice(orphan));
    }
    return devices;
  }

  // A data path that hung up is dying, and has its lock until it is dead, or has a successor, which serves
  // the volume. Either takes as long as a busy machine needs, and no later call knows that this one was cut
  // off.
  bool IsServedNoMore(const VolumeId& volume, SteadyDeadline deadline) {
    auto found = Find(volume);
    for (const SteadyDeadline end(std::max(deadline.left(), kMargin));
         absl::IsUnavailable(found.status()) && !end.IsOver();) {
      absl::SleepFor(kAskAgain);
      found = Find(volume);
    }
    return found.ok() && (!found->has_value() || (*found)->target.value().empty());
  }

  absl::Status LetGoOfOrphan(const VolumeId& volume) const {
    RETURN_IF_ERROR(AwaitNoOrphan(volume, absl::Now() + timeout_,
                                  [&] { return FindOrphans(socket_path_, volume.value()); }));
    return records_.TellLoss(volume);
  }

  const std::string socket_path_;
  const AttachmentRecords records_;
  const absl::Duration timeout_;
};

}  // namespace

std::unique_ptr<Initiator> MakeUserInitiator(const std::string& socket_path, absl::Duration timeout) {
  return std::make_unique<UserInitiator>(socket_path, timeout);
}

absl::StatusOr<std::vector<Device>> ListServedDevices(const std::string& socket_path, absl::Duration timeout,
                                                      bool statistics) {
  datapath::Request message;
  message.mutable_list()->set_statistics(statistics);
  return CallDatapath(socket_path, timeout, message);
}

absl::Status UpgradeDatapath(const std::string& socket_path, absl::Duration timeout) {
  datapath::Request message;
  message.mutable_upgrade();
  return CallDatapath(socket_path, timeout, message).status();
}

absl::Status StopDatapath(const std::string& socket_path, absl::Duration timeout) {
  datapath::Request message;
  message.mutable_stop();
  return CallDatapath(socket_path, timeout, message).status();
}

}  // namespace lunkeeper
