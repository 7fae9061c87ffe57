#pragma once
// For the tests of `lunkeeper import`: a cluster whose objects are gone, and an array that has kept its
// volumes.

#include <catch2/catch.hpp>

#include "fencing/failover/testing/fake_api.h"
#include "plugin/testing/shell.h"

namespace lunkeeper {

inline constexpr char kVolumeName[] = "pvc-5f0c9d1e-0000-4000-8000-000000000001";
inline const std::string kUid = std::string(kVolumeName).substr(4);

inline VolumeSpec SpecOf(const std::string& name, Access access = Access::kExclusive,
                         VolumeMode mode = VolumeMode::kFilesystem) {
  VolumeSpec spec;
  spec.name = name;
  spec.size_bytes = 10ULL << 30;
  spec.uses.Add(access, mode);
  if (mode == VolumeMode::kFilesystem) spec.fs_type = "xfs";
  return spec;
}

// A new cluster with the StorageClass "fast", and the array of the old one.
struct NewCluster {
  explicit NewCluster(std::shared_ptr<Arrays> arrays = nullptr) : shell(std::move(arrays)) {
    shell.cluster = [this] { return api.Client(); };
    PutClass("fast");
  }
  void PutClass(const std::string& name, const kube::Json& parameters = kube::Json::object()) {
    api.Put("/apis/storage.k8s.io/v1/storageclasses/" + name,
            {{"provisioner", "csi.lunkeeper.io"},
             {"parameters", parameters},
             {"mountOptions", kube::Json::array({"noatime"})}});
  }
  void PutClaim(const std::string& name, kube::Json spec, const std::string& uid = "") {
    const kube::Json claim = {{"spec", std::move(spec)}};
    const std::string path = "/api/v1/namespaces/db/persistentvolumeclaims/" + name;
    api.Put(path, claim);
    if (!uid.empty()) api.Merge(path, {{"metadata", {{"uid", uid}}}});  // instead of the server's own
  }
  VolumeId Make(const VolumeSpec& spec) { return shell.array->CreateVolume(spec)->id; }
  Shell::Output Print(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"import", "--output", "json"});
    return shell.RunFully(more);
  }
  kube::Json Items(std::vector<std::string> more = {}) {
    const Shell::Output told = Print(std::move(more));
    CAPTURE(told.out, told.errors);
    CHECK(told.exit_code == 0);
    return kube::Json::parse(told.out)["items"];
  }
  // As `kubectl apply` would, of the PersistentVolumes.
  void Apply(const kube::Json& items) {
    for (const kube::Json& item : items)
      if (item["kind"] == "PersistentVolume")
        api.Put("/api/v1/persistentvolumes/" + item["metadata"]["name"].get<std::string>(), item);
  }

  Shell shell;
  fencing::FakeApi api;
};

}  // namespace lunkeeper
