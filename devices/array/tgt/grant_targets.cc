// How a release proves that no write of the node can reach the volume any more. DrainTarget closes the target
// to logins, cuts its connections and asks tgtd for the remaining ones; tgtd lists a connection until its
// last command is over. Only when the list is empty does it delete the target; or, where tgtd never empties
// it (session_cutter.h), the LUN. Both are refused while a command runs. Only then is the row deleted here,
// which lets the next node in. So the order "closed, drained, target or LUN gone, row gone" is the fence.
//
// Killed anywhere on the way, the row still says `releasing`: the next start repeats every step, and each
// step is a success when it was done before.
#include "devices/array/tgt/grant_targets.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/array/tgt/target_number.h"

namespace lunkeeper {
namespace {

constexpr size_t kReleaseWorkers = 8;
// tgtd answers one at a time, and each call to it has a timeout: no more wait for it than it is through with
// long before, though an image takes it a second to open.
constexpr size_t kRestoreWorkers = 4;
constexpr absl::Duration kTickWaits = absl::Milliseconds(200);
// Releases, and a tgtd that starts with the portal closed, wait for a tick. One LUN may take some seconds.
constexpr absl::Duration kTickTakes = absl::Seconds(5);

absl::Status StillDraining(const std::vector<GrantRow>& grants, const absl::Status& trouble) {
  return absl::DeadlineExceededError(
      absl::StrCat("volume ", grants.front().volume.value(), ": the commands of node ",
                   grants.front().node.value(), " are not over, nor those of ", grants.size() - 1,
                   " other grants", trouble.ok() ? "" : absl::StrCat(" (", trouble.message(), ")"),
                   "; the node can log in no more, and this goes on; repeat the call"));
}

}  // namespace

absl::Status GrantTargets::RestoreTargets(const std::vector<Generation>& heartbeat_luns, bool taken_over) {
  held_.ForgetAll();
  ASSIGN_OR_RETURN(const std::vector<TgtTarget> there, table_.ReadFromTgtd());
  // Before the rows are read: what has an account now and no row then is gone for good. A live target without
  // its account would ask for no secret.
  ASSIGN_OR_RETURN(std::set<Generation> accounts, table_.accounts().ListGenerations());
  ASSIGN_OR_RETURN(std::vector<GrantRow> in_use, catalogue_.grants().ListAllHeartbeatLuns());
  std::erase_if(in_use, [this](const GrantRow& lun) { return lun.tgtd != tgtd_; });
  ASSIGN_OR_RETURN(const std::vector<GrantRow> grants, catalogue_.grants().ListGrantsOfTgtd(tgtd_));
  // All targets of tgtd, minus the ones that the catalogue explains. Nobody has granted the rest; a target
  // of another tgtd's grant is among the rest, or two would serve it and a fence would drain one.
  std::map<int32_t, TgtTarget> others;
  for (const TgtTarget& target : there) others[target.number] = target;
  for (const Generation lun : heartbeat_luns) others.erase(TargetNumber(lun));
  std::vector<GrantRow> releasing;
  Restorations asked;
  for (const GrantRow& grant : grants) {
    const auto found = others.find(TargetNumber(grant.generation));
    const bool is_open = found != others.end() && found->second.open;
    if (found != others.end()) others.erase(found);
    if (grant.releasing) {
      releasing.push_back(grant);
    } else {
      AskStore({grant, is_open}, asked);
    }
  }
  RETURN_IF_ERROR(table_.AdoptEmptyTargets(others, catalogue_));
  RETURN_IF_ERROR(CheckAccounts(accounts));
  in_use.insert(in_use.end(), grants.begin(), grants.end());
  table_.SetOldAccounts(in_use, std::move(accounts));
  RETURN_IF_ERROR(RestoreAsked(std::move(asked)));
  FAIL_POINT("array.tgtd.put_back");
  // Not reported as an error: commands that will not end on one volume must not keep the portal closed for
  // all.
  const absl::Status finished = FinishReleasing(std::move(releasing), absl::Now() + drain_timeout_);
  if (!finished.ok())
    LogWarn("array", std::string(finished.message()), {{"taken over", taken_over ? "yes" : "no"}});
  return absl::OkStatus();
}

// A catalogue that was set back gives their generations out again, and with them the names of their accounts:
// a secret of the lost future would open a new grant's target.
absl::Status GrantTargets::CheckAccounts(const std::set<Generation>& accounts) {
  ASSIGN_OR_RETURN(const Generation last, catalogue_.grants().LastGeneration());
  if (accounts.empty() || *accounts.rbegin() <= last) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "tgtd has an account of generation ", *accounts.rbegin(), ", but the catalogue's last is ", last,
      ": the catalogue was set back while tgtd ran; pods that use this array's volumes have to start again"));
}

