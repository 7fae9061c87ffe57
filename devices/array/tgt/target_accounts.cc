#include "devices/array/tgt/target_accounts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/hmac.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"

namespace lunkeeper {
namespace {

constexpr char kOfGrant[] = "grant-", kOfMachine[] = "target-";
// Of tgtd's only thread for commands, once a second.
constexpr absl::Duration kDeletionTime = absl::Milliseconds(50);

}  // namespace

std::string TargetAccounts::UserOf(Generation generation) { return absl::StrCat(kOfGrant, generation); }

std::string TargetAccounts::UserOfMachine(const std::string& secret) {
  return absl::StrCat(kOfMachine, absl::BytesToHexString(HmacSha256(secret, "user").substr(0, 8)));
}

// One of an old account's name would keep that one's secret, and lose it when DeleteOld comes to it: a target
// without an account asks for none.
absl::Status TargetAccounts::MakeForGrant(Generation generation, const ChapCredentials& chap) {
  const absl::MutexLock lock(&mu_);
  if (old_.contains(generation)) {
    RETURN_IF_ERROR(OkIfGone(tgt_->DeleteAccount(chap.user)));
    old_.erase(generation);
  }
  return OkIfThere(tgt_->NewAccount(chap));
}

// In use from now on, and not only once it is bound: DeleteOld may come in between.
absl::Status TargetAccounts::MakeForTarget(Generation generation, const ChapCredentials& chap) {
  const absl::MutexLock lock(&mu_);
  machines_[chap.user].targets.insert(generation);
  return OkIfThere(tgt_->NewAccount(chap));
}

void TargetAccounts::NoteTarget(Generation generation, const std::string& machine) {
  const absl::MutexLock lock(&mu_);
  if (!machine.empty()) machines_[machine].targets.insert(generation);
}

void TargetAccounts::NoteGone(Generation generation, const std::string& machine) {
  const absl::MutexLock lock(&mu_);
  old_.insert(generation);
  const auto found = machines_.find(machine);
  if (found == machines_.end() || found->second.targets.erase(generation) == 0) return;
  found->second.unused_since = std::chrono::steady_clock::now();
}

void TargetAccounts::DeleteOld() {
  const SteadyDeadline end(kDeletionTime);
  while (!end.IsOver()) {
    const absl::MutexLock lock(&mu_);
    if (!DeleteOne()) return;
  }
}

bool TargetAccounts::DeleteOne() {
  if (!old_.empty()) {
    const Generation oldest = *old_.begin();
    if (!OkIfGone(tgt_->DeleteAccount(UserOf(oldest))).ok()) return false;
    old_.erase(oldest);
    return true;
  }
  const SteadyTime now = std::chrono::steady_clock::now();
  const auto unused = std::ranges::find_if(machines_, [&](const auto& machine) {
    return machine.second.targets.empty() && now - machine.second.unused_since >= kept_for_;
  });
  if (unused == machines_.end() || !OkIfGone(tgt_->DeleteAccount(unused->first)).ok()) return false;
  machines_.erase(unused);
  return true;
}

absl::StatusOr<std::set<Generation>> TargetAccounts::ListGenerations() {
  ASSIGN_OR_RETURN(const std::vector<std::string> users, tgt_->ListAccounts());
  const absl::MutexLock lock(&mu_);
  std::set<Generation> generations;
  for (absl::string_view user : users) {
    Generation generation = 0;
    if (absl::StartsWith(user, kOfMachine)) machines_.try_emplace(std::string(user));
    if (absl::ConsumePrefix(&user, kOfGrant) && absl::SimpleAtoi(user, &generation))
      generations.insert(generation);
  }
  return generations;
}

void TargetAccounts::SetOld(std::set<Generation> generations) {
  const absl::MutexLock lock(&mu_);
  old_ = std::move(generations);
}

}  // namespace lunkeeper
