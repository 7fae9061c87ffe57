// gRPC makes one RpcObserver for each call, before the request is read, and calls Intercept on the call's
// thread at each step of it. Two steps matter: the request has been read, and the status is about to be sent.
// A caller that goes away in between causes no such step, so the destructor counts that call as CANCELLED.
//
// The gate learns from the status whether the caller behaves: what only a mistake or an attack sends counts
// against its connection, and any other answer keeps the connection alive. So does each message of a stream,
// since a service reads a stream only once it knows the caller.
#include "plugin/rpc_observer.h"

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>

#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

using google::protobuf::FieldDescriptor;
using grpc::experimental::InterceptionHookPoints;

// The only request fields that are ever logged, all of them names of objects. A list of what may be logged,
// not of what may not: a field with a secret that CSI adds one day stays out of the log by itself.
constexpr const char* kNames[] = {"name",
                                  "volume_id",
                                  "source_volume_id",
                                  "snapshot_id",
                                  "node_id",
                                  "staging_target_path",
                                  "target_path",
                                  "node",
                                  "group_snapshot_id",
                                  "base_snapshot_id",
                                  "target_snapshot_id"};
constexpr size_t kLongestLoggedName = 256;

std::string CodeName(grpc::StatusCode code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

Fields NamesIn(const google::protobuf::Message& request) {
  Fields fields;
  for (const char* name : kNames) {
    const FieldDescriptor* field = request.GetDescriptor()->FindFieldByName(name);
    // By reflection, so that one list serves every service and each new request is covered.
    if (field == nullptr || field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_STRING)
      continue;
    std::string value = request.GetReflection()->GetString(request, field);
    if (!value.empty()) fields.push_back({name, value.substr(0, kLongestLoggedName)});
  }
  return fields;
}

// Calls that orchestrators and controllers repeat all day; their success is logged at debug only.
bool IsRoutine(std::string method) {
  if (absl::StartsWith(method, "csi.v0.")) method.replace(0, 7, "csi.v1.");
  static const auto* const routine = new std::set<std::string>{
      "csi.v1.Identity/Probe",
      "csi.v1.Identity/GetPluginInfo",
      "csi.v1.Identity/GetPluginCapabilities",
      "csi.v1.Controller/ControllerGetCapabilities",
      "csi.v1.Controller/GetCapacity",
      "csi.v1.Controller/ListVolumes",
      "csi.v1.GroupController/GroupControllerGetCapabilities",
      "csi.v1.Node/NodeGetCapabilities",
      "csi.v1.Node/NodeGetInfo",
      "csi.v1.Node/NodeGetId",  // of 0.3 only
      "csi.v1.Controller/ControllerGetVolumeHealth",
      "csi.v1.Controller/ControllerListVolumeHealth",
      "csi.v1.Node/NodeGetVolumeStats",
      "csi.v1.Node/NodeGetVolumeHealth",
      "csi.v1.Node/NodeGetStorageHealth",
      "lunkeeper.coordinator.v1.Coordinator/Hears",
      "lunkeeper.array.v1.ArrayService/Check",
      "lunkeeper.array.v1.ArrayService/GetVolume",
      "lunkeeper.array.v1.ArrayService/ListVolumes",
      "lunkeeper.array.v1.ArrayService/GetSnapshot",
      "lunkeeper.array.v1.ArrayService/ListSnapshots",
      "lunkeeper.array.v1.ArrayService/GetSnapshotGroup",
      "lunkeeper.array.v1.ArrayService/ListBlocks",
      "lunkeeper.array.v1.ArrayService/Capacity",
      "lunkeeper.array.v1.ArrayService/ListGrants",
      "lunkeeper.array.v1.ArrayService/ListFences",
      "lunkeeper.array.v1.ArrayService/Sessions",
  };
  return routine->count(method) != 0;
}

bool IsCallersMistake(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNAUTHENTICATED || code == grpc::StatusCode::PERMISSION_DENIED ||
         code == grpc::StatusCode::INVALID_ARGUMENT;
}

// These say nothing about the caller.
bool IsNotAboutCaller(grpc::StatusCode code) {
  return code == grpc::StatusCode::RESOURCE_EXHAUSTED || code == grpc::StatusCode::CANCELLED;
}

// Anybody may cause these lines, so there is one a second at most; the metrics count all calls.
bool MayLogRefusal() {
  static std::atomic<int64_t> next_at = 0;
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  int64_t at = next_at;
  constexpr int64_t kEvery = std::chrono::steady_clock::duration(std::chrono::seconds(1)).count();
  return now >= at && next_at.compare_exchange_strong(at, now + kEvery);
}

// UNKNOWN, INTERNAL and DATA_LOSS are mistakes of ours, or data at stake: an error. Every other failure is an
// answer that the caller can act on: a warning.
void LogCall(const std::string& method, const grpc::Status& status, const Fields& fields) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return IsRoutine(method) ? LogDebug("rpc", method, fields) : LogInfo("rpc", method, fields);
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::DATA_LOSS:
      return LogError("rpc", method, fields);
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:  // beyond a budget the next one costs its caller nothing
      return MayLogRefusal() ? LogWarn("rpc", method, fields) : LogDebug("rpc", method, fields);
    default:
      return LogWarn("rpc", method, fields);
  }
}

