#include "fencing/agent/heartbeat_sender.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/periodic.h"
#include "devices/array/arrays.h"
#include "fencing/agent/detail_rotation.h"
#include "fencing/agent/path_watch.h"
#include "fencing/agent/removed_arrays.h"

// Three kinds of threads meet here.
//
//   observing thread  each half second, and when a portal is lost or heard again: asks the data path for the
//                     node's devices and kubelet's health, then ends the I/O of fenced volumes. It may hang
//                     for as long as the data path hangs.
//   sending thread    each half second, and when the first one sees a volume begin or cease to fail: builds
//                     a heartbeat from what was last observed and hands it to every stream. It never waits
//                     for a device, so a hanging data path does not silence the node.
//   connections'      read answers. An answer that names a new fence wakes the observing thread.
//
// `Sender::mutex_` guards what they share: the last observation and the reported fences. No call that may
// block is made with it held.
//
// A fence goes through these steps on a node:
//
//   answer or notice --TakeFence--> to be enforced --EndIo--> enforced --heartbeat.known--> acknowledged
//
// The acknowledgement does not wait for EndIo. Controllers take a node for clean only when its heartbeats no
// longer list a fenced volume as present, and until the first observation all of them are listed.
namespace lunkeeper {
namespace {

// A replica that refuses a stream at once would otherwise be asked with every heartbeat.
constexpr absl::Duration kRestartStreamAfter = absl::Seconds(1);

// Devices that a heartbeat describes.
constexpr size_t kDetailsAtOnce = 2;

// So many heartbeats to an array have to be missing before its portals are probed for idle volumes.
constexpr int kMissing = 3;

// Whether the device's grant was made after that fence. A target's name ends with the generation of its
// grant, and an array numbers grants and fences from one counter, so the two compare. The check is needed
// because a replica that lost sight of the array may still report a fence that has been lifted since.
bool IsNewer(const Device& device, Generation fence) {
  const std::string& target = device.target.value();
  uint64_t generation = 0;
  return absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &generation) && generation > fence;
}

class Sender final : public HeartbeatSender {
 public:
  Sender(HeartbeatOptions options, ListHeartbeatReceivers receivers, NodeView view)
      : options_(std::move(options)),
        receivers_(std::move(receivers)),
        view_(std::move(view)),
        limits_(view_.set_limits),
        paths_(options_.executor, options_.make_prober, [this] { WakeObserving(); }) {
    // Here, as each thread may look for what the others are in: all members are there, if only empty. What an
    // answer to the first heartbeat says has to find the observing thread.
    auto observe = std::make_unique<Periodic>(
        options_.every, [this] { ObserveNode(); }, options_.executor);
    {
      absl::MutexLock lock(&mutex_);
      observe_ = std::move(observe);
    }
    auto send = std::make_unique<Periodic>(
        options_.every, [this] { SendToReplicas(); }, options_.executor);
    absl::MutexLock lock(&mutex_);
    send_ = std::move(send);
  }

  // Sending stops first, so that nothing begins a stream any more. The streams are cancelled together and
  // then awaited together: one slow peer costs its time once. Observing stops last, as an answer that arrives
  // until then wakes it; a portal that is lost even later finds it gone.
  ~Sender() override {
    TakeSending().reset();
    EndStreams();
    TakeObserving().reset();
  }

