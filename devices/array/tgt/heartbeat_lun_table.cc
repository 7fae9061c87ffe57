// The looking thread, every 250 ms: read the first block of each file and hand it to its HeartbeatWatch;
// serve what is not served; bring the fence notices up to date; once an hour forget LUNs that nobody writes
// to. The wall clock alone says for how long nobody has, and it also counts the time in which this host was
// off, slept, had a wrong clock, or did not have the array. So a LUN must be found unused twice, with an hour
// between in which its node could write: by then each living node has.
//
// tgtd and this program open the same file: what a node writes through its session is in the page cache at
// once, so reading the file needs neither a session nor a flush.
//
// Two locks. `mu_` guards the table and is held for memory and small file accesses only, so that
// ListHeartbeats (the failover asks it twice a second) never waits for tgtd. `serve_mu_` is held while
// targets are made or drained, which is calls to tgtd. Always serve_mu_ before mu_.
#include "devices/array/tgt/heartbeat_lun_table.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "devices/heartbeat/fence_notice.h"
#include "devices/node_id.h"

namespace lunkeeper {
namespace {

// Longer than most repairs of a machine take. A node that comes back later is given another LUN.
constexpr absl::Duration kForgetAfter = absl::Hours(7 * 24);
constexpr off_t kFenceNoticeAt = kNoteBlock * kSectorBytes;

// TargetTable makes LUNs of volumes, so a heartbeat LUN is dressed as one. Its serial is 16 digits and not
// 36: nobody identifies a device by it.
Volume LunOf(const GrantRow& row) {
  Volume lun;
  lun.serial = absl::StrFormat("%016x", row.generation);
  lun.spec.provisioning = Provisioning::kThick;
  return lun;
}

// Fewer bytes at the end of the file, or after an error: the reader of the block sees that it is too short.
std::string ReadAt(int file, off_t at, size_t bytes) {
  std::string read(bytes, '\0');
  const ssize_t size = ::pread(file, read.data(), bytes, at);
  read.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return read;
}

absl::Status WriteNotice(const GrantRow& lun, int file, const std::string& notice) {
  errno = ENOSPC;  // of a short write
  if (::pwrite(file, notice.data(), notice.size(), kFenceNoticeAt) == static_cast<ssize_t>(notice.size()))
    return absl::OkStatus();
  return absl::ErrnoToStatus(
      errno, absl::StrCat("write the fence notice of node ", lun.node.value(), " to heartbeat_luns/",
                          lun.generation, ", without which the node learns of a fence only from the array"));
}

// What a node has to know where both it and its machine are fenced.
FenceNotice Together(const FenceNotice& node, const FenceNotice& machine) {
  FenceNotice both{.generation = std::max(node.generation, machine.generation), .volumes = {}};
  std::set_union(node.volumes.begin(), node.volumes.end(), machine.volumes.begin(), machine.volumes.end(),
                 std::back_inserter(both.volumes));
  return both;
}

}  // namespace

absl::Status HeartbeatLunTable::LoadRows() {
  ASSIGN_OR_RETURN(const std::vector<GrantRow> rows, catalogue_.grants().ListAllHeartbeatLuns());
  const absl::MutexLock lock(&mu_);
  std::set<Generation> known;
  for (const GrantRow& row : rows) {
    InsertRow(row);
    known.insert(row.generation);
  }
  files_.RemoveOthers(known);
  return absl::OkStatus();
}

void HeartbeatLunTable::InsertRow(const GrantRow& row) {
  const auto [at, made] =
      heartbeat_luns_.try_emplace(KeyOf(row), HeartbeatLun{row, HeartbeatWatch(row.node), UniqueFd(), false});
  if (made) at->second.watch.SetKey(row.signing_key);
}

absl::StatusOr<Connection> HeartbeatLunTable::OpenLun(const ClusterId& cluster,
                                                      const HeartbeatLunRequest& request,
                                                      const GrantSecrets& secrets) {
  std::optional<GrantRow> row;
  bool served = false;
  {
    const absl::MutexLock lock(&mu_);
    const auto found = heartbeat_luns_.find({cluster, request.node});
    if (found != heartbeat_luns_.end()) {
      row = found->second.row;
      served = found->second.served;
    }
  }
  if (!row) {
    ASSIGN_OR_RETURN(row, catalogue_.grants().AddHeartbeatLun(cluster, request.node, secrets));
    const absl::MutexLock lock(&mu_);
    InsertRow(*row);
  }
  const bool changes = request.signs == row->signing_key.empty();
  if (changes) {
    ASSIGN_OR_RETURN(row, ChangeKey(*row, request.signs ? RandomSecret() + RandomSecret() : ""));
  }
  if (!served) RETURN_IF_ERROR(ServeLun(*row));
  // Before the node learns of its key, or it would take the notice that is there for a forged one.
  if (changes) {
    ASSIGN_OR_RETURN(const NoticeErrors errors, UpdateFenceNotices());
    if (const auto error = errors.find(KeyOf(*row)); error != errors.end()) return error->second;
  }
  Connection connection = targets_.ConnectionOf(*row);
  connection.signing_key = row->signing_key;
  return connection;
}

absl::StatusOr<GrantRow> HeartbeatLunTable::ChangeKey(GrantRow row, const std::string& key) {
  ASSIGN_OR_RETURN(row.signing_key, catalogue_.grants().SetSigningKey(row.generation, key));
  const absl::MutexLock lock(&mu_);
  const auto found = heartbeat_luns_.find(KeyOf(row));
  if (found == heartbeat_luns_.end() || found->second.row.generation != row.generation)
    return absl::AbortedError("heartbeat LUN: it was forgotten meanwhile; ask again");
  found->second.row = row;
  found->second.watch.SetKey(row.signing_key);
  noted_sequence_ = 0;
  return row;
}

absl::Status HeartbeatLunTable::ServeLun(const GrantRow& row) {
  const absl::MutexLock serving(&serve_mu_);
  RETURN_IF_ERROR(daemon_.WaitReady(absl::InfinitePast()));
  if (!IsKnown(row)) return absl::AbortedError("heartbeat LUN: it was forgotten meanwhile; ask again");
  ASSIGN_OR_RETURN(UniqueFd file, files_.OpenLunFile(row.generation));
  RETURN_IF_ERROR(targets_.OpenTarget(row, LunOf(row), {.path = files_.PathOf(row.generation)}));
  const absl::MutexLock lock(&mu_);
  HeartbeatLun& lun = heartbeat_luns_.at(KeyOf(row));
  lun.file = std::move(file);
  lun.served = true;
  // The first look sets the baseline and is no heartbeat. It has to come before the node gets its connection,
  // or the node's first heartbeat would be taken for old contents.
  LookAt(lun, std::chrono::steady_clock::now());
  noted_sequence_ = 0;
  return absl::OkStatus();
}

absl::Status HeartbeatLunTable::ForgetLun(const GrantRow& row) {
  const absl::MutexLock serving(&serve_mu_);
  RETURN_IF_ERROR(daemon_.WaitReady(absl::InfinitePast()));
  ASSIGN_OR_RETURN(const bool gone, targets_.DrainTarget(row));
  if (!gone) return absl::OkStatus();  // some command still runs; the next search tries again
  RETURN_IF_ERROR(files_.RemoveLunFile(row.generation));
  RETURN_IF_ERROR(catalogue_.grants().DeleteHeartbeatLun(row.generation));
  LogInfo("array", "a heartbeat LUN is forgotten that nobody writes to", {{"node", row.node.value()}});
  const absl::MutexLock lock(&mu_);
  heartbeat_luns_.erase(KeyOf(row));
  return absl::OkStatus();
}

bool HeartbeatLunTable::IsKnown(const GrantRow& row) {
  const absl::MutexLock lock(&mu_);
  const auto found = heartbeat_luns_.find(KeyOf(row));
  return found != heartbeat_luns_.end() && found->second.row.generation == row.generation;
}

std::vector<LandedHeartbeat> HeartbeatLunTable::ListHeartbeats(const ClusterId& cluster) {
  std::vector<LandedHeartbeat> heartbeats;
  const absl::MutexLock lock(&mu_);
  const auto now = std::chrono::steady_clock::now();
  for (auto at = heartbeat_luns_.lower_bound({cluster, NodeId()}); at != heartbeat_luns_.end(); ++at) {
    if (at->first.first != cluster) break;
    if (auto heartbeat = at->second.watch.LastHeartbeat(now)) heartbeats.push_back(*std::move(heartbeat));
  }
  return heartbeats;
}

std::vector<Generation> HeartbeatLunTable::ServeAgain() {
  const absl::MutexLock serving(&serve_mu_);
  const absl::MutexLock lock(&mu_);
  std::vector<Generation> all;
  for (auto& [key, lun] : heartbeat_luns_) {
    lun.served = lun.was_unused = false;
    all.push_back(lun.row.generation);
  }
  return all;
}

void HeartbeatLunTable::LookAtLuns() {
  const std::vector<GrantRow> unserved = LookAtFiles();
  if (!daemon_.WaitReady(absl::InfinitePast()).ok()) return;  // it says so itself
  absl::Status status;
  for (const GrantRow& row : unserved) status.Update(ServeLun(row));
  const absl::StatusOr<NoticeErrors> errors = UpdateFenceNotices();
  status.Update(errors.status());
  if (errors.ok())
    for (const auto& [key, error] : *errors) status.Update(error);
  const auto now = std::chrono::steady_clock::now();
  if (now >= tidy_at_) {
    tidy_at_ = now + absl::ToChronoNanoseconds(tidy_every_);
    for (const GrantRow& row : ListUnused()) status.Update(ForgetLun(row));
  }
  ReportTrouble(status);
}

std::vector<GrantRow> HeartbeatLunTable::LookAtFiles() {
  std::vector<GrantRow> unserved;
  const absl::MutexLock lock(&mu_);
  const auto now = std::chrono::steady_clock::now();
  for (auto& [key, lun] : heartbeat_luns_) {
    if (!lun.served) unserved.push_back(lun.row);
    if (lun.file) LookAt(lun, now);
  }
  return unserved;
}

void HeartbeatLunTable::LookAt(HeartbeatLun& lun, HeartbeatWatch::Time now) {
  const absl::Status seen = lun.watch.TakeBlock(ReadAt(lun.file.get(), 0, kSectorBytes), now);
  if (seen.ok()) return;
  LogWarn("array", "what a node wrote to its heartbeat LUN is refused",
          {{"node", lun.row.node.value()}, {"error", std::string(seen.message())}});
}

// Writes only notices that differ from what the file holds: ListUnused takes a file's time of change for its
// node's last heartbeat, and writing the same again would keep unused LUNs for ever.
absl::StatusOr<HeartbeatLunTable::NoticeErrors> HeartbeatLunTable::UpdateFenceNotices() {
  const uint64_t sequence = catalogue_.sequence();
  {
    const absl::MutexLock lock(&mu_);
    if (noted_sequence_ == sequence) return NoticeErrors();
  }
  std::map<Key, FenceNotice> notices;
  ASSIGN_OR_RETURN(const auto fences, catalogue_.fences().ListAllFences());
  for (const auto& [cluster, records] : fences)
    for (const FenceRecord& fence : records)
      notices[{cluster, fence.node}] = {.generation = fence.generation, .volumes = fence.volumes};
  NoticeErrors errors;
  const absl::MutexLock lock(&mu_);
  for (const auto& [key, lun] : heartbeat_luns_) {
    const Key machine{key.first, MachineId(MachineOf(key.second))};
    const std::string notice =
        WriteFenceNotice(Together(notices[key], notices[machine]), lun.row.signing_key);
    if (lun.file && ReadAt(lun.file.get(), kFenceNoticeAt, kSectorBytes) != notice.substr(0, kSectorBytes))
      if (absl::Status written = WriteNotice(lun.row, lun.file.get(), notice); !written.ok())
        errors[key] = std::move(written);
  }
  if (errors.empty()) noted_sequence_ = sequence;
  return errors;
}

std::vector<GrantRow> HeartbeatLunTable::ListUnused() {
  std::vector<GrantRow> unused;
  const absl::MutexLock lock(&mu_);
  for (auto& [key, lun] : heartbeat_luns_) {
    const bool before = std::exchange(lun.was_unused, IsUnused(lun));
    if (before && lun.was_unused) unused.push_back(lun.row);
  }
  return unused;
}

bool HeartbeatLunTable::IsUnused(const HeartbeatLun& lun) {
  struct stat file {};
  return lun.served && ::fstat(lun.file.get(), &file) == 0 &&
         absl::Now() - absl::TimeFromTimespec(file.st_mtim) > kForgetAfter;
}

void HeartbeatLunTable::ReportTrouble(const absl::Status& status) {
  const std::string trouble(status.message());
  if (trouble == trouble_) return;
  if (!status.ok()) LogWarn("array", "heartbeat LUNs are not in order; trying again", {{"error", trouble}});
  trouble_ = trouble;
}

}  // namespace lunkeeper
