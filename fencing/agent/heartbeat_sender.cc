#include "fencing/agent/heartbeat_sender.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/periodic.h"
#include "fencing/agent/path_watch.h"
#include "fencing/agent/this_boot.h"
#include "fencing/protocol/messages.h"

namespace lunkeeper {
namespace {

namespace v1 = coordinator::v1;

constexpr absl::Duration kBeginAgainAfter = absl::Seconds(1);

// Was the device's grant given after that fence? Its target's name ends with its generation, and an array
// counts grants and fences together. A replica that sees the array no more may tell of a fence that is over.
bool IsNewer(const Device& device, Generation fence) {
  const std::string& target = device.target.value();
  uint64_t generation = 0;
  return absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &generation) && generation > fence;
}

// One stream to one replica. Who begins it keeps it until it has ended: the last channel of a process may not
// go on a thread of gRPC's, which would have to wait for itself, does not, and works on with what it has
// freed.
class HeartbeatStream final : public grpc::ClientBidiReactor<v1::Heartbeat, v1::HeartbeatAnswer> {
 public:
  using OnAnswer = std::function<void(const v1::HeartbeatAnswer&)>;

  ~HeartbeatStream() override {
    const absl::MutexLock told(&mutex_);
  }  // who told of the end has let go of it

  static std::unique_ptr<HeartbeatStream> Begin(const Replicas& replicas,
                                                std::shared_ptr<const Replica> replica, OnAnswer on_answer) {
    std::unique_ptr<HeartbeatStream> stream(new HeartbeatStream(std::move(replica), std::move(on_answer)));
    if (const absl::Status status = replicas.Prepare(&stream->context_, absl::InfiniteFuture());
        !status.ok()) {
      stream->Ended(std::string(status.message()));
      return stream;
    }
    stream->replica_->stub->async()->Heartbeats(&stream->context_, stream.get());
    stream->AddHold();  // heartbeats are sent from outside of gRPC's callbacks
    stream->StartRead(&stream->answer_);
    stream->StartCall();
    return stream;
  }

  // Leaves the heartbeat out when the one before it has not gone yet.
  void Send(const v1::Heartbeat& heartbeat) {
    absl::MutexLock lock(&mutex_);
    if (writing_ || closed_) return;
    writing_ = true;
    heartbeat_ = heartbeat;
    StartWrite(&heartbeat_);
  }

  // Why it ended, once it has.
  std::optional<std::string> End() {
    absl::MutexLock lock(&mutex_);
    return end_;
  }

  void Cancel() { context_.TryCancel(); }
  void AwaitEnd() {
    absl::MutexLock lock(&mutex_);
    const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
    mutex_.Await(absl::Condition(&ended));
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      if (!std::exchange(heard_, true)) LogInfo("agent", "heartbeats are heard", {{"by", replica_->address}});
      on_answer_(answer_);
      StartRead(&answer_);
      return;
    }
    {
      absl::MutexLock lock(&mutex_);
      closed_ = true;
    }
    RemoveHold();
  }
  void OnWriteDone(bool) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
  }
  void OnDone(const grpc::Status& status) override { Ended(status.error_message()); }

 private:
  HeartbeatStream(std::shared_ptr<const Replica> replica, OnAnswer on_answer)
      : replica_(std::move(replica)), on_answer_(std::move(on_answer)) {}

  void Ended(const std::string& why) {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    end_ = why;
  }

  const std::shared_ptr<const Replica> replica_;
  const OnAnswer on_answer_;
  grpc::ClientContext context_;
  v1::HeartbeatAnswer answer_;
  bool heard_ = false;

  absl::Mutex mutex_;
  v1::Heartbeat heartbeat_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;  // by the other side, or never open: nothing is sent
  std::optional<std::string> end_ ABSL_GUARDED_BY(mutex_);  // gRPC is done with it
};

