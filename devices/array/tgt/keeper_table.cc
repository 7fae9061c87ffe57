#include "devices/array/tgt/keeper_table.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/heartbeat/keeper_note.h"

namespace lunkeeper {
namespace {

// Longer than a machine is away for a repair; one that comes later is given another.
constexpr absl::Duration kForgetAfter = absl::Hours(7 * 24);
constexpr std::chrono::hours kTidyEvery(1);
constexpr off_t kNoteAt = kNoteBlock * kSectorBytes;

Volume LunOf(const GrantRow& keeper) {
  Volume lun;
  lun.serial = absl::StrFormat("%016x", keeper.generation);
  lun.spec.provisioning = Provisioning::kThick;
  return lun;
}

// What there is of it.
std::string ReadAt(int file, off_t at, size_t bytes) {
  std::string read(bytes, '\0');
  const ssize_t size = ::pread(file, read.data(), bytes, at);
  read.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return read;
}

absl::Status WriteAt(int file, off_t at, const std::string& bytes) {
  if (::pwrite(file, bytes.data(), bytes.size(), at) == static_cast<ssize_t>(bytes.size()))
    return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "write to the file of a keeper LUN");
}

}  // namespace

absl::Status KeeperTable::Load() {
  ASSIGN_OR_RETURN(const std::vector<GrantRow> rows, catalogue_.AllKeepers());
  const absl::MutexLock lock(&mu_);
  for (const GrantRow& row : rows) Insert(row);
  return absl::OkStatus();
}

void KeeperTable::Insert(const GrantRow& row) {
  keepers_.try_emplace(KeyOf(row), Keeper{row, KeeperWatch(row.node), UniqueFd(), false});
}

absl::StatusOr<Connection> KeeperTable::Access(const ClusterId& cluster, const NodeId& node,
                                               const std::string& secret) {
  std::optional<GrantRow> row;
  bool served = false;
  {
    const absl::MutexLock lock(&mu_);
    const auto found = keepers_.find({cluster, node});
    if (found != keepers_.end()) row = found->second.row, served = found->second.served;
  }
  if (!row) {
    ASSIGN_OR_RETURN(row, catalogue_.AddKeeper(cluster, node, secret));
    const absl::MutexLock lock(&mu_);
    Insert(*row);
  }
  if (!served) RETURN_IF_ERROR(Serve(*row));
  return targets_.ConnectionOf(*row);
}

absl::Status KeeperTable::Serve(const GrantRow& row) {
  const absl::MutexLock serving(&serve_mu_);
  RETURN_IF_ERROR(daemon_.WaitReady(absl::InfinitePast()));
  if (!IsKnown(row)) return absl::AbortedError("keeper LUN: it was forgotten meanwhile; ask again");
  const std::string path = pool_.KeeperPath(row.generation);
  ASSIGN_OR_RETURN(UniqueFd file, pool_.OpenKeeper(path));
  RETURN_IF_ERROR(targets_.Open(row, LunOf(row), path));
  const absl::MutexLock lock(&mu_);
  Keeper& keeper = keepers_.at(KeyOf(row));
  keeper.file = std::move(file);
  keeper.served = true;
  LookAt(keeper, std::chrono::steady_clock::now());  // before a node that asked can beat
  noted_sequence_ = 0;
  return absl::OkStatus();
}

absl::Status KeeperTable::Forget(const GrantRow& row) {
  const absl::MutexLock serving(&serve_mu_);
  RETURN_IF_ERROR(daemon_.WaitReady(absl::InfinitePast()));
  ASSIGN_OR_RETURN(const bool gone, targets_.Drain(row));
  if (!gone) return absl::OkStatus();  // next time
  RETURN_IF_ERROR(pool_.Remove(pool_.KeeperPath(row.generation)));
  RETURN_IF_ERROR(catalogue_.DeleteKeeper(row.generation));
  LogInfo("array", "a keeper LUN is forgotten that nobody writes to", {{"node", row.node.value()}});
  const absl::MutexLock lock(&mu_);
  keepers_.erase(KeyOf(row));
  return absl::OkStatus();
}

bool KeeperTable::IsKnown(const GrantRow& row) {
  const absl::MutexLock lock(&mu_);
  const auto found = keepers_.find(KeyOf(row));
  return found != keepers_.end() && found->second.row.generation == row.generation;
}

