// A stream ends when its replica is another process than it was begun with: the kernel there resets it, and
// the sender begins a new one.

#include "fencing/sim/node_plugin.h"

#include <utility>

#include "fencing/agent/heartbeat_lun_access.h"
#include "fencing/sim/array_model.h"
#include "fencing/sim/heartbeat_lun.h"
#include "fencing/sim/machine.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kRepeats = 3_s, kPortalProbe = 400_ms;  // base/tcp_prober.cc

Iqn TargetOf(const Device& device) {
  return Iqn("iqn.2026-11.io.lunkeeper:" + device.array.value() + ":" + device.volume.value() + ":" +
             std::to_string(device.generation));
}

lunkeeper::Device Describe(const Device& device) {
  lunkeeper::Device seen;
  seen.volume = device.volume;
  seen.target = TargetOf(device);
  seen.portal = device.array.value() + ":3260";
  seen.health = device.failed    ? DeviceHealth::kFailed
                : device.lost_at ? DeviceHealth::kReconnecting
                                 : DeviceHealth::kHealthy;
  return seen;
}

// A connect to an array's portal. A host that serves nothing refuses it, which is an answer.
class PortalProber final : public Prober {
 public:
  PortalProber(Process& process, Endpoint from) : process_(process), from_(from) {}
  ~PortalProber() override { *waits_ = false; }
  void Probe(const std::string& address, uint16_t, std::function<void(ProbeResult)> done) override {
    ArrayModel& array = process_.world().FindArray(ArrayId(address));
    process_.world().Call<bool>(
        from_, array.portal(), kPortalProbe,
        [&array](auto reply) {
          if (array.up()) reply(true);
        },
        [&process = process_, waits = waits_, done = std::move(done),
         counted = std::make_shared<bool>(false)](const bool* answered) {
          if (std::exchange(*counted, true)) return;  // it is late
          process.Deliver(
              [waits, done, result = answered ? ProbeResult::kAccepted : ProbeResult::kUnanswered] {
                if (*waits) done(result);
              });
        });
  }

 private:
  Process& process_;
  const Endpoint from_;
  const std::shared_ptr<bool> waits_ = std::make_shared<bool>(true);
};

class SimulatedConnection final : public HeartbeatConnection {
 public:
  SimulatedConnection(Machine& machine, Process& process, NodeGrants& grants, Replica& to,
                      HeartbeatReceiver::OnAnswer on_answer)
      : world_(process.world()),
        machine_(machine),
        stream_(std::make_shared<Stream>(process, grants, to, to.name())) {
    stream_->on_answer = std::move(on_answer);
  }

  // Devices' details are for people only.
  void SendHeartbeat(const fencing::Heartbeat& heartbeat, const DeviceDetails&) override {
    if (stream_->end || !machine_.Heartbeats()) return;
    const auto send = [&world = world_, &machine = machine_, stream = stream_, heartbeat] {
      world.Send(machine.endpoint(), stream->to.endpoint(),
                 [&world, &machine, stream, heartbeat] { Arrive(world, machine, stream, heartbeat); });
    };
    send();
    if (world_.IsRepeated()) world_.After(world_.random().Between(0_ms, kRepeats), send);
  }
  std::optional<std::string> EndReason() override { return stream_->end; }
  void Cancel() override {
    stream_->end = "cancelled";
    if (!stream_->from.dead())
      world_.Send(machine_.endpoint(), stream_->to.endpoint(), [stream = stream_, id = machine_.id()] {
        if (stream->to.name() == stream->to_life) stream->to.OnClosed(id);
      });
  }
  void AwaitEnd() override {}

 private:
  struct Stream {
    Process& from;
    NodeGrants& grants;
    Replica& to;
    const std::string to_life;
    HeartbeatReceiver::OnAnswer on_answer = {};
    std::optional<std::string> end = {};
  };

  static void Arrive(World& world, Machine& machine, const std::shared_ptr<Stream>& stream,
                     fencing::Heartbeat heartbeat) {
    const auto answer = [&world, &machine, stream](const std::function<void()>& take) {
      world.Send(stream->to.endpoint(), machine.endpoint(), [stream, take] {
        stream->from.Deliver([stream, take] {
          if (!stream->end) take();
        });
      });
    };
    if (!stream->to.HasKernel()) return;
    if (!stream->to.running() || stream->to.name() != stream->to_life)
      return answer([stream] { stream->end = "reset"; });
    if (world.Has(Mutant::kSaysCleanTooEarly)) heartbeat.present.clear();
    stream->to.OnHeartbeat(std::move(heartbeat),
                           [&machine, stream, answer](const FencesByArray& fences, const auto& replicas) {
                             answer([&machine, stream, fences, replicas] {
                               for (const auto& [array, fence] : fences) machine.NoteFence(array, fence);
                               stream->on_answer({.fences = fences});
                               stream->grants.AddNamed(replicas);
                             });
                           });
  }