class RpcObserver final : public grpc::experimental::Interceptor {
 public:
  RpcObserver(grpc::experimental::ServerRpcInfo* call, Metrics* metrics, ConnectionGate* gate)
      : call_(call),
        method_(absl::StripPrefix(call->method(), "/")),
        metrics_(metrics),
        gate_(gate),
        started_(RealExecutor().SteadyNow()) {
    metrics_->RpcStarted(method_);
  }

  ~RpcObserver() override {
    if (!finished_) RecordEnd(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (gate_ != nullptr && peer_.empty()) peer_ = call_->server_context()->peer();
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      // The hook gives a void*. All our services speak protobuf, whose messages with reflection are Message.
      const auto* lite = static_cast<const google::protobuf::MessageLite*>(batch->GetRecvMessage());
      const auto* request = dynamic_cast<const google::protobuf::Message*>(lite);
      if (request != nullptr) TakeMessage(*request);
    }
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS))
      RecordEnd(batch->GetSendStatus());
    batch->Proceed();
  }

 private:
  void TakeMessage(const google::protobuf::Message& message) {
    names_ = NamesIn(message);
    if (gate_ != nullptr && call_->type() != grpc::experimental::ServerRpcInfo::Type::UNARY)
      gate_->NoteGood(peer_);
  }

  void TellGate(grpc::StatusCode code) {
    if (gate_ == nullptr || IsNotAboutCaller(code)) return;
    IsCallersMistake(code) ? gate_->NoteBad(peer_) : gate_->NoteGood(peer_);
  }

  void RecordEnd(const grpc::Status& status) {
    finished_ = true;
    TellGate(status.error_code());
    const absl::Duration duration = RealExecutor().SteadyNow() - started_;
    metrics_->RpcFinished(method_, CodeName(status.error_code()), duration);
    Fields fields = {{"code", CodeName(status.error_code())},
                     {"ms", absl::StrFormat("%.1f", absl::ToDoubleMilliseconds(duration))}};
    fields.insert(fields.end(), names_.begin(), names_.end());
    if (!status.ok()) fields.push_back({"error", status.error_message()});
    LogCall(method_, status, fields);
  }

  grpc::experimental::ServerRpcInfo* const call_;
  const std::string method_;
  Metrics* const metrics_;
  ConnectionGate* const gate_;  // may be null
  const absl::Duration started_;
  std::string peer_;
  Fields names_;
  bool finished_ = false;
};

class RpcObserverFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  RpcObserverFactory(Metrics* metrics, ConnectionGate* gate) : metrics_(metrics), gate_(gate) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    return new RpcObserver(info, metrics_, gate_);  // gRPC owns it
  }

 private:
  Metrics* const metrics_;
  ConnectionGate* const gate_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRpcObserverFactory(
    Metrics* metrics, ConnectionGate* gate) {
  return std::make_unique<RpcObserverFactory>(metrics, gate);
}

}  // namespace lunkeeper
