#pragma once
// What the tests of the real array share: a pool in a directory of its own with a tgtd of its own, and a
// plain initiator. Everything is gone when the fixture dies, also after a failed assertion. Needs root.

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/testing/test_host.h"
#include "devices/array/tgt/tgt_array.h"
#include "devices/libiscsi/testing/libiscsi_session.h"

namespace lunkeeper::testing {

// A file system on a loop-mounted file in `directory`, mounted at `directory`/mounted; an XFS with reflinks
// unless `mkfs` says something else. For this process and its children alone.
class LoopMount {
 public:
  LoopMount(const std::string& directory, const std::string& size,
            const std::string& mkfs = "mkfs.xfs -q -m reflink=1");
  ~LoopMount();
  LoopMount(const LoopMount&) = delete;
  LoopMount& operator=(const LoopMount&) = delete;
  const std::string& path() const { return path_; }
  // Unmounts and mounts it again; nobody has a file of it open.
  void MountAnew() const;
  // Fills it to the last byte with a file `filler`.
  void Fill() const;

 private:
  std::string path_, image_;
};

VolumeSpec Spec(const std::string& name, uint64_t size_mib);
// Runs a command; fails the test when it fails.
void Run(const std::string& command);
// A control port for a tgtd of this test; the first of so many in a row.
int FreeControlPort(int count = 1);
pid_t TgtdProcess(int control_port);

// An array on a fresh pool, with so many tgtds; they are ended with it.
struct ArrayFixture {
  explicit ArrayFixture(const std::string& pool_dir = "", int tgtds = 1);
  ~ArrayFixture();
  // Opens the array, once more if it was closed.
  absl::Status Open();
  void Close() { array.reset(); }
  std::unique_ptr<Array> Cluster(const std::string& name = "c1") {
    return array->ForCluster(ClusterId(name));
  }

  TempDir directory;
  TgtArrayOptions options;
  std::unique_ptr<TgtArray> array;
};

// An opened array as one cluster has it; its members end a test that they fail in.
struct ClusterFixture : ArrayFixture {
  ClusterFixture();
  // A volume of 16 MiB.
  VolumeId Make(const std::string& name);
  absl::StatusOr<Grant> Acquire(const VolumeId& volume, const NodeId& node,
                                absl::Duration wait = absl::ZeroDuration(),
                                Access access = Access::kExclusive);
  // Whatever the grant's generation.
  absl::Status Release(const VolumeId& volume, const NodeId& node);

  std::unique_ptr<Array> array;
};

// One session with a granted LUN, in the words of these tests.
class PlainInitiator {
 public:
  // As LibiscsiSession::Login.
  static absl::StatusOr<std::unique_ptr<PlainInitiator>> Login(const Connection& connection);

  // One block of 512 bytes filled with `fill`; false when the write failed.
  bool Write(uint64_t block, char fill) { return TryWrite(block, fill).ok(); }
  absl::Status TryWrite(uint64_t block, char fill);
  // The first byte of a block, or nothing.
  std::optional<char> Read(uint64_t block);
  uint64_t SizeBytes();
  LunIdentity Identity();

 private:
  explicit PlainInitiator(std::unique_ptr<LibiscsiSession> session) : session_(std::move(session)) {}
  const std::unique_ptr<LibiscsiSession> session_;
};

// Whether a new session gets in, and a block is written by it.
inline bool CanWrite(const Connection& connection, uint64_t block, char fill) {
  const auto initiator = PlainInitiator::Login(connection);
  return initiator.ok() && (*initiator)->Write(block, fill);
}

}  // namespace lunkeeper::testing
