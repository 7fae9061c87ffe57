#include "devices/array/arrays.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr size_t kDigits = 16;

class OneArray final : public Arrays {
 public:
  explicit OneArray(NamedArray array) : array_(std::move(array)) {}
  std::vector<NamedArray> All() override { return {array_}; }

 private:
  const NamedArray array_;
};

class ArrayRouter final : public Array {
 public:
  explicit ArrayRouter(Arrays& arrays) : arrays_(arrays) {}

  absl::StatusOr<Volume> CreateVolume(const VolumeSpec& spec) override {
    ASSIGN_OR_RETURN(const auto array, Default());
    return array->CreateVolume(spec);
  }
  absl::Status DeleteVolume(const VolumeId& id) override {
    if (ArrayNameIn(id.value()).empty()) return absl::OkStatus();  // there is no such volume
    ASSIGN_OR_RETURN(const auto array, ArrayOf(arrays_, id.value()));
    return array->DeleteVolume(id);
  }
  absl::StatusOr<Volume> GetVolume(const VolumeId& id) override {
    ASSIGN_OR_RETURN(const auto array, ArrayOf(arrays_, id.value()));
    return array->GetVolume(id);
  }
  absl::StatusOr<Page<Volume>> ListVolumes(const std::string& token, size_t limit) override {
    return List<Volume>(
        token, [limit](Array& array, const std::string& inner) { return array.ListVolumes(inner, limit); });
  }
  absl::StatusOr<Volume> ExpandVolume(const VolumeId& id, uint64_t size_bytes) override {
    ASSIGN_OR_RETURN(const auto array, ArrayOf(arrays_, id.value()));
    return array->ExpandVolume(id, size_bytes);
  }

  absl::StatusOr<Snapshot> CreateSnapshot(const std::string& name, const VolumeId& source) override {
    ASSIGN_OR_RETURN(const auto array, ArrayOf(arrays_, source.value()));
    return array->CreateSnapshot(name, source);
  }
  absl::Status DeleteSnapshot(const SnapshotId& id) override {
    if (ArrayNameIn(id.value()).empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const auto array, ArrayOf(arrays_, id.value()));
    return array->DeleteSnapshot(id);
  }
  absl::StatusOr<Snapshot> GetSnapshot(const SnapshotId& id) override {
    ASSIGN_OR_RETURN(const auto array, ArrayOf(arrays_, id.value()));
    return array->GetSnapshot(id);
  }
  absl::StatusOr<Page<Snapshot>> ListSnapshots(const VolumeId& source, const std::string& token,
                                               size_t limit) override {
    if (!source.empty()) {
      if (ArrayNameIn(source.value()).empty()) return Page<Snapshot>{};
      ASSIGN_OR_RETURN(const auto array, ArrayOf(arrays_, source.value()));
      return array->ListSnapshots(source, token, limit);
    }
    return List<Snapshot>(token, [limit](Array& array, const std::string& inner) {
      return array.ListSnapshots({}, inner, limit);
    });
  }
  absl::StatusOr<PoolCapacity> Capacity() override {
    ASSIGN_OR_RETURN(const auto array, Default());
    return array->Capacity();
  }

  absl::StatusOr<Grant> Acquire(const GrantRequest& request, absl::Duration wait) override {
    ASSIGN_OR_RETURN(const auto array, ArrayOf(arrays_, request.volume.value()));
    return array->Acquire(request, wait);
  }
  absl::Status Release(const VolumeId& volume, const NodeId& node, GrantOwner owner,
                       Generation generation) override {
    if (ArrayNameIn(volume.value()).empty()) return absl::OkStatus();  // there is no such grant
    ASSIGN_OR_RETURN(const auto array, ArrayOf(arrays_, volume.value()));
    return array->Release(volume, node, owner, generation);
  }
  absl::StatusOr<std::vector<Grant>> ListGrants(const GrantFilter& filter) override {
    if (filter.volume.empty()) return Gather<Grant>([&](Array& array) { return array.ListGrants(filter); });
    if (ArrayNameIn(filter.volume.value()).empty()) return std::vector<Grant>{};
    ASSIGN_OR_RETURN(const auto array, ArrayOf(arrays_, filter.volume.value()));
    return array->ListGrants(filter);
  }
  absl::StatusOr<Term> BeginTerm(const std::string& holder) override {
    ASSIGN_OR_RETURN(const auto array, Only());
    return array->BeginTerm(holder);
  }
  absl::StatusOr<FenceRecord> Fence(Term term, const NodeId& node,
                                    const std::vector<VolumeId>& volumes) override {
    ASSIGN_OR_RETURN(const auto array, Only());
    return array->Fence(term, node, volumes);
  }
  absl::Status Unfence(Term term, const NodeId& node, Generation generation) override {
    ASSIGN_OR_RETURN(const auto array, Only());
    return array->Unfence(term, node, generation);
  }
  absl::StatusOr<std::vector<FenceRecord>> ListFences() override {
    return Gather<FenceRecord>([](Array& array) { return array.ListFences(); });
  }
  absl::StatusOr<std::vector<Session>> Sessions() override {
    return Gather<Session>([](Array& array) { return array.Sessions(); });
  }
  absl::StatusOr<std::vector<VolumeId>> Wanted() override {
    return Gather<VolumeId>([](Array& array) { return array.Wanted(); });
  }

