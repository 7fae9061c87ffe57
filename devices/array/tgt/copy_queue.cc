// A job stays in the table until the last caller that waits for it has taken its result; a job for which
// nobody waits goes when it ends. So a caller that gave up with ABORTED and comes back later either finds the
// job still running, or its row ready, or its row gone.
#include "devices/array/tgt/copy_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lunkeeper {

CopyQueue::CopyQueue() : worker_([this] { RunCopies(); }) {}

CopyQueue::~CopyQueue() {
  {
    const SteadyLock lock(&mu_);
    stop_ = true;
  }
  worker_.join();
}

void CopyQueue::BeginCopy(const std::string& id, uint64_t total_bytes, Work work) {
  const SteadyLock lock(&mu_);
  const auto [job, is_new] = jobs_.try_emplace(id);
  if (!is_new) return;
  job->second.work = std::move(work);
  job->second.total_bytes = total_bytes;
  queue_.push_back(id);
}

// For people: it becomes an event of the claim that waits.
std::string CopyQueue::Describe(const std::string& id, const Job& job) const {
  const auto before = std::find(queue_.begin(), queue_.end(), id) - queue_.begin();
  if (static_cast<size_t>(before) < queue_.size())
    return absl::StrCat("the copy waits for the one under way",
                        before == 0 ? "" : absl::StrCat(" and ", before, " more"));
  return absl::StrCat("the copy is under way, at ", job.done_bytes >> 20, " of ", job.total_bytes >> 20,
                      " MiB");
}

absl::Status CopyQueue::WaitForCopy(const std::string& id, absl::Time deadline) {
  const SteadyLock lock(&mu_);
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return absl::OkStatus();
  ++found->second.waiting;
  const auto ended = [this, &id]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return jobs_.at(id).ended; };
  const bool in_time = mu_.AwaitUntil(absl::Condition(&ended), SteadyDeadline(deadline));
  Job& job = jobs_.at(id);
  --job.waiting;
  // The job stays, and is not begun anew when the caller repeats its call.
  if (!in_time) {
    return absl::AbortedError(absl::StrCat(id, ": ", Describe(id, job), "; try again"));
  }
  absl::Status result = job.result;
  if (job.waiting == 0) jobs_.erase(id);
  return result;
}

void CopyQueue::RunCopies() {
  while (true) {
    std::string id;
    Work work;
    {
      const SteadyLock lock(&mu_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stop_ || !queue_.empty(); };
      mu_.Await(absl::Condition(&ready));
      if (stop_) return;
      id = std::move(queue_.front());
      queue_.pop_front();
      work = std::move(jobs_.at(id).work);
    }
    const absl::Status result =
        work([this, &id](uint64_t done_bytes) { return NoteProgress(id, done_bytes); });
    const SteadyLock lock(&mu_);
    Job& job = jobs_.at(id);
    job.ended = true;
    job.result = result;
    if (job.waiting == 0) jobs_.erase(id);
  }
}

bool CopyQueue::NoteProgress(const std::string& id, uint64_t done_bytes) {
  const SteadyLock lock(&mu_);
  jobs_.at(id).done_bytes = done_bytes;
  return !stop_;
}

}  // namespace lunkeeper
