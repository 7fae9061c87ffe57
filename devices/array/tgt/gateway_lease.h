#pragma once
// An array on Ceph has one gateway at a time, and this is how it is one: it takes the record
// (gateway_record.h), shuts out every RADOS client of those before it, and keeps the record alive.
//
//   auto lease = GatewayLease::TakeArray(pool, options);  // now nobody else takes it, and others may still
//   write lease->ShutOut();                                // now no client of theirs writes any more
//   ... end this host's own tgtds, unless tgtds_go_on() ...
//   lease->BeginServing(catalogue's client);         // now this gateway may write
//   lease->RegisterImage(image, clients);            // before anybody may write to an image through them
//
// What is shut out is shut out by every OSD, so the one before need not agree or even notice. It notices
// when it next changes the record, or, while Ceph does not answer it, by `list_serving`: then `on_lost`.
// TakeArray watches the record of another gateway. One that changes is of a gateway that lives: it is left
// alone, and TakeArray fails, or stands by and watches on. One that stands still for `takeover_after`, by
// this host's steady clock, is taken. A look at it that takes long begins the time anew, since the cluster
// may be slow for the other gateway too; so does a long time between two looks. No wall clock matters.
// An array is also given away, to one that stands by (array_handover.h): the record then says so, and is
// renewed no more. Another gateway takes it at once, and shuts out the same clients as those of a dead one.
// The giver takes it like a stranger: once the record has stood still.
// The same folder of the same host since the same boot goes on without a wait: its lock proves that no other
// agent has it. Its tgtds go on too, if nobody has had the array in between.
//
// Thread-safe, but for the steps up to BeginServing, which are one thread's. The pool outlives it. The
// destructor leaves the record as it is, unless the array was taken and is not served (ReleaseUnlessServed).

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/periodic.h"
#include "base/steady_mutex.h"
#include "devices/array/tgt/ceph_pool.h"
#include "devices/array/tgt/gateway_clients.h"
#include "devices/array/tgt/gateway_record.h"
#include "devices/array/tgt/takeover_times.h"

namespace lunkeeper {

struct GatewayLeaseOptions {
  std::string array;
  std::string holder, host;  // as in the record
  absl::Duration takeover_after = absl::Seconds(5);
  // Called by TakeArray, on its thread, each time that it has seen the gateway live which `lives` names. OK:
  // it watches on. An error is TakeArray's own. Without it TakeArray fails with `lives`.
  std::function<absl::Status(const absl::Status& lives)> stand_by = nullptr;
  bool gives_away = false;  // first what this folder's agent has by the record; then it is a stranger
  // Called once, on any thread: another gateway has the array, or has shut this one out; or (then `why` is
  // PERMISSION_DENIED) its user has lost the rights. Nothing that is still written arrives: it is to end.
  std::function<void(const absl::Status& why)> on_lost;
  // Asked some times in `takeover_after` while renewals fail, on a thread of its own: which other gateways
  // are seen to serve, other than by Ceph. That one begins to is on_lost. It answers in about a second.
  std::function<std::set<std::string>()> list_serving = nullptr;
  std::function<void()> on_started = nullptr;  // called by NoteStarted
};

class GatewayLease {
 public:
  // Without `stand_by`, FAILED_PRECONDITION: another gateway serves the array, which is named. In any case
  // FAILED_PRECONDITION: the record is none.
  // UNAVAILABLE: the cluster answers too slowly to tell.
  static absl::StatusOr<std::unique_ptr<GatewayLease>> TakeArray(const CephPool& pool,
                                                                 const GatewayLeaseOptions& options);
  ~GatewayLease();
  GatewayLease(const GatewayLease&) = delete;
  GatewayLease& operator=(const GatewayLease&) = delete;

  TakeoverTimes& times() { return times_; }  // for people
  // Whether the tgtds of this host are the holder's own, with their clients in the record.
  bool tgtds_go_on() const { return tgtds_go_on_; }
  // The clients of the gateways before; see GatewayClients.
  absl::Status ShutOut();
  std::set<ClientAddress> shut_out() const { return clients_.shut_out(); }
  // The images' clients. The ended ones are shut out and leave the record within about a second.
  GatewayClients& clients() { return clients_; }
  // The others count as gone from now on. `catalogue`: another client of this gateway.
  absl::Status BeginServing(const ClientAddress& catalogue);

