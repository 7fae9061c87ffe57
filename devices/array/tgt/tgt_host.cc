#include "devices/array/tgt/tgt_host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr size_t kBootIdDigits = 16;
constexpr size_t kWorkers = 8;  // that release grants

absl::Status CheckName(const std::string& name) {
  const bool fine = !name.empty() && name.size() <= 32 &&
                    name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
  if (fine) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("open array '", name, "': a name has 1 to 32 of a-z, 0-9 and -"));
}

absl::StatusOr<std::string> ReadBootId(const std::string& path) {
  std::ifstream file(path);
  std::string line, digits;
  std::getline(file, line);
  for (const char c : line) {
    if (std::isxdigit(static_cast<unsigned char>(c)) != 0 && digits.size() < kBootIdDigits)
      digits.push_back(c);
  }
  if (digits.size() == kBootIdDigits) return digits;
  return absl::FailedPreconditionError(absl::StrCat("open array: ", path, " holds no boot id"));
}

absl::Status NotOver(const std::vector<GrantRow>& grants, const absl::Status& trouble) {
  return absl::DeadlineExceededError(
      absl::StrCat("volume ", grants.front().volume.value(), ": the commands of node ",
                   grants.front().node.value(), " are not over, nor those of ", grants.size() - 1,
                   " other grants", trouble.ok() ? "" : absl::StrCat(" (", trouble.message(), ")"),
                   "; the node can log in no more, and this goes on; repeat the call"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TgtArrayHost>> OpenTgtArray(const TgtArrayOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<TgtHost> host, TgtHost::Open(options));
  return std::unique_ptr<TgtArrayHost>(std::move(host));
}

absl::StatusOr<std::unique_ptr<TgtHost>> TgtHost::Open(const TgtArrayOptions& options) {
  std::unique_ptr<TgtHost> host(new TgtHost(options));
  RETURN_IF_ERROR(host->Prepare());
  RETURN_IF_ERROR(host->ReadSeenSequence(&host->seen_sequence_at_open_));
  if (host->Sequence() < host->seen_sequence_at_open_) {
    LogError("array", std::string(host->Serving().message()));
    return host;
  }
  RETURN_IF_ERROR(host->Serve(false));
  return host;
}

TgtHost::~TgtHost() {
  if (heartbeat_luns) heartbeat_luns->Stop();
  daemon.reset();
  copies.reset();
}

absl::Status TgtHost::Prepare() {
  RETURN_IF_ERROR(CheckName(options.name));
  ASSIGN_OR_RETURN(const std::string boot_id, ReadBootId(options.boot_id_path));
  ASSIGN_OR_RETURN(pool, Pool::Open(options.pool_dir));
  ASSIGN_OR_RETURN(const std::vector<std::string> files, pool->Files());
  if (!files.empty() && ::access(pool->CataloguePath().c_str(), F_OK) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("open pool ", options.pool_dir, ": it has ",
                                                      files.size(),
                                                      " volumes but no catalogue; restore catalogue.db"));
  }
  ASSIGN_OR_RETURN(catalogue, Catalogue::Open(pool->CataloguePath(), options.name));
  daemon = std::make_unique<TgtDaemon>(
      TgtDaemonOptions{.control_port = options.control_port,
                       .portal = options.portal,
                       .binary = options.tgtd_binary,
                       .io_threads = options.tgtd_io_threads,
                       .log_path = options.tgtd_log_path},
      [this](bool taken_over) { return PutBack(taken_over); }, [this] { Tick(); });
  targets = std::make_unique<TargetTable>(
      &daemon->client(),
      TargetTableOptions{.array = options.name, .portal = options.portal, .host_boot_id = boot_id});
  heartbeat_luns = std::make_unique<HeartbeatLunTable>(*catalogue, *pool, *targets, *daemon);
  copies = std::make_unique<Copies>();
  return absl::OkStatus();
}

absl::Status TgtHost::ReadSeenSequence(uint64_t* sequence) {
  *sequence = 0;
  if (options.seen_sequence_path.empty()) return absl::OkStatus();
  seen_file_ = UniqueFd(::open(options.seen_sequence_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!seen_file_) {
    return absl::FailedPreconditionError(
        absl::StrCat("open array: ", options.seen_sequence_path, ": ", std::strerror(errno)));
  }
  char text[32] = {};
  const ssize_t size = ::pread(seen_file_.get(), text, sizeof(text) - 1, 0);
  if (size == 0) return absl::OkStatus();
  if (size > 0 && absl::SimpleAtoi(text, sequence)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("open array: ", options.seen_sequence_path,
                                                    " holds no number; remove it if the pool is the newest"));
}

absl::Status TgtHost::Serving() const {
  if (serving_) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "array ", options.name, " does not serve: its catalogue has seen ", Sequence(), " changes, but ",
      seen_sequence_at_open_,
      " are remembered: the pool was restored from an older "
      "copy. Volumes may have other contents and other holders than the cluster believes. Stop what uses "
      "them, then run `lunkeeper accept-restore`, which ends every grant"));
}

