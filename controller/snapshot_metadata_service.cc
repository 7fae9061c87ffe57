// A stream, on its call's own thread:
//
//   place     one of a few (stream_watch.h), or UNAVAILABLE
//   page      the array lists some thousand ranges; it may be another machine, and the call takes what it
//   takes messages  the page in pieces as large as the caller wants; Write waits while the connection is full
//   again     from where the page ended, until the snapshot's end
//
// A stream that ends without an error has named every block. So whatever goes wrong ends it with one, also
// when some messages are sent: the caller goes on behind the last range that it has.
#include "controller/snapshot_metadata_service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/grpc_status.h"
#include "base/status_macros.h"
#include "controller/request.h"
#include "devices/array/array_router.h"

namespace lunkeeper {
namespace {

using grpc::ServerContext;
using grpc::ServerWriter;
namespace v1 = csi::v1;

// In a message, if the caller asks for no other number: some 20 KiB.
constexpr size_t kMostInMessage = 1024;

// An agent of an older version knows no changed blocks. CSI has a code for that, after which a backup copies
// all of the snapshot.
absl::Status Explained(const absl::Status& status) {
  if (!absl::IsUnimplemented(status)) return status;
  return absl::FailedPreconditionError(status.message());
}

// What is the same in both requests.
template <class Request>
absl::StatusOr<BlockQuery> QueryOf(const Request& request, const std::string& snapshot) {
  if (request.starting_offset() < 0)
    return absl::OutOfRangeError(
        absl::StrCat("starting_offset: ", request.starting_offset(), ": want 0 or more"));
  if (request.max_results() < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("max_results: ", request.max_results(), ": want 0 or more"));
  return BlockQuery{.snapshot = SnapshotId(snapshot),
                    .base = {},
                    .offset = static_cast<uint64_t>(request.starting_offset()),
                    .limit = 0};
}

// A message with these ranges. Extents have any length, so the style is VARIABLE_LENGTH: in blocks of one
// length, a written volume would take a thousand times as many.
template <class Response>
Response MessageOf(const BlockPage& page, size_t from, size_t count) {
  Response response;
  response.set_block_metadata_type(v1::VARIABLE_LENGTH);
  response.set_volume_capacity_bytes(static_cast<int64_t>(page.size_bytes));
  for (size_t i = from; i < from + count; ++i) {
    v1::BlockMetadata* const block = response.add_block_metadata();
    block->set_byte_offset(static_cast<int64_t>(page.ranges[i].offset));
    block->set_size_bytes(static_cast<int64_t>(page.ranges[i].length));
  }
  return response;
}

class SnapshotMetadataService final : public v1::SnapshotMetadata::Service {
 public:
  SnapshotMetadataService(Arrays& arrays, const StreamLimits& limits)
      : blocks_(MakeBlockRouter(arrays)), watch_(limits) {}

  grpc::Status GetMetadataAllocated(ServerContext* context, const v1::GetMetadataAllocatedRequest* request,
                                    ServerWriter<v1::GetMetadataAllocatedResponse>* writer) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("snapshot_id", request->snapshot_id()));
      ASSIGN_OR_RETURN(const BlockQuery query, QueryOf(*request, request->snapshot_id()));
      return Stream(context, query, static_cast<size_t>(request->max_results()), writer);
    });
  }

  grpc::Status GetMetadataDelta(ServerContext* context, const v1::GetMetadataDeltaRequest* request,
                                ServerWriter<v1::GetMetadataDeltaResponse>* writer) override {
    return AnswerRpc([&]() -> absl::Status {
      RETURN_IF_ERROR(CheckId("base_snapshot_id", request->base_snapshot_id()));
      RETURN_IF_ERROR(CheckId("target_snapshot_id", request->target_snapshot_id()));
      ASSIGN_OR_RETURN(BlockQuery query, QueryOf(*request, request->target_snapshot_id()));
      query.base = SnapshotId(request->base_snapshot_id());
      return Stream(context, query, static_cast<size_t>(request->max_results()), writer);
    });
  }

 private:
  template <class Response>
  absl::Status Stream(ServerContext* context, BlockQuery query, size_t max_results,
                      ServerWriter<Response>* writer) {
    const auto place = watch_.TakePlace(context);
    if (place == nullptr)
      return absl::UnavailableError("as many lists of blocks are sent as may be at a time: try again");
    const size_t most = max_results == 0 ? kMostInMessage : std::min(max_results, kMostInMessage);
    for (bool first = true;; first = false) {
      const absl::StatusOr<BlockPage> page = blocks_->ListBlocks(query);
      if (!page.ok()) return Explained(page.status());
      // One message at least, which tells the size.
      if (first || !page->ranges.empty()) RETURN_IF_ERROR(SendPage(*page, most, *place, writer));
      if (page->next_offset >= page->size_bytes) return absl::OkStatus();
      if (page->next_offset <= query.offset)
        return absl::InternalError(absl::StrCat("snapshot ", query.snapshot.value(),
                                                ": its array does not get past ", query.offset));
      if (context->IsCancelled()) return Gone();
      place->NoteStep();
      query.offset = page->next_offset;
    }
  }

  template <class Response>
  static absl::Status SendPage(const BlockPage& page, size_t most, StreamWatch::Place& place,
                               ServerWriter<Response>* writer) {
    size_t sent = 0;
    do {
      const size_t count = std::min(most, page.ranges.size() - sent);
      if (!writer->Write(MessageOf<Response>(page, sent, count))) return Gone();
      place.NoteStep();
      sent += count;
    } while (sent < page.ranges.size());
    return absl::OkStatus();
  }

  static absl::Status Gone() { return absl::CancelledError("the caller is gone, or took no more messages"); }

  const std::unique_ptr<SnapshotBlocks> blocks_;  // of all arrays
  StreamWatch watch_;
};

}  // namespace

std::unique_ptr<v1::SnapshotMetadata::Service> MakeSnapshotMetadataService(Arrays& arrays,
                                                                           const StreamLimits& limits) {
  return std::make_unique<SnapshotMetadataService>(arrays, limits);
}

}  // namespace lunkeeper
