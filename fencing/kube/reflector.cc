#include "fencing/kube/reflector.h"

#include <algorithm>
#include <functional>
#include <random>
#include <stop_token>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status_macros.h"

// One thread goes through these states until the destructor stops it:
//
//          +--------------------- expired, garbage, restored, ListAgain -------------------+
//          v                                                                               |
//   no version --ListAll, all pages--> version known --RunWatch--> live --stream ends--> not live
//                                            ^                                             |
//                                            +------- lost connection, silence, end -------+
//
// `version_` is the whole memory. While it is kept, the next watch resumes where the last one ended and the
// list is not fetched again; with 100,000 pods that list is what hurts the API server.
namespace lunkeeper::kube {
namespace {

// Pauses that double with each failure in a row. The random factor keeps replicas, and the watches within
// one, from returning to a restarted API server in step.
class BackOff {
 public:
  BackOff(const WatchTimes& times, size_t seed)
      : first_(times.first_pause),
        longest_(times.longest_pause),
        random_(static_cast<std::minstd_rand::result_type>(seed)) {}
  void ResetPause() { next_ = first_; }
  absl::Duration NextPause() {
    const absl::Duration pause = next_ * std::uniform_real_distribution<>(0.5, 1.0)(random_);
    next_ = std::min(next_ * 2, longest_);
    return pause;
  }

 private:
  const absl::Duration first_, longest_;
  absl::Duration next_ = first_;
  std::minstd_rand random_;
};

// Whether the version is still good after this failure: only the connection broke.
bool CanResume(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Compares resource versions. Kubernetes calls them opaque, but they are etcd's revisions: numbers that rise
// with each change. Other texts never compare as older.
bool IsOlder(const std::string& version, const std::string& than) {
  uint64_t a = 0, b = 0;
  return absl::SimpleAtoi(version, &a) && absl::SimpleAtoi(than, &b) && a < b;
}

class ListWatchReflector final : public Reflector {
 public:
  ListWatchReflector(KubeClient& client, Selection selection, WatchSink& sink, const WatchTimes& times,
                     Executor& executor)
      : client_(client),
        selection_(std::move(selection)),
        sink_(sink),
        times_(times),
        executor_(executor),
        stopped_(executor.MakeSignal()),
        thread_(executor.StartThread([this] { Run(stopping_.get_token()); })) {}
  ~ListWatchReflector() override {
    stopping_.request_stop();
    stopped_->Set();
    thread_.reset();
  }

  void ListAgain() override {
    std::stop_source watch;
    {
      absl::MutexLock lock(&mutex_);
      list_again_ = true;
      watch = watch_;
    }
    watch.request_stop();
  }

 private:
  void Run(const std::stop_token& stop) {
    // No two replicas, and no two kinds of one, start at the same time.
    const auto start_time = static_cast<size_t>(absl::ToInt64Nanoseconds(executor_.SteadyNow()));
    BackOff back_off(times_, start_time ^ std::hash<std::string>()(selection_.resource.plural));
    while (!stop.stop_requested()) {
      const absl::Duration start = executor_.SteadyNow();
      const absl::Status status = RunRound(stop);
      if (stop.stop_requested()) return;
      if (!status.ok()) ReportFailure(status);
      // A watch that worked for a while was a success, even if it was lost in the end.
      const bool stood = executor_.SteadyNow() - start > std::min(times_.longest_pause, times_.watch / 2);
      if (stood) back_off.ResetPause();
      if (status.ok() && stood) continue;
      if (stopped_->WaitFor(back_off.NextPause())) return;
    }
  }

  // One watch from its opening to its end, with the list before it when there is no version.
  absl::Status RunRound(const std::stop_token& stop) {
    std::stop_source watch;
    const std::stop_callback end(stop, [&] { watch.request_stop(); });
    BeginRound(watch);
    if (!version_.empty()) RETURN_IF_ERROR(ForgetIfRestored(stop));
    if (version_.empty()) RETURN_IF_ERROR(ListAll(stop));
    const absl::Status status = RunWatch(watch.get_token());
    return watch.stop_requested() ? absl::OkStatus() : status;  // ListAgain is no failure
  }

  void BeginRound(const std::stop_source& watch) {
    absl::MutexLock lock(&mutex_);
    watch_ = watch;
    if (list_again_) version_.clear();
  }

  // The version of the last page is the watch's start; the server keeps it the same for all pages of a list.
  absl::Status ListAll(const std::stop_token& stop) {
    sink_.OnListStart();
    PageRequest page;
    PageEnd end;
    do {
      ASSIGN_OR_RETURN(
          end, client_.ListPage(selection_, page, [this](const Json& object) { sink_.OnObject(object); },
                                {executor_.WallNow() + times_.call, stop}));
      page.next = end.next;
    } while (!page.next.empty());
    {
      absl::MutexLock lock(&mutex_);
      list_again_ = false;  // before OnListEnd: a sink may have noted until now what it is then to say again
    }
    sink_.OnListEnd();
    version_ = end.version;
    return absl::OkStatus();
  }

  // When etcd was restored from a backup, its revision is lower than ours. A watch from a future revision is
  // accepted and stays silent until that revision is reached, and all changes up to there would be lost. A
  // list of one object before each watch tells the current revision.
  absl::Status ForgetIfRestored(const std::stop_token& stop) {
    PageRequest one;
    one.most = 1;
    ASSIGN_OR_RETURN(const PageEnd now, client_.ListPage(selection_, one, [](const Json&) {},
                                                         {executor_.WallNow() + times_.call, stop}));
    if (!IsOlder(now.version, version_)) return absl::OkStatus();
    LogWarn("kube", "the API server went back in time; listing everything again",
            {{"kind", selection_.resource.plural}, {"known", version_}, {"now", now.version}});
    version_.clear();
    return absl::OkStatus();
  }

  // Ends with the stream. A version is taken from each event, also from bookmarks, whose only purpose it is.
  absl::Status RunWatch(const std::stop_token& stop) {
    const absl::Time now = executor_.WallNow();
    ASSIGN_OR_RETURN(const auto stream,
                     client_.OpenWatch(selection_, version_, now + times_.call, {now + times_.watch, stop}));
    SetLive(true);
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<Change> change, stream->Next());
      if (!change) return absl::OkStatus();
      if (change->type == ChangeType::kDeleted) {
        sink_.OnDeleted(change->object);
      } else if (change->type != ChangeType::kBookmark) {
        sink_.OnObject(change->object);
      }
      version_ = TextAt(change->object, {"metadata", "resourceVersion"});
    }
  }

