#pragma once
// What CSI 0.3 and 1.x call differently, and one way to make a call of either, for tests that are the same in
// both.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>
#include <type_traits>
#include <utility>

#include "csi/v0/csi.grpc.pb.h"
#include "csi/v1/csi.grpc.pb.h"

namespace lunkeeper::testing {

using grpc::StatusCode;
namespace v0 = csi::v0;
namespace v1 = csi::v1;

inline constexpr int64_t kMiB = 1 << 20;
// The same numbers in both versions.
inline constexpr int kSingleWriter = v1::VolumeCapability::AccessMode::SINGLE_NODE_WRITER;
inline constexpr int kSingleReader = v1::VolumeCapability::AccessMode::SINGLE_NODE_READER_ONLY;
inline constexpr int kManyReaders = v1::VolumeCapability::AccessMode::MULTI_NODE_READER_ONLY;
inline constexpr int kManyWriters = v1::VolumeCapability::AccessMode::MULTI_NODE_MULTI_WRITER;

// What the two versions call differently.
struct V0 {
  using Identity = v0::Identity;
  using Controller = v0::Controller;
  using Node = v0::Node;
};
struct V1 {
  using Identity = v1::Identity;
  using Controller = v1::Controller;
  using Node = v1::Node;
};

inline std::string IdOf(const v0::Volume& volume) { return volume.id(); }
inline std::string IdOf(const v1::Volume& volume) { return volume.volume_id(); }
inline std::string IdOf(const v0::Snapshot& snapshot) { return snapshot.id(); }
inline std::string IdOf(const v1::Snapshot& snapshot) { return snapshot.snapshot_id(); }
inline bool IsReady(const v0::Snapshot& snapshot) {
  return snapshot.status().type() == v0::SnapshotStatus::READY;
}
inline bool IsReady(const v1::Snapshot& snapshot) { return snapshot.ready_to_use(); }
inline int64_t SecondOf(const v0::Snapshot& snapshot) { return snapshot.created_at() / 1'000'000'000; }
inline int64_t SecondOf(const v1::Snapshot& snapshot) { return snapshot.creation_time().seconds(); }
inline void SetSource(v0::CreateVolumeRequest& request, const std::string& snapshot) {
  request.mutable_volume_content_source()->mutable_snapshot()->set_id(snapshot);
}
inline void SetSource(v1::CreateVolumeRequest& request, const std::string& snapshot) {
  request.mutable_volume_content_source()->mutable_snapshot()->set_snapshot_id(snapshot);
}
inline bool Supports(const v0::ValidateVolumeCapabilitiesResponse& response) { return response.supported(); }
inline bool Supports(const v1::ValidateVolumeCapabilitiesResponse& response) {
  return response.has_confirmed();
}
inline const auto& ContextOf(const v0::ControllerPublishVolumeResponse& response) {
  return response.publish_info();
}
inline const auto& ContextOf(const v1::ControllerPublishVolumeResponse& response) {
  return response.publish_context();
}

// A response, or the error in its place.
template <class Response>
struct ClientAnswer {
  const Response& operator*() const { return response; }
  const Response* operator->() const { return &response; }

  Response response;
  StatusCode code = StatusCode::OK;
  std::string error;
};

// `call` is a method of the stub; `fill` sets the fields of its request.
template <class Stub, class Request, class Response, class Fill>
ClientAnswer<Response> Ask(Stub& stub,
                           grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Response*),
                           const Fill& fill) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  Request request;
  fill(request);
  Response response;
  const grpc::Status status = (stub.*call)(&context, request, &response);
  return {std::move(response), status.error_code(), status.error_message()};
}

inline constexpr auto kNoFields = [](auto&) {};

template <class Capability>
void SetMount(Capability* capability, int mode) {
  capability->mutable_mount();
  capability->mutable_access_mode()->set_mode(
      static_cast<std::decay_t<decltype(capability->access_mode().mode())>>(mode));
}

}  // namespace lunkeeper::testing
