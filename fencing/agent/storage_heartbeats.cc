#include "fencing/agent/storage_heartbeats.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/status_macros.h"
#include "devices/heartbeat/fence_notice.h"
#include "devices/heartbeat/heartbeat_block.h"

// Each HeartbeatLink has one thread, which makes all its calls in turn:
//
//   log in (once, and again after any failure) -> write the heartbeat block -> read the notice's first block
//
// A failure drops the session; the next attempt logs in anew. If this process is killed, the array sees no
// more heartbeats, and the next process's login ends the session that was left behind
// (devices/iscsi/block_session.h).
//
// The array counts a heartbeat's age from when it saw the sequence number change. So the node's clock does
// not matter, and writing an old heartbeat once more would not make the node look alive.
namespace lunkeeper {
namespace {

// The pause between attempts. It doubles up to a value that is well below the time after which a controller
// takes a node's storage for silent.
constexpr absl::Duration kShortestPause = absl::Milliseconds(500), kLongestPause = absl::Seconds(2);
// Where the target has another portal: so that a heartbeat lands there before the node counts as silent.
constexpr absl::Duration kAnswerOfOneOfSeveral = absl::Seconds(1);
// An array whose portals have changed does not refuse: nobody answers at the old ones.
constexpr absl::Duration kAskAgainAfter = absl::Seconds(10);

// The heartbeats to one array, and the fence notices from it.
class HeartbeatLink {
 public:
  HeartbeatLink(const StorageHeartbeatOptions& options, fencing::ArrayId array, HeartbeatLunAccess access,
                Fenced fenced, Landed landed)
      : options_(options),
        array_(std::move(array)),
        access_(std::move(access)),
        fenced_(std::move(fenced)),
        landed_(std::move(landed)),
        landed_at_(Now()),
        heartbeats_(
            options_.every, [this] { SendHeartbeat(); }, options_.executor) {}

  // By the steady clock.
  absl::Duration landed_at() const {
    absl::MutexLock lock(&mutex_);
    return landed_at_;
  }
  uint64_t forged_notices() const { return forged_notices_; }

 private:
  absl::Duration Now() const { return options_.executor.SteadyNow(); }

  void SendHeartbeat() {
    if (Now() < try_at_) return;
    const absl::Status status = TryAtPortals();
    ReportResult(status);
    if (status.ok()) {
      NoteLanded();
      landed_(array_);
      pause_ = kShortestPause;
    } else {
      try_at_ = Now() + pause_;
      pause_ = std::min(2 * pause_, kLongestPause);
    }
  }

  void NoteLanded() {
    absl::MutexLock lock(&mutex_);
    landed_at_ = Now();
  }

  // At each portal of the target, without a pause, beginning with the one that was used last.
  absl::Status TryAtPortals() {
    absl::Status status = TryHeartbeat();
    for (size_t left = CountPortals(); !status.ok() && --left > 0;) status = TryHeartbeat();
    return status;
  }

  absl::Status TryHeartbeat() {
    const absl::Status status = WriteAndRead();
    if (status.ok()) return status;
    session_.reset();
    ++portal_;
    return status;
  }

  absl::Status WriteAndRead() {
    if (session_ == nullptr) RETURN_IF_ERROR(LogIn());
    RETURN_IF_ERROR(session_->WriteBlocks(
        0, WriteHeartbeatBlock({options_.node, options_.boot, options_.millis_since_boot()},
                               connection_->signing_key)));
    return ReadNotice();
  }

  // Reads the whole notice only when its first block differs from last time, as that block holds the notice's
  // generation, length and checksum. Nearly all reads are of that one block.
  absl::Status ReadNotice() {
    std::string first(kSectorBytes, '\0');
    RETURN_IF_ERROR(session_->ReadBlocks(kNoteBlock, first));
    if (first == notice_head_) return absl::OkStatus();
    if (const absl::StatusOr<size_t> size = NoteBytes(first); size.ok()) {
      std::string bytes(*size, '\0');
      RETURN_IF_ERROR(session_->ReadBlocks(kNoteBlock, bytes));
      const absl::StatusOr<FenceNotice> notice = ReadFenceNotice(bytes, connection_->signing_key);
      if (absl::IsUnauthenticated(notice.status())) return IgnoreForged(first);
      // A checksum that does not match means that the array is writing the notice right now. The head is not
      // remembered, so that the next heartbeat reads the notice again.
      if (!notice.ok()) return absl::OkStatus();
      fenced_(array_, {options_.node, notice->generation, {notice->volumes.begin(), notice->volumes.end()}});
    }
    notice_head_ = first;
    return absl::OkStatus();
  }

