// All of it is on the caller's thread. Calls that were under way go on beside it, and find that their array
// is gone: what each leaves is what a crash would leave, and the next gateway finishes or undoes it.
#include "devices/array/tgt/array_handover.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/tgt/gateway_lease.h"
#include "devices/array/tgt/stop_tgtd.h"
#include "devices/array/tgt/tgt_servers.h"

namespace lunkeeper {
namespace {

using Step = HandoverProgress::Step;

// For commands and images of all volumes: the next gateway shuts out what needs longer in about that time.
constexpr absl::Duration kInOrder = absl::Seconds(3);
constexpr absl::Duration kTgtdEnds = absl::Seconds(5);
// One that stands by looks several times a second.
constexpr absl::Duration kTaken = absl::Seconds(3);

absl::StatusOr<std::string> FindSuccessor(const HandoverParts& parts) {
  RETURN_IF_ERROR(parts.lease.ConfirmHeld());
  ASSIGN_OR_RETURN(const std::set<std::string> hosts, parts.lease.ListStandbys());
  if (!hosts.empty()) return absl::StrJoin(hosts, ", ");
  return absl::FailedPreconditionError(absl::StrCat(
      "array ", parts.array,
      ": no gateway stands by that could take it, so nothing was done. Start an agent with the same --name "
      "and --store on another host, or one of this version where an older one runs; once its log says that "
      "it "
      "stands by, repeat the command"));
}

// What can still write then is only what Ceph has in hand of a client that the next gateway shuts out.
absl::Status StopTgtds(const HandoverParts& parts) {
  absl::Status stopped = parts.servers.CloseVolumes(kInOrder);
  FAIL_POINT("array.handover.closed");
  stopped.Update(KillTgtds(parts.pool_dir, kTgtdEnds));
  FAIL_POINT("array.handover.stopped");
  return stopped;
}

void ReportStep(const HandoverWatch& watch, const HandoverProgress& progress) {
  if (!progress.trouble.ok()) LogWarn("array", absl::StrCat("handover: ", progress.trouble.message()));
  watch(progress);
}

}  // namespace

// What was killed answers nobody, whatever it waits for.
absl::Status EndUnserved(TgtServers* servers, const std::string& pool_dir) {
  if (servers != nullptr) servers->StopWatching();
  const absl::Status stopped = KillTgtds(pool_dir, kTgtdEnds);
  return absl::IsDeadlineExceeded(stopped) ? absl::OkStatus() : stopped;
}

absl::Status HandOverArray(const HandoverParts& parts, const HandoverWatch& watch) {
  ASSIGN_OR_RETURN(const std::string host, FindSuccessor(parts));
  if (!watch({.step = Step::kBegun, .host = host}))
    return absl::CancelledError("the caller has gone, so nothing was done");
  LogInfo("array", "this gateway hands its array over", {{"array", parts.array}, {"stands by", host}});
  parts.stop_serving();
  parts.servers.StopWatching();
  FAIL_POINT("array.handover.begun");
  ReportStep(watch, {.step = Step::kStopping});
  ReportStep(watch, {.step = Step::kStopped, .trouble = StopTgtds(parts)});
  ReportStep(watch, {.step = Step::kReleased, .trouble = parts.lease.ReleaseArray()});
  FAIL_POINT("array.handover.released");
  const absl::StatusOr<std::string> taken = parts.lease.AwaitSuccessor(kTaken);
  const std::string by = taken.ok() && !taken->empty() ? *taken : host;
  LogInfo("array", "the array is handed over",
          {{"array", parts.array}, {"taken by", taken.ok() ? by : "nobody"}});
  ReportStep(
      watch,
      {.step = Step::kTaken, .host = by, .trouble = taken.status(), .peer_portals = parts.peer_portals});
  return absl::OkStatus();
}

}  // namespace lunkeeper
