// One grant as one target, step by step. The order of the steps is the security argument.
//
// Opening: target, parameters, LUN, accounts, accounts bound, and the initiator allowed last. tgtd lets
// nobody log in to a target without an allowed initiator, so a half-made target is closed whatever is missing
// of it.
//
// Draining: initiator disallowed first, so that no new session begins; then every connection is deleted,
// which closes it at once but leaves it in tgtd's list until its last command is over; then the target, or
// the LUN if the list never empties; its account later. tgtd refuses to delete a target that still has a
// session, so a login that was half done in between shows up as "not yet".
//
//   closed --OpenTarget--> open --DrainTarget: false--> draining --DrainTarget: true--> gone
//                           |  ^
//               PauseTarget v  | EndPause
//                          offline
//               CloseTarget |  ^
//                           v  | OpenTarget
//                          offline, without a LUN (to have the image opened anew)
//
// Each step asks tgtd and takes "there already" or "gone already" for success, so that all of it may be
// repeated after a crash of either program.
#include "devices/array/tgt/targets.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "devices/array/tgt/target_number.h"
#include "devices/node_id.h"

namespace lunkeeper {
namespace {

constexpr char kPrefix[] = "iqn.2026-11.io.lunkeeper:";

// Larger than tgtd's own, so that 1 MiB goes with its command, without a round trip.
constexpr struct {
  const char* name;
  const char* value;
} kParameters[] = {
    {"InitialR2T", "No"},
    {"ImmediateData", "Yes"},
    {"MaxRecvDataSegmentLength", "1048576"},
    {"FirstBurstLength", "1048576"},
    {"MaxBurstLength", "1048576"},
};

int32_t NumberOf(const GrantRow& grant) { return TargetNumber(grant.generation); }

}  // namespace

// Of the machine: its account stays in tgtd, whose lists are slow when long, and a machine that was broken
// into may call itself any number of instances.
std::string MakeTargetSecret(const std::string& key, const ClusterId& cluster, const NodeId& node) {
  // 96 bits, as RandomSecret().
  const std::string digest =
      HmacSha256(key, absl::StrCat("target\n", cluster.value(), "\n", MachineOf(node)));
  return absl::WebSafeBase64Escape(digest.substr(0, 12));
}

ChapCredentials TargetTable::TargetAccountOf(const GrantRow& grant) {
  if (grant.target_secret.empty()) return {};
  return {.user = TargetAccounts::UserOfMachine(grant.target_secret), .secret = grant.target_secret};
}

// Each portal is the first for its share of the volumes.
Connection TargetTable::ConnectionOf(const GrantRow& grant) const {
  std::vector<std::string> portals = options_.portals();
  if (portals.empty()) return {};
  std::ranges::rotate(portals, portals.begin() + static_cast<ptrdiff_t>(grant.generation % portals.size()));
  return {
      .portal = portals.front(),
      .target = Iqn(absl::StrCat(kPrefix, options_.array, ":", grant.volume.value(), ":", grant.generation)),
      .initiator = Iqn(absl::StrCat(kPrefix, "node:", grant.node.value())),
      .lun = 1,
      .chap = {.user = TargetAccounts::UserOf(grant.generation), .secret = grant.secret},
      .target_chap = TargetAccountOf(grant),
      .other_portals = {portals.begin() + 1, portals.end()}};
}

Connection TargetTable::ConnectionWithPeersOf(const GrantRow& grant) const {
  Connection connection = ConnectionOf(grant);
  if (connection.portal.empty()) return connection;
  connection.peer_portals = options_.peer_portals;
  connection.other_portals.insert(connection.other_portals.end(), options_.peer_portals.begin(),
                                  options_.peer_portals.end());
  return connection;
}

// tgtd has answered for this target just before, so one that hangs for another reason is not taken for one
// that hangs on the image.
absl::Status TargetTable::OpenImage(const GrantRow& grant, const LunBacking& backing,
                                    absl::FunctionRef<absl::Status()> open) {
  if (!backing.may_be_silent_alone) return open();
  RETURN_IF_ERROR(openings_.BeginOpening(grant.generation));
  const absl::Status opened = open();
  openings_.EndOpening(grant.generation, opened);
  if (absl::IsUnavailable(opened)) ForgetOpen(grant);  // it may open it yet, by a client that nobody knows
  return opened;
}

// On the same thread of tgtd: a silent image keeps all volumes then, too.
absl::Status TargetTable::CloseImage(const GrantRow& grant, absl::FunctionRef<absl::Status()> close) {
  if (!options_.images_may_be_silent) return close();
  RETURN_IF_ERROR(openings_.BeginClosing(grant.generation));
  const absl::Status closed = close();
  openings_.EndOpening(grant.generation, closed);
  return closed;
}

absl::Status TargetTable::MakeLun(const GrantRow& grant, const Volume& volume, const LunBacking& backing) {
  const int32_t target = NumberOf(grant);
  const bool sync = volume.spec.durability == Durability::kSync;
  const bool discards = backing.discards_right && volume.spec.provisioning == Provisioning::kThin;
  RETURN_IF_ERROR(OpenImage(
      grant, backing, [&] { return OkIfThere(tgt_->NewLun(target, {.backing = backing, .sync = sync})); }));
  FAIL_POINT("array.target.lun_made");
  ASSIGN_OR_RETURN(const std::string product_id, cache_ids_.BeginWatch(target, backing.errors));
  // A node that reconnects and finds another product id knows that the page cache which held its
  // acknowledged writes is gone.
  std::string parameters = absl::StrCat(
      "vendor_id=LUNKEEPR,", product_id, ",product_rev=1,scsi_id=", volume.serial, ",scsi_sn=", volume.serial,
      ",thin_provisioning=", discards ? 1 : 0, ",readonly=", grant.access == Access::kReadOnly ? 1 : 0);
  // The caching mode page (SBC-3) with WCE cleared: the initiator then sends no flushes, and needs none,
  // because tgtd opens the LUN's file with O_SYNC.
  if (sync)
    absl::StrAppend(&parameters,
                    ",mode_page=8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0");
  return tgt_->UpdateLun(target, parameters);
}

absl::Status TargetTable::ResumeOpen(const GrantRow& grant, const LunBacking& backing) {
  cache_ids_.ResumeWatch(NumberOf(grant), backing.errors);
  return ResumeTarget(grant);
}

// tgtd then uses them with an initiator that asks for them. One that does not, of a node whose program is
// older, goes without.
absl::Status TargetTable::AllowDigests(int32_t target, Digests digests) const {
  if (digests == Digests::kNone) return absl::OkStatus();
  RETURN_IF_ERROR(tgt_->SetTargetParameter(target, "HeaderDigest", "CRC32C"));
  return tgt_->SetTargetParameter(target, "DataDigest", digests == Digests::kAll ? "CRC32C" : "None");
}

bool TargetTable::IsOpen(const GrantRow& grant) const {
  const absl::MutexLock lock(&mu_);
  return open_.contains(NumberOf(grant));
}

absl::Status TargetTable::OpenTarget(const GrantRow& grant, const Volume& volume, const LunBacking& backing,
                                     const AroundOpening& around) {
  const int32_t target = NumberOf(grant);
  if (IsOpen(grant)) return absl::OkStatus();
  const Connection connection = ConnectionOf(grant);
  empty_.KeepTarget(target);
  const absl::Status made = tgt_->NewTarget(target, connection.target);
  RETURN_IF_ERROR(OkIfThere(made));
  FAIL_POINT("array.target.made");
  for (const auto& [name, value] : kParameters)
    RETURN_IF_ERROR(tgt_->SetTargetParameter(target, name, value));
  RETURN_IF_ERROR(AllowDigests(target, volume.spec.digests));
  if (around.opening && absl::IsAlreadyExists(made)) RETURN_IF_ERROR(CloseFound(grant));
  // Else the store would note for a later gateway what tgtd does not open.
  if (around.opening) RETURN_IF_ERROR(openings_.CheckNotBlamed(grant.generation));
  if (around.opening) RETURN_IF_ERROR(around.opening());
  RETURN_IF_ERROR(MakeLun(grant, volume, backing));
  if (around.opened) RETURN_IF_ERROR(around.opened());
  RETURN_IF_ERROR(accounts_.MakeForGrant(grant.generation, connection.chap));
  FAIL_POINT("array.target.account_made");
  RETURN_IF_ERROR(OkIfThere(tgt_->BindAccount(target, connection.chap.user)));
  FAIL_POINT("array.target.account_bound");
  // One account for all targets of a machine: it proves the array to that one alone, and no other knows it.
  if (!connection.target_chap.user.empty()) {
    RETURN_IF_ERROR(accounts_.MakeForTarget(grant.generation, connection.target_chap));
    RETURN_IF_ERROR(OkIfThere(tgt_->BindTargetAccount(target, connection.target_chap.user)));
  }
  // Without an account a target asks for no secret: so the initiator is let in last.
  return LetIn(grant);
}

absl::Status TargetTable::LetIn(const GrantRow& grant) {
  const int32_t target = NumberOf(grant);
  RETURN_IF_ERROR(OkIfThere(tgt_->AllowInitiator(target, ConnectionOf(grant).initiator)));
  // HoldTarget may have left it offline, in the life of an earlier agent too. After the initiator is let in:
  // a target that is ready and lets nobody in is "not found".
  RETURN_IF_ERROR(ResumeTarget(grant));
  sessions_.Forget(target);
  FAIL_POINT("array.target.opened");
  const absl::MutexLock lock(&mu_);
  open_.insert(target);
  return absl::OkStatus();
}

absl::Status TargetTable::HoldTarget(const GrantRow& grant) {
  const int32_t target = NumberOf(grant);
  RETURN_IF_ERROR(OkIfThere(tgt_->NewTarget(target, ConnectionOf(grant).target)));
  openings_.NoteAnswer();
  return tgt_->SetTargetParameter(target, "state", "offline");
}

void TargetTable::ForgetOpen(const GrantRow& grant) {
  const absl::MutexLock lock(&mu_);
  open_.erase(NumberOf(grant));
}

absl::StatusOr<bool> TargetTable::DrainTarget(const GrantRow& grant) {
  const int32_t target = NumberOf(grant);
  const Connection connection = ConnectionOf(grant);
  ForgetOpen(grant);
  RETURN_IF_ERROR(OkIfGone(tgt_->DisallowInitiator(target, connection.initiator)));
  FAIL_POINT("array.target.closed");
  const absl::StatusOr<SessionsLeft> sessions = sessions_.CutSessions(target);
  if (!absl::IsNotFound(sessions.status())) {
    RETURN_IF_ERROR(sessions.status());
    if (*sessions == SessionsLeft::kEnding) return false;
    // tgtd refuses while a login that was half done has become a session, or a command runs.
    const absl::Status deleted = CloseImage(grant, [&] { return DeleteDrained(target, *sessions); });
    if (absl::IsFailedPrecondition(deleted)) return false;
    RETURN_IF_ERROR(OkIfGone(deleted));
    FAIL_POINT("array.target.deleted");
  }
  sessions_.Forget(target);
  accounts_.NoteGone(grant.generation, TargetAccountOf(grant).user);
  // A restoration after a restart of tgtd, begun before the release and tried again beside it.
  if (IsOpen(grant)) return false;
  cache_ids_.EndWatch(target);
  return true;
}

// A command or a session may have ended since the list. One that tgtd has not ended keeps its target, which
// has no LUN then, and lets nobody in.
absl::Status TargetTable::DeleteDrained(int32_t target, SessionsLeft sessions) {
  if (sessions == SessionsLeft::kNone) return tgt_->DeleteTarget(target);
  RETURN_IF_ERROR(OkIfGone(tgt_->DeleteLun(target)));
  const absl::Status deleted = tgt_->DeleteTarget(target);
  if (!absl::IsFailedPrecondition(deleted)) return deleted;
  LogWarn("array", "tgtd lists a session whose commands are over: its target stays until then, without a LUN",
          {{"target", absl::StrCat(target)}});
  empty_.Add(target);
  return absl::OkStatus();
}

// What is refused because of another image has changed nothing: the target is open still.
absl::StatusOr<bool> TargetTable::CloseTarget(const GrantRow& grant) {
  const absl::StatusOr<bool> quiet = PauseTarget(grant);
  if (absl::IsNotFound(quiet.status())) ForgetOpen(grant);
  if (absl::IsNotFound(quiet.status())) return true;
  RETURN_IF_ERROR(quiet.status());
  if (!*quiet) return false;
  FAIL_POINT("array.target.paused");
  const absl::Status closed = CloseImage(grant, [&] { return DeleteLun(grant); });
  if (absl::IsFailedPrecondition(closed)) return false;
  RETURN_IF_ERROR(OkIfGone(closed));
  FAIL_POINT("array.target.lun_deleted");
  return true;
}

// By which client it has its image open, if it has, nobody may know.
absl::Status TargetTable::CloseFound(const GrantRow& grant) {
  ASSIGN_OR_RETURN(const bool closed, CloseTarget(grant));
  if (closed) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("volume ", grant.volume.value(), ": its commands are not over; try again"));
}