  World& world_;
  Machine& machine_;
  const std::shared_ptr<Stream> stream_;
};

}  // namespace

NodePlugin::NodePlugin(World& world, Machine& machine, DataPath& data_path)
    : world_(world),
      machine_(machine),
      data_path_(data_path),
      process_(world, machine.endpoint(), ClockError{}),
      grants_(machine, data_path, process_),
      sender_(StartHeartbeatSender(
          {.node = machine.id(),
           .boot = "boot" + std::to_string(machine.life()),
           .millis_since_boot = [&machine] { return machine.MillisSinceBoot(); },
           .executor = process_,
           .make_prober = [this] { return std::make_unique<PortalProber>(process_, machine_.endpoint()); }},
          [this] { return ListReceivers(); },
          {.devices = [this] { return ListDevices(); },
           .fail = [this](const lunkeeper::Device& device, const std::string&) { return FailDevice(device); },
           .is_idle = [this](const lunkeeper::Device& device) { return IsIdle(device); },
           .kubelet_ok = [this] { return !machine_.kubelet_hung(); }})),
      to_storage_(StartToStorage()) {}

// Its threads end before the sender does, which they call.
std::unique_ptr<StorageHeartbeatSender> NodePlugin::StartToStorage() {
  std::vector<ArrayId> arrays;
  for (const auto& array : world_.arrays) arrays.push_back(array->id());
  StorageHeartbeatOptions options{.node = machine_.id(),
                                  .arrays = std::move(arrays),
                                  .log_in = LogInToSimulatedLun(machine_, process_),
                                  .boot = "boot" + std::to_string(machine_.life()),
                                  .millis_since_boot = [this] { return machine_.MillisSinceBoot(); },
                                  .executor = process_};
  return StartStorageHeartbeats(
      options, AskForHeartbeatLun(grants_.table(), machine_.id(), process_),
      [this](const ArrayId& array, const ArrayFence& fence) {
        if (process_.dead()) return;
        machine_.NoteFence(array, fence);
        sender_->OnFence(array, fence);
      },
      [this](const ArrayId& array) { sender_->OnStorageHeartbeat(array); });
}

// Its threads end out of sight.
void NodePlugin::Kill() {
  process_.Kill();
  reaper_ = process_.StartThread([this] {
    to_storage_.reset();
    sender_.reset();
    grants_.Stop();
    reaped_ = true;
  });
}

std::vector<HeartbeatReceiver> NodePlugin::ListReceivers() {
  std::vector<HeartbeatReceiver> receivers;
  for (Replica* replica : grants_.ListReplicas()) {
    receivers.push_back({.address = std::to_string(replica->endpoint()),
                         .begin_stream = [this, &to = *replica](HeartbeatReceiver::OnAnswer on_answer) {
                           return std::make_unique<SimulatedConnection>(machine_, process_, grants_, to,
                                                                        std::move(on_answer));
                         }});
  }
  return receivers;
}

absl::StatusOr<std::vector<lunkeeper::Device>> NodePlugin::ListDevices() const {
  if (process_.dead()) return absl::UnavailableError("this process is dead");
  std::vector<lunkeeper::Device> devices;
  for (const auto& [volume, device] : data_path_.devices()) devices.push_back(Describe(device));
  return devices;
}

bool NodePlugin::IsIdle(const lunkeeper::Device& device) const {
  const Device* found = process_.dead() ? nullptr : data_path_.FindDevice(device.volume);
  return found != nullptr && !found->pending;
}

absl::Status NodePlugin::FailDevice(const lunkeeper::Device& device) {
  if (process_.dead()) return absl::UnavailableError("this process is dead");
  const Device* found = data_path_.FindDevice(device.volume);
  if (found && TargetOf(*found) == device.target) data_path_.Fail(device.volume);
  return absl::OkStatus();
}

}  // namespace lunkeeper::fencing::sim
