// The sending thread calls SendHeartbeat, EndReason, Cancel and AwaitEnd; gRPC calls the On... methods, for
// one event at a time.
//
// The owner destroys a stream only after its end. A stream must not destroy itself in OnDone: it may hold the
// last reference to a channel, and gRPC 1.51 frees a process's last channel without waiting when that happens
// on one of gRPC's own threads, which then go on using what was freed.

#include "fencing/agent/heartbeat_stream.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "fencing/protocol/coordinator.grpc.pb.h"
#include "fencing/protocol/messages.h"

namespace lunkeeper {
namespace {

class HeartbeatStream final
    : public HeartbeatConnection,
      public grpc::ClientBidiReactor<coordinator::v1::Heartbeat, coordinator::v1::HeartbeatAnswer> {
 public:
  using OnAnswer = std::function<void(const coordinator::v1::HeartbeatAnswer&)>;

  // Waits for SetEnd, which may still hold the mutex when AwaitEnd returns.
  ~HeartbeatStream() override { const absl::MutexLock ended(&mutex_); }

  static std::unique_ptr<HeartbeatStream> BeginStream(std::shared_ptr<const Replica> replica,
                                                      OnAnswer on_answer) {
    std::unique_ptr<HeartbeatStream> stream(new HeartbeatStream(std::move(replica), std::move(on_answer)));
    if (const absl::Status status = stream->replica_->PrepareCall(&stream->context_, absl::InfiniteFuture());
        !status.ok()) {
      stream->SetEnd(std::string(status.message()));
      return stream;
    }
    stream->replica_->stub->async()->Heartbeats(&stream->context_, stream.get());
    // Heartbeats are written outside of gRPC's callbacks. Without a hold, gRPC would call OnDone as soon as
    // no read or write is in progress (client_callback.h, AddHold).
    stream->AddHold();
    stream->StartRead(&stream->answer_);
    stream->StartCall();
    return stream;
  }

  // gRPC allows one write at a time.
  void SendHeartbeat(const fencing::Heartbeat& heartbeat, const DeviceDetails& details) override {
    absl::MutexLock lock(&mutex_);
    if (writing_ || closed_) return;
    writing_ = true;
    heartbeat_ = WriteHeartbeat(heartbeat);
    WriteDetails(details, &heartbeat_);
    StartWrite(&heartbeat_);
  }

  std::optional<std::string> EndReason() override {
    absl::MutexLock lock(&mutex_);
    return end_;
  }

  void Cancel() override { context_.TryCancel(); }
  void AwaitEnd() override {
    absl::MutexLock lock(&mutex_);
    const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
    mutex_.Await(absl::Condition(&ended));
  }

  // A failed read is the first sign of the end. From then on nothing is written, and the hold goes, so that
  // gRPC can finish the stream and call OnDone with its status.
  void OnReadDone(bool ok) override {
    if (ok) {
      if (!std::exchange(answered_, true))
        LogInfo("agent", "heartbeats are heard", {{"by", replica_->address}});
      on_answer_(answer_);
      StartRead(&answer_);
      return;
    }
    {
      absl::MutexLock lock(&mutex_);
      closed_ = true;
    }
    RemoveHold();
  }
  void OnWriteDone(bool) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
  }
  void OnDone(const grpc::Status& status) override { SetEnd(status.error_message()); }

 private:
  HeartbeatStream(std::shared_ptr<const Replica> replica, OnAnswer on_answer)
      : replica_(std::move(replica)), on_answer_(std::move(on_answer)) {}

  void SetEnd(const std::string& why) {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    end_ = why;
  }

  const std::shared_ptr<const Replica> replica_;
  const OnAnswer on_answer_;
  grpc::ClientContext context_;
  coordinator::v1::HeartbeatAnswer answer_;
  bool answered_ = false;

  absl::Mutex mutex_;
  coordinator::v1::Heartbeat heartbeat_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  // The other side closed the stream, or it was never opened: nothing is written any more.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Set once gRPC makes no more use of this object.
  std::optional<std::string> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

ListHeartbeatReceivers SendOverGrpc(Replicas& replicas, const NodeId& node) {
  return [&replicas, node] {
    std::vector<HeartbeatReceiver> receivers;
    for (const auto& replica : replicas.ListReplicas(absl::InfinitePast())) {
      const auto begin = [&replicas, node, replica](const HeartbeatReceiver::OnAnswer& on_answer) {
        return HeartbeatStream::BeginStream(replica, [&replicas, node, on_answer](const auto& answer) {
          on_answer({.fences = ReadFences(node, answer),
                     .removed_arrays = ReadRemovedArrays(answer),
                     .limits = ReadLimits(answer)});
          replicas.AddNamedReplicas(ReadReplicas(answer));
        });
      };
      receivers.push_back({.address = replica->address, .begin_stream = begin});
    }
    return receivers;
  };
}

}  // namespace lunkeeper
