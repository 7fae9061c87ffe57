#pragma once
// What is wrong, as this node sees it, with one volume or with the storage as a whole. Looks at the devices,
// the mount table and, for a device that failed, at the node's grants; knows no protobuf and remembers
// nothing. Thread-safe; may be asked beside any other call, for it changes nothing and waits two seconds at
// most for a file system or a controller that does not answer.

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/datapath/initiator.h"
#include "devices/filesystem/filesystem.h"
#include "devices/filesystem/mounter.h"
#include "node/device_mounts.h"
#include "node/grant_source.h"

namespace lunkeeper {

struct HealthProblem {
  bool accessible = true;  // false: nothing of it can be read or written from here
  std::string reason;      // one CamelCase word, for programs
  std::string message;     // for people
};

struct HealthRequest {
  VolumeId volume;
  std::string staged, published;  // where it should be; empty: nobody says. Symlinks are resolved
  absl::Time deadline = absl::InfiniteFuture();
};

// Where each of these devices, or its file system, is mounted. Empty where the mount table cannot be read.
std::map<VolumeId, std::vector<std::string>> ListMountTargets(const std::vector<Device>& devices,
                                                              Mounter& mounter);

class VolumeHealth {
 public:
  // `initiator`: one that gives up soon, for a data path that hangs must not make this hang too. `grants` may
  // be null. All outlive this.
  VolumeHealth(Initiator& initiator, Filesystem& filesystem, Mounter& mounter, GrantSource* grants)
      : initiator_(initiator), filesystem_(filesystem), grants_(grants), device_mounts_(initiator, mounter) {}

  // Empty: nothing is known to be wrong. NOT_FOUND: the volume is not staged here.
  absl::StatusOr<std::vector<HealthProblem>> CheckVolume(const HealthRequest& request);
  // Of the arrays whose volumes are attached here, and of the data path. No two with one reason.
  std::vector<HealthProblem> CheckStorage();

 private:
  HealthProblem DescribeFailure(const Device& device, absl::Time deadline);
  absl::Status AddMountProblems(const HealthRequest& request, const Device& device,
                                std::vector<HealthProblem>* problems);
  void AddFilesystemProblems(const Device& device, const std::vector<Mount>& mounts, absl::Time deadline,
                             std::vector<HealthProblem>* problems);

  Initiator& initiator_;
  Filesystem& filesystem_;
  GrantSource* const grants_;
  DeviceMounts device_mounts_;
};

}  // namespace lunkeeper
