// The SnapshotMetadata service over an array in memory, through gRPC: its answers are streams.
#include "controller/snapshot_metadata_service.h"

#include <grpcpp/grpcpp.h>

#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/testing/test_host.h"
#include "controller/testing/controller_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;
namespace v1 = csi::v1;

// An array whose lists fail or say what a test wants.
class OtherBlocks final : public Array, public SnapshotBlocks {
 public:
  explicit OtherBlocks(FakeArray& array) : array_(array) {}
  VolumeStore& volumes() override { return array_; }
  SnapshotGroups& groups() override { return array_; }
  SnapshotBlocks& blocks() override { return *this; }
  GrantStore& grants() override { return array_; }
  FenceControl& fences() override { return array_; }
  NameIndex& names() override { return array_; }
  absl::StatusOr<BlockPage> ListBlocks(const BlockQuery& query) override {
    const absl::MutexLock lock(&mutex_);
    return answer_(query);
  }

  // Called on gRPC's threads, one call at a time.
  using Answer = std::function<absl::StatusOr<BlockPage>(const BlockQuery&)>;
  void AnswerWith(Answer answer) {
    const absl::MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }

 private:
  FakeArray& array_;
  absl::Mutex mutex_;
  Answer answer_ ABSL_GUARDED_BY(mutex_);
};

struct MetadataFixture : ControllerFixture {
  explicit MetadataFixture(const StreamLimits& limits = {})
      : blocks(MakeSnapshotMetadataService(*all, limits)) {
    other.AnswerWith([this](const BlockQuery& query) { return array.ListBlocks(query); });
    grpc::ServerBuilder builder;
    builder.RegisterService(blocks.get());
    server = builder.BuildAndStart();
    stub = v1::SnapshotMetadata::NewStub(server->InProcessChannel({}));
  }
  ~MetadataFixture() { server->Shutdown(std::chrono::system_clock::now()); }

  std::string MustSnapshot(const std::string& name) {
    absl::SleepFor(absl::Milliseconds(1));  // later than the last one
    v1::Snapshot made;
    REQUIRE(Snapshot(name, volume, &made).ok());
    return made.snapshot_id();
  }
  void Write(int64_t block) { array.WriteBlock(VolumeId(volume), static_cast<uint64_t>(block) * 4096); }

  static v1::GetMetadataAllocatedRequest Allocated(const std::string& snapshot) {
    v1::GetMetadataAllocatedRequest request;
    request.set_snapshot_id(snapshot);
    return request;
  }
  static v1::GetMetadataDeltaRequest Delta(const std::string& base, const std::string& target) {
    v1::GetMetadataDeltaRequest request;
    request.set_base_snapshot_id(base);
    request.set_target_snapshot_id(target);
    return request;
  }
  StatusCode Ask(const v1::GetMetadataAllocatedRequest& request) {
    grpc::ClientContext context;
    return ReadAll<v1::GetMetadataAllocatedResponse>(stub->GetMetadataAllocated(&context, request));
  }
  StatusCode Ask(const v1::GetMetadataDeltaRequest& request) {
    grpc::ClientContext context;
    return ReadAll<v1::GetMetadataDeltaResponse>(stub->GetMetadataDelta(&context, request));
  }
  // Checks what the specification says of all messages.
  template <class Response, class Reader>
  StatusCode ReadAll(const Reader& reader) {
    messages = 0;
    found.clear();
    Response message;
    int64_t end = 0;
    while (reader->Read(&message)) {
      ++messages;
      most_in_message = std::max(messages == 1 ? 0 : most_in_message, message.block_metadata_size());
      CHECK(message.block_metadata_type() == v1::VARIABLE_LENGTH);
      CHECK(message.volume_capacity_bytes() == 16 * kTestMiB);
      for (const v1::BlockMetadata& block : message.block_metadata()) {
        CHECK(block.byte_offset() >= end);
        CHECK(block.size_bytes() > 0);
        end = block.byte_offset() + block.size_bytes();
        found.push_back(block.byte_offset() / 4096);
      }
    }
    const grpc::Status status = reader->Finish();
    error = status.error_message();
    return status.error_code();
  }

  OtherBlocks other{array};
  std::unique_ptr<Arrays> all = Only(&other);
  std::unique_ptr<v1::SnapshotMetadata::Service> blocks;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<v1::SnapshotMetadata::Stub> stub;
  const std::string volume = MustCreate(CreateRequest("v"));
  int messages = 0, most_in_message = 0;
  std::vector<int64_t> found;  // the blocks of 4 KiB at which the ranges begin
  std::string error;
};

