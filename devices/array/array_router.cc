// A call for one object goes to the array that the object's id names; a list goes to all arrays. Each array
// is called on the caller's thread, one after another.
//
// The routers look the arrays up anew in each call, since the arrays file may be edited while the program
// runs; the shared_ptr keeps an array that was removed meanwhile until the call ends.
#include "devices/array/array_router.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "devices/array/name_search.h"

namespace lunkeeper {
namespace {

// For calls that name no object, and so no array. With a single array there is nothing to choose.
absl::StatusOr<std::shared_ptr<Array>> FindDefaultArray(Arrays& arrays) {
  const std::vector<NamedArray> all = arrays.ListArrays();
  for (const NamedArray& array : all) {
    if (array.is_default || all.size() == 1) return array.array;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("there are ", all.size(), " arrays, and none is the default: name one"));
}

// One page of a list that goes through all arrays in order of name. A page never mixes two arrays. The token
// is `<array>/<that array's own token>`, so that the next call finds its place again even if arrays were
// added or removed meanwhile. An array without items is skipped, because an empty page with a token would
// make some orchestrators stop.
template <class T, class ListOne>
absl::StatusOr<Page<T>> ListOnePage(Arrays& arrays, const std::string& token, ListOne list_one) {
  const std::vector<NamedArray> all = arrays.ListArrays();
  const size_t slash = token.find('/');
  const std::string from = token.substr(0, slash);
  if (token.empty() && all.empty()) return Page<T>{};
  auto array = std::find_if(all.begin(), all.end(), [&](const NamedArray& a) { return a.name == from; });
  if (token.empty()) array = all.begin();
  if (array == all.end() || (!token.empty() && slash == std::string::npos)) {
    return absl::AbortedError(absl::StrCat("list: the token \"", token, "\" is not ours: start without one"));
  }
  std::string inner = token.empty() ? "" : token.substr(slash + 1);
  for (; array != all.end(); ++array, inner.clear()) {
    absl::StatusOr<Page<T>> page = list_one(array->array->volumes(), inner);
    RETURN_IF_ERROR(page.status());
    if (!page->next_token.empty()) {
      page->next_token = absl::StrCat(array->name, "/", page->next_token);
    } else if (std::next(array) != all.end()) {
      if (page->items.empty()) continue;
      page->next_token = absl::StrCat(std::next(array)->name, "/");
    }
    return page;
  }
  return Page<T>{};
}

// For deletes, releases and lists. An id that is not ours was never given to a caller, so there is no such
// object: deleting it succeeds and listing it finds nothing, as with any object that is gone. So it is on an
// array that was removed.
bool IsGone(Arrays& arrays, const std::string& id) {
  const std::string array = ArrayNameIn(id);
  return array.empty() || arrays.IsRemoved(array);
}

class VolumeRouter final : public VolumeStore {
 public:
  explicit VolumeRouter(Arrays& arrays) : arrays_(arrays) {}

  absl::StatusOr<Volume> CreateVolume(const VolumeSpec& spec) override {
    ASSIGN_OR_RETURN(const auto array, FindDefaultArray(arrays_));
    return array->volumes().CreateVolume(spec);
  }
  absl::Status DeleteVolume(const VolumeId& id) override {
    if (IsGone(arrays_, id.value())) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, id.value()));
    return array->volumes().DeleteVolume(id);
  }
  absl::StatusOr<Volume> GetVolume(const VolumeId& id) override {
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, id.value()));
    return array->volumes().GetVolume(id);
  }
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string& token, size_t limit) override {
    return ListOnePage<Volume>(arrays_, token, [limit](VolumeStore& store, const std::string& inner) {
      return store.ListVolumes(inner, limit);
    });
  }
  absl::StatusOr<Volume> ExpandVolume(const VolumeId& id, uint64_t size_bytes) override {
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, id.value()));
    return array->volumes().ExpandVolume(id, size_bytes);
  }
  absl::StatusOr<Volume> ModifyVolume(const VolumeId& id, const VolumeChange& change) override {
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, id.value()));
    return array->volumes().ModifyVolume(id, change);
  }

  absl::StatusOr<Snapshot> CreateSnapshot(const std::string& name, const VolumeId& source) override {
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, source.value()));
    RETURN_IF_ERROR(CheckNotElsewhere(arrays_, ArrayNameIn(source.value()), NamedKind::kSnapshot, name));
    return array->volumes().CreateSnapshot(name, source);
  }
  absl::Status DeleteSnapshot(const SnapshotId& id) override {
    if (IsGone(arrays_, id.value())) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, id.value()));
    return array->volumes().DeleteSnapshot(id);
  }
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId& id) override {
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, id.value()));
    return array->volumes().GetSnapshot(id);
  }
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId& source, const std::string& token,
                                               size_t limit) override {
    // A volume and its snapshots are on one array, so that array's token is passed on as it is.
    if (!source.empty()) {
      if (IsGone(arrays_, source.value())) return Page<Snapshot>{};
      ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, source.value()));
      return array->volumes().ListSnapshots(source, token, limit);
    }
    return ListOnePage<Snapshot>(arrays_, token, [limit](VolumeStore& store, const std::string& inner) {
      return store.ListSnapshots({}, inner, limit);
    });
  }
  absl::StatusOr<PoolCapacity> GetCapacity() override {
    ASSIGN_OR_RETURN(const auto array, FindDefaultArray(arrays_));
    return array->volumes().GetCapacity();
  }

 private:
  Arrays& arrays_;
};

