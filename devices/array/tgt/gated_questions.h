#pragma once
// Questions to the store by a call that is inside a volume's gate. A release, and so a fence, needs the gate,
// and the store may be silent for as long as it takes: so the call gives up once a grant of the volume is to
// be released.
//
// Thread-safe. A question goes on when nobody waits for it any more. The destructor waits for questions that
// were begun. What it is made of outlives it.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_mutex.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/ended_clients.h"
#include "devices/array/tgt/image_store.h"

namespace lunkeeper {

class GatedQuestions {
 public:
  GatedQuestions(Catalogue& catalogue, const ImageStore& images) : catalogue_(catalogue), images_(images) {}

  // As those of ImageStore, of the grant's volume. UNAVAILABLE, too: it was given up. The next call for the
  // volume's backing waits for the same answer. `most`: since it was asked for.
  absl::StatusOr<LunBacking> BackingOf(const GrantRow& grant, absl::Duration most = absl::InfiniteDuration())
      ABSL_LOCKS_EXCLUDED(mu_);
  // Before tgtd opens the image of a grant whose LUN it has not, and after that. `before`: who had it open.
  // Each time anew: an older answer is of what tgtd had open before. It is given up after some seconds, too.
  // An error: nobody may log in to that LUN.
  absl::Status BeginOpening(const GrantRow& grant, const std::shared_ptr<std::set<std::string>>& before)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RegisterOpened(const GrantRow& grant, const std::shared_ptr<std::set<std::string>>& before)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Before a LUN that is open is closed to be opened anew. An error: BeginOpening would fail as well, so it
  // stays as it is. FAILED_PRECONDITION: somebody else has its image open, too.
  absl::Status CheckOnlyOwn(const GrantRow& grant) ABSL_LOCKS_EXCLUDED(mu_);
  // Of a LUN that an earlier agent has opened, and registered. Outside the gate: it waits for as long as the
  // store is silent.
  absl::Status CheckFound(const GrantRow& grant) const {
    return images_.ListOpeners(images_.VolumePath(grant.volume)).status();
  }
  // tgtd has closed the LUN of this grant, which goes on, or has no row any more.
  void EndClientsOf(const GrantRow& grant);
  void EndClientsOfReleased(const GrantRow& grant);

 private:
  using Answer = absl::StatusOr<LunBacking>;
  // The image's path, and 0 or the number of a registration.
  using Name = std::pair<std::string, uint64_t>;
  struct Question {
    std::optional<Answer> answer;  // with mu_
    const std::chrono::steady_clock::time_point asked = std::chrono::steady_clock::now();
  };
  struct Asked {
    std::shared_ptr<Question> question;
    std::jthread thread;
  };
  Answer AskUntilRelease(const GrantRow& grant, const Name& name, std::function<Answer()> ask,
                         absl::Duration most) ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<Question> Ask(const Name& name, std::function<Answer()> ask) ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<Answer> AwaitAnswer(const Question& question, absl::Duration within) ABSL_LOCKS_EXCLUDED(mu_);
  void EndAnswered() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AskAnew(const GrantRow& grant, std::function<absl::Status()> ask) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<size_t> CountLuns(const GrantRow& grant) const;
  bool IsRegistering(const std::string& path) ABSL_LOCKS_EXCLUDED(mu_);
  bool IsReleaseDue(const GrantRow& grant) const;

  Catalogue& catalogue_;
  const ImageStore& images_;
  LunClients clients_;
  std::atomic<uint64_t> registrations_ = 0;
  SteadyMutex mu_;
  std::map<Name, Asked> asked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lunkeeper
