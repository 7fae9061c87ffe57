// gRPC makes one RpcObserver for each call, before the request is read, and calls Intercept on the call's
// thread at each step of it. Two steps matter: the request has been read, and the status is about to be sent.
// A caller that goes away in between causes no such step, so the destructor counts that call as CANCELLED.
#include "plugin/rpc_observer.h"

#include <google/protobuf/message.h>

#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

using google::protobuf::FieldDescriptor;
using grpc::experimental::InterceptionHookPoints;

// The only request fields that are ever logged, all of them names of objects. A list of what may be logged,
// not of what may not: a field with a secret that CSI adds one day stays out of the log by itself.
constexpr const char* kNames[] = {"name",    "volume_id",           "source_volume_id", "snapshot_id",
                                  "node_id", "staging_target_path", "target_path",      "node"};
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
bool IsRoutine(const std::string& method) {
  static const auto* const routine = new std::set<std::string>{
      "csi.v1.Identity/Probe",
      "csi.v1.Identity/GetPluginInfo",
      "csi.v1.Identity/GetPluginCapabilities",
      "csi.v1.Controller/ControllerGetCapabilities",
      "csi.v1.Controller/GetCapacity",
      "csi.v1.Controller/ListVolumes",
      "csi.v1.Node/NodeGetCapabilities",
      "csi.v1.Node/NodeGetInfo",
      "csi.v1.Node/NodeGetVolumeStats",
      "lunkeeper.array.v1.ArrayService/Check",
      "lunkeeper.array.v1.ArrayService/GetVolume",
      "lunkeeper.array.v1.ArrayService/ListVolumes",
      "lunkeeper.array.v1.ArrayService/GetSnapshot",
      "lunkeeper.array.v1.ArrayService/ListSnapshots",
      "lunkeeper.array.v1.ArrayService/Capacity",
      "lunkeeper.array.v1.ArrayService/ListGrants",
      "lunkeeper.array.v1.ArrayService/ListFences",
      "lunkeeper.array.v1.ArrayService/Sessions",
  };
  return routine->count(method) != 0;
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
    default:
      return LogWarn("rpc", method, fields);
  }
}

class RpcObserver final : public grpc::experimental::Interceptor {
 public:
  RpcObserver(const char* method, Metrics* metrics)
      : method_(absl::StripPrefix(method, "/")), metrics_(metrics), started_(absl::Now()) {
    metrics_->RpcStarted(method_);
  }

  ~RpcObserver() override {
    if (!finished_) RecordEnd(grpc::Status(grpc::StatusCode::CANCELLED, "the caller went away"));
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      // The hook gives a void*. All our services speak protobuf, whose messages with reflection are Message.
      const auto* lite = static_cast<const google::protobuf::MessageLite*>(batch->GetRecvMessage());
      const auto* request = dynamic_cast<const google::protobuf::Message*>(lite);
      if (request != nullptr) names_ = NamesIn(*request);
    }
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS))
      RecordEnd(batch->GetSendStatus());
    batch->Proceed();
  }

 private:
  void RecordEnd(const grpc::Status& status) {
    finished_ = true;
    const absl::Duration duration = absl::Now() - started_;
    metrics_->RpcFinished(method_, CodeName(status.error_code()), duration);
    Fields fields = {{"code", CodeName(status.error_code())},
                     {"ms", absl::StrFormat("%.1f", absl::ToDoubleMilliseconds(duration))}};
    fields.insert(fields.end(), names_.begin(), names_.end());
    if (!status.ok()) fields.push_back({"error", status.error_message()});
    LogCall(method_, status, fields);
  }

  const std::string method_;
  Metrics* const metrics_;
  const absl::Time started_;
  Fields names_;
  bool finished_ = false;
};

class RpcObserverFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit RpcObserverFactory(Metrics* metrics) : metrics_(metrics) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    return new RpcObserver(info->method(), metrics_);  // gRPC owns it
  }

 private:
  Metrics* const metrics_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRpcObserverFactory(
    Metrics* metrics) {
  return std::make_unique<RpcObserverFactory>(metrics);
}

}  // namespace lunkeeper
