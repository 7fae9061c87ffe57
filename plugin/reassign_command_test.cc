// `lunkeeper reassign`, over a real socket.

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "plugin/testing/shell.h"

namespace lunkeeper {
namespace {

class ReassignShell {
 public:
  void Answer(const absl::StatusOr<Reassigned>& answer) {
    const absl::MutexLock lock(&mutex_);
    answer_ = answer;
  }
  Reassignment Asked() {
    const absl::MutexLock lock(&mutex_);
    REQUIRE(asked_);
    return *asked_;
  }

 private:
  absl::Mutex mutex_;
  absl::StatusOr<Reassigned> answer_ ABSL_GUARDED_BY(mutex_) = absl::InternalError("not set");
  std::optional<Reassignment> asked_ ABSL_GUARDED_BY(mutex_);

 public:
  Shell shell{[this](Backends& backends) {
    backends.reassign = [this](const Reassignment& reassignment) {
      const absl::MutexLock lock(&mutex_);
      asked_ = reassignment;
      return answer_;
    };
  }};
};

}  // namespace

using Catch::Contains;

TEST_CASE_METHOD(ReassignShell, "a cluster's volumes are given away, and it says what became of them") {
  Answer(Reassigned{.holdings = {.volumes = 2, .snapshots = 1, .groups = 0, .size_bytes = 3 << 20},
                    .fenced = {kNode}});
  CHECK(
      shell.Run({"reassign", "--from", "old", "--to", "new", "--fence"}) ==
      "node " + kNode.value() +
          " of cluster old is fenced\n"
          "2 volumes, 1 snapshots and 0 groups of snapshots (3 MiB) of cluster old are now those of cluster "
          "new\n");
  const Reassignment asked = Asked();
  CHECK((asked.from == ClusterId("old") && asked.to == ClusterId("new")));
  CHECK((asked.end_grants && !asked.only_check));
  CHECK_THAT(asked.asked_by, Contains("operator@"));
  const std::string planned = shell.Run({"reassign", "--from", "old", "--to", "new", "--dry-run"});
  CHECK_THAT(planned, Contains("would be fenced") && Contains("would be given to cluster new"));
  CHECK((!Asked().end_grants && Asked().only_check));
}

TEST_CASE_METHOD(ReassignShell, "what forbids it is said, and the exit code is 1") {
  Answer(absl::FailedPreconditionError("cluster old still has volumes in use"));
  CHECK_THAT(shell.Run({"reassign", "--from", "old", "--to", "new"}),
             Contains("error: ") && Contains("in use"));
}

TEST_CASE("a process whose arrays are elsewhere cannot give anything away") {
  Shell shell;
  CHECK_THAT(shell.Run({"reassign", "--from", "old", "--to", "new"}),
             Contains("run this where the array's agent runs"));
}

}  // namespace lunkeeper