// The initiator is disallowed before the LUN goes: an agent that finds a target which lets somebody in takes
// it for whole.
absl::Status TargetTable::DeleteLun(const GrantRow& grant) {
  const int32_t target = NumberOf(grant);
  ForgetOpen(grant);
  RETURN_IF_ERROR(OkIfGone(tgt_->DisallowInitiator(target, ConnectionOf(grant).initiator)));
  return tgt_->DeleteLun(target);
}

void TargetTable::SetOldAccounts(const std::vector<GrantRow>& grants, std::set<Generation> generations) {
  for (const GrantRow& grant : grants) {
    generations.erase(grant.generation);
    accounts_.NoteTarget(grant.generation, TargetAccountOf(grant).user);
  }
  accounts_.SetOld(std::move(generations));
}

absl::StatusOr<bool> TargetTable::PauseTarget(const GrantRow& grant) {
  const int32_t target = NumberOf(grant);
  RETURN_IF_ERROR(tgt_->SetTargetParameter(target, "state", "offline"));
  ASSIGN_OR_RETURN(const SessionsLeft sessions, sessions_.CutSessions(target));
  return sessions != SessionsLeft::kEnding;
}

absl::Status TargetTable::ResumeTarget(const GrantRow& grant) const {
  return tgt_->SetTargetParameter(NumberOf(grant), "state", "ready");
}