using Blocks = std::vector<int64_t>;

// A stream's caller that reads nothing.
struct StalledStream {
  explicit StalledStream(MetadataFixture& fixture, const std::string& snapshot)
      : reader(fixture.stub->GetMetadataAllocated(&context, MetadataFixture::Allocated(snapshot))) {}
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GetMetadataAllocatedResponse>> reader;
};

struct Impatient : MetadataFixture {
  Impatient() : MetadataFixture({.streams = 1, .stall = absl::Milliseconds(200)}) {}
};

struct Patient : MetadataFixture {
  Patient() : MetadataFixture({.streams = 1, .stall = absl::Hours(1)}) {}
};

// A snapshot with more than a connection takes before its reader reads. Set up before the first stream.
template <class Fixture>
std::string ManyBlocks(Fixture& fixture) {
  const std::string many = fixture.MustSnapshot("many");
  fixture.other.AnswerWith([&fixture, many](const BlockQuery& query) -> absl::StatusOr<BlockPage> {
    if (query.snapshot.value() != many) return fixture.array.ListBlocks(query);
    BlockPage page{.ranges = {}, .size_bytes = UINT64_C(1) << 40, .next_offset = query.offset + 4096 * 8192};
    for (uint64_t i = 0; i < 4096; ++i) page.ranges.push_back({query.offset + i * 8192, 4096});
    return page;
  });
  return many;
}

}  // namespace

TEST_CASE_METHOD(MetadataFixture, "allocated and changed blocks come as the specification has them") {
  const std::string empty = MustSnapshot("empty");
  for (const int64_t block : {3, 7, 9}) Write(block);
  const std::string old = MustSnapshot("old");
  for (const int64_t block : {7, 200}) Write(block);
  const std::string now = MustSnapshot("now");
  CHECK(Ask(Allocated(empty)) == StatusCode::OK);
  CHECK(found.empty());
  CHECK(messages == 1);  // which tells the size
  CHECK(Ask(Allocated(now)) == StatusCode::OK);
  CHECK(found == Blocks{3, 7, 9, 200});
  CHECK(Ask(Delta(old, now)) == StatusCode::OK);
  CHECK(found == Blocks{7, 200});

  auto resumed = Allocated(now);
  resumed.set_starting_offset(8 * 4096);
  resumed.set_max_results(1);
  CHECK(Ask(resumed) == StatusCode::OK);
  CHECK(found == Blocks{9, 200});
  CHECK(messages == 2);
  auto changed = Delta(empty, now);
  changed.set_starting_offset(4 * 4096);
  changed.set_max_results(2);
  CHECK(Ask(changed) == StatusCode::OK);
  CHECK(found == Blocks{7, 9, 200});
  CHECK(most_in_message == 2);
  changed.set_starting_offset(16 * kTestMiB);
  CHECK(Ask(changed) == StatusCode::OK);
  CHECK(found.empty());
}

TEST_CASE_METHOD(MetadataFixture, "a list is in pages of the array's and messages of the caller's size") {
  for (int64_t block = 0; block < 3000; ++block) Write(block);
  const std::string snapshot = MustSnapshot("s");
  other.AnswerWith([&](BlockQuery query) {
    query.limit = 1700;
    return array.ListBlocks(query);
  });
  CHECK(Ask(Allocated(snapshot)) == StatusCode::OK);
  CHECK(found.size() == 3000);
  CHECK(messages == 4);
  auto small = Allocated(snapshot);
  small.set_max_results(700);
  CHECK(Ask(small) == StatusCode::OK);
  CHECK(found.size() == 3000);
  CHECK(messages == 5);
  CHECK(most_in_message == 700);
}