absl::Status TgtHost::AcceptRestore() {
  const absl::MutexLock lock(&restore_mu_);
  if (serving_) return absl::OkStatus();
  RETURN_IF_ERROR(catalogue->SkipTo(seen_sequence_at_open_));
  FAIL_POINT("array.restore.accepted");
  return Serve(true);
}

absl::Status TgtHost::Serve(bool set_orphans_aside) {
  RETURN_IF_ERROR(TidyFiles(set_orphans_aside));
  RETURN_IF_ERROR(ResumeCopies());
  RETURN_IF_ERROR(heartbeat_luns->Load());
  RETURN_IF_ERROR(daemon->Start());
  heartbeat_luns->Start();
  serving_ = true;
  Remember();
  return absl::OkStatus();
}

// A file without a row is what a create or a delete left that was cut short.
absl::Status TgtHost::TidyFiles(bool set_orphans_aside) {
  std::set<std::string> known;
  ASSIGN_OR_RETURN(const std::vector<VolumeRow> volumes, catalogue->AllVolumes());
  for (const VolumeRow& row : volumes) known.insert(pool->VolumePath(row.volume.id));
  ASSIGN_OR_RETURN(const std::vector<SnapshotRow> snapshots, catalogue->AllSnapshots());
  for (const SnapshotRow& row : snapshots) known.insert(pool->SnapshotPath(row.snapshot.id));
  ASSIGN_OR_RETURN(const std::vector<std::string> files, pool->Files());
  for (const std::string& file : files) {
    if (known.count(file) != 0) continue;
    LogInfo("array", set_orphans_aside ? "setting an unknown file aside" : "removing a left-over file",
            {{"file", file}});
    RETURN_IF_ERROR(set_orphans_aside ? pool->SetAside(file) : pool->Remove(file));
  }
  return absl::OkStatus();
}

absl::Status TgtHost::ResumeCopies() {
  ASSIGN_OR_RETURN(const std::vector<VolumeRow> volumes, catalogue->AllVolumes());
  for (const VolumeRow& row : volumes) {
    const VolumeSpec& spec = row.volume.spec;
    if (!row.copying) continue;
    BeginCopy(row, spec.source_volume.empty() ? pool->SnapshotPath(spec.source_snapshot)
                                              : pool->VolumePath(spec.source_volume));
  }
  ASSIGN_OR_RETURN(const std::vector<SnapshotRow> snapshots, catalogue->AllSnapshots());
  for (const SnapshotRow& row : snapshots) {
    if (!row.snapshot.ready) BeginCopy(row);
  }
  return absl::OkStatus();
}

void TgtHost::BeginCopy(const VolumeRow& row, const std::string& from) {
  copies->Begin(row.volume.id.value(), [this, row, from](const std::function<bool(uint64_t)>& progress) {
    const Volume& volume = row.volume;
    absl::Status status = pool->Copy(from, pool->VolumePath(volume.id), volume.spec.size_bytes,
                                     volume.spec.provisioning, progress);
    if (absl::IsCancelled(status)) return status;  // done again at the next start
    if (status.ok()) status = catalogue->SetVolumeReady(volume.id);
    if (!status.ok()) catalogue->DeleteVolume(volume.id).IgnoreError();
    gates.WakeWaiters(volume.spec.source_volume);
    return status;
  });
}