absl::Status TargetTable::EndPause(const GrantRow& grant) {
  RETURN_IF_ERROR(ResumeTarget(grant));
  // A half-done login may have become a session during the pause. tgtd never answers the commands that such a
  // session has sent meanwhile, so it is cut and logs in again.
  const absl::Status cut = sessions_.CutSessions(NumberOf(grant)).status();
  sessions_.Forget(NumberOf(grant));
  return cut;
}

// An initiator without a target would be admitted to ask for their names. Ours know theirs, so that takes a
// secret which nobody has.
absl::Status TargetTable::CloseDiscovery() const {
  constexpr char kNobody[] = "nobody";
  RETURN_IF_ERROR(OkIfThere(tgt_->NewAccount({.user = kNobody, .secret = RandomSecret()})));
  return OkIfThere(tgt_->BindAccount(kDiscovery, kNobody));
}

absl::StatusOr<std::vector<TgtTarget>> TargetTable::ReadFromTgtd() {
  RETURN_IF_ERROR(CloseDiscovery());
  RETURN_IF_ERROR(
      OkIfThere(tgt_->NewTarget(kNobodysTarget, Iqn(absl::StrCat(kPrefix, options_.array, ":nobody")))));
  ASSIGN_OR_RETURN(const std::vector<TgtTarget> all, tgt_->ListTargets());
  openings_.NoteAnswer();
  std::vector<TgtTarget> targets;
  empty_.ForgetAll();
  const absl::MutexLock lock(&mu_);
  open_.clear();
  for (const TgtTarget& target : all) {
    if (target.number == kNobodysTarget) continue;
    targets.push_back(target);
    if (target.open) open_.insert(target.number);
  }
  return targets;
}