TEST_CASE_METHOD(MetadataFixture, "what cannot be answered has the specification's codes") {
  const std::string old = MustSnapshot("old"), now = MustSnapshot("now");
  CHECK(Ask(Allocated("")) == StatusCode::INVALID_ARGUMENT);
  CHECK(Ask(Allocated("nothing")) == StatusCode::NOT_FOUND);
  CHECK(Ask(Delta("", now)) == StatusCode::INVALID_ARGUMENT);
  CHECK(Ask(Delta(old, "")) == StatusCode::INVALID_ARGUMENT);
  CHECK(Ask(Delta("nothing", now)) == StatusCode::NOT_FOUND);
  CHECK(Ask(Delta(old, "nothing")) == StatusCode::NOT_FOUND);
  CHECK(Ask(Delta(now, old)) == StatusCode::INVALID_ARGUMENT);
  for (const int64_t offset : {int64_t{-1}, 16 * kTestMiB + 1}) {
    auto allocated = Allocated(now);
    allocated.set_starting_offset(offset);
    CHECK(Ask(allocated) == StatusCode::OUT_OF_RANGE);
    auto delta = Delta(old, now);
    delta.set_starting_offset(offset);
    CHECK(Ask(delta) == StatusCode::OUT_OF_RANGE);
  }
  auto negative = Allocated(now);
  negative.set_max_results(-1);
  CHECK(Ask(negative) == StatusCode::INVALID_ARGUMENT);
}

TEST_CASE_METHOD(MetadataFixture, "an array that cannot tell what changed has a backup copy all of it") {
  const std::string old = MustSnapshot("old"), now = MustSnapshot("now");
  other.AnswerWith(
      [](const BlockQuery&) { return absl::UnimplementedError("its agent is of an older version"); });
  CHECK(Ask(Delta(old, now)) == StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(error, Catch::Contains("older version"));
  CHECK(Ask(Allocated(now)) == StatusCode::FAILED_PRECONDITION);
}

TEST_CASE_METHOD(MetadataFixture, "a list that breaks off ends with an error, and goes on from there") {
  for (const int64_t block : {1, 2, 3, 4}) Write(block);
  const std::string snapshot = MustSnapshot("s");
  other.AnswerWith([&](BlockQuery query) -> absl::StatusOr<BlockPage> {
    query.limit = 2;
    if (query.offset > 2 * 4096) return absl::UnavailableError("the array cannot be reached");
    return array.ListBlocks(query);
  });
  CHECK(Ask(Allocated(snapshot)) == StatusCode::UNAVAILABLE);
  CHECK(found == Blocks{1, 2});
  other.AnswerWith([this](const BlockQuery& query) { return array.ListBlocks(query); });
  auto rest = Allocated(snapshot);
  rest.set_starting_offset((found.back() + 1) * 4096);
  CHECK(Ask(rest) == StatusCode::OK);
  CHECK(found == Blocks{3, 4});
  // A snapshot that is deleted meanwhile.
  other.AnswerWith([&](BlockQuery query) {
    query.limit = 2;
    if (query.offset > 0) array.DeleteSnapshot(query.snapshot).IgnoreError();
    return array.ListBlocks(query);
  });
  CHECK(Ask(Allocated(snapshot)) == StatusCode::NOT_FOUND);
  CHECK(found == Blocks{1, 2});
}

TEST_CASE_METHOD(MetadataFixture, "an array that gets no further is an error and no endless call") {
  const std::string snapshot = MustSnapshot("s");
  other.AnswerWith([](const BlockQuery& query) -> absl::StatusOr<BlockPage> {
    return BlockPage{.ranges = {}, .size_bytes = 16 * kTestMiB, .next_offset = query.offset};
  });
  CHECK(Ask(Allocated(snapshot)) == StatusCode::INTERNAL);
}

TEST_CASE_METHOD(Impatient, "a caller that takes no messages is sent away, and its place is another's") {
  const std::string few = MustSnapshot("few"), many = ManyBlocks(*this);
  StalledStream stalled(*this, many);
  v1::GetMetadataAllocatedResponse message;
  REQUIRE(stalled.reader->Read(&message));  // it has the only place
  CHECK(testing::Eventually([&] { return Ask(Allocated(few)) == StatusCode::OK; }));
  while (stalled.reader->Read(&message)) continue;
  CHECK(stalled.reader->Finish().error_code() == StatusCode::CANCELLED);
}

TEST_CASE_METHOD(Patient, "there are only so many streams at a time, and one whose caller leaves is over") {
  const std::string snapshot = ManyBlocks(*this);
  StalledStream first(*this, snapshot);
  v1::GetMetadataAllocatedResponse message;
  REQUIRE(first.reader->Read(&message));
  CHECK(Ask(Allocated(snapshot)) == StatusCode::UNAVAILABLE);
  first.context.TryCancel();
  CHECK(first.reader->Finish().error_code() == StatusCode::CANCELLED);
  CHECK(testing::Eventually([&] {
    StalledStream next(*this, snapshot);
    const bool taken = next.reader->Read(&message);
    next.context.TryCancel();
    next.reader->Finish();
    return taken;
  }));
}

}  // namespace lunkeeper
