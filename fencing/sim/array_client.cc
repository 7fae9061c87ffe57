// Only the calls that failover makes are there. As in api_client.cc, what acts is reported to the checker and
// may make the replica crash, and some mistakes (mutants.h) are made here.

#include "fencing/sim/array_client.h"

#include <stdexcept>
#include <utility>

#include "fencing/sim/array_model.h"
#include "fencing/sim/checker.h"
#include "fencing/sim/replica.h"

namespace lunkeeper::fencing::sim {
namespace {

// A dead channel is noticed by its pings after eight seconds. A call that drains may take longer.
constexpr Span kCallTimeout = 9_s, kDrainTimeout = 15_s;

absl::Status Away() { return absl::UnavailableError("the array does not answer"); }

[[noreturn]] void NotSimulated() { throw std::logic_error("failover makes no such call to an array"); }

// Its pool has room for all; nothing else of it is asked for.
class Pool final : public VolumeStore {
 public:
  absl::StatusOr<PoolCapacity> GetCapacity() override {
    return PoolCapacity{.total_bytes = 1ULL << 40, .available_bytes = 1ULL << 40};
  }

 private:
  absl::StatusOr<Volume> CreateVolume(const VolumeSpec&) override { NotSimulated(); }
  absl::Status DeleteVolume(const VolumeId&) override { NotSimulated(); }
  absl::StatusOr<Volume> GetVolume(const VolumeId&) override { NotSimulated(); }
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string&, size_t) override { NotSimulated(); }
  absl::StatusOr<Volume> ExpandVolume(const VolumeId&, uint64_t) override { NotSimulated(); }
  absl::StatusOr<Volume> ModifyVolume(const VolumeId&, const VolumeChange&) override { NotSimulated(); }
  absl::StatusOr<Snapshot> CreateSnapshot(const std::string&, const VolumeId&) override { NotSimulated(); }
  absl::Status DeleteSnapshot(const SnapshotId&) override { NotSimulated(); }
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId&) override { NotSimulated(); }
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId&, const std::string&, size_t) override {
    NotSimulated();
  }
};

class ArrayClient final : public Array, private GrantStore, private FenceControl {
 public:
  ArrayClient(Replica& replica, Process& process, ArrayModel& model)
      : replica_(replica), process_(process), world_(process.world()), model_(model) {}

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

  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter&) override {
    return IfDown(Look<std::vector<Grant>>([](const ArrayModel& model) { return model.Grants(); }), grants_);
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

  // Not failover's.
  absl::StatusOr<std::vector<GrantSession>> ListSessions() override { NotSimulated(); }
  absl::StatusOr<Grant> AcquireGrant(const GrantRequest&, absl::Duration) override { NotSimulated(); }
  absl::Status ReleaseGrant(const VolumeId&, const NodeId&, GrantOwner, Generation) override {
    NotSimulated();
  }
  absl::StatusOr<Connection> OpenHeartbeatLun(const HeartbeatLunRequest&) override { NotSimulated(); }

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
