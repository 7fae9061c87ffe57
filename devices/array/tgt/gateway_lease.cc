// The order of a takeover is the safety argument:
//
//   the record names this gateway, and every client of those before as unfenced
//     -> the monitors have put each on the blocklist, and this client has their map: each operation that it
//        sends from now on carries the map's number, and an OSD refuses the old clients before it does one
//     -> this host's own tgtds of an earlier time are gone: what they have open was opened before
//     -> the record says that nobody is left to shut out, and names the catalogue's client
//     -> the catalogue is opened, tgtd started, images opened and registered, and the portal opened last
//
// A gateway that dies anywhere in between leaves a record from which the next one does the same.
//
// A gateway that gives its array away changes nothing of this: its record names its clients as ever, and the
// next one shuts them out before it opens anything. Only the silence is not waited for. So nothing rests on
// what the old one does or has left undone: a thread that still writes, a tgtd that lives, a host that wakes.
#include "devices/array/tgt/gateway_lease.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/array/tgt/gateway_standbys.h"

namespace lunkeeper {
namespace {

constexpr int kRenewalsInTime = 5;  // in `takeover_after`
constexpr int kMostMissed = 2;      // renewals between two looks of a watch that goes on
constexpr int kLooks = 20;          // of a watch, in `takeover_after`
constexpr double kHeldShare = 0.8;  // of `takeover_after`; what is answered later could be another's to say
constexpr int kMostWaits = 12;      // of `takeover_after`, until TakeArray gives up
constexpr absl::Duration kRefused = absl::Hours(365 * 24);  // clients of the gateway before; never renewed
constexpr size_t kLongestRecord = 900'000;  // no gateway can read 1 MiB, and a takeover makes it longer

using SteadyTime = std::chrono::steady_clock::time_point;

absl::Duration Since(SteadyTime then) { return absl::FromChrono(std::chrono::steady_clock::now() - then); }

absl::Status ServedElsewhere(const std::string& array, const GatewayRecord& record) {
  return absl::FailedPreconditionError(absl::StrCat(
      "open array ", array, ": another agent serves it, on host ", record.host, " (epoch ", record.epoch,
      "); stop that one, or give this one a --name of its own. Once that host is silent, this one can "
      "serve"));
}

// Watches the record, and says when it has changed and when it has stood still for long enough. A watcher
// that was frozen itself between two looks begins anew, as after a slow one: what froze it, such as a pause
// of the whole machine, may have kept the other gateway from counting.
class RecordWatch {
 public:
  explicit RecordWatch(absl::Duration still_for) : still_for_(still_for) {}
  enum class Sign { kUnknown, kAlive, kStill };
  Sign Look(const GatewayRecord& record, SteadyTime asked) {
    const SteadyTime now = std::chrono::steady_clock::now();
    const bool alive = last_ && *last_ != record;
    const bool slow = absl::FromChrono(now - asked) > still_for_ / kRenewalsInTime;
    const bool frozen = absl::FromChrono(asked - looked_) > kMostMissed * still_for_ / kRenewalsInTime;
    if (!last_ || alive || slow || frozen) since_ = now;
    last_ = record;
    looked_ = now;
    if (alive) return Sign::kAlive;
    return absl::FromChrono(now - since_) >= still_for_ ? Sign::kStill : Sign::kUnknown;
  }
  absl::Duration stood_still() const { return last_ ? Since(since_) : absl::ZeroDuration(); }
  const std::optional<GatewayRecord>& last() const { return last_; }  // also when somebody has removed it
  // Until the next look: no later than a record that goes on standing still has done so for long enough.
  absl::Duration pause() const {
    return std::clamp(still_for_ - Since(since_), absl::ZeroDuration(), still_for_ / kLooks);
  }

 private:
  const absl::Duration still_for_;
  std::optional<GatewayRecord> last_;
  SteadyTime since_, looked_;
};

// What a gateway that takes the array after `before` writes. Its own tgtds go on only if the record has all
// of their clients, and none has been shut out.
GatewayRecord NextRecord(const std::optional<GatewayRecord>& before, const GatewayLeaseOptions& options,
                         const ClientAddress& own) {
  GatewayRecord next;
  if (before) next = *before;
  const bool go_on = before && before->holder == options.holder && before->ready;
  ++next.epoch;
  ++next.counter;
  next.unfenced.insert(next.clients.begin(), next.clients.end());
  if (!go_on) {
    for (const auto& [image, clients] : next.images) next.unfenced.insert(clients.begin(), clients.end());
    std::erase_if(next.images, [](const auto& image) { return !image.second.empty(); });
  }
  next.ready = go_on;
  next.holder = options.holder;
  next.host = options.host;
  next.clients = {own};
  return next;
}

// Whose turn it is, by one look after the other at the record of another gateway.
class TakeoverWatch {
 public:
  TakeoverWatch(const CephPool& pool, const GatewayLeaseOptions& options)
      : options_(options),
        record_(options.takeover_after),
        standby_(pool, options.array, options.holder, options.host) {}