  // The destructor gives the array away from now on, unless NoteServed is called before.
  void ReleaseUnlessServed() { unserved_ = true; }
  // At once what the destructor would do, after `stop`, whose error means: not at all.
  void ReleaseIfUnserved(const std::function<absl::Status()>& stop) ABSL_LOCKS_EXCLUDED(mu_);
  void NoteServed() { unserved_ = false; }
  void NoteStarted();  // the same, and calls are answered, too

  // UNAVAILABLE: the record has not been renewed for so long that another gateway may soon take the array.
  absl::Status CheckHeld() const;
  // OK: at some time since the call began the record named this gateway, so that no other one had changed
  // anything before. Asks Ceph. UNAVAILABLE: it does not, or Ceph does not answer in time.
  absl::Status ConfirmHeld() ABSL_LOCKS_EXCLUDED(confirm_mu_);
  // An image is open by these clients, beside those before; none: soon by one that is not known yet.
  // UNAVAILABLE, too: all have ended. RESOURCE_EXHAUSTED: nobody could read so long a record.
  absl::Status RegisterImage(const std::string& image, const std::set<ClientAddress>& clients)
      ABSL_LOCKS_EXCLUDED(mu_);
  // As FindStandbys says; the look takes `takeover_after`.
  absl::StatusOr<std::set<std::string>> ListStandbys(const std::function<bool()>& abandoned = nullptr) const;
  // Gives the array away, once and for all. OK: another gateway takes it at once. ABORTED or UNAVAILABLE: it
  // has another one already. After any other error nobody knows, and another one takes it at the latest when
  // the record has stood still. From this call on nothing of this process is renewed or registered.
  absl::Status ReleaseArray() ABSL_LOCKS_EXCLUDED(mu_);
  // After that: the host that has the array, or an empty text if this client has been shut out since, by the
  // next gateway. DEADLINE_EXCEEDED: none took it.
  absl::StatusOr<std::string> AwaitSuccessor(absl::Duration within) const;
  // Forgets the clients of images that are not open any more, but for the ended ones that are not
  // shut out yet. `list_open`: the images that are, of what was registered before it is called.
  absl::Status ForgetClosed(const std::function<absl::StatusOr<std::set<std::string>>()>& list_open)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  GatewayLease(const CephPool& pool, const GatewayLeaseOptions& options, GatewayRecord record,
               std::chrono::steady_clock::time_point taken, GatewayState begun);
  void Renew() ABSL_LOCKS_EXCLUDED(mu_);
  void Confirm() ABSL_LOCKS_EXCLUDED(confirm_mu_);
  void ForgetEnded() ABSL_LOCKS_EXCLUDED(mu_);
  void LookForOther();
  void TellLost(const absl::Status& why);
  // `last`: whatever comes of it, no change follows.
  absl::Status ChangeRecord(const std::function<void(GatewayRecord&)>& change, bool last = false)
      ABSL_LOCKS_EXCLUDED(mu_);

  const CephPool& pool_;
  const GatewayLeaseOptions options_;
  TakeoverTimes times_;
  std::optional<std::set<std::string>> served_;  // at the looks' last; nothing: renewals succeeded
  const bool tgtds_go_on_;
  const uint64_t epoch_;
  // When the last change that succeeded began: a watcher sees it then or later.
  std::atomic<std::chrono::steady_clock::time_point> renewed_;
  std::atomic<bool> told_ = false;      // on_lost
  std::atomic<bool> unserved_ = false;  // so the destructor gives the array away
  absl::Mutex mu_;                      // held while the record is changed
  GatewayRecord record_ ABSL_GUARDED_BY(mu_);
  bool lost_ ABSL_GUARDED_BY(mu_) = false;  // or given away
  GatewayClients clients_;
  SteadyMutex confirm_mu_;
  // The last call to ConfirmHeld, and the beginning of the last look that found this gateway in the record.
  std::chrono::steady_clock::time_point wanted_ ABSL_GUARDED_BY(confirm_mu_);
  std::chrono::steady_clock::time_point confirmed_ ABSL_GUARDED_BY(confirm_mu_);
  Periodic renewals_, confirmations_, looks_, endings_;  // last: their threads use the others
};

}  // namespace lunkeeper
