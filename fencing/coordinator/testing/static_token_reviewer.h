#pragma once
// Tokens with fixed meanings, for tests.

#include <atomic>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "fencing/coordinator/token_reviewer.h"

namespace lunkeeper {

inline constexpr char kTestAudience[] = "csi.lunkeeper.io";
inline constexpr char kTestAccount[] = "system:serviceaccount:lunkeeper:node";

// Thread-safe.
class StaticTokenReviewer final : public TokenReviewer {
 public:
  void Add(const std::string& token, TokenIdentity identity, const std::string& audience = kTestAudience) {
    absl::MutexLock lock(&mutex_);
    tokens_[token] = {std::move(identity), audience};
  }
  // A good token of a node.
  void AddNode(const std::string& token, const std::string& node, absl::Duration life = absl::Hours(1)) {
    Add(token, {kTestAccount, node, absl::Now() + life});
  }

  void Remove(const std::string& token) {
    absl::MutexLock lock(&mutex_);
    tokens_.erase(token);
  }

  absl::StatusOr<TokenIdentity> Review(const std::string& token, const std::string& audience) override {
    ++reviews;
    if (down) return absl::UnavailableError("review a token: the API server does not answer");
    absl::MutexLock lock(&mutex_);
    const auto found = tokens_.find(token);
    if (found == tokens_.end()) return absl::UnauthenticatedError("review a token: it is unknown");
    if (found->second.second != audience)
      return absl::UnauthenticatedError(
          absl::StrCat("review a token: it is not meant for \"", audience, "\""));
    return found->second.first;
  }

  std::atomic<int> reviews = 0;
  std::atomic<bool> down = false;

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::pair<TokenIdentity, std::string>> tokens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lunkeeper
