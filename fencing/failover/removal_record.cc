#include "fencing/failover/removal_record.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "fencing/kube/list_all.h"

namespace lunkeeper::fencing {
namespace {

const kube::Resource kConfigMaps{"", "v1", "configmaps"};

// The entry of an array that is being added back; any other one names who removed it.
constexpr char kAddedBack[] = "added back";

// An annotation of a record in which a removal was stored. A tool that writes the chart's object over it
// removes this with the entries, and a person who edits the entries does not.
constexpr char kInUseKey[] = "lunkeeper.io/removals-stored";

// An API server under load takes seconds. What it says late is no news for ListCertainlyRemoved, and all that
// a controller that has just started waits for.
constexpr absl::Duration kReadEvery = absl::Seconds(1), kReadTimeout = absl::Seconds(10);

absl::Status NoRecord(const std::string& space) {
  return absl::FailedPreconditionError(
      absl::StrCat("there is no ConfigMap ", space, "/", kRemovalRecord,
                   ", in which removed arrays are stored: the chart makes it; upgrade that"));
}

// Null: the entry goes.
absl::StatusOr<kube::Json> PatchRecord(kube::KubeClient& client, const std::string& space,
                                       const std::string& array, const kube::Json& entry,
                                       const kube::Preconditions& only_if, absl::Time deadline) {
  kube::Json patch = {{"data", {{array, entry}}}};
  if (!entry.is_null()) patch["metadata"]["annotations"][kInUseKey] = "true";
  auto stored = client.Patch({kConfigMaps, space, kRemovalRecord}, patch, only_if, {deadline});
  if (absl::IsNotFound(stored.status())) return NoRecord(space);
  return stored;
}

}  // namespace

// A list with a selection that names the object, for an account that may read this one alone.
absl::StatusOr<RemovedNames> ReadRemovals(kube::KubeClient& client, const std::string& space,
                                          const kube::Limits& limits) {
  const kube::Selection selection{
      .resource = kConfigMaps, .space = space, .fields = absl::StrCat("metadata.name=", kRemovalRecord)};
  ASSIGN_OR_RETURN(const std::vector<kube::Json> objects, kube::ListAll(client, selection, limits));
  for (const kube::Json& object : objects) {
    if (kube::TextAt(object, {"metadata", "name"}) != kRemovalRecord) continue;
    RemovedNames names;
    names.record = absl::StrCat(kube::TextAt(object, {"metadata", "uid"}), "/",
                                kube::TextAt(object, {"metadata", "annotations", kInUseKey}));
    for (const auto& entry : kube::FieldAt(object, {"data"}).items()) {
      names.removed.insert(entry.key());
      if (kube::TextAt(object, {"data", entry.key().c_str()}) == kAddedBack)
        names.added_back.insert(entry.key());
    }
    return names;
  }
  return NoRecord(space);
}

absl::Status StoreRemoval(kube::KubeClient& client, const std::string& space, const std::string& array,
                          const std::string& by, absl::Time deadline) {
  return PatchRecord(client, space, array, by, {}, deadline).status();
}

absl::StatusOr<std::string> StoreAddition(kube::KubeClient& client, const std::string& space,
                                          const std::string& array, absl::Time deadline) {
  ASSIGN_OR_RETURN(const kube::Json stored, PatchRecord(client, space, array, kAddedBack, {}, deadline));
  return kube::TextAt(stored, {"metadata", "resourceVersion"});
}

absl::Status EraseRemoval(kube::KubeClient& client, const std::string& space, const std::string& array,
                          const std::string& version, absl::Time deadline) {
  return PatchRecord(client, space, array, nullptr, {.version = version}, deadline).status();
}

RemovalWatch::RemovalWatch(kube::KubeClient& client, std::string space, RemainingArrays& arrays)
    : client_(client),
      space_(std::move(space)),
      arrays_(arrays),
      reads_(kReadEvery, [this] { ReadRecord(); }) {}

void RemovalWatch::ReadRecord() {
  const absl::Duration read_at = RealExecutor().SteadyNow();
  const auto stored = ReadRemovals(client_, space_, {absl::Now() + kReadTimeout, stopping_.get_token()});
  if (stopping_.stop_requested()) return;
  if (!stored.ok())
    return LogNews(absl::StrCat("which arrays are removed cannot be read, and what was read before counts: ",
                                stored.status().message()),
                   /*is_good=*/false);
  arrays_.SetRemoved(*stored, read_at);
  std::string news = stored->removed.empty() ? "no array is removed"
                                             : "removed arrays: " + absl::StrJoin(stored->removed, " ");
  const std::set<std::string> lost = arrays_.ListLost();
  if (!lost.empty())
    absl::StrAppend(
        &news, "; the record was made anew without ", absl::StrJoin(lost, " "),
        ", which stay removed here: repeat `lunkeeper remove-array`, or use `lunkeeper add-array`");
  LogNews(news, lost.empty());
}

// Once, as long as it stays so.
void RemovalWatch::LogNews(const std::string& now, bool is_good) {
  if (std::exchange(last_news_, now) != now) is_good ? LogInfo("failover", now) : LogWarn("failover", now);
}

}  // namespace lunkeeper::fencing