// The name has what was asked: tgtd may die, and a target that was open then be made anew now.
void GrantTargets::AskStore(const Restoration& restoration, Restorations& asked) {
  const std::string path = images_.VolumePath(restoration.grant.volume);
  const std::string name =
      absl::StrCat(restoration.is_open ? "register " : "open ", restoration.grant.generation);
  asked.emplace(name, restoration);
  questions_.Ask(name, [this, path, restoration]() -> Backing {
    if (!restoration.is_open) return LookAtImage(restoration.grant, path);
    RETURN_IF_ERROR(gated_questions_.CheckFound(restoration.grant));
    return LunBacking{.path = path, .errors = images_.WatchErrors(path)};
  });
}

GrantTargets::Backing GrantTargets::LookAtImage(const GrantRow& grant, const std::string& path) {
  const SteadyTime asked = std::chrono::steady_clock::now();
  Backing backing = images_.BackingOf(path);
  if (backing.ok()) table_.openings().NoteLook(grant.generation, asked, std::chrono::steady_clock::now());
  return backing;
}

// Several at a time, in the order in which the store answers. tgtd has one thread to open images, and must
// not wait for what the store is asked before and after.
absl::Status GrantTargets::RestoreAsked(Restorations asked) {
  const size_t count = asked.size();
  absl::Mutex mu;  // for `asked` and `trouble`
  absl::Status trouble;
  const auto take = [&](const std::string& name) {
    const absl::MutexLock lock(&mu);
    return trouble.ok() ? asked.extract(name) : Restorations::node_type();
  };
  const auto work = [&] {
    while (const auto answered = questions_.TakeAnswer(kStoreAnswers)) {
      const auto own = take(answered->name);
      if (own.empty()) continue;  // asked in the life of an earlier tgtd, or tgtd does not answer
      const absl::Status restored = RestoreTarget(own.mapped(), answered->answer);
      const absl::MutexLock lock(&mu);
      trouble.Update(restored);
    }
  };
  std::vector<std::jthread> workers(std::min(kRestoreWorkers, asked.size()));
  for (std::jthread& worker : workers) worker = std::jthread(work);
  workers.clear();
  RETURN_IF_ERROR(trouble);
  // Outside the gate, which a call may hold that waits for this very image. So the grant of one may be gone,
  // and its target deleted, just before the target is made here; RetryHeld then deletes it again.
  for (const auto& [name, restoration] : asked)
    RETURN_IF_ERROR(HoldTarget(restoration, absl::UnavailableError("its image does not answer")));
  LogInfo("array", "the targets are back",
          {{"targets", absl::StrCat(count)}, {"held", absl::StrCat(held_.ListHeld().size())}});
  return absl::OkStatus();
}

// An error is tgtd's.
absl::Status GrantTargets::RestoreTarget(const Restoration& restoration, const Backing& backing) {
  const GrantRow& grant = restoration.grant;
  // It may have been paused for a growth that the crash cut short, and its image opened anew.
  if (restoration.is_open && backing.ok()) return table_.ResumeOpen(grant, *backing);
  const auto pass = gates_.Enter(grant.volume, absl::Now() + kGateTimeout);
  if (!pass.has_value())
    return absl::UnavailableError(absl::StrCat("put back volume ", grant.volume.value(), ": it stays busy"));
  ASSIGN_OR_RETURN(const bool wanted, IsWanted(grant));
  if (!wanted) return absl::OkStatus();
  if (!restoration.is_open) table_.ForgetOpen(grant);
  const absl::Status opened = backing.ok() ? OpenTarget(grant, *backing) : backing.status();
  return opened.ok() ? opened : HoldTarget(restoration, opened);
}

