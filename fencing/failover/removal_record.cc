#include "fencing/failover/removal_record.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"

namespace lunkeeper::fencing {
namespace {

const kube::Resource kConfigMaps{"", "v1", "configmaps"};

// Null: the entry goes.
absl::Status PatchRecord(kube::KubeClient& client, const std::string& space, const std::string& array,
                         const kube::Json& entry, absl::Time deadline) {
  const absl::Status stored =
      client.Patch({kConfigMaps, space, kRemovalRecord}, {{"data", {{array, entry}}}}, {}, {deadline})
          .status();
  if (!absl::IsNotFound(stored)) return stored;
  return absl::FailedPreconditionError(
      absl::StrCat("there is no ConfigMap ", space, "/", kRemovalRecord,
                   ", in which it would be stored: the chart makes it; upgrade that"));
}

// The selection names the object already, for an account that may read this one alone.
std::optional<RemovalWatch::Names> ReadNames(const kube::Json& object) {
  if (kube::TextAt(object, {"metadata", "name"}) != kRemovalRecord) return std::nullopt;
  RemovalWatch::Names names;
  for (const auto& entry : kube::FieldAt(object, {"data"}).items()) names.insert(entry.key());
  return names;
}

kube::InformerHooks<RemovalWatch::Names> MakeHooks(RemainingArrays& arrays) {
  kube::InformerHooks<RemovalWatch::Names> hooks;
  hooks.reduce = ReadNames;
  hooks.changed = [&arrays](const auto&, const auto& now) {
    const RemovalWatch::Names names = now == nullptr ? RemovalWatch::Names() : *now;
    LogInfo("failover", "arrays that are removed", {{"arrays", absl::StrJoin(names, " ")}});
    arrays.SetRemoved(names);
  };
  hooks.live = [&arrays](bool live) { arrays.SetCurrent(live); };
  return hooks;
}

}  // namespace

absl::Status StoreRemoval(kube::KubeClient& client, const std::string& space, const std::string& array,
                          const std::string& by, absl::Time deadline) {
  return PatchRecord(client, space, array, by, deadline);
}

absl::Status EraseRemoval(kube::KubeClient& client, const std::string& space, const std::string& array,
                          absl::Time deadline) {
  return PatchRecord(client, space, array, nullptr, deadline);
}

RemovalWatch::RemovalWatch(kube::KubeClient& client, const std::string& space, RemainingArrays& arrays)
    : informer_(
          client,
          {.resource = kConfigMaps, .space = space, .fields = absl::StrCat("metadata.name=", kRemovalRecord)},
          MakeHooks(arrays)) {}

}  // namespace lunkeeper::fencing