void TgtHost::BeginCopy(const SnapshotRow& row) {
  copies->Begin(row.snapshot.id.value(), [this, row](const std::function<bool(uint64_t)>& progress) {
    const Snapshot& snapshot = row.snapshot;
    absl::Status status = pool->Copy(pool->VolumePath(snapshot.source), pool->SnapshotPath(snapshot.id),
                                     snapshot.size_bytes, Provisioning::kThin, progress);
    if (absl::IsCancelled(status)) return status;
    if (status.ok()) status = catalogue->SetSnapshotReady(snapshot.id);
    if (!status.ok()) catalogue->DeleteSnapshot(snapshot.id).IgnoreError();
    gates.WakeWaiters(snapshot.source);
    return status;
  });
}

absl::Status TgtHost::PutBack(bool taken_over) {
  const std::vector<Generation> served = heartbeat_luns->ServeAgain();
  ASSIGN_OR_RETURN(const std::vector<TgtTarget> there, targets->LookAgain());
  ASSIGN_OR_RETURN(const std::vector<GrantRow> grants, catalogue->AllGrants());
  std::map<int32_t, bool> open;
  for (const TgtTarget& target : there) open[target.number] = target.open;
  for (const Generation lun : served) open.erase(static_cast<int32_t>(lun));
  std::vector<GrantRow> releasing;
  for (const GrantRow& grant : grants) {
    const auto found = open.find(static_cast<int32_t>(grant.generation));
    const bool is_open = found != open.end() && found->second;
    if (found != open.end()) open.erase(found);
    if (grant.releasing) releasing.push_back(grant);
    if (grant.releasing) continue;
    // One that is open may have been paused for growing.
    RETURN_IF_ERROR(is_open ? targets->Resume(grant) : PutBackOne(grant));
  }
  if (!open.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("tgtd serves ", open.size(), " targets that the catalogue does not know"));
  }
  FAIL_POINT("array.tgtd.put_back");
  const absl::Status finished = FinishReleasing(std::move(releasing), absl::Now() + options.drain_timeout);
  if (!finished.ok())
    LogWarn("array", std::string(finished.message()), {{"taken over", taken_over ? "yes" : "no"}});
  return absl::OkStatus();
}

absl::Status TgtHost::PutBackOne(const GrantRow& grant) {
  const auto pass = gates.Enter(grant.volume, absl::Now() + kGateTimeout);
  if (!pass.has_value()) {
    return absl::UnavailableError(absl::StrCat("put back volume ", grant.volume.value(), ": it stays busy"));
  }
  targets->Forget(grant);
  const absl::Status opened = OpenTarget(grant);
  if (opened.ok() || absl::IsUnavailable(opened)) return opened;
  // One volume that cannot be served, its file gone for instance, does not keep the others from being served.
  LogError("array", absl::StrCat("put back volume ", grant.volume.value(), ": ", opened.message()));
  return absl::OkStatus();
}

absl::Status TgtHost::OpenTarget(const GrantRow& grant) {
  ASSIGN_OR_RETURN(const std::optional<GrantRow> now, catalogue->FindGeneration(grant.generation));
  if (!now.has_value() || now->releasing) return absl::OkStatus();
  ASSIGN_OR_RETURN(const VolumeRow row, catalogue->FindVolume(grant.cluster, grant.volume));
  return targets->Open(grant, row.volume, pool->VolumePath(grant.volume));
}

absl::Status TgtHost::GrowLun(const GrantRow& grant, const std::string& path) {
  const absl::Time deadline = absl::Now() + options.drain_timeout;
  absl::StatusOr<bool> quiet = targets->Pause(grant);
  while (quiet.ok() && !*quiet && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(2));
    quiet = targets->Pause(grant);
  }
  FAIL_POINT("array.expand.paused");
  absl::Status grown = quiet.status();
  if (grown.ok()) {
    grown = *quiet ? targets->Resize(grant, path)
                   : absl::UnavailableError(
                         absl::StrCat("volume ", grant.volume.value(), ": its commands are not over"));
  }
  const absl::Status resumed = targets->EndPause(grant);
  return grown.ok() ? resumed : grown;
}

