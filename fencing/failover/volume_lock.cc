#include "fencing/failover/volume_lock.h"

#include <functional>

#include "absl/hash/hash.h"
#include "absl/strings/str_join.h"
#include "devices/array/grant_store.h"
#include "devices/node_id.h"

namespace lunkeeper::fencing {
namespace {

using kube::Json;

std::string FormatStamp(absl::Time at) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", at, absl::UTCTimeZone());
}

Json HolderOf(const LockHolder& holder) {
  Json paths = Json::array();
  for (const DevicePath& path : holder.detail.paths)
    paths.push_back({{"portal", path.portal}, {"state", ToText(path.state)}});
  return {{"node", NameOf(holder.node).value()}, {"instance", InstanceOf(holder.node)},
          {"pods", Json(holder.pods)},           {"access", ToText(holder.access)},
          {"generation", holder.generation},     {"since", FormatStamp(holder.since)},
          {"device", holder.detail.device},      {"paths", std::move(paths)},
          {"mounts", Json(holder.detail.mounts)}};
}

size_t HashOf(const DeviceDetail& detail) {
  size_t hash = absl::HashOf(detail.device, detail.mounts, detail.paths.size());
  for (const DevicePath& path : detail.paths) hash = absl::HashOf(hash, path.portal, path.state);
  return hash;
}

}  // namespace

// What the node says comes from its heartbeats, and may be some seconds older than the grant.
// The top-level fields repeat the holders for kubectl's columns (additionalPrinterColumns), which cannot show
// lists of objects.
Json StatusOf(const VolumeLock& lock) {
  std::vector<std::string> nodes, pods, devices;
  Json holders = Json::array();
  for (const LockHolder& holder : lock.holders) {
    nodes.push_back(NameOf(holder.node).value());
    pods.insert(pods.end(), holder.pods.begin(), holder.pods.end());
    if (!holder.detail.device.empty()) devices.push_back(holder.detail.device);
    holders.push_back(HolderOf(holder));
  }
  const LockHolder& first = lock.holders.front();
  return {{"volume", lock.persistent_volume},
          {"claim", lock.claim},
          {"mode", lock.persistent_volume.empty() ? ""
                   : lock.block                   ? "Block"
                                                  : "Filesystem"},
          {"node", absl::StrJoin(nodes, ",")},
          {"pod", absl::StrJoin(pods, ",")},
          {"device", absl::StrJoin(devices, ",")},
          {"access", ToText(first.access)},
          {"since", FormatStamp(first.since)},
          {"holders", std::move(holders)}};
}

// `since` is left out: it is taken over from the existing object, or from the clock when the lock is new.
size_t HashOf(const VolumeLock& lock) {
  size_t hash = absl::HashOf(lock.persistent_volume, lock.claim, lock.block, lock.holders.size());
  for (const LockHolder& holder : lock.holders)
    hash =
        absl::HashOf(hash, holder.node, holder.access, holder.generation, holder.pods, HashOf(holder.detail));
  return hash;
}

// Times survive a restart of the controller by way of the object itself.
LockFacts ReadLock(const Json& object) {
  LockFacts facts;
  facts.version = Version(kube::TextAt(object, {"metadata", "resourceVersion"}));
  const Json& status = kube::FieldAt(object, {"status"});
  facts.digest = DigestOf(status);
  for (const Json& holder : kube::FieldAt(status, {"holders"})) {
    const auto since = kube::ParseMicroTime(kube::TextAt(holder, {"since"}));
    const int64_t generation = kube::NumberAt(holder, {"generation"});
    if (since.ok() && generation > 0) facts.since.emplace_back(static_cast<Generation>(generation), *since);
  }
  return facts;
}

// nlohmann's objects are sorted by key, so equal statuses have equal texts whatever order they arrived in.
size_t DigestOf(const Json& status) { return std::hash<std::string>()(kube::ToText(status)); }

}  // namespace lunkeeper::fencing
