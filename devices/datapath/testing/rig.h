#pragma once
// What the data path's tests stand on: a real tgtd on loopback, and a real data path beside it. Needs root.
// The destructors remove everything, by process id and device, also when a test fails.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/testing/test_host.h"
#include "devices/datapath/datapath.h"
#include "devices/datapath/initiator.h"
#include "devices/iscsi/testing/fake_target.h"

namespace lunkeeper::testing {

// Runs a program and waits for it; its exit code, and what it printed.
struct Ran {
  int exit_code;
  std::string output;
};
Ran Run(const std::vector<std::string>& command);
// Requires that it succeeds.
std::string MustRun(const std::vector<std::string>& command);

// Fails the test if `condition` has not come true in time.
void Eventually(const std::string& what, const std::function<bool()>& condition,
                absl::Duration limit = absl::Seconds(60));

pid_t Spawn(const std::vector<std::string>& command, const std::string& log);
void KillAndWait(pid_t pid);

std::vector<pid_t> ChildrenOf(pid_t pid);
// In a system call that no signal interrupts.
bool IsUninterruptible(pid_t pid);
// Whether one of its children is.
bool HasWaitingChild(pid_t pid);

// A tgtd with targets t1, t2 … of one sparse file each.
class Target {
 public:
  explicit Target(const TempDir& dir, bool in_memory = true);
  ~Target();
  void Start();
  void Kill();
  void AddLun(int number, uint64_t size_bytes);
  void RemoveTarget(int number);
  void Grow(int number, uint64_t size_bytes);
  AttachRequest RequestFor(int number) const;
  pid_t pid() const { return pid_; }

 private:
  std::string Admin(std::vector<std::string> arguments) const;
  void Define(int number) const;
  std::string FileOf(int number) const;

  const TempDir& dir_;
  const std::string memory_;
  int control_port_ = 0;
  int port_ = 0;
  pid_t pid_ = -1;
  std::vector<std::pair<int, uint64_t>> luns_;
};

// Whether a data path answers there. An initiator's own list also succeeds where none is.
bool IsServed(const std::string& socket);

class Datapath {
 public:
  // `wrapper`: a command that runs the data path's, which follows it.
  explicit Datapath(const TempDir& dir, std::vector<std::string> options = {},
                    std::vector<std::string> wrapper = {});
  ~Datapath();
  void Start();
  void Kill();  // SIGKILL of the supervisor
  int WaitForExit();
  bool Ended();          // by itself; then it may be started again
  pid_t worker() const;  // 0: none now
  pid_t WaitForOtherWorker(pid_t than) const;
  pid_t pid() const { return pid_; }
  const std::string& socket() const { return socket_; }
  Initiator& initiator() { return *initiator_; }
  std::string log() const;
  uint64_t memory_kib() const;  // resident, of supervisor and worker

 private:
  const TempDir& dir_;
  const std::string socket_;
  const std::vector<std::string> options_;
  const std::vector<std::string> wrapper_;
  const std::unique_ptr<Initiator> initiator_;
  pid_t pid_ = -1;
};

// Requires that it succeeds.
Device MustAttach(Datapath& datapath, const AttachRequest& request);

// A target, a data path with these options, and the target's LUN 1, attached.
struct AttachedLun {
  explicit AttachedLun(uint64_t size_bytes, std::vector<std::string> options = {});
  TempDir dir;
  Target target;
  Datapath datapath;
  Device device;
};

// A file system of a device, mounted; unmounted by force at the end.
class Mounted {
 public:
  Mounted(const std::string& device, const std::string& directory, const std::string& type = "ext4",
          bool make = true);
  ~Mounted();
  void Unmount();
  const std::string& path() const { return directory_; }

 private:
  const std::string directory_;
  bool mounted_ = true;
};

// Whether the loop device has its file.
bool IsBound(const std::string& device);

// The one LUN of a target that misbehaves on demand.
AttachRequest RequestFor(const iscsi::FakeTarget& target);

// Threads that write numbered blocks with O_DIRECT and read them back, each in a part of its own.
class FileChecker {
 public:
  FileChecker(const std::string& path, uint64_t size_bytes, int threads);
  ~FileChecker();
  void Stop();  // ends the threads
  // Stops. Requires that no I/O failed and that no read showed anything but the last acknowledged
  // write.
  void StopAndCheck();
  uint64_t writes() const;
  uint64_t errors() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Requires that some more writes are acknowledged in time.
void RequireProgress(const FileChecker& checker);

}  // namespace lunkeeper::testing