absl::StatusOr<bool> TgtHost::ReleaseStep(const GrantRow& grant) {
  const auto pass = gates.Enter(grant.volume, absl::InfinitePast());
  if (!pass.has_value()) return false;
  ASSIGN_OR_RETURN(const std::optional<GrantRow> now, catalogue->FindGeneration(grant.generation));
  if (!now.has_value()) return true;
  return targets->Drain(grant);
}

// Several at a time: a step is a handful of calls to tgtd, each as long as it takes two processes to wake
// each other.
std::vector<absl::StatusOr<bool>> TgtHost::ReleaseSteps(const std::vector<GrantRow>& grants) {
  std::vector<absl::StatusOr<bool>> steps(grants.size(), false);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < grants.size(); i = next++) steps[i] = ReleaseStep(grants[i]);
  };
  std::vector<std::jthread> workers(std::min(kWorkers, grants.size()) - 1);
  for (std::jthread& worker : workers) worker = std::jthread(work);
  work();
  workers.clear();
  return steps;
}

// The rows of grants whose targets are gone, in one change.
absl::Status TgtHost::ForgetGrants(const std::vector<GrantRow>& grants) {
  std::vector<Generation> generations;
  for (const GrantRow& grant : grants) generations.push_back(grant.generation);
  RETURN_IF_ERROR(catalogue->DeleteGrants(generations));
  FAIL_POINT("array.release.rows_deleted");
  for (const GrantRow& grant : grants) gates.WakeWaiters(grant.volume);
  return absl::OkStatus();
}

absl::Status TgtHost::FinishReleasing(std::vector<GrantRow> grants, absl::Time deadline) {
  absl::Duration pause = absl::Milliseconds(1);
  absl::Status trouble;
  while (!grants.empty()) {
    std::vector<GrantRow> gone, left;
    const std::vector<absl::StatusOr<bool>> steps = ReleaseSteps(grants);
    for (size_t i = 0; i < grants.size(); ++i) {
      if (!steps[i].ok()) trouble = steps[i].status();
      (steps[i].ok() && *steps[i] ? gone : left).push_back(std::move(grants[i]));
    }
    if (!gone.empty()) RETURN_IF_ERROR(ForgetGrants(gone));
    grants = std::move(left);
    if (grants.empty()) break;
    if (absl::Now() >= deadline) return NotOver(grants, trouble);
    absl::SleepFor(pause);
    pause = std::min(pause * 2, absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

void TgtHost::Tick() {
  if (seen_file_) ::fdatasync(seen_file_.get());
  const auto grants = catalogue->GrantsBeingReleased();
  if (!grants.ok() || grants->empty()) return;
  FinishReleasing(*grants, absl::InfinitePast()).IgnoreError();
}

// Not synced here: a power cut may lose the last second of it, never a restore from a backup.
void TgtHost::Remember() {
  if (!seen_file_) return;
  const absl::MutexLock lock(&seen_mu_);
  const uint64_t sequence = Sequence();
  if (sequence <= remembered_) return;
  const std::string text = absl::StrFormat("%020u\n", sequence);
  if (::pwrite(seen_file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    remembered_ = sequence;
  } else {
    LogWarn("array", "cannot remember the sequence", {{"file", options.seen_sequence_path}});
  }
}

TgtHost::Claim::Claim(TgtHost* host, std::string name) : host_(host), name_(std::move(name)) {
  const absl::MutexLock lock(&host_->claims_mu_);
  held_ = host_->claims_.insert(name_).second;
}

TgtHost::Claim::~Claim() {
  if (!held_) return;
  const absl::MutexLock lock(&host_->claims_mu_);
  host_->claims_.erase(name_);
}

absl::Status TgtHost::Claim::status() const {
  if (held_) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(name_, ": another call is working on it; try again"));
}

std::unique_ptr<Array> TgtHost::ForCluster(const ClusterId& cluster) {
  return std::make_unique<TgtArray>(this, cluster);
}

}  // namespace lunkeeper
