#include "devices/datapath/hand_over.h"

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/steady_deadline.h"
#include "devices/datapath/control_socket.h"

namespace lunkeeper {
namespace {

using Step = datapath::HandOverStep;

constexpr uint32_t kHandOverVersion = 1;
// What one side waits for a step of the other, which takes milliseconds.
constexpr absl::Duration kStepTimeout = absl::Seconds(10);
constexpr absl::Duration kWorkerDies = absl::Seconds(5);
// The wait for calls under way and for a step.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(20);
constexpr absl::Duration kLookAgain = absl::Milliseconds(500);

// A successor that stands still with the volumes in hand: said first and then again after so long.
constexpr absl::Duration kLateAfter = absl::Seconds(10);
constexpr absl::Duration kSaidAgain = absl::Minutes(1);

absl::Status SendStep(int socket, Step::Step step) {
  datapath::HandOverStep message;
  message.set_step(step);
  return SendMessage(socket, message);
}

// 0: of another PID namespace.
std::string PeerPid(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return std::to_string(peer.pid);
}

absl::StatusOr<Step::Step> ReceiveStep(int socket, absl::Duration timeout) {
  datapath::HandOverStep message;
  RETURN_IF_ERROR(ReceiveMessage(socket, absl::Now() + timeout, &message));
  return message.step();
}

}  // namespace

absl::StatusOr<UniqueFd> Predecessor::Prepare(const datapath::HandOver& request) const {
  if (request.version() != kHandOverVersion || request.shared_state() != kSharedStateVersion) {
    return absl::FailedPreconditionError(
        "the running data path is of a version that cannot hand its volumes over to this one: drain the "
        "node, "
        "then end it");
  }
  return volumes_.PrepareHandOver(lock_, listener_);
}

void Predecessor::HandOver(int successor, const datapath::HandOver& request) const {
  absl::StatusOr<UniqueFd> parcel = Prepare(request);
  datapath::Response response;
  response.set_code(static_cast<int>(parcel.status().code()));
  response.set_message(std::string(parcel.status().message()));
  if (!parcel.ok()) return SendMessage(successor, response).IgnoreError();
  LogInfo("datapath", "handing over to a successor", {});
  bool done = SendMessage(successor, response, {parcel->get()}).ok();
  parcel->Reset();  // its copies of the descriptors would keep what the successor closes
  FAIL_POINT("handover.predecessor.sent");
  done = done && GiveTo(successor);
  volumes_.SetHandOver(done ? HandOverPhase::kDone : HandOverPhase::kNone);
  if (done) return LogInfo("datapath", "a successor serves", {});
  LogWarn("datapath", "the successor has not taken over, and service goes on here", {});
  SendStep(successor, Step::KEPT).IgnoreError();
  AwaitClose(successor);
}

// The worker dies before YOURS is said: two workers would write for one volume, with two orders of writes.
bool Predecessor::GiveTo(int successor) const {
  const absl::StatusOr<Step::Step> accepted = ReceiveStep(successor, kStepTimeout);
  if (!accepted.ok() || *accepted != Step::ACCEPTED) return false;
  if (!volumes_.StopWorkerForGood(kWorkerDies).ok()) return false;
  FAIL_POINT("handover.predecessor.stopped");
  volumes_.SetHandOver(HandOverPhase::kGiven);
  if (!SendStep(successor, Step::YOURS).ok()) return false;
  FAIL_POINT("handover.predecessor.given");
  return AwaitService(successor);
}

// Without a limit: from YOURS on the volumes are the successor's until it dies.
bool Predecessor::AwaitService(int successor) const {
  SteadyDeadline silent(kLateAfter);
  while (volumes_.hand_over() < HandOverPhase::kDone) {
    const absl::StatusOr<Step::Step> serving = ReceiveStep(successor, kLookAgain);
    if (!absl::IsDeadlineExceeded(serving.status())) return serving.ok() && *serving == Step::SERVING;
    if (!silent.IsOver()) continue;
    silent = SteadyDeadline(kSaidAgain);
    LogError(
        "datapath",
        "all I/O of this node stands still: the successor has the volumes and does not serve them. Let it "
        "go on (SIGCONT), or kill it (SIGKILL): service then goes on here",
        {{"successor", PeerPid(successor)}});
  }
  return false;
}

// It reads KEPT, or was dead before.
void Predecessor::AwaitClose(int successor) const {
  while (volumes_.hand_over() < HandOverPhase::kDone) {
    const absl::StatusOr<Step::Step> step = ReceiveStep(successor, kLookAgain);
    if (absl::IsUnavailable(step.status())) return;
  }
}

absl::StatusOr<TakenOver> TakeOver(const std::string& socket_path) {
  ASSIGN_OR_RETURN(UniqueFd predecessor, ConnectTo(socket_path));
  datapath::Request request;
  request.mutable_hand_over()->set_version(kHandOverVersion);
  request.mutable_hand_over()->set_shared_state(kSharedStateVersion);
  RETURN_IF_ERROR(SendMessage(predecessor.get(), request));
  datapath::Response response;
  std::vector<UniqueFd> fds;
  RETURN_IF_ERROR(ReceiveMessage(predecessor.get(), absl::Now() + kAnswerTimeout, &response, &fds));
  if (response.code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(response.code()), response.message());
  }
  if (fds.size() != 1) return absl::InvalidArgumentError("the predecessor has sent no parcel");
  ASSIGN_OR_RETURN(Inheritance inheritance, UnpackParcel(std::move(fds[0])));
  FAIL_POINT("handover.successor.received");
  SendStep(predecessor.get(), Step::ACCEPTED).IgnoreError();  // if it is dead, the next line tells
  const absl::StatusOr<Step::Step> step = ReceiveStep(predecessor.get(), kAnswerTimeout);
  // UNAVAILABLE: it died with everything handed over.
  const bool ours = step.ok() ? *step == Step::YOURS : absl::IsUnavailable(step.status());
  if (!ours) return absl::UnavailableError("the running data path serves on");
  FAIL_POINT("handover.successor.given");
  return TakenOver{std::move(inheritance), std::move(predecessor)};
}

void ConfirmService(int predecessor) { SendStep(predecessor, Step::SERVING).IgnoreError(); }

}  // namespace lunkeeper
