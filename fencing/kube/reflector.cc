#include "fencing/kube/reflector.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "fencing/kube/call_pool.h"

namespace lunkeeper::kube {
namespace {

// Waits longer after each failure in a row, and never in step with other replicas.
class BackOff {
 public:
  explicit BackOff(const WatchTimes& times) : first_(times.first_pause), longest_(times.longest_pause) {}
  void Reset() { next_ = first_; }
  absl::Duration Next() {
    const absl::Duration pause = next_ * std::uniform_real_distribution<>(0.5, 1.0)(random_);
    next_ = std::min(next_ * 2, longest_);
    return pause;
  }

 private:
  const absl::Duration first_, longest_;
  absl::Duration next_ = first_;
  std::minstd_rand random_{std::random_device{}()};
};

// Nothing is wrong with what we know: the watch can go on where it was.
bool GoesOn(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Versions of one kind of objects are numbers that rise with each change.
bool IsOlder(const std::string& version, const std::string& than) {
  uint64_t a = 0, b = 0;
  return absl::SimpleAtoi(version, &a) && absl::SimpleAtoi(than, &b) && a < b;
}

class ListWatchReflector final : public Reflector {
 public:
  ListWatchReflector(KubeClient& client, Selection selection, WatchSink& sink, const WatchTimes& times)
      : client_(client),
        selection_(std::move(selection)),
        sink_(sink),
        times_(times),
        thread_([this](const std::stop_token& stop) { Run(stop); }) {}

 private:
  void Run(const std::stop_token& stop) {
    BackOff back_off(times_);
    while (!stop.stop_requested()) {
      const absl::Time start = absl::Now();
      const absl::Status status = Round(stop);
      if (stop.stop_requested()) return;
      if (!status.ok()) Failed(status);
      // A watch that stood for a while was a success, even if it was lost in the end.
      const bool stood = absl::Now() - start > std::min(times_.longest_pause, times_.watch / 2);
      if (stood) back_off.Reset();
      if (status.ok() && stood) continue;
      if (!WaitUntil(absl::Now() + back_off.Next(), stop)) return;
    }
  }

  // Up to the end of one watch, in order or not.
  absl::Status Round(const std::stop_token& stop) {
    if (!version_.empty()) RETURN_IF_ERROR(ForgetIfRestored(stop));
    if (version_.empty()) RETURN_IF_ERROR(List(stop));
    return Watch(stop);
  }

  absl::Status List(const std::stop_token& stop) {
    sink_.Listing();
    PageRequest page;
    PageEnd end;
    do {
      ASSIGN_OR_RETURN(end, client_.List(selection_, page, [this](const Json& object) { sink_.Seen(object); },
                                         {absl::Now() + times_.call, stop}));
      page.next = end.next;
    } while (!page.next.empty());
    sink_.Listed();
    version_ = end.version;
    return absl::OkStatus();
  }

  // An API server whose store was restored from an older copy would watch from our version in silence.
  absl::Status ForgetIfRestored(const std::stop_token& stop) {
    PageRequest one;
    one.most = 1;
    ASSIGN_OR_RETURN(const PageEnd now,
                     client_.List(selection_, one, [](const Json&) {}, {absl::Now() + times_.call, stop}));
    if (!IsOlder(now.version, version_)) return absl::OkStatus();
    LogWarn("kube", "the API server went back in time; listing everything again",
            {{"kind", selection_.resource.plural}, {"known", version_}, {"now", now.version}});
    version_.clear();
    return absl::OkStatus();
  }

  absl::Status Watch(const std::stop_token& stop) {
    const absl::Time now = absl::Now();
    ASSIGN_OR_RETURN(const auto stream,
                     client_.Watch(selection_, version_, now + times_.call, {now + times_.watch, stop}));
    SetLive(true);
    while (true) {
      ASSIGN_OR_RETURN(const std::optional<Change> change, stream->Next());
      if (!change) return absl::OkStatus();
      if (change->type == ChangeType::kDeleted) {
        sink_.Gone(change->object);
      } else if (change->type != ChangeType::kBookmark) {
        sink_.Seen(change->object);
      }
      version_ = TextAt(change->object, {"metadata", "resourceVersion"});
    }
  }

  void Failed(const absl::Status& status) {
    SetLive(false);
    if (!GoesOn(status)) version_.clear();
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
    if (live != std::exchange(live_, live)) sink_.Live(live);
  }

  KubeClient& client_;
  const Selection selection_;
  WatchSink& sink_;
  const WatchTimes times_;
  // Of the thread.
  std::string version_;  // what was heard up to here; empty: nothing, or nothing that is still good
  std::string last_error_;
  bool live_ = false;
  std::jthread thread_;
};

}  // namespace

std::unique_ptr<Reflector> StartReflector(KubeClient& client, const Selection& selection, WatchSink& sink,
                                          const WatchTimes& times) {
  return std::make_unique<ListWatchReflector>(client, selection, sink, times);
}

}  // namespace lunkeeper::kube