  // By somebody in the path, or left by an array agent that was an older one then. The heartbeat landed all
  // the same; a controller's word, or a good notice, still ends the I/O.
  absl::Status IgnoreForged(const std::string& first) {
    ++forged_notices_;
    LogWarn("agent", "a fence notice is ignored: it is not signed with the key of its LUN",
            {{"array", array_.value()}});
    notice_head_ = first;
    return absl::OkStatus();
  }

  absl::Status LogIn() {
    if (!connection_ || refused_ || IsLongAway()) {
      asked_at_ = Now();
      absl::StatusOr<Connection> access =
          access_(array_, options_.executor.WallNow() + options_.answer_timeout);
      // An isolated node continues with the access it has: an array that is starting also refuses logins for
      // a while, and then accepts the old credentials again.
      if (!access.ok() && !connection_) return access.status();
      if (access.ok()) connection_ = *std::move(access);
    }
    const absl::Duration timeout = CountPortals() > 1
                                       ? std::min(options_.answer_timeout, kAnswerOfOneOfSeveral)
                                       : options_.answer_timeout;
    auto session = options_.log_in(AtPortal(), timeout);
    refused_ = absl::IsPermissionDenied(session.status());
    RETURN_IF_ERROR(session.status());
    session_ = *std::move(session);
    return absl::OkStatus();
  }

  bool IsLongAway() const {
    return Now() - landed_at() > kAskAgainAfter && Now() - asked_at_ > kAskAgainAfter;
  }

  size_t CountPortals() const { return connection_ ? connection_->other_portals.size() + 1 : 1; }

  // At the target's next portal after each failure.
  Connection AtPortal() const {
    Connection connection = *connection_;
    const size_t at = portal_ % CountPortals();
    if (at > 0) connection.portal = connection.other_portals[at - 1];
    return connection;
  }

  void ReportResult(const absl::Status& status) {
    if (std::exchange(reported_, status.code()) == status.code()) return;
    if (status.ok()) LogInfo("agent", "heartbeats land on the array", {{"array", array_.value()}});
    if (!status.ok())
      LogWarn("agent", "heartbeats do not land on the array",
              {{"array", array_.value()}, {"error", std::string(status.message())}});
  }

  const StorageHeartbeatOptions& options_;
  const fencing::ArrayId array_;
  const HeartbeatLunAccess access_;
  const Fenced fenced_;
  const Landed landed_;
  mutable absl::Mutex mutex_;
  absl::Duration landed_at_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> forged_notices_ = 0;

  // Used by the link's thread only.
  std::optional<Connection> connection_;
  absl::Duration asked_at_;
  size_t portal_ = 0;     // counts on; which of the connection's portals is next
  bool refused_ = false;  // the array refused the last login with `connection_`
  std::unique_ptr<HeartbeatLun> session_;
  std::string notice_head_;  // the first block of the notice that was last read
  absl::Duration try_at_;
  absl::Duration pause_ = kShortestPause;
  std::optional<absl::StatusCode> reported_;

  Periodic heartbeats_;  // last: its thread uses the other members
};

class HeartbeatLinks final : public StorageHeartbeatSender {
 public:
  HeartbeatLinks(const StorageHeartbeatOptions& options, const HeartbeatLunAccess& access,
                 const Fenced& fenced, const Landed& landed)
      : options_(options) {
    for (const fencing::ArrayId& array : options_.arrays)
      links_.push_back(std::make_unique<HeartbeatLink>(options_, array, access, fenced, landed));
  }

  std::map<fencing::ArrayId, absl::Duration> Ages() const override {
    const absl::Duration now = options_.executor.SteadyNow();
    std::map<fencing::ArrayId, absl::Duration> ages;
    for (size_t i = 0; i < links_.size(); ++i) ages[options_.arrays[i]] = now - links_[i]->landed_at();
    return ages;
  }

  uint64_t ForgedNotices() const override {
    uint64_t forged = 0;
    for (const auto& link : links_) forged += link->forged_notices();
    return forged;
  }

 private:
  const StorageHeartbeatOptions options_;
  std::vector<std::unique_ptr<HeartbeatLink>> links_;
};

}  // namespace

std::unique_ptr<StorageHeartbeatSender> StartStorageHeartbeats(const StorageHeartbeatOptions& options,
                                                               const HeartbeatLunAccess& access,
                                                               const Fenced& fenced, const Landed& landed) {
  return std::make_unique<HeartbeatLinks>(options, access, fenced, landed);
}

}  // namespace lunkeeper