  // An error that repeats is logged once, until a watch has worked again.
  void ReportFailure(const absl::Status& status) {
    SetLive(false);
    if (!CanResume(status)) version_.clear();
    const std::string error(status.message());
    if (error == last_error_) return;
    last_error_ = error;
    LogWarn("kube", "watching failed; trying again",
            {{"kind", selection_.resource.plural}, {"error", error}});
  }

  void SetLive(bool live) {
    if (live && !last_error_.empty())
      LogInfo("kube", "watching again", {{"kind", selection_.resource.plural}});
    if (live) last_error_.clear();
    if (live != std::exchange(live_, live)) sink_.OnLive(live);
  }

  KubeClient& client_;
  const Selection selection_;
  WatchSink& sink_;
  const WatchTimes times_;
  Executor& executor_;
  // Used by the thread only.
  std::string version_;  // everything up to this version was delivered; empty: start with a list
  std::string last_error_;
  bool live_ = false;
  absl::Mutex mutex_;
  bool list_again_ ABSL_GUARDED_BY(mutex_) = false;
  std::stop_source watch_ ABSL_GUARDED_BY(mutex_);  // of this round
  std::stop_source stopping_;
  const std::unique_ptr<Signal> stopped_;
  std::unique_ptr<Thread> thread_;  // last: it uses the other members
};

}  // namespace

std::unique_ptr<Reflector> StartReflector(KubeClient& client, const Selection& selection, WatchSink& sink,
                                          const WatchTimes& times, Executor& executor) {
  return std::make_unique<ListWatchReflector>(client, selection, sink, times, executor);
}

}  // namespace lunkeeper::kube
