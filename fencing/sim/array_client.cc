// Only the calls that failover makes are there, and the ones that a replica makes for nodes. As in
// api_client.cc, what acts is reported to the checker and may make the replica crash, and some mistakes
// (mutants.h) are made here.

#include "fencing/sim/array_client.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "fencing/sim/array_model.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

// A dead channel is noticed by its pings after eight seconds. A call that drains may take longer.
constexpr Span kCallTimeout = 9_s, kDrainTimeout = 15_s, kChannelDies = 3_s;
constexpr absl::Duration kAsksCaller = absl::Seconds(1);

absl::Status Away() { return absl::UnavailableError("the array does not answer"); }

[[noreturn]] void NotSimulated() { throw std::logic_error("failover makes no such call to an array"); }

// Its pool has room for all, and each volume the name that it was made with.
class Pool final : public VolumeStore {
 public:
  Pool(Process& process, ArrayModel& model) : process_(process), model_(model) {}
  absl::StatusOr<Volume> GetVolume(const VolumeId& id) override {
    const auto there = process_.Call<bool>(model_.endpoint(), kCallTimeout,
                                           [&model = model_](auto reply) { reply(model.serves()); });
    if (!there || !*there) return Away();
    Volume volume;
    volume.id = id;
    volume.spec.name = "pv-" + id.value();
    return volume;
  }
  absl::StatusOr<PoolCapacity> GetCapacity() override {
    return PoolCapacity{.total_bytes = 1ULL << 40, .available_bytes = 1ULL << 40};
  }

 private:
  absl::StatusOr<Volume> CreateVolume(const VolumeSpec&) override { NotSimulated(); }
  absl::Status DeleteVolume(const VolumeId&) override { NotSimulated(); }
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string&, size_t) override { NotSimulated(); }
  absl::StatusOr<Volume> ExpandVolume(const VolumeId&, uint64_t) override { NotSimulated(); }
  absl::StatusOr<Volume> ModifyVolume(const VolumeId&, const VolumeChange&) override { NotSimulated(); }
  absl::StatusOr<Snapshot> CreateSnapshot(const std::string&, const VolumeId&) override { NotSimulated(); }
  absl::Status DeleteSnapshot(const SnapshotId&) override { NotSimulated(); }
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId&) override { NotSimulated(); }
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId&, const std::string&, size_t) override {
    NotSimulated();
  }

  Process& process_;
  ArrayModel& model_;
};

class ArrayClient final : public Array, private GrantStore, private FenceControl {
 public:
  ArrayClient(Replica& replica, Process& process, ArrayModel& model)
      : replica_(replica), process_(process), world_(process.world()), model_(model), pool_(process, model) {}

  VolumeStore& volumes() override { return pool_; }
  SnapshotGroups& groups() override { NotSimulated(); }
  SnapshotBlocks& blocks() override { NotSimulated(); }
  NameIndex& names() override { NotSimulated(); }
  GrantStore& grants() override { return *this; }
  FenceControl& fences() override { return *this; }

 private:
  // Looks: each sees the array at some time of the call.
  template <class T>
  absl::StatusOr<T> Look(std::function<T(const ArrayModel&)> read) {
    const bool cut = !world_.Open(process_.endpoint(), model_.endpoint());
    if (cut && world_.Has(Mutant::kDeadArrayIsSilence)) return Away();  // at once, for IfDown to be fresh
    auto seen = process_.Call<std::optional<T>>(
        model_.endpoint(), kCallTimeout,
        [this, read = std::move(read)](auto reply) { this->LookNow<T>(read, reply); });
    if (!seen || !*seen) return Away();
    return **std::move(seen);
  }