  // Whether to take the array now; false: look again. An error as of stand_by.
  absl::StatusOr<bool> MayTake(const GatewayRecord& before, SteadyTime asked) {
    if (before.holder == options_.holder) return true;
    // The one that gave it away leaves it to others for a while.
    const std::string released = ParseReleased(before);
    if (!released.empty() && released != options_.holder) return true;
    const RecordWatch::Sign sign = record_.Look(before, asked);
    if (sign == RecordWatch::Sign::kAlive) RETURN_IF_ERROR(StandBy(before));
    if (sign == RecordWatch::Sign::kUnknown && !std::exchange(told_, true))
      LogInfo("array", "looking whether another gateway serves the array", {{"host", before.host}});
    return sign == RecordWatch::Sign::kStill;
  }
  const RecordWatch& record() const { return record_; }
  // Whether it has not been able to tell for long.
  bool IsInVain() const { return Since(begin_) >= kMostWaits * options_.takeover_after; }

 private:
  absl::Status StandBy(const GatewayRecord& before) {
    const absl::Status lives = ServedElsewhere(options_.array, before);
    if (!options_.stand_by) return lives;
    RETURN_IF_ERROR(options_.stand_by(lives));
    standby_.CountUp();
    begin_ = std::chrono::steady_clock::now();
    return absl::OkStatus();
  }

