#include "base/grpc_status.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>

namespace lunkeeper {
namespace {

TEST_CASE("every status code keeps its meaning on the wire") {
  const std::pair<absl::StatusCode, grpc::StatusCode> codes[] = {
      {absl::StatusCode::kCancelled, grpc::StatusCode::CANCELLED},
      {absl::StatusCode::kUnknown, grpc::StatusCode::UNKNOWN},
      {absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
      {absl::StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
      {absl::StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND},
      {absl::StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS},
      {absl::StatusCode::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED},
      {absl::StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {absl::StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
      {absl::StatusCode::kAborted, grpc::StatusCode::ABORTED},
      {absl::StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE},
      {absl::StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
      {absl::StatusCode::kInternal, grpc::StatusCode::INTERNAL},
      {absl::StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
      {absl::StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS},
      {absl::StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED},
  };
  for (const auto& [inside, outside] : codes) {
    INFO(inside);
    CHECK(ToGrpcStatus(absl::Status(inside, "x")).error_code() == outside);
    CHECK(FromGrpcStatus(grpc::Status(outside, "x")).code() == inside);
  }
}

TEST_CASE("success carries no error") {
  CHECK(ToGrpcStatus(absl::OkStatus()).ok());
  CHECK(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST_CASE("an error keeps its words") {
  const std::string words =
      "volume pvc-12: login to 10.0.0.5:3260 refused: fenced since generation 7 – ask the array";
  CHECK(ToGrpcStatus(absl::AbortedError(words)).error_message() == words);
  CHECK(FromGrpcStatus(grpc::Status(grpc::StatusCode::ABORTED, words)).message() == words);
}

TEST_CASE("a code that is in no list is UNKNOWN") {
  CHECK(ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(99), "x")).error_code() ==
        grpc::StatusCode::UNKNOWN);
}

}  // namespace
}  // namespace lunkeeper