class GroupRouter final : public SnapshotGroups {
 public:
  explicit GroupRouter(Arrays& arrays) : arrays_(arrays) {}

  // One moment for several volumes is something that one array has, and two do not share.
  absl::StatusOr<SnapshotGroup> CreateGroup(const std::string& name,
                                            const std::vector<VolumeId>& sources) override {
    RETURN_IF_ERROR(CheckGroupSources(name, sources));
    for (const VolumeId& source : sources) RETURN_IF_ERROR(FindArrayOf(arrays_, source.value()).status());
    const std::string first = ArrayNameIn(sources.front().value());
    for (const VolumeId& source : sources) {
      const std::string other = ArrayNameIn(source.value());
      if (other == first) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("snapshot group ", name, ": volume ", sources.front().value(), " is on array ", first,
                       " and ", source.value(), " on ", other,
                       ": only volumes of one array have a moment in common; make a group for each array"));
    }
    RETURN_IF_ERROR(CheckNotElsewhere(arrays_, first, NamedKind::kSnapshotGroup, name));
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, sources.front().value()));
    return array->groups().CreateGroup(name, sources);
  }
  absl::Status DeleteGroup(const SnapshotGroupId& id) override {
    if (IsGone(arrays_, id.value())) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, id.value()));
    return array->groups().DeleteGroup(id);
  }
  absl::StatusOr<SnapshotGroup> GetGroup(const SnapshotGroupId& id) override {
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, id.value()));
    return array->groups().GetGroup(id);
  }

 private:
  Arrays& arrays_;
};

class BlockRouter final : public SnapshotBlocks {
 public:
  explicit BlockRouter(Arrays& arrays) : arrays_(arrays) {}

  // Two snapshots of one volume are on its array.
  absl::StatusOr<BlockPage> ListBlocks(const BlockQuery& query) override {
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, query.snapshot.value()));
    if (query.base.empty()) return array->blocks().ListBlocks(query);
    ASSIGN_OR_RETURN(const auto other, FindArrayOf(arrays_, query.base.value()));
    if (other == array) return array->blocks().ListBlocks(query);
    RETURN_IF_ERROR(array->volumes().GetSnapshot(query.snapshot).status());
    RETURN_IF_ERROR(other->volumes().GetSnapshot(query.base).status());
    return absl::InvalidArgumentError(absl::StrCat("snapshot ", query.snapshot.value(), ": its base ",
                                                   query.base.value(),
                                                   " is on another array, and so of another volume"));
  }

 private:
  Arrays& arrays_;
};

class GrantRouter final : public GrantStore {
 public:
  explicit GrantRouter(Arrays& arrays) : arrays_(arrays) {}

  absl::StatusOr<Grant> AcquireGrant(const GrantRequest& request, absl::Duration wait) override {
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, request.volume.value()));
    return array->grants().AcquireGrant(request, wait);
  }
  absl::Status ReleaseGrant(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                            Generation generation) override {
    if (IsGone(arrays_, volume.value())) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, volume.value()));
    return array->grants().ReleaseGrant(volume, node, owner, generation);
  }
  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) override {
    if (filter.volume.empty())
      return Gather<Grant>([&](GrantStore& store) { return store.ListGrants(filter); });
    if (IsGone(arrays_, filter.volume.value())) return std::vector<Grant>{};
    ASSIGN_OR_RETURN(const auto array, FindArrayOf(arrays_, filter.volume.value()));
    return array->grants().ListGrants(filter);
  }
  absl::StatusOr<std::vector<GrantSession>> ListSessions() override {
    return Gather<GrantSession>([](GrantStore& store) { return store.ListSessions(); });
  }
  absl::StatusOr<std::vector<VolumeId>> ListWantedVolumes() override {
    return Gather<VolumeId>([](GrantStore& store) { return store.ListWantedVolumes(); });
  }

 private:
  // All or nothing: a list that silently lacks one array's grants would read as "nobody holds these volumes".
  template <class T, class ListOne>
  absl::StatusOr<std::vector<T>> Gather(ListOne list_one) {
    std::vector<T> gathered;
    for (const NamedArray& each : arrays_.ListArrays()) {
      ASSIGN_OR_RETURN(auto some, list_one(each.array->grants()));
      std::move(some.begin(), some.end(), std::back_inserter(gathered));
    }
    return gathered;
  }

  Arrays& arrays_;
};

}  // namespace

std::unique_ptr<VolumeStore> MakeVolumeRouter(Arrays& arrays) {
  return std::make_unique<VolumeRouter>(arrays);
}

std::unique_ptr<SnapshotGroups> MakeGroupRouter(Arrays& arrays) {
  return std::make_unique<GroupRouter>(arrays);
}

std::unique_ptr<SnapshotBlocks> MakeBlockRouter(Arrays& arrays) {
  return std::make_unique<BlockRouter>(arrays);
}

std::unique_ptr<GrantStore> MakeGrantRouter(Arrays& arrays) { return std::make_unique<GrantRouter>(arrays); }

}  // namespace lunkeeper