  template <class T>
  void LookNow(const std::function<T(const ArrayModel&)>& read,
               const std::function<void(std::optional<T>)>& reply) {
    if (!model_.serves()) return reply(std::nullopt);
    const Span takes = model_.TimeOfACall();
    if (takes == Span()) return reply(read(model_));
    const Span until_seen = world_.random().Between(Span(), takes);
    world_.After(until_seen, [&world = world_, &model = model_, read, reply, left = takes - until_seen] {
      if (!model.serves()) return reply(std::nullopt);
      world.After(left, [reply, seen = read(model)] { reply(seen); });
    });
  }

  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) override {
    auto all =
        IfDown(Look<std::vector<Grant>>([](const ArrayModel& model) { return model.Grants(); }), grants_);
    if (all.ok())
      std::erase_if(*all, [&](const Grant& grant) {
        return (!filter.volume.empty() && grant.volume != filter.volume) ||
               (!filter.node.empty() && grant.node != filter.node);
      });
    return all;
  }
  absl::StatusOr<SeenSessions> ListSeenSessions() override {
    auto seen = Look<SeenSessions>([](const ArrayModel& model) { return model.Sessions(); });
    if (seen.ok() && world_.Has(Mutant::kStorageEvidenceIgnored)) seen->sessions.clear();
    return IfDown(std::move(seen), seen_);
  }
  absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() override {
    return IfDown(Look<std::vector<VolumeId>>([](const ArrayModel& model) { return model.Wanted(); }),
                  wanted_);
  }
  absl::StatusOr<std::vector<FenceRecord>> ListFences() override {
    auto fences = Look<std::vector<FenceRecord>>([](const ArrayModel& model) { return model.ListFences(); });
    if (fences.ok() && world_.Has(Mutant::kOrphanFenceIgnored))
      std::erase_if(*fences, [&](const auto& fence) { return !world_.api->fences().contains(fence.node); });
    return IfDown(std::move(fences), fences_);
  }
  absl::StatusOr<std::vector<LandedHeartbeat>> ListHeartbeats() override {
    auto landed = Look<std::vector<LandedHeartbeat>>([](const ArrayModel& model) { return model.Landed(); });
    if (landed.ok() && world_.Has(Mutant::kStorageEvidenceIgnored)) landed->clear();
    if (landed.ok() || !world_.Has(Mutant::kDeadArrayIsSilence)) return landed;
    return std::vector<LandedHeartbeat>{{NodeId("ghost.0000000000000001"), world_.events(), {}}};
  }
  // With kDeadArrayIsSilence: what was seen last, as if the array heard somebody, only not the nodes that are
  // there.
  template <class T>
  absl::StatusOr<T> IfDown(absl::StatusOr<T> seen, T& last) {
    if (seen.ok()) last = *seen;
    if (!seen.ok() && world_.Has(Mutant::kDeadArrayIsSilence)) return last;
    return seen;
  }

  absl::StatusOr<Term> BeginTerm(const std::string&) override {
    if (!Begin("begins a term")) return Away();
    auto term = process_.Call<Term>(model_.endpoint(), kCallTimeout,
                                    [&model = model_](auto reply) { model.BeginTerm(reply); });
    if (!term) return Away();
    return *term;
  }

  absl::StatusOr<FenceRecord> FenceNode(Term term, const FenceRequest& request) override {
    VolumeSet volumes(request.volumes.begin(), request.volumes.end());
    if (process_.dead()) return Away();
    world_.Check([&] { world_.checker->Fences(model_.id(), term, request.node, volumes); });
    if (!Begin("fences " + request.node.value())) return Away();
    if (world_.Has(Mutant::kDeleteBeforeFence)) world_.Check([&] { DeletePodsOf(request.node); });
    const bool in_part = world_.Has(Mutant::kFencesPartOfTheVolumes) && volumes.size() > 1;
    if (in_part) volumes = {*volumes.begin()};
    const auto serve = [&model = model_, term, node = request.node, volumes](auto reply) {
      model.Fence(term, node, volumes, reply);
    };
    if (world_.Has(Mutant::kFenceNotVerified) || in_part) {
      world_.Call<FenceAnswer>(process_.endpoint(), model_.endpoint(), kDrainTimeout, serve,
                               [](const auto*) {});
      return FenceRecord{.node = request.node, .generation = 1, .volumes = request.volumes};
    }
    const auto answer = process_.Call<FenceAnswer>(model_.endpoint(), kDrainTimeout, serve);
    if (!answer) return Away();
    if (answer->outcome == Outcome::kRefused) return absl::FailedPreconditionError("a newer term exists");
    if (answer->outcome != Outcome::kOk) return absl::DeadlineExceededError("commands would not end");
    return FenceRecord{
        .node = request.node, .generation = answer->fence.generation, .volumes = request.volumes};
  }

  absl::Status UnfenceNode(Term term, const NodeId& node, Generation generation) override {
    if (!Begin("unfences " + node.value())) return Away();
    // Something on the way may keep a call for long, and deliver it when it has long been repeated.
    if (world_.random().Percent(40))
      world_.After(world_.random().Between(1_s, 40_s), [&model = model_, term, node, generation] {
        model.Unfence(term, node, generation, [](Outcome) {});
      });
    const auto outcome = process_.Call<Outcome>(model_.endpoint(), kCallTimeout,
                                                [&model = model_, term, node, generation](auto reply) {
                                                  model.Unfence(term, node, generation, reply);
                                                });
    if (!outcome) return Away();
    return *outcome == Outcome::kOk ? absl::OkStatus()
                                    : absl::FailedPreconditionError("another term, or another generation");
  }

  bool Begin(const std::string& what) {
    if (process_.dead()) return false;
    if (world_.tracing()) world_.Trace(replica_.name() + ": " + what + " on " + model_.id().value());
    return replica_.BeginsToAct();
  }

  void DeletePodsOf(const NodeId& node) {
    std::vector<PodId> pods;
    for (const auto& [id, pod] : world_.api->pods())
      if (pod.node == NameOf(node) && pod.policy != FailoverPolicy::kNever) pods.push_back(id);
    for (const PodId& pod : pods) world_.api->DeleteByForce(pod);
  }

  // For nodes.
  absl::StatusOr<Grant> AcquireGrant(const GrantRequest& request, absl::Duration wait) override {
    const auto waits = SendAcquire(request, wait);
    if (absl::Status status = AwaitGrant(*waits, request, wait); !status.ok()) {
      // The array learns of it, if it can be reached.
      world_.Send(process_.endpoint(), model_.endpoint(), [waits] { waits->abandoned = true; });
      return status;
    }
    if (*waits->generation == 0) return absl::FailedPreconditionError("the node is fenced");
    Grant grant;
    grant.volume = request.volume;
    grant.node = request.node;
    grant.generation = *waits->generation;
    grant.connection.portal = model_.id().value() + ":3260";
    return grant;
  }

  absl::Status ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner,
                            Generation generation) override {
    const auto released = process_.Call<bool>(
        model_.endpoint(), kDrainTimeout,
        [=, &model = model_](auto reply) { model.Release(volume, node, generation, reply); });
    return released && *released ? absl::OkStatus() : Away();
  }

  absl::StatusOr<Connection> OpenHeartbeatLun(const HeartbeatLunRequest&) override {
    const bool cut = !world_.Open(process_.endpoint(), model_.endpoint());
    const auto opened = process_.Call<bool>(model_.endpoint(), cut ? kChannelDies : kCallTimeout,
                                            [&model = model_](auto reply) {
                                              if (model.serves()) reply(true);
                                            });
    if (!opened) return Away();
    Connection connection;
    connection.portal = model_.id().value() + ":3260";
    return connection;
  }

  // A call that waits at the array.
  struct Acquiring {
    std::optional<Generation> generation;
    bool abandoned = false;
    std::unique_ptr<Signal> arrived;
  };

  std::shared_ptr<Acquiring> SendAcquire(const GrantRequest& request, absl::Duration wait) {
    auto waits = std::make_shared<Acquiring>();
    waits->arrived = process_.MakeSignal();
    if (process_.dead()) return waits;
    const auto answer = [&world = world_, &process = process_, &model = model_,
                         waits](Generation generation) {
      world.Send(model.endpoint(), process.endpoint(), [waits, generation] {
        waits->generation = generation;
        waits->arrived->Set();
      });
    };
    world_.Send(process_.endpoint(), model_.endpoint(),
                [&model = model_, waits, answer, volume = request.volume, node = request.node,
                 until = world_.now() + process_.InWorld(wait)] {
                  model.Acquire({volume, node, until, [waits] { return waits->abandoned; }, answer});
                });
    return waits;
  }

  absl::Status AwaitGrant(Acquiring& waits, const GrantRequest& request, absl::Duration wait) {
    const absl::Duration end = process_.SteadyNow() + wait;
    WorldTime open_at = world_.now();
    while (!waits.generation) {
      waits.arrived->WaitFor(std::min(end - process_.SteadyNow(), kAsksCaller));
      if (waits.generation) break;
      if (process_.dead()) return Away();
      if (request.abandoned && request.abandoned()) return absl::CancelledError("nobody waits for it");
      if (process_.SteadyNow() >= end) return absl::DeadlineExceededError("another node has it");
      if (world_.Open(process_.endpoint(), model_.endpoint())) open_at = world_.now();
      if (world_.now() - open_at >= kChannelDies) return Away();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<GrantSession>> ListSessions() override { NotSimulated(); }

  Replica& replica_;
  Process& process_;
  World& world_;
  ArrayModel& model_;
  Pool pool_;
  std::vector<Grant> grants_;
  SeenSessions seen_;
  std::vector<VolumeId> wanted_;
  std::vector<FenceRecord> fences_;
};

class ArrayClients final : public lunkeeper::Arrays {
 public:
  ArrayClients(Replica& replica, Process& process) {
    for (auto& model : process.world().arrays)
      arrays_.push_back(
          {model->id().value(), std::make_shared<ArrayClient>(replica, process, *model), false});
  }
  std::vector<NamedArray> ListArrays() override { return arrays_; }

 private:
  std::vector<NamedArray> arrays_;
};

}  // namespace

std::unique_ptr<lunkeeper::Arrays> MakeArrayClients(Replica& replica, Process& process) {
  return std::make_unique<ArrayClients>(replica, process);
}

}  // namespace lunkeeper::fencing::sim