  absl::StatusOr<Connection> OpenHeartbeatLun(const NodeId& node) override {
    ASSIGN_OR_RETURN(const auto array, Only());
    return array->OpenHeartbeatLun(node);
  }
  absl::StatusOr<std::vector<LandedHeartbeat>> ListHeartbeats() override {
    ASSIGN_OR_RETURN(const auto array, Only());
    return array->ListHeartbeats();
  }

 private:
  absl::StatusOr<std::shared_ptr<Array>> Only() {
    const std::vector<NamedArray> all = arrays_.All();
    if (all.size() == 1) return all.front().array;
    return absl::FailedPreconditionError(
        absl::StrCat("there are ", all.size(),
                     " arrays, and each has terms, fences and heartbeat LUNs of its own: ask each"));
  }

  absl::StatusOr<std::shared_ptr<Array>> Default() {
    const std::vector<NamedArray> all = arrays_.All();
    for (const NamedArray& array : all) {
      if (array.is_default || all.size() == 1) return array.array;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("there are ", all.size(), " arrays, and none is the default: name one"));
  }

  template <class T, class Call>
  absl::StatusOr<std::vector<T>> Gather(Call call) {
    std::vector<T> gathered;
    for (const NamedArray& each : arrays_.All()) {
      ASSIGN_OR_RETURN(auto some, call(*each.array));
      std::move(some.begin(), some.end(), std::back_inserter(gathered));
    }
    return gathered;
  }

  // A token is the array's name, a slash and the array's own token; one page is of one array.
  template <class T, class Call>
  absl::StatusOr<Page<T>> List(const std::string& token, Call call) {
    const std::vector<NamedArray> all = arrays_.All();
    const size_t slash = token.find('/');
    const std::string from = token.substr(0, slash);
    auto array = std::find_if(all.begin(), all.end(), [&](const NamedArray& a) { return a.name == from; });
    if (token.empty()) array = all.begin();
    if (array == all.end() || (!token.empty() && slash == std::string::npos)) {
      return absl::AbortedError(
          absl::StrCat("list: the token \"", token, "\" is not ours: start without one"));
    }
    std::string inner = token.empty() ? "" : token.substr(slash + 1);
    for (; array != all.end(); ++array, inner.clear()) {
      absl::StatusOr<Page<T>> page = call(*array->array, inner);
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

  Arrays& arrays_;
};

}  // namespace

std::unique_ptr<Arrays> MakeOneArray(std::string name, std::shared_ptr<Array> array) {
  return std::make_unique<OneArray>(NamedArray{std::move(name), std::move(array), true});
}

std::shared_ptr<Array> FindArray(Arrays& arrays, const std::string& name) {
  for (NamedArray& each : arrays.All())
    if (each.name == name) return std::move(each.array);
  return nullptr;
}

std::string ArrayNameIn(const std::string& id) {
  if (id.size() < kDigits + 3) return "";
  const size_t mark = id.size() - kDigits - 2;
  const auto is_digit = [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
  };
  const bool ours = id[mark] == '-' && (id[mark + 1] == 'v' || id[mark + 1] == 's') &&
                    std::all_of(id.begin() + static_cast<ptrdiff_t>(mark) + 2, id.end(), is_digit);
  return ours ? id.substr(0, mark) : "";
}

absl::StatusOr<std::shared_ptr<Array>> ArrayOf(Arrays& arrays, const std::string& id) {
  const std::string name = ArrayNameIn(id);
  if (name.empty()) return absl::NotFoundError(absl::StrCat(id, ": there is no such volume or snapshot"));
  if (auto array = FindArray(arrays, name)) return array;
  const std::string others = absl::StrJoin(
      arrays.All(), ", ", [](std::string* out, const NamedArray& each) { out->append(each.name); });
  return absl::FailedPreconditionError(absl::StrCat(id, " is on array ", name, ", and only ", others,
                                                    " can be asked here: add that one to the arrays file"));
}

std::unique_ptr<Array> MakeArrayRouter(Arrays& arrays) { return std::make_unique<ArrayRouter>(arrays); }

}  // namespace lunkeeper