class Sender final : public HeartbeatSender {
 public:
  Sender(const HeartbeatOptions& options, Replicas& replicas, NodeView view)
      : options_(options),
        replicas_(replicas),
        view_(std::move(view)),
        boot_(BootId()),
        look_(std::make_unique<Periodic>(options.every, [this] { Look(); })),
        send_(std::make_unique<Periodic>(options.every, [this] { Send(); })) {}

  ~Sender() override {
    send_.reset();
    for (auto& [address, line] : lines_) line.stream->Cancel();
    for (auto& [address, line] : lines_) line.stream->AwaitEnd();
    look_.reset();
  }

  void OnFence(const fencing::ArrayId& array, const fencing::ArrayFence& fence) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!Take(array, fence)) return;
    }
    look_->Wake();
  }

 private:
  struct Line {
    std::unique_ptr<HeartbeatStream> stream;
    absl::Time begun;
    std::string last_end;
  };

  // The last fence this node was told of, on one array.
  struct Told {
    Generation generation = 0;
    fencing::VolumeSet volumes;
    // Whose devices have not been failed yet. Each is failed once, so that an answer which is late does not
    // reach the device of a newer grant.
    fencing::VolumeSet open;
  };
  using Volumes = std::map<fencing::ArrayId, std::pair<Generation, fencing::VolumeSet>>;

  void Look() {
    const Volumes open = Open();  // before the look: a device that comes later is of a newer grant
    const bool kubelet_ok = !view_.kubelet_ok || view_.kubelet_ok();
    const absl::StatusOr<std::vector<Device>> devices = view_.devices();
    if (devices.ok()) WatchPaths(*devices);
    {
      absl::MutexLock lock(&mutex_);
      kubelet_ok_ = kubelet_ok;
      if (!devices.ok()) {
        failing_ = present_;
        return;
      }
      looked_ = true;
      failing_.clear();
      present_.clear();
      for (const Device& device : *devices) {
        present_.insert(device.volume);
        if (IsFailing(device)) failing_.insert(device.volume);
      }
    }
    for (const auto& [array, fence] : open) {
      for (const VolumeId& volume : fence.second) {
        if (EndIo(volume, fence.first, *devices,
                  absl::StrCat("fenced by array ", array.value(), ", generation ", fence.first)))
          Close(array, fence.first, volume);
      }
    }
  }

  void WatchPaths(const std::vector<Device>& devices) {
    std::set<std::string> portals;
    for (const Device& device : devices)
      if (device.health == DeviceHealth::kReconnecting) portals.insert(device.portal);
    paths_.Watch(portals);
  }

  // What waits for an array that answers is not failing: that one is slow, or starts again.
  bool IsFailing(const Device& device) const {
    if (device.health != DeviceHealth::kReconnecting) return device.health == DeviceHealth::kFailed;
    return device.portal.empty() || paths_.IsLost(device.portal);
  }

  Volumes Open() {
    absl::MutexLock lock(&mutex_);
    Volumes open;
    for (const auto& [array, told] : reported_fences_) open[array] = {told.generation, told.open};
    return open;
  }
  void Close(const fencing::ArrayId& array, Generation generation, const VolumeId& volume) {
    absl::MutexLock lock(&mutex_);
    if (reported_fences_[array].generation == generation) reported_fences_[array].open.erase(volume);
  }

  // True: no I/O of the volume can succeed here any more.
  bool EndIo(const VolumeId& volume, Generation fence, const std::vector<Device>& devices,
             const std::string& why) const {
    for (const Device& device : devices) {
      if (device.volume != volume || device.health == DeviceHealth::kFailed) continue;
      if (IsNewer(device, fence)) continue;
      const absl::Status failed = view_.fail(device, why);
      if (!failed.ok()) {
        LogWarn("agent", "the I/O of a fenced volume could not be ended; trying again",
                {{"volume", volume.value()}, {"error", std::string(failed.message())}});
        return false;
      }
      LogWarn("agent", "the I/O of a fenced volume is ended",
              {{"volume", volume.value()}, {"device", device.path}, {"reason", why}});
    }
    return true;
  }

  v1::Heartbeat NextHeartbeat() {
    fencing::Heartbeat heartbeat;
    heartbeat.node = options_.node;
    heartbeat.boot = boot_;
    heartbeat.sequence = MillisSinceBoot();
    absl::MutexLock lock(&mutex_);
    heartbeat.kubelet_ok = kubelet_ok_;
    heartbeat.failing = failing_;
    heartbeat.present = present_;
    for (const auto& [array, told] : reported_fences_) {
      heartbeat.known[array] = told.generation;
      // Nobody has seen yet that nothing is left.
      if (!looked_) heartbeat.present.insert(told.volumes.begin(), told.volumes.end());
    }
    return WriteHeartbeat(heartbeat);
  }

  // There is no stream yet, or it has ended. The same reason is not logged again and again.
  static bool MayBegin(Line& line, const std::string& address) {
    if (line.stream == nullptr) return true;
    const std::optional<std::string> end = line.stream->End();
    if (!end || absl::Now() - line.begun < kBeginAgainAfter) return false;
    if (std::exchange(line.last_end, *end) != *end)
      LogWarn("agent", "heartbeats are not heard", {{"by", address}, {"error", *end}});
    return true;
  }

  void Send() {
    std::map<std::string, Line> lines;
    const v1::Heartbeat heartbeat = NextHeartbeat();
    for (const auto& replica : replicas_.All(absl::InfinitePast())) {
      Line& line = lines[replica->address];
      if (auto known = lines_.extract(replica->address); !known.empty()) line = std::move(known.mapped());
      if (MayBegin(line, replica->address)) {
        line.begun = absl::Now();
        line.stream =
            HeartbeatStream::Begin(replicas_, replica, [this](const auto& answer) { Take(answer); });
      }
      line.stream->Send(heartbeat);
    }
    for (auto& [address, line] : lines_) line.stream->Cancel();  // replicas that are no more
    for (auto& [address, line] : lines_) line.stream->AwaitEnd();
    lines_ = std::move(lines);
  }

  void Take(const v1::HeartbeatAnswer& answer) {
    for (const auto& [array, fence] : ReadFences(options_.node, answer)) OnFence(array, fence);
  }
  // True: it says what was not known.
  bool Take(const fencing::ArrayId& array, const fencing::ArrayFence& fence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Told& told = reported_fences_[array];
    if (told.generation > fence.generation) return false;
    if (told.generation < fence.generation) {
      told = Told();
      told.generation = fence.generation;
    } else if (std::includes(told.volumes.begin(), told.volumes.end(), fence.volumes.begin(),
                             fence.volumes.end())) {
      return false;
    }
    for (const VolumeId& volume : fence.volumes) {
      if (told.volumes.insert(volume).second) told.open.insert(volume);
    }
    LogWarn("agent", "this node is fenced",
            {{"array", array.value()},
             {"generation", absl::StrCat(fence.generation)},
             {"volumes", absl::StrCat(fence.volumes.size())}});
    return true;
  }

  const HeartbeatOptions options_;
  Replicas& replicas_;
  const NodeView view_;
  const std::string boot_;
  std::map<std::string, Line> lines_;  // by address; the sending thread's own
  PathWatch paths_;

  absl::Mutex mutex_;
  fencing::VolumeSet failing_ ABSL_GUARDED_BY(mutex_);
  fencing::VolumeSet present_ ABSL_GUARDED_BY(mutex_);
  bool looked_ ABSL_GUARDED_BY(mutex_) = false;  // at the devices, with success
  bool kubelet_ok_ ABSL_GUARDED_BY(mutex_) = true;
  std::map<fencing::ArrayId, Told> reported_fences_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<Periodic> look_, send_;  // last: they use the others
};

}  // namespace

std::unique_ptr<HeartbeatSender> StartHeartbeatSender(const HeartbeatOptions& options, Replicas& replicas,
                                                      NodeView view) {
  return std::make_unique<Sender>(options, replicas, std::move(view));
}

}  // namespace lunkeeper