// A volume that cannot be served, for instance because its image is gone, must not keep the others away. One
// that tgtd has open goes on as it was: its sessions may need nothing of what is wrong.
absl::Status GrantTargets::HoldTarget(const Restoration& restoration, const absl::Status& why) {
  if (!restoration.is_open) RETURN_IF_ERROR(table_.HoldTarget(restoration.grant));
  held_.Hold(restoration, why);
  return absl::OkStatus();
}

void GrantTargets::RetryHeld() {
  std::map<Generation, Restoration> held = held_.ListHeld();
  Restorations asked;
  for (auto& [generation, restoration] : held) {
    const auto grant = catalogue_.grants().FindGeneration(generation);
    if (!grant.ok()) continue;
    if (!grant->has_value()) {
      DeleteHeld(restoration);
    } else if (!(*grant)->releasing) {
      restoration.grant = **grant;
      AskStore(restoration, asked);
    }
  }
  // An answer that is not taken is the next tick's first one.
  const SteadyDeadline end(kTickTakes);
  while (!asked.empty() && !end.IsOver()) {
    const auto answered = questions_.TakeAnswer(kTickWaits);
    if (!answered) return;
    const auto own = asked.extract(answered->name);
    if (!own.empty()) TryOpenHeld(own.mapped(), answered->answer);
  }
}

// Waits for the gate for a moment: calls of another node, each refused at once, may nearly always be inside.
void GrantTargets::TryOpenHeld(const Restoration& restoration, const Backing& backing) {
  const GrantRow& grant = restoration.grant;
  const auto pass = gates_.Enter(grant.volume, absl::Now() + kTickWaits);
  if (!pass.has_value()) return;
  // A growth may have held it anew since the store was asked, then without a LUN: made ready like that, the
  // target would tell its node "not found", and nobody would look again.
  if (!held_.IsHeldAs(restoration)) return;
  // Of one that was released while the store was asked, nobody would delete a target that is held again.
  if (!IsWanted(grant).value_or(false)) return;
  // A call may have opened it since; or before it was held, outside the gate.
  const bool is_open = restoration.is_open || table_.IsOpen(grant);
  if (restoration.is_new && is_open) return held_.ForgetHeld(grant);
  if (!restoration.is_open && backing.ok()) table_.ForgetOpen(grant);
  absl::Status opened = backing.status();
  if (opened.ok())
    opened = restoration.is_open ? table_.ResumeOpen(grant, *backing) : OpenTarget(grant, *backing);
  if (opened.ok()) {
    held_.ForgetHeld(grant);  // inside the gate, in which a growth may hold it again
    LogInfo("array", "a volume is put back that could not be before", {{"volume", grant.volume.value()}});
  } else if (!is_open) {
    table_.HoldTarget(grant).IgnoreError();  // again: a growth in between has set it ready
  }
}

// In the gate, in which a call may still be opening it that began before the release. Most are gone already:
// a row is deleted after its target.
void GrantTargets::DeleteHeld(const Restoration& restoration) {
  const auto pass = gates_.Enter(restoration.grant.volume, absl::InfinitePast());
  if (!pass.has_value()) return;
  if (restoration.is_open || table_.DrainTarget(restoration.grant).value_or(false))
    held_.ForgetHeld(restoration.grant);
}

// Read again, inside the gate: a fence may have marked it since the caller read its row, and a target that is
// opened after its drain would let the fenced node write.
absl::StatusOr<bool> GrantTargets::IsWanted(const GrantRow& grant) {
  ASSIGN_OR_RETURN(const std::optional<GrantRow> now, catalogue_.grants().FindGeneration(grant.generation));
  return now.has_value() && !now->releasing;
}

// Nobody knows whether this node calls again, and others may wait: beside a LUN on Ceph that is half open, by
// a client that is not registered, no other node's is opened.
absl::Status GrantTargets::OpenGranted(const GrantRow& grant) {
  const absl::Status opened = OpenTarget(grant);
  if (!opened.ok()) held_.Hold({.grant = grant, .is_new = true}, opened);
  return opened;
}

