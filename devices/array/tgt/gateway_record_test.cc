// Part of rbd_array_test: needs a Ceph.

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "devices/array/tgt/gateway_record.h"
#include "devices/array/tgt/testing/test_ceph.h"

namespace lunkeeper::testing {
namespace {

struct RecordOnCeph {
  std::string array = "r" + RandomHexDigits().substr(0, 8);
  std::unique_ptr<CephPool> pool = ConnectToCeph();

  std::optional<GatewayRecord> Read() const {
    const auto read = ReadGatewayRecord(*pool, array);
    REQUIRE(read.status() == absl::OkStatus());
    return *read;
  }
  void Put(const std::string& contents) const {
    const auto before = pool->ReadObject(GatewayRecordName(array));
    REQUIRE(before.status() == absl::OkStatus());
    REQUIRE(pool->ReplaceObject(GatewayRecordName(array), *before, contents) == absl::OkStatus());
  }
};

GatewayRecord SomeRecord() {
  return {.epoch = 3,
          .holder = "folder.boot",
          .host = "storage-1",
          .counter = 17,
          .ready = true,
          .clients = {"127.0.0.1:0/11", "[fd00::1]:0/12"},
          .images = {{"lunkeeper.a.v1", {"127.0.0.1:0/13", "127.0.0.1:0/14"}}, {"lunkeeper.a.v2", {}}},
          .unfenced = {"127.0.0.1:0/15"}};
}

}  // namespace

TEST_CASE_METHOD(RecordOnCeph, "gateway record: what is written is read, and there is none at first") {
  CHECK(!Read().has_value());
  const GatewayRecord record = SomeRecord();
  REQUIRE(ReplaceGatewayRecord(*pool, array, {}, record) == absl::OkStatus());
  CHECK(Read() == record);
  GatewayRecord next = record;
  next.images.clear();  // shorter
  next.epoch = 4;
  REQUIRE(ReplaceGatewayRecord(*pool, array, record, next) == absl::OkStatus());
  CHECK(Read() == next);
}

TEST_CASE_METHOD(RecordOnCeph, "gateway record: it is changed from its last contents alone") {
  const GatewayRecord record = SomeRecord();
  CHECK(absl::IsAborted(ReplaceGatewayRecord(*pool, array, record, record)));  // there is none
  CHECK(!Read().has_value());
  REQUIRE(ReplaceGatewayRecord(*pool, array, {}, record) == absl::OkStatus());
  CHECK(absl::IsAborted(ReplaceGatewayRecord(*pool, array, {}, SomeRecord())));
  GatewayRecord next = record, other = record;
  next.counter = 18;
  other.unfenced.clear();
  REQUIRE(ReplaceGatewayRecord(*pool, array, record, next) == absl::OkStatus());
  CHECK(absl::IsAborted(ReplaceGatewayRecord(*pool, array, record, other)));
  CHECK(Read() == next);
}

TEST_CASE_METHOD(RecordOnCeph, "gateway record: of many that try at once one takes each epoch") {
  constexpr uint64_t kEpochs = 200;
  constexpr int kGateways = 4;
  std::vector<std::atomic<int>> taken(kEpochs + 1);
  std::atomic<bool> odd = false;
  std::vector<std::jthread> gateways;
  for (int number = 0; number < kGateways; ++number) {
    gateways.emplace_back([&, mine = std::shared_ptr<CephPool>(ConnectToCeph()), number] {
      while (!odd) {
        const auto before = ReadGatewayRecord(*mine, array);
        if (!before.ok()) odd = true;
        if (odd || (*before && (*before)->epoch == kEpochs)) return;
        GatewayRecord next = *before ? **before : GatewayRecord();
        ++next.epoch;
        next.holder = absl::StrCat("gateway-", number);
        const absl::Status replaced = ReplaceGatewayRecord(*mine, array, *before, next);
        if (replaced.ok()) ++taken[next.epoch];
        if (!replaced.ok() && !absl::IsAborted(replaced)) odd = true;
      }
    });
  }
  gateways.clear();
  CHECK(!odd);
  for (uint64_t epoch = 1; epoch <= kEpochs; ++epoch) CHECK(taken[epoch] == 1);
}

TEST_CASE_METHOD(RecordOnCeph, "gateway record: one cut short, foreign or newer is refused") {
  const std::string whole = FormatGatewayRecord(array, SomeRecord());
  const auto refusal = [&](const std::string& contents) {
    Put(contents);
    const absl::Status read = ReadGatewayRecord(*pool, array).status();
    CHECK(absl::IsFailedPrecondition(read));
    CHECK(absl::StrContains(read.message(), "`rados rm lunkeeper." + array + ".gateway`"));
    return std::string(read.message());
  };
  for (size_t length = 0; length < whole.size(); length += 7) refusal(whole.substr(0, length));
  refusal(whole.substr(0, whole.size() - 1));
  refusal(whole + "x");
  refusal("[1, 2]");
  refusal(R"({"format": 1, "epoch": -1})");
  std::string other = whole;
  other.replace(other.find("127.0.0.1:0/15"), 14, "127.0.0.1     ");  // would shut a whole host out
  refusal(other);
  CHECK(absl::StrContains(refusal(FormatGatewayRecord("other", SomeRecord())), "the record of array other"));
  other = whole;
  other.replace(other.find("\"format\": 1"), 11, "\"format\": 2");
  CHECK(absl::StrContains(refusal(other), "newer program"));
  Put(whole);
  CHECK(Read() == SomeRecord());
}

}  // namespace lunkeeper::testing
