#include "fencing/agent/storage_heartbeats.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/status_macros.h"
#include "devices/connection_message.h"
#include "devices/heartbeat/fence_notice.h"
#include "devices/heartbeat/heartbeat_block.h"
#include "devices/libiscsi/libiscsi_session.h"
#include "fencing/agent/this_boot.h"

namespace lunkeeper {
namespace {

using Clock = std::chrono::steady_clock;

// Between attempts: it doubles.
constexpr absl::Duration kShortestPause = absl::Milliseconds(500), kLongestPause = absl::Seconds(2);
// Always the same, so that a new login ends what is left of the session before it.
constexpr uint32_t kIsid = 1;

// The heartbeats to one array.
class Line {
 public:
  Line(const StorageHeartbeatOptions& options, fencing::ArrayId array, HeartbeatLunAccess access,
       Fenced fenced)
      : options_(options),
        array_(std::move(array)),
        access_(std::move(access)),
        fenced_(std::move(fenced)),
        heartbeats_(options_.every, [this] { Heartbeat(); }) {}

  Clock::time_point landed_at() const { return landed_at_; }

 private:
  void Heartbeat() {
    if (absl::Now() < try_at_) return;
    const absl::Status status = TryHeartbeat();
    Say(status);
    if (status.ok()) {
      landed_at_ = Clock::now();
      pause_ = kShortestPause;
    } else {
      session_.reset();
      try_at_ = absl::Now() + pause_;
      pause_ = std::min(2 * pause_, kLongestPause);
    }
  }

  absl::Status TryHeartbeat() {
    if (session_ == nullptr) RETURN_IF_ERROR(LogIn());
    RETURN_IF_ERROR(session_->Write(0, WriteHeartbeatBlock({options_.node, boot_, MillisSinceBoot()})));
    return LookForNote();
  }

  absl::Status LookForNote() {
    std::string first(kSectorBytes, '\0');
    RETURN_IF_ERROR(session_->Read(kNoteBlock, first));
    if (first == note_) return absl::OkStatus();
    if (const absl::StatusOr<size_t> size = NoteBytes(first); size.ok()) {
      std::string bytes(*size, '\0');
      RETURN_IF_ERROR(session_->Read(kNoteBlock, bytes));
      const absl::StatusOr<FenceNotice> notice = ReadFenceNotice(bytes);
      if (!notice.ok()) return absl::OkStatus();  // it is being written
      fenced_(array_, {options_.node, notice->generation, {notice->volumes.begin(), notice->volumes.end()}});
    }
    note_ = first;
    return absl::OkStatus();
  }

  absl::Status LogIn() {
    if (!connection_ || refused_) {
      absl::StatusOr<Connection> access = access_(array_, absl::Now() + options_.answer_timeout);
      // Who is cut off from the controllers goes on with what he has: the array may only be starting.
      if (!access.ok() && !connection_) return access.status();
      if (access.ok()) connection_ = *std::move(access);
    }
    auto session = LibiscsiSession::Login(*connection_, {.timeout = options_.answer_timeout, .isid = kIsid});
    refused_ = absl::IsPermissionDenied(session.status());
    RETURN_IF_ERROR(session.status());
    session_ = *std::move(session);
    return absl::OkStatus();
  }

  void Say(const absl::Status& status) {
    if (std::exchange(said_, status.code()) == status.code()) return;
    if (status.ok()) LogInfo("agent", "heartbeats land on the array", {{"array", array_.value()}});
    if (!status.ok())
      LogWarn("agent", "heartbeats do not land on the array",
              {{"array", array_.value()}, {"error", std::string(status.message())}});
  }

  const StorageHeartbeatOptions& options_;
  const fencing::ArrayId array_;
  const HeartbeatLunAccess access_;
  const Fenced fenced_;
  const std::string boot_ = BootId();
  std::atomic<Clock::time_point> landed_at_ = Clock::now();

  // The thread's own.
  std::optional<Connection> connection_;
  bool refused_ = false;  // it was not let in with `connection_`
  std::unique_ptr<LibiscsiSession> session_;
  std::string note_;  // its first block, as it was last seen
  absl::Time try_at_ = absl::InfinitePast();
  absl::Duration pause_ = kShortestPause;
  std::optional<absl::StatusCode> said_;

  Periodic heartbeats_;  // last: it uses the others
};

class Lines final : public StorageHeartbeats {
 public:
  Lines(const StorageHeartbeatOptions& options, const HeartbeatLunAccess& access, const Fenced& fenced)
      : options_(options) {
    for (const fencing::ArrayId& array : options_.arrays)
      lines_.push_back(std::make_unique<Line>(options_, array, access, fenced));
  }

  absl::Duration Age() const override {
    const Clock::time_point now = Clock::now();
    absl::Duration age = absl::ZeroDuration();
    for (const auto& line : lines_) age = std::max(age, absl::FromChrono(now - line->landed_at()));
    return age;
  }

 private:
  const StorageHeartbeatOptions options_;
  std::vector<std::unique_ptr<Line>> lines_;
};

}  // namespace

HeartbeatLunAccess AskForHeartbeatLun(Replicas& replicas, const NodeId& node) {
  return [&replicas, node](const fencing::ArrayId& array, absl::Time deadline) -> absl::StatusOr<Connection> {
    coordinator::v1::OpenHeartbeatLunRequest request;
    request.set_node(node.value());
    request.set_array(array.value());
    devices::v1::Connection response;
    RETURN_IF_ERROR(replicas.Ask(
        "ask for the heartbeat LUN on array " + array.value(), deadline,
        [&](auto& stub, auto* context) { return stub.OpenHeartbeatLun(context, request, &response); }));
    return FromMessage(response);
  };
}

std::unique_ptr<StorageHeartbeats> StartStorageHeartbeats(const StorageHeartbeatOptions& options,
                                                          const HeartbeatLunAccess& access,
                                                          const Fenced& fenced) {
  return std::make_unique<Lines>(options, access, fenced);
}

}  // namespace lunkeeper
