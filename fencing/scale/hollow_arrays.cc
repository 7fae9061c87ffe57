#include "fencing/scale/hollow_arrays.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lunkeeper::fencing {
namespace {

absl::Status Unsupported() {
  return absl::UnimplementedError("a hollow array has nothing but grants and fences");
}

// A store of nothing: a hollow cluster has grants and no volumes.
class NoVolumes : public VolumeStore {
 public:
  absl::StatusOr<Volume> CreateVolume(const VolumeSpec&) override { return Unsupported(); }
  absl::Status DeleteVolume(const VolumeId&) override { return Unsupported(); }
  absl::StatusOr<Volume> GetVolume(const VolumeId&) override { return Unsupported(); }
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string&, size_t) override { return Unsupported(); }
  absl::StatusOr<Volume> ExpandVolume(const VolumeId&, uint64_t) override { return Unsupported(); }
  absl::StatusOr<Volume> ModifyVolume(const VolumeId&, const VolumeChange&) override { return Unsupported(); }
  absl::StatusOr<Snapshot> CreateSnapshot(const std::string&, const VolumeId&) override {
    return Unsupported();
  }
  absl::Status DeleteSnapshot(const SnapshotId&) override { return Unsupported(); }
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId&) override { return Unsupported(); }
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId&, const std::string&, size_t) override {
    return Unsupported();
  }
  absl::StatusOr<PoolCapacity> GetCapacity() override { return Unsupported(); }
};

class NoGroups : public SnapshotGroups {
 public:
  absl::StatusOr<SnapshotGroup> CreateGroup(const std::string&, const std::vector<VolumeId>&) override {
    return Unsupported();
  }
  absl::Status DeleteGroup(const SnapshotGroupId&) override { return Unsupported(); }
  absl::StatusOr<SnapshotGroup> GetGroup(const SnapshotGroupId&) override { return Unsupported(); }
};

class NoBlocks : public SnapshotBlocks {
 public:
  absl::StatusOr<BlockPage> ListBlocks(const BlockQuery&) override { return Unsupported(); }
};

class NoNames : public NameIndex {
 public:
  absl::StatusOr<std::string> FindNamed(NamedKind, const std::string&) override { return Unsupported(); }
};

class HollowArray final : public Array, public GrantStore, public FenceControl {
 public:
  HollowArray(const HollowClusterSize& size, int number, std::shared_ptr<const std::vector<int>> nodes,
              std::function<uint64_t(int)> commands)
      : size_(size), number_(number), nodes_(std::move(nodes)), commands_(std::move(commands)) {}

  VolumeStore& volumes() override { return volumes_; }
  SnapshotGroups& groups() override { return groups_; }
  SnapshotBlocks& blocks() override { return blocks_; }
  GrantStore& grants() override { return *this; }
  FenceControl& fences() override { return *this; }
  NameIndex& names() override { return names_; }

  absl::StatusOr<Grant> AcquireGrant(const GrantRequest&, absl::Duration) override { return Unsupported(); }
  absl::Status ReleaseGrant(const VolumeId&, const NodeId&, GrantOwner, Generation) override {
    return Unsupported();
  }

  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter&) override {
    std::vector<Grant> grants;
    grants.reserve(MostGrants());  // as of a RemoteArray, here and below
    ForEachGrant([&](int volume, const NodeId& node) {
      Grant& grant = grants.emplace_back();
      grant.volume = HollowVolume(size_, volume);
      grant.node = node;
      grant.generation = static_cast<Generation>(volume) + 1;
    });
    return grants;
  }
  absl::StatusOr<std::vector<GrantSession>> ListSessions() override {
    std::vector<GrantSession> sessions;
    sessions.reserve(MostGrants());
    ForEachGrant([&](int volume, const NodeId& node) {
      sessions.push_back({HollowVolume(size_, volume), node, 0, commands_(volume / size_.volumes_per_node)});
    });
    return sessions;
  }
  absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() override { return std::vector<VolumeId>(); }

  absl::StatusOr<Connection> OpenHeartbeatLun(const HeartbeatLunRequest&) override { return Unsupported(); }
  // A node sends heartbeats as it completes commands. In order of ids, as an array lists them.
  absl::StatusOr<std::vector<LandedHeartbeat>> ListHeartbeats() override {
    std::vector<LandedHeartbeat> heartbeats;
    heartbeats.reserve(nodes_->size());
    for (const int node : *nodes_)
      heartbeats.push_back({HollowNode(node), commands_(node), absl::ZeroDuration()});
    return heartbeats;
  }

  absl::StatusOr<Term> BeginTerm(const std::string&) override {
    absl::MutexLock lock(&mutex_);
    return ++term_;
  }
  absl::StatusOr<FenceRecord> FenceNode(Term term, const FenceRequest& request) override {
    absl::MutexLock lock(&mutex_);
    FenceRecord& fence = fences_[request.node];
    if (fence.generation == 0) fence = {request.node, ++generation_, term, request.volumes};
    return fence;
  }
  absl::Status UnfenceNode(Term, const NodeId& node, Generation) override {
    absl::MutexLock lock(&mutex_);
    fences_.erase(node);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<FenceRecord>> ListFences() override {
    absl::MutexLock lock(&mutex_);
    std::vector<FenceRecord> fences;
    for (const auto& [node, fence] : fences_) fences.push_back(fence);
    return fences;
  }

 private:
  size_t MostGrants() const { return static_cast<size_t>(size_.volumes() / size_.arrays) + 1; }
  // A fenced node has none.
  void ForEachGrant(const std::function<void(int volume, const NodeId& node)>& each) {
    absl::MutexLock lock(&mutex_);
    for (int volume = number_; volume < size_.volumes(); volume += size_.arrays) {
      const NodeId node = HollowNode(volume / size_.volumes_per_node);
      if (!fences_.contains(node)) each(volume, node);
    }
  }

  NoVolumes volumes_;
  NoGroups groups_;
  NoBlocks blocks_;
  NoNames names_;
  const HollowClusterSize size_;
  const int number_;
  const std::shared_ptr<const std::vector<int>> nodes_;
  const std::function<uint64_t(int)> commands_;
  absl::Mutex mutex_;
  Term term_ ABSL_GUARDED_BY(mutex_) = 0;
  Generation generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<NodeId, FenceRecord> fences_ ABSL_GUARDED_BY(mutex_);
};

std::shared_ptr<const std::vector<int>> NodesById(int count) {
  std::map<NodeId, int> nodes;
  for (int node = 0; node < count; ++node) nodes.emplace(HollowNode(node), node);
  std::vector<int> numbers;
  for (const auto& [id, node] : nodes) numbers.push_back(node);
  return std::make_shared<const std::vector<int>>(std::move(numbers));
}

class HollowArrays final : public lunkeeper::Arrays {
 public:
  HollowArrays(const HollowClusterSize& size, const std::function<uint64_t(int)>& commands) {
    const auto nodes = NodesById(size.nodes);
    for (int i = 0; i < size.arrays; ++i)
      arrays_.push_back(
          {HollowArrayName(i), std::make_shared<HollowArray>(size, i, nodes, commands), i == 0});
  }
  std::vector<NamedArray> ListArrays() override { return arrays_; }

 private:
  std::vector<NamedArray> arrays_;
};

}  // namespace

std::unique_ptr<lunkeeper::Arrays> MakeHollowArrays(const HollowClusterSize& size,
                                                    std::function<uint64_t(int node)> commands) {
  return std::make_unique<HollowArrays>(size, commands);
}

}  // namespace lunkeeper::fencing