absl::Status GrantTargets::OpenTarget(const GrantRow& grant, const std::optional<LunBacking>& backing) {
  ASSIGN_OR_RETURN(const bool wanted, IsWanted(grant));
  if (!wanted) return absl::OkStatus();
  ASSIGN_OR_RETURN(const VolumeRow row, catalogue_.volumes().FindVolume(grant.cluster, grant.volume));
  if (table_.IsOpen(grant)) return absl::OkStatus();
  const Backing asked = backing ? *backing : gated_questions_.BackingOf(grant);
  RETURN_IF_ERROR(asked.status());
  if (!asked->clients_are_registered) return table_.OpenTarget(grant, row.volume, *asked, {});
  const auto before = std::make_shared<std::set<std::string>>();  // a question may outlive this call
  return table_.OpenTarget(grant, row.volume, *asked,
                           {.opening = [&] { return gated_questions_.BeginOpening(grant, before); },
                            .opened = [&] { return gated_questions_.RegisterOpened(grant, before); }});
}

// The image is closed and opened anew in two calls. Asked to do both in one, tgtd calls a LUN that is left
// without an image a success. The pause is short for a healthy initiator, which logs in again and repeats
// what was in flight.
absl::Status GrantTargets::ReopenLun(const GrantRow& grant, absl::Duration most) {
  // tgtd opens the image anew, and so hangs on one that is silent.
  ASSIGN_OR_RETURN(const LunBacking backing, gated_questions_.BackingOf(grant, most));
  const bool was_open = table_.IsOpen(grant);
  if (was_open) RETURN_IF_ERROR(gated_questions_.CheckOnlyOwn(grant));
  const absl::StatusOr<bool> closed = CloseTarget(grant);
  if (closed.ok() && *closed) gated_questions_.EndClientsOf(grant);
  const bool is_left = closed.ok() && !*closed;
  // Whether or not it was closed: an offline target would be an outage. One that was not is what it was.
  const bool goes_on = was_open && is_left && IsWanted(grant).value_or(false);
  absl::Status opened = goes_on ? table_.LetIn(grant) : OpenTarget(grant, backing);
  if (opened.ok()) opened = table_.EndPause(grant);
  if (!opened.ok()) {
    held_.Hold({grant}, opened);
    return opened;
  }
  if (!is_left) return closed.status();
  return absl::UnavailableError(absl::StrCat("volume ", grant.volume.value(), ": its commands are not over"));
}

absl::StatusOr<bool> GrantTargets::CloseTarget(const GrantRow& grant) {
  const SteadyDeadline deadline(drain_timeout_);
  while (true) {
    ASSIGN_OR_RETURN(const bool closed, table_.CloseTarget(grant));
    if (closed || deadline.IsOver()) return closed;
    absl::SleepFor(absl::Milliseconds(2));
  }
}

absl::StatusOr<bool> GrantTargets::TryRelease(const GrantRow& grant) {
  // Does not wait: a growth that waits for commands may hold the gate, and there are others to release.
  const auto pass = gates_.Enter(grant.volume, absl::InfinitePast());
  if (!pass.has_value()) return false;
  ASSIGN_OR_RETURN(const std::optional<GrantRow> now, catalogue_.grants().FindGeneration(grant.generation));
  return now.has_value() ? table_.DrainTarget(grant) : true;  // or another call has finished it
}

// Several at a time: one attempt is a handful of calls to tgtd, and each takes as long as two processes need
// to wake each other. tgtd itself has one thread for them, so more workers than this gain nothing.
std::vector<absl::StatusOr<bool>> GrantTargets::TryReleaseAll(const std::vector<GrantRow>& grants) {
  std::vector<absl::StatusOr<bool>> steps(grants.size(), false);
  std::atomic<size_t> next = 0;
  std::atomic<bool> answers = true;
  const auto work = [&] {
    for (size_t i = next++; i < grants.size() && answers; i = next++) {
      steps[i] = TryRelease(grants[i]);
      // A tgtd that hangs costs each attempt a timeout, and the caller has one deadline for all.
      if (absl::IsUnavailable(steps[i].status())) answers = false;
    }
  };
  std::vector<std::jthread> workers(std::min(kReleaseWorkers, grants.size()) - 1);
  for (std::jthread& worker : workers) worker = std::jthread(work);
  work();
  workers.clear();
  return steps;
}