// One whose generation has a row is another tgtd's, and one that has not been given out yet would be in the
// way of that grant.
absl::Status TargetTable::AdoptEmptyTargets(const std::map<int32_t, TgtTarget>& unknown,
                                            Catalogue& catalogue) {
  if (unknown.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Generation last, catalogue.grants().LastGeneration());
  size_t serving = unknown.size();
  for (const auto& [number, target] : unknown) {
    const std::optional<Generation> generation = GenerationOfEmpty(target);
    if (!generation || *generation > last) continue;
    ASSIGN_OR_RETURN(const std::optional<GrantRow> row, catalogue.grants().FindGeneration(*generation));
    if (row) continue;
    // What tgtd shows has the alias of each session in it, in which an initiator may write anything.
    const absl::Status without = tgt_->DeleteLun(number);
    if (absl::IsUnavailable(without)) return without;  // it is slow just now
    if (!absl::IsNotFound(without)) continue;
    empty_.Add(number);
    --serving;
  }
  if (serving == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("tgtd serves ", serving, " targets that the catalogue does not know"));
}

std::optional<Generation> TargetTable::GenerationOfEmpty(const TgtTarget& target) const {
  if (target.open || target.luns != 1) return std::nullopt;
  if (!absl::StartsWith(target.name, absl::StrCat(kPrefix, options_.array, ":"))) return std::nullopt;
  Generation generation = 0;
  if (!absl::SimpleAtoi(target.name.substr(target.name.rfind(':') + 1), &generation)) return std::nullopt;
  if (generation < 1 || TargetNumber(generation) != target.number) return std::nullopt;
  return generation;
}

}  // namespace lunkeeper
