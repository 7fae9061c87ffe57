#pragma once
// A tgtd of a test's own, on loopback, with one target: LUN 1, a sparse file. For tests and their tools only;
// needs root. Not thread-safe. The destructor ends the daemon, which it started and owns, and removes its
// directory; a daemon whose owner died is ended by the kernel. Failure to start is a CHECK of the test
// (absl::Status).

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/testing/test_host.h"
#include "devices/types.h"

namespace lunkeeper {

class TestTarget final {
 public:
  // `chap` empty: no authentication.
  static absl::StatusOr<std::unique_ptr<TestTarget>> Start(uint64_t size_bytes,
                                                           const ChapCredentials& chap = {});
  ~TestTarget();
  TestTarget(const TestTarget&) = delete;
  TestTarget& operator=(const TestTarget&) = delete;

  // How the initiator named `iqn…:<initiator>` reaches it.
  Connection ConnectionOf(const std::string& initiator) const;
  const std::string& file() const { return file_; }
  pid_t pid() const { return pid_; }
  // Runs `tgtadm -C <this daemon> args…`.
  absl::Status Admin(const std::vector<std::string>& args) const;

 private:
  TestTarget() = default;
  absl::Status Launch();
  absl::Status WaitUntilItAnswers();
  absl::Status MakeTarget(const ChapCredentials& chap);

  const testing::TempDir directory_;
  std::string file_;
  std::string portal_;
  ChapCredentials chap_;
  int control_port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace lunkeeper
