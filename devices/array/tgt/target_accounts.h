#pragma once
// tgtd's accounts: one for each grant, by which its node logs in, and one for each machine, by which its
// targets prove themselves. tgtd's lists of them are slow when long, so useless ones are deleted.
// That takes tgtd some n * n steps with n targets, in the thread that does the I/O of all volumes, and a
// fence has many targets: so it is done later, for an account without a target lets nobody in. Thread-safe;
// no account is deleted that was made anew.

#include <chrono>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/types.h"

namespace lunkeeper {

class TargetAccounts {
 public:
  // `kept_for`: how long a machine's account is kept that no target uses, since most come again.
  TargetAccounts(const TgtClient* tgt, absl::Duration kept_for)
      : tgt_(tgt), kept_for_(absl::ToChronoNanoseconds(kept_for)) {}

  static std::string UserOf(Generation generation);
  // The same secret always has the same user, since tgtd keeps an account for as long as it runs.
  static std::string UserOfMachine(const std::string& secret);

  absl::Status MakeForGrant(Generation generation, const ChapCredentials& chap) ABSL_LOCKS_EXCLUDED(mu_);
  // Of the machine, for the target of this generation.
  absl::Status MakeForTarget(Generation generation, const ChapCredentials& chap) ABSL_LOCKS_EXCLUDED(mu_);
  // The target of this generation is there, with its machine's account (empty: with none), or is gone.
  void NoteTarget(Generation generation, const std::string& machine) ABSL_LOCKS_EXCLUDED(mu_);
  void NoteGone(Generation generation, const std::string& machine) ABSL_LOCKS_EXCLUDED(mu_);

  // Deletes accounts that have become useless, for a moment. To be called about once a second.
  void DeleteOld() ABSL_LOCKS_EXCLUDED(mu_);
  // The generations that tgtd has an account for; and those among them whose grants are gone for good, of
  // which DeleteOld deletes the accounts. Accounts of machines that nobody has told of count as unused.
  absl::StatusOr<std::set<Generation>> ListGenerations() ABSL_LOCKS_EXCLUDED(mu_);
  void SetOld(std::set<Generation> generations) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  struct OfMachine {
    std::set<Generation> targets{};
    SteadyTime unused_since = std::chrono::steady_clock::now();
  };
  // False: there is none to delete now.
  bool DeleteOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const TgtClient* const tgt_;
  const std::chrono::nanoseconds kept_for_;
  // Also held while tgtd makes and deletes them.
  absl::Mutex mu_;
  std::set<Generation> old_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, OfMachine> machines_ ABSL_GUARDED_BY(mu_);  // by the account's user
};

}  // namespace lunkeeper
