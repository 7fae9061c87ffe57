// One thread, which waits for its socket, for the connection of the supervisor whose duplicates it keeps, and
// for its end. A caller sends its message at once, or is hung up on.
//
// The lock beside the socket (datapath_lock.h) is held as long as anything is kept.

#include "devices/datapath/duplicate_store.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/event_fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/datapath_lock.h"
#include "devices/datapath/duplicates.h"

namespace lunkeeper {
namespace {

using Call = datapath::DuplicateStoreCall;
using Clock = std::chrono::steady_clock;

constexpr int kTickMs = 1000;
constexpr absl::Duration kMessageTimeout = absl::Milliseconds(500);
// A store that answers does so at once. One that is stopped for longer is none.
constexpr absl::Duration kStoreAnswers = absl::Seconds(5);

std::string DuplicateStorePath(const std::string& datapath_socket) { return datapath_socket + ".duplicates"; }

absl::Status SendCall(int socket, Call::Kind kind, const std::vector<int>& fds = {}) {
  Call call;
  call.set_kind(kind);
  return SendMessage(socket, call, fds);
}

class StoreServer final : public DuplicateStore {
 public:
  StoreServer(std::string datapath_socket, absl::Duration kept_for)
      : datapath_socket_(std::move(datapath_socket)),
        kept_for_(absl::ToChronoMilliseconds(kept_for)),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        thread_([this] { Run(); }) {}

  ~StoreServer() override {
    RaiseEvent(stop_.get());
    thread_.join();
    if (listener_) ::unlink(DuplicateStorePath(datapath_socket_).c_str());
  }

  bool IsWaiting() const override { return waiting_; }

 private:
  void Run() {
    while (true) {
      if (!listener_) Listen();
      pollfd waiting[] = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}, {owner_.get(), POLLIN, 0}};
      // Without anything to try again or to give up, only an event wakes this thread.
      ::poll(waiting, 3, listener_ && !dead_since_ ? -1 : kTickMs);
      if (waiting[0].revents != 0) return;
      if (waiting[2].revents != 0) LoseOwner();
      if (waiting[1].revents != 0) Accept();
      if (dead_since_ && Clock::now() - *dead_since_ >= kept_for_) GiveUp();
    }
  }

  void Listen() {
    absl::StatusOr<UniqueFd> listener = ListenAt(DuplicateStorePath(datapath_socket_));
    if (listener.ok()) listener_ = *std::move(listener);
  }

  // The supervisor that had them is dead, or ended in good order, and then nothing is in them.
  void LoseOwner() {
    owner_.Reset();
    const bool any = std::any_of(parcels_.begin(), parcels_.end(),
                                 [](const UniqueFd& parcel) { return HoldsVolumes(parcel.get()); });
    if (!any) return LetGo();
    dead_since_ = Clock::now();
    waiting_ = true;
    LogWarn("datapath", "the supervisor is gone, and its volumes wait for the next one",
            {{"limit_ms", absl::StrCat(kept_for_.count())}});
  }

  void GiveUp() {
    LogError("datapath", "no data path has come for the volumes that are kept: their I/O fails");
    LetGo();
  }

  void LetGo() {
    owner_.Reset();
    parcels_.clear();
    lock_.Reset();
    dead_since_.reset();
    waiting_ = false;
  }

  void Accept() {
    UniqueFd caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!caller || !PeerIsRoot(caller.get())) return;
    Call call;
    std::vector<UniqueFd> fds;
    if (!ReceiveMessage(caller.get(), absl::Now() + kMessageTimeout, &call, &fds).ok()) return;
    if (call.kind() == Call::KEEP) return Keep(std::move(caller), std::move(fds));
    if (call.kind() == Call::ASK) Answer(caller.get());
  }

  // Hung up on, the supervisor tries it again.
  void Keep(UniqueFd owner, std::vector<UniqueFd> parcels) {
    if (parcels.size() != kParcels) return;
    if (!lock_) {
      absl::StatusOr<UniqueFd> lock = LockKept(datapath_socket_);
      if (!lock.ok()) return;  // the last store is about to end
      lock_ = *std::move(lock);
    }
    owner_ = std::move(owner);
    parcels_ = std::move(parcels);
    dead_since_.reset();
    waiting_ = false;
  }

  void Answer(int caller) const {
    std::vector<int> fds;
    for (const UniqueFd& parcel : parcels_) fds.push_back(parcel.get());
    SendCall(caller, Call::KEEP, fds).IgnoreError();
  }

  // Constant after construction.
  const std::string datapath_socket_;
  const std::chrono::milliseconds kept_for_;
  const UniqueFd stop_;

  std::atomic<bool> waiting_{false};  // dead_since_, for other threads

  // The thread's.
  UniqueFd listener_;
  UniqueFd owner_;  // the connection of the supervisor whose they are
  UniqueFd lock_;
  std::vector<UniqueFd> parcels_;
  std::optional<Clock::time_point> dead_since_;  // the supervisor

  std::thread thread_;  // last: runs on all of the above
};

}  // namespace

std::unique_ptr<DuplicateStore> StartDuplicateStore(const std::string& datapath_socket,
                                                    absl::Duration kept_for) {
  return std::make_unique<StoreServer>(datapath_socket, kept_for);
}

absl::StatusOr<UniqueFd> ConnectToDuplicateStore(const std::string& datapath_socket) {
  ASSIGN_OR_RETURN(UniqueFd store, ConnectTo(DuplicateStorePath(datapath_socket), SOCK_NONBLOCK));
  // What it is given leads to all volumes.
  if (!PeerIsRoot(store.get())) return absl::UnavailableError("the store's process is not root's");
  return store;
}

absl::Status SendDuplicates(int store, const std::vector<int>& parcels) {
  return SendCall(store, Call::KEEP, parcels);
}

bool IsDuplicateStoreGone(int store) {
  char byte;
  return ::recv(store, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) == 0;
}

absl::StatusOr<std::vector<UniqueFd>> AskForDuplicates(const std::string& datapath_socket) {
  std::vector<UniqueFd> parcels;
  const absl::StatusOr<UniqueFd> store = ConnectToDuplicateStore(datapath_socket);
  Call answer;
  if (!store.ok() || !SendCall(store->get(), Call::ASK).ok()) return parcels;
  const absl::Status received = ReceiveMessage(store->get(), absl::Now() + kStoreAnswers, &answer, &parcels);
  if (absl::IsDeadlineExceeded(received)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the node plugin, which may keep volumes of a data path that died, does not answer at ",
                     DuplicateStorePath(datapath_socket), ": restart it if it hangs"));
  }
  if (absl::IsResourceExhausted(received)) return received;
  return parcels;  // it died: nobody has anything
}

}  // namespace lunkeeper