std::vector<LandedBeat> KeeperTable::Beats(const ClusterId& cluster) {
  std::vector<LandedBeat> beats;
  const absl::MutexLock lock(&mu_);
  const auto now = std::chrono::steady_clock::now();
  for (auto at = keepers_.lower_bound({cluster, NodeId()}); at != keepers_.end(); ++at) {
    if (at->first.first != cluster) break;
    if (auto beat = at->second.watch.Last(now)) beats.push_back(*std::move(beat));
  }
  return beats;
}

std::vector<Generation> KeeperTable::ServeAgain() {
  const absl::MutexLock serving(&serve_mu_);
  const absl::MutexLock lock(&mu_);
  std::vector<Generation> all;
  for (auto& [key, keeper] : keepers_) {
    keeper.served = false;
    all.push_back(keeper.row.generation);
  }
  return all;
}

void KeeperTable::Look() {
  const std::vector<GrantRow> unserved = LookAtFiles();
  if (!daemon_.WaitReady(absl::InfinitePast()).ok()) return;  // it says so itself
  absl::Status status;
  for (const GrantRow& row : unserved) status.Update(Serve(row));
  status.Update(UpdateNotes());
  const auto now = std::chrono::steady_clock::now();
  if (now >= tidy_at_) {
    tidy_at_ = now + kTidyEvery;
    for (const GrantRow& row : Unused()) status.Update(Forget(row));
  }
  Say(status);
}

std::vector<GrantRow> KeeperTable::LookAtFiles() {
  std::vector<GrantRow> unserved;
  const absl::MutexLock lock(&mu_);
  const auto now = std::chrono::steady_clock::now();
  for (auto& [key, keeper] : keepers_) {
    if (!keeper.served) unserved.push_back(keeper.row);
    if (keeper.file) LookAt(keeper, now);
  }
  return unserved;
}

void KeeperTable::LookAt(Keeper& keeper, KeeperWatch::Time now) {
  const absl::Status seen = keeper.watch.See(ReadAt(keeper.file.get(), 0, kSectorBytes), now);
  if (seen.ok()) return;
  LogWarn("array", "what a node wrote to its keeper LUN is refused",
          {{"node", keeper.row.node.value()}, {"error", std::string(seen.message())}});
}

// By looking at what stands there, so that nothing is written that is right: a file's last change is its
// node's last beat.
absl::Status KeeperTable::UpdateNotes() {
  const uint64_t sequence = catalogue_.sequence();
  {
    const absl::MutexLock lock(&mu_);
    if (noted_sequence_ == sequence) return absl::OkStatus();
  }
  std::map<Key, KeeperNote> notes;
  ASSIGN_OR_RETURN(const auto fences, catalogue_.AllFences());
  for (const auto& [cluster, records] : fences)
    for (const FenceRecord& fence : records)
      notes[{cluster, fence.node}] = {.generation = fence.generation, .volumes = fence.volumes};
  const absl::MutexLock lock(&mu_);
  for (const auto& [key, keeper] : keepers_) {
    const std::string note = WriteNote(notes[key]);
    if (keeper.file && ReadAt(keeper.file.get(), kNoteAt, kSectorBytes) != note.substr(0, kSectorBytes))
      RETURN_IF_ERROR(WriteAt(keeper.file.get(), kNoteAt, note));
  }
  noted_sequence_ = sequence;
  return absl::OkStatus();
}

std::vector<GrantRow> KeeperTable::Unused() {
  std::vector<GrantRow> unused;
  const absl::MutexLock lock(&mu_);
  for (const auto& [key, keeper] : keepers_) {
    struct stat file {};
    if (!keeper.file || ::fstat(keeper.file.get(), &file) != 0) continue;
    if (absl::Now() - absl::TimeFromTimespec(file.st_mtim) > kForgetAfter) unused.push_back(keeper.row);
  }
  return unused;
}

void KeeperTable::Say(const absl::Status& status) {
  const std::string trouble(status.message());
  if (trouble == trouble_) return;
  if (!status.ok()) LogWarn("array", "keeper LUNs are not in order; trying again", {{"error", trouble}});
  trouble_ = trouble;
}

}  // namespace lunkeeper
