#pragma once
// Who streams to whom, so that neither many callers nor one that takes nothing can hold the server's threads:
// each stream has one. There are only so many places, and a stream that gets nowhere for too long is
// cancelled. Thread-safe; has a thread of its own.

#include <grpcpp/server_context.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/periodic.h"

namespace lunkeeper {

struct StreamLimits {
  size_t streams = 64;
  // Of a caller that copies what a message names before it takes the next one, this is all the time it has.
  absl::Duration stall = absl::Minutes(10);
};

class StreamWatch {
 public:
  explicit StreamWatch(const StreamLimits& limits)
      : limits_(limits), look_(limits.stall / 10, [this] { CancelStalled(); }) {}

  // A running stream; it is the service's to destroy before the call returns.
  class Place {
   public:
    Place(StreamWatch& watch, grpc::ServerContext* context) : watch_(watch), context_(context) { NoteStep(); }
    ~Place() {
      const absl::MutexLock lock(&watch_.mutex_);
      watch_.steps_.erase(context_);
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    // The stream has got on.
    void NoteStep() {
      const absl::MutexLock lock(&watch_.mutex_);
      watch_.steps_[context_] = Clock::now();
    }

   private:
    StreamWatch& watch_;
    grpc::ServerContext* const context_;
  };

  // Null: there are as many as may be.
  std::unique_ptr<Place> TakePlace(grpc::ServerContext* context) {
    {
      const absl::MutexLock lock(&mutex_);
      if (steps_.size() >= limits_.streams) return nullptr;
      steps_[context] = Clock::now();
    }
    return std::make_unique<Place>(*this, context);
  }

 private:
  using Clock = std::chrono::steady_clock;
  // Its next write, or the one that it waits for, then fails.
  void CancelStalled() {
    const absl::MutexLock lock(&mutex_);
    const auto longest_ago = Clock::now() - absl::ToChronoNanoseconds(limits_.stall);
    for (const auto& [context, step] : steps_)
      if (step < longest_ago) context->TryCancel();
  }

  const StreamLimits limits_;
  absl::Mutex mutex_;
  std::map<grpc::ServerContext*, Clock::time_point> steps_ ABSL_GUARDED_BY(mutex_);  // the last of each
  Periodic look_;  // last: its thread uses the others
};

}  // namespace lunkeeper