// Deletes the rows of grants whose targets are gone, in one change: a fence of many volumes syncs the disk
// once a round instead of once a volume.
absl::Status GrantTargets::DeleteDrainedGrants(const std::vector<GrantRow>& grants) {
  std::vector<Generation> generations;
  for (const GrantRow& grant : grants) generations.push_back(grant.generation);
  RETURN_IF_ERROR(catalogue_.grants().DeleteGrants(generations));
  FAIL_POINT("array.release.rows_deleted");
  for (const GrantRow& grant : grants) gated_questions_.EndClientsOfReleased(grant);
  for (const GrantRow& grant : grants) gates_.WakeWaiters(grant.volume);
  return absl::OkStatus();
}

absl::Status GrantTargets::FinishReleasing(std::vector<GrantRow> grants, absl::Time deadline) {
  // Most drains are done at the second attempt, a millisecond later; a slow disk is asked ever less often.
  absl::Duration pause = absl::Milliseconds(1);
  absl::Status trouble;
  const SteadyDeadline end(deadline);
  while (!grants.empty()) {
    std::vector<GrantRow> gone, left;
    const std::vector<absl::StatusOr<bool>> steps = TryReleaseAll(grants);
    for (size_t i = 0; i < grants.size(); ++i) {
      if (!steps[i].ok()) trouble = steps[i].status();
      (steps[i].ok() && *steps[i] ? gone : left).push_back(std::move(grants[i]));
    }
    if (!gone.empty()) RETURN_IF_ERROR(DeleteDrainedGrants(gone));
    grants = std::move(left);
    if (grants.empty()) break;
    if (end.IsOver()) return StillDraining(grants, trouble);
    absl::SleepFor(pause);
    pause = std::min(pause * 2, absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

// The first round cuts the sessions of all: none goes on while another one's image is being closed.
absl::Status GrantTargets::CloseTargets(absl::Duration within) {
  const SteadyDeadline deadline(within);
  ASSIGN_OR_RETURN(std::vector<GrantRow> grants, catalogue_.grants().ListGrantsOfTgtd(tgtd_));
  for (const GrantRow& grant : grants) {
    table_.ForgetOpen(grant);
    const absl::Status paused = table_.PauseTarget(grant).status();
    if (absl::IsUnavailable(paused)) return paused;  // and each further one would take as long to fail
  }
  while (!grants.empty()) {
    std::vector<GrantRow> left;
    for (const GrantRow& grant : grants) {
      if (deadline.IsOver())
        return absl::DeadlineExceededError(
            absl::StrCat("some volumes of ", grants.size(), " still have commands, or are slow to close"));
      ASSIGN_OR_RETURN(const bool closed, table_.CloseTarget(grant));
      if (!closed) left.push_back(grant);
    }
    if (left.size() == grants.size()) absl::SleepFor(absl::Milliseconds(2));
    grants = std::move(left);
  }
  return absl::OkStatus();
}

void GrantTargets::ReleaseLeftOvers() {
  auto grants = catalogue_.grants().ListReleasingGrants();
  if (!grants.ok()) return;
  std::erase_if(*grants, [this](const GrantRow& grant) { return grant.tgtd != tgtd_; });
  NoteReleases(*grants);
  if (!grants->empty()) FinishReleasing(*grants, absl::InfinitePast()).IgnoreError();
}

void GrantTargets::NoteReleases(const std::vector<GrantRow>& releasing) {
  const absl::MutexLock lock(&releases_mu_);
  std::map<Generation, SteadyTime> seen;
  for (const GrantRow& grant : releasing) {
    const auto before = releases_.find(grant.generation);
    seen[grant.generation] = before == releases_.end() ? std::chrono::steady_clock::now() : before->second;
  }
  releases_ = std::move(seen);
}

absl::Duration GrantTargets::OldestRelease() const {
  const absl::MutexLock lock(&releases_mu_);
  SteadyTime oldest = std::chrono::steady_clock::now();
  const SteadyTime now = oldest;
  for (const auto& [generation, seen] : releases_) oldest = std::min(oldest, seen);
  return absl::FromChrono(now - oldest);
}

}  // namespace lunkeeper