  const GatewayLeaseOptions& options_;
  RecordWatch record_;
  Standby standby_;
  SteadyTime begin_ = std::chrono::steady_clock::now();
  bool told_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GatewayLease>> GatewayLease::TakeArray(const CephPool& pool,
                                                                      const GatewayLeaseOptions& options) {
  TakeoverWatch watch(pool, options);
  while (!watch.IsInVain()) {
    const SteadyTime asked = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(const std::optional<GatewayRecord> before, ReadGatewayRecord(pool, options.array));
    if (before && options.gives_away && before->holder == options.holder) {
      GatewayRecord released = *before;
      MarkReleased(released);
      ++released.counter;
      const absl::Status given = ReplaceGatewayRecord(pool, options.array, before, released);
      if (!given.ok() && !absl::IsAborted(given)) return given;
      continue;
    }
    if (before) {
      ASSIGN_OR_RETURN(const bool may_take, watch.MayTake(*before, asked));
      if (!may_take) {
        absl::SleepFor(watch.record().pause());
        continue;
      }
    }
    const GatewayRecord next = NextRecord(before ? before : watch.record().last(), options, pool.address());
    if (next.unfenced.contains(pool.address()))
      return absl::UnavailableError("ceph: this client has the address of one that is to be shut out; again");
    const SteadyTime taking = std::chrono::steady_clock::now();
    const absl::Status taken = ReplaceGatewayRecord(pool, options.array, before, next);
    if (absl::IsAborted(taken)) continue;  // another one was faster
    RETURN_IF_ERROR(taken);
    LogInfo("array", "this gateway takes the array",
            {{"epoch", absl::StrCat(next.epoch)},
             {"from host", before ? before->host : ""},
             {"given away", before && !ParseReleased(*before).empty() ? "yes" : "no"},
             {"clients to shut out", absl::StrCat(next.unfenced.size())}});
    return std::unique_ptr<GatewayLease>(new GatewayLease(
        pool, options, next, taking, DescribeTaken(before, next, watch.record().stood_still())));
  }
  return absl::UnavailableError(absl::StrCat("open array ", options.array,
                                             ": the cluster answers too slowly to tell whether another "
                                             "gateway serves it; see `ceph -s`"));
}

GatewayLease::GatewayLease(const CephPool& pool, const GatewayLeaseOptions& options, GatewayRecord record,
                           SteadyTime taken, GatewayState begun)
    : pool_(pool),
      options_(options),
      times_(std::move(begun)),
      tgtds_go_on_(record.ready),
      epoch_(record.epoch),
      renewed_(taken),
      record_(std::move(record)),
      clients_(pool, record_.images),
      wanted_(taken),
      confirmed_(taken),
      renewals_(options.takeover_after / kRenewalsInTime, [this] { Renew(); }),
      confirmations_(options_.takeover_after, [this] { Confirm(); }),
      looks_(options_.takeover_after / (2 * kRenewalsInTime), [this] { LookForOther(); }),
      endings_(options_.takeover_after / kRenewalsInTime, [this] { ForgetEnded(); }) {}

GatewayLease::~GatewayLease() {
  ReleaseIfUnserved([] { return absl::OkStatus(); });
}

void GatewayLease::ReleaseIfUnserved(const std::function<absl::Status()>& stop) {
  if (!unserved_.exchange(false)) return;
  absl::Status released = stop();
  if (released.ok()) released = ReleaseArray();
  LogWarn("array", "this gateway cannot serve the array, and gives it away",
          {{"array", options_.array}, {"released", released.ToString()}});
}

void GatewayLease::NoteStarted() {
  NoteServed();
  if (options_.on_started) options_.on_started();
}

// The record is what this object wrote last, since nobody else changes it without taking it.
absl::Status GatewayLease::ChangeRecord(const std::function<void(GatewayRecord&)>& change, bool last) {
  absl::Status changed;
  {
    const absl::MutexLock lock(&mu_);
    if (lost_)
      return absl::UnavailableError(
          absl::StrCat("this gateway does not have array ", options_.array, " any more"));
    GatewayRecord next = record_;
    change(next);
    ++next.counter;
    const SteadyTime begun = std::chrono::steady_clock::now();
    changed = ReplaceGatewayRecord(pool_, options_.array, record_, next);
    if (changed.ok()) {
      record_ = std::move(next);
      renewed_ = begun;
    }
    const bool lost = absl::IsAborted(changed) || absl::IsPermissionDenied(changed);
    lost_ = last || lost;
    if (!lost) return changed;
  }
  TellLost(changed);
  return absl::UnavailableError(changed.message());
}

void GatewayLease::TellLost(const absl::Status& why) {
  if (!told_.exchange(true)) options_.on_lost(why);
}

// Without this its tgtd would go on to answer nodes' pings, and carry out nothing, for as long as Ceph is
// silent. Only another gateway that begins to serve is a reason: where Ceph answers nobody, this one goes on
// when it does. What seems to serve already before it can have taken the array is something else, such as a
// frozen gateway of before, or another program at an address that was a gateway's; beside it the others count
// all the same.
void GatewayLease::LookForOther() {
  if (Since(renewed_) <= kMostMissed * options_.takeover_after / kRenewalsInTime || !options_.list_serving)
    return served_.reset();
  const std::set<std::string> serving = options_.list_serving();
  const std::optional<std::set<std::string>> before = std::exchange(served_, serving);
  if (before && !std::ranges::includes(*before, serving) && !CheckHeld().ok())
    TellLost(absl::UnavailableError("Ceph does not answer this gateway, and another one has begun to serve"));
}

// on_lost has said that the array is lost.
void GatewayLease::Renew() {
  const absl::Status renewed = ChangeRecord([](GatewayRecord&) {});
  const absl::MutexLock lock(&mu_);
  if (!renewed.ok() && !lost_) LogWarn("array", std::string(renewed.message()));
}

absl::Status GatewayLease::CheckHeld() const {
  const absl::Duration silent = Since(renewed_);
  if (silent < kHeldShare * options_.takeover_after) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("array ", options_.array, ": Ceph has not answered for ",
                                             absl::FormatDuration(absl::Trunc(silent, absl::Seconds(1))),
                                             ", and another gateway may have the array; see `ceph -s`"));
}

// One look serves all who have waited since before it began.
void GatewayLease::Confirm() {
  const SteadyTime asked = std::chrono::steady_clock::now();
  {
    const SteadyLock lock(&confirm_mu_);
    if (wanted_ <= confirmed_) return;
  }
  const absl::StatusOr<std::optional<GatewayRecord>> read = ReadGatewayRecord(pool_, options_.array);
  if (!read.ok() || !*read || (*read)->epoch != epoch_ || (*read)->holder != options_.holder)
    return renewals_.Wake();  // which finds out why
  const SteadyLock lock(&confirm_mu_);
  confirmed_ = asked;
}

absl::Status GatewayLease::ConfirmHeld() {
  const SteadyTime asked = std::chrono::steady_clock::now();
  const SteadyTime deadline = asked + absl::ToChronoNanoseconds(kHeldShare * options_.takeover_after);
  const SteadyLock lock(&confirm_mu_);
  wanted_ = std::max(wanted_, asked);
  while (confirmed_ < asked && std::chrono::steady_clock::now() < deadline) {
    confirmations_.Wake();
    const auto is_confirmed = [&] {
      confirm_mu_.AssertHeld();
      return confirmed_ >= asked;
    };
    confirm_mu_.AwaitUntil(absl::Condition(&is_confirmed), SteadyDeadline(absl::Milliseconds(100)));
  }
  if (confirmed_ >= asked) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("this agent does not serve array ", options_.array,
                   " now, or cannot tell: another gateway may have it, or Ceph does ",
                   "not answer (`ceph -s`); ask again"));
}

absl::StatusOr<std::set<std::string>> GatewayLease::ListStandbys(
    const std::function<bool()>& abandoned) const {
  return FindStandbys(pool_, options_.array, options_.takeover_after, abandoned);
}

absl::Status GatewayLease::ReleaseArray() {
  const absl::Status released = ChangeRecord(MarkReleased, /*last=*/true);
  told_ = true;  // and who serves next is no news
  return released;
}

absl::StatusOr<std::string> GatewayLease::AwaitSuccessor(absl::Duration within) const {
  const SteadyDeadline deadline(within);
  while (!deadline.IsOver()) {
    const absl::StatusOr<std::optional<GatewayRecord>> read = ReadGatewayRecord(pool_, options_.array);
    if (!read.ok() || !*read) return std::string();
    if ((*read)->holder != FormatReleased(options_.holder)) return (*read)->host;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::DeadlineExceededError(absl::StrCat("array ", options_.array, ": no gateway has taken it yet"));
}

absl::Status GatewayLease::ShutOut() {
  std::set<ClientAddress> clients;
  {
    const absl::MutexLock lock(&mu_);
    clients = record_.unfenced;
  }
  RETURN_IF_ERROR(clients_.ShutOut(clients, kRefused));
  if (!clients.empty()) LogInfo("array", "the gateway before is shut out");
  return absl::OkStatus();
}

absl::Status GatewayLease::BeginServing(const ClientAddress& catalogue) {
  return ChangeRecord([&, gone = shut_out()](GatewayRecord& record) {
    for (const ClientAddress& client : gone) record.unfenced.erase(client);
    record.clients.insert(catalogue);
    record.ready = true;
  });
}

absl::Status GatewayLease::RegisterImage(const std::string& image, const std::set<ClientAddress>& clients) {
  ASSIGN_OR_RETURN(const std::set<ClientAddress> alive, clients_.Register(image, clients));
  {
    const absl::MutexLock lock(&mu_);
    GatewayRecord next = record_;
    next.images[image].insert(alive.begin(), alive.end());
    if (!lost_ && next == record_) return absl::OkStatus();
    if (FormatGatewayRecord(options_.array, next).size() > kLongestRecord)
      return absl::ResourceExhaustedError(
          absl::StrCat("array ", options_.array, ": its gateway's record is full: hand the array over"));
  }
  return ChangeRecord(
      [&](GatewayRecord& record) { record.images[image].insert(alive.begin(), alive.end()); });
}

// Not in the tick: while monitors answer nobody, fences end all the same.
void GatewayLease::ForgetEnded() {
  ImageClients ended = clients_.ended();
  if (ended.empty()) return;
  absl::Status forgotten = clients_.ShutOutEnded();
  if (forgotten.ok())
    forgotten = ChangeRecord([&](GatewayRecord& record) { clients_.EraseEnded(ended, record.images); });
  if (forgotten.ok()) return clients_.ForgetEnded(std::move(ended));
  const absl::MutexLock lock(&mu_);
  if (!lost_) LogWarn("array", std::string(forgotten.message()));
}

// A client that is registered while the list is made was not copied before, and stays. So does one of a tgtd
// that died with it, though its grant is gone by now.
absl::Status GatewayLease::ForgetClosed(
    const std::function<absl::StatusOr<std::set<std::string>>()>& list_open) {
  ImageClients closed;
  {
    const absl::MutexLock lock(&mu_);
    closed = record_.images;
  }
  if (closed.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::set<std::string> open, list_open());
  std::erase_if(closed, [&](const auto& image) { return open.contains(image.first); });
  EraseClients(clients_.ended(), closed);
  if (closed.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(ChangeRecord([&](GatewayRecord& record) { EraseClients(closed, record.images); }));
  clients_.ForgetClients(closed);
  return absl::OkStatus();
}

}  // namespace lunkeeper