  void OnFence(const fencing::ArrayId& array, const fencing::ArrayFence& fence) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!TakeFence(array, fence)) return;
    }
    WakeObserving();
  }

  void OnStorageHeartbeat(const fencing::ArrayId& array) override {
    absl::MutexLock lock(&mutex_);
    landed_[array] = options_.executor.SteadyNow();
  }

 private:
  // The connection to one replica, over all streams to it.
  struct Link {
    std::unique_ptr<HeartbeatConnection> stream;
    absl::Duration begun;  // by the steady clock
    std::string last_end;  // the reason that was logged last
  };

  // The last fence against this node that one array or a controller reported.
  struct ReportedFence {
    Generation generation = 0;
    fencing::VolumeSet volumes;
    // Volumes whose devices have not been failed yet. Each is failed once per fence, so that a late answer
    // does not hit the device of a newer grant.
    fencing::VolumeSet open;
  };
  using OpenFences = std::map<fencing::ArrayId, std::pair<Generation, fencing::VolumeSet>>;

  void ObserveNode() {
    // Read before the devices are listed. A fence that arrives in between is enforced next time; read
    // afterwards, it could be marked as enforced although its device was not in the list.
    const OpenFences open = FencesToEnforce();
    const bool kubelet_ok = !view_.kubelet_ok || view_.kubelet_ok();
    const absl::StatusOr<std::vector<Device>> devices = view_.devices();
    const std::set<std::string> silent = SilentArrays();
    if (devices.ok()) WatchPaths(*devices, silent);
    const fencing::VolumeSet idle = devices.ok() ? ListIdle(*devices, silent) : fencing::VolumeSet();
    const bool sees_mounts = devices.ok() && view_.closed;
    const fencing::VolumeSet closed = sees_mounts ? view_.closed(*devices) : fencing::VolumeSet();
    {
      absl::MutexLock lock(&mutex_);
      kubelet_ok_ = kubelet_ok;
      idle_ = idle;
      const fencing::VolumeSet before = failing_;
      // A data path that does not answer serves nobody, so all it had counts as failing.
      if (devices.ok()) {
        closed_ = closed;
        TakeDevices(*devices, silent);
      } else {
        failing_ = present_;
      }
      if (failing_ != before && send_ != nullptr) send_->Wake();
    }
    if (!devices.ok()) return;
    for (const auto& [array, fence] : open) {
      for (const VolumeId& volume : fence.second) {
        if (EndIo(volume, fence.first, *devices,
                  absl::StrCat("fenced by array ", array.value(), ", generation ", fence.first)))
          MarkEnforced(array, fence.first, volume);
      }
    }
    removed_.EndIo(*devices, view_.fail);
    limits_.Apply(*devices);
    DescribeDevices(*devices);  // last: only people wait for it
  }

  void TakeDevices(const std::vector<Device>& devices, const std::set<std::string>& silent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    observed_ = true;
    failing_.clear();
    failed_.clear();
    present_.clear();
    for (const Device& device : devices) {
      present_.insert(device.volume);
      if (IsFailing(device, silent)) failing_.insert(device.volume);
      if (device.health == DeviceHealth::kFailed) failed_.insert(device.volume);
    }
  }

  // Nobody wakes it any more.
  std::unique_ptr<Periodic> TakeSending() {
    absl::MutexLock lock(&mutex_);
    return std::move(send_);
  }
  std::unique_ptr<Periodic> TakeObserving() {
    absl::MutexLock lock(&mutex_);
    return std::move(observe_);
  }

  void WakeObserving() {
    absl::MutexLock lock(&mutex_);
    if (observe_ != nullptr) observe_->Wake();
  }

  // Heartbeats have landed there, and do so no more.
  std::set<std::string> SilentArrays() {
    const absl::Duration latest = options_.executor.SteadyNow() - kMissing * options_.every;
    std::set<std::string> silent;
    absl::MutexLock lock(&mutex_);
    for (const auto& [array, landed] : landed_)
      if (landed < latest) silent.insert(array.value());
    return silent;
  }

  // Its I/O waits. Or it would: an idle device seems to be well for as long as nobody asks it for anything.
  static bool MayWait(const Device& device, const std::set<std::string>& silent) {
    if (device.health == DeviceHealth::kReconnecting) return true;
    return device.health == DeviceHealth::kHealthy && !device.portal.empty() && !silent.empty() &&
           silent.contains(ArrayNameIn(device.volume.value()));
  }

  // Of the devices that may wait.
  fencing::VolumeSet ListIdle(const std::vector<Device>& devices, const std::set<std::string>& silent) const {
    fencing::VolumeSet idle;
    for (const Device& device : devices)
      if (MayWait(device, silent) && view_.is_idle && view_.is_idle(device)) idle.insert(device.volume);
    return idle;
  }

  void WatchPaths(const std::vector<Device>& devices, const std::set<std::string>& silent) {
    std::set<std::string> portals;
    for (const Device& device : devices) {
      if (!MayWait(device, silent)) continue;
      portals.insert(device.portal);
      portals.insert(device.other_portals.begin(), device.other_portals.end());
    }
    paths_.WatchPortals(portals);
  }

  // For VolumeLocks. Without a list of devices the last one stays: a data path that does not answer may have
  // all of them still, and controllers know from `failing` what to think of it.
  void DescribeDevices(const std::vector<Device>& devices) {
    DeviceDetails details;
    auto mounts = view_.mounts ? view_.mounts(devices) : std::map<VolumeId, std::vector<std::string>>();
    for (const Device& device : devices)
      details[device.volume] = DescribeDevice(
          device, mounts[device.volume], [this](const std::string& portal) { return paths_.IsLost(portal); });
    details_.Update(std::move(details));
  }

  // A device that waits for a reachable array is not failing: the array is slow or restarting, and moving the
  // pod to another node would not help. Without a portal there is no path to probe.
  bool IsFailing(const Device& device, const std::set<std::string>& silent) const {
    if (!MayWait(device, silent)) return device.health == DeviceHealth::kFailed;
    const auto lost = [this](const std::string& portal) { return paths_.IsLost(portal); };
    return device.portal.empty() || (lost(device.portal) && std::ranges::all_of(device.other_portals, lost));
  }

  OpenFences FencesToEnforce() {
    absl::MutexLock lock(&mutex_);
    OpenFences open;
    for (const auto& [array, reported] : reported_fences_) open[array] = {reported.generation, reported.open};
    return open;
  }
  void MarkEnforced(const fencing::ArrayId& array, Generation generation, const VolumeId& volume) {
    absl::MutexLock lock(&mutex_);
    if (reported_fences_[array].generation == generation) reported_fences_[array].open.erase(volume);
  }

  // Fails every device of the volume that is older than the fence. True: no I/O of the volume can succeed
  // here any more.
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

  fencing::Heartbeat NextHeartbeat() {
    fencing::Heartbeat heartbeat;
    heartbeat.node = options_.node;
    heartbeat.boot = options_.boot;
    heartbeat.sequence = options_.millis_since_boot();
    absl::MutexLock lock(&mutex_);
    heartbeat.kubelet_ok = kubelet_ok_;
    heartbeat.failing = failing_;
    heartbeat.failed = failed_;
    heartbeat.closed = closed_;
    heartbeat.idle = idle_;
    heartbeat.present = present_;
    for (const auto& [array, reported] : reported_fences_) {
      heartbeat.known[array] = reported.generation;
      // Until the first observation nobody knows which devices remain. Listing all fenced volumes keeps the
      // controllers from taking this node for clean.
      if (!observed_) heartbeat.present.insert(reported.volumes.begin(), reported.volumes.end());
    }
    return heartbeat;
  }

  // True when there is no stream yet, or the last one ended a while ago. Logs the reason of an end when it
  // differs from the one before.
  bool MayBeginStream(Link& link, const std::string& address) const {
    if (link.stream == nullptr) return true;
    const std::optional<std::string> end = link.stream->EndReason();
    if (!end || options_.executor.SteadyNow() - link.begun < kRestartStreamAfter) return false;
    if (std::exchange(link.last_end, *end) != *end)
      LogWarn("agent", "heartbeats are not heard", {{"by", address}, {"error", *end}});
    return true;
  }

  // Moves the links of all current replicas to a new map; the old map keeps those of replicas that are gone.
  void SendToReplicas() {
    std::map<std::string, Link> links;
    const fencing::Heartbeat heartbeat = NextHeartbeat();
    const DeviceDetails details = details_.TakeNext(kDetailsAtOnce);
    for (const auto& receiver : receivers_()) {
      Link& link = links[receiver.address];
      if (auto known = links_.extract(receiver.address); !known.empty()) link = std::move(known.mapped());
      if (MayBeginStream(link, receiver.address)) {
        link.begun = options_.executor.SteadyNow();
        link.stream = receiver.begin_stream([this](const auto& answer) { TakeAnswer(answer); });
      }
      link.stream->SendHeartbeat(heartbeat, details);
    }
    EndStreams();
    links_ = std::move(links);
  }

  void EndStreams() {
    for (auto& [address, link] : links_) link.stream->Cancel();
    for (auto& [address, link] : links_) link.stream->AwaitEnd();
  }

  void TakeAnswer(const HeartbeatAnswer& answer) {
    for (const auto& [array, fence] : answer.fences) OnFence(array, fence);
    if (removed_.NoteNamed(answer.removed_arrays)) WakeObserving();
    if (limits_.Report(answer.limits)) WakeObserving();
  }
  // Records a fence, and returns whether it says anything new. Generations only rise: an older one is a late
  // answer. A newer one starts over, as it may name fewer volumes. The same one may grow, when the controller
  // fences more volumes of this node on that array.
  bool TakeFence(const fencing::ArrayId& array, const fencing::ArrayFence& fence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ReportedFence& reported = reported_fences_[array];
    if (reported.generation > fence.generation) return false;
    if (reported.generation < fence.generation) {
      reported = ReportedFence();
      reported.generation = fence.generation;
    } else if (std::includes(reported.volumes.begin(), reported.volumes.end(), fence.volumes.begin(),
                             fence.volumes.end())) {
      return false;
    }
    for (const VolumeId& volume : fence.volumes) {
      if (reported.volumes.insert(volume).second) reported.open.insert(volume);
    }
    LogWarn("agent", "this node is fenced",
            {{"array", array.value()},
             {"generation", absl::StrCat(fence.generation)},
             {"volumes", absl::StrCat(fence.volumes.size())}});
    return true;
  }

  const HeartbeatOptions options_;
  const ListHeartbeatReceivers receivers_;
  const NodeView view_;
  // By address. Only the sending thread uses it, and the destructor after that thread has ended.
  std::map<std::string, Link> links_;
  DetailRotation details_;
  RemovedArrays removed_;
  LimitSetter limits_;

  absl::Mutex mutex_;
  fencing::VolumeSet failing_ ABSL_GUARDED_BY(mutex_);
  std::map<fencing::ArrayId, absl::Duration> landed_ ABSL_GUARDED_BY(mutex_);  // the last heartbeats
  fencing::VolumeSet failed_ ABSL_GUARDED_BY(mutex_);                          // of these, for good
  fencing::VolumeSet present_ ABSL_GUARDED_BY(mutex_);
  fencing::VolumeSet closed_ ABSL_GUARDED_BY(mutex_);
  fencing::VolumeSet idle_ ABSL_GUARDED_BY(mutex_);
  bool observed_ ABSL_GUARDED_BY(mutex_) = false;  // the devices have been listed once
  bool kubelet_ok_ ABSL_GUARDED_BY(mutex_) = true;
  std::map<fencing::ArrayId, ReportedFence> reported_fences_ ABSL_GUARDED_BY(mutex_);

  // Last, as threads that use the other members are in them. Each one's thread may look for the others.
  std::unique_ptr<Periodic> send_ ABSL_GUARDED_BY(mutex_), observe_ ABSL_GUARDED_BY(mutex_);
  PathWatch paths_;  // its prober's thread wakes the observing one, if that is still there
};

}  // namespace

std::unique_ptr<HeartbeatSender> StartHeartbeatSender(HeartbeatOptions options,
                                                      ListHeartbeatReceivers receivers, NodeView view) {
  return std::make_unique<Sender>(std::move(options), std::move(receivers), std::move(view));
}

}  // namespace lunkeeper
