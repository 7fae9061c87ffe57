// What a controller says of the health of volumes.

#include <set>

#include "absl/strings/str_cat.h"
#include "controller/testing/controller_fixture.h"

namespace lunkeeper {
namespace {

using grpc::StatusCode;

// Of 64 MiB, so that it can be filled.
struct ControllerHealth : ControllerFixture {
  ControllerHealth() : small({.name = "a1", .pool_bytes = 64 << 20}) {
    arrays = Only(&small);
    service = MakeControllerService(*arrays, {});
  }
  std::string MustCreateThick(const std::string& name, int64_t bytes) {
    csi::v1::CreateVolumeRequest request = CreateRequest(name, bytes);
    (*request.mutable_parameters())["provisioning"] = "thick";
    return MustCreate(request);
  }
  StatusCode Ask(const std::string& volume) {
    csi::v1::ControllerGetVolumeHealthRequest request;
    request.set_volume_id(volume);
    health.Clear();
    return service->ControllerGetVolumeHealth(nullptr, &request, &health).error_code();
  }
  // "Reason" or, for a volume with nothing to say, "".
  std::string ReasonOf(const std::string& volume) {
    REQUIRE(Ask(volume) == StatusCode::OK);
    CHECK(health.volume_health().volume_id() == volume);
    const auto& entries = health.volume_health().health_statuses();
    REQUIRE(entries.size() <= 1);
    if (entries.empty()) return "";
    CHECK(entries[0].status() == csi::v1::DEGRADED);
    CHECK(entries[0].message().size() > 20);
    return entries[0].reason();
  }
  StatusCode List(int32_t most, const std::string& token) {
    csi::v1::ControllerListVolumeHealthRequest request;
    request.set_max_entries(most);
    request.set_starting_token(token);
    listed.Clear();
    return service->ControllerListVolumeHealth(nullptr, &request, &listed).error_code();
  }

  FakeArray small;
  csi::v1::ControllerGetVolumeHealthResponse health;
  csi::v1::ControllerListVolumeHealthResponse listed;
};

TEST_CASE("a volume with nothing wrong has no entry, and one that does not exist is not found") {
  ControllerHealth f;
  const std::string volume = f.MustCreate(CreateRequest("pvc-1"));
  CHECK(f.ReasonOf(volume).empty());
  CHECK(f.Ask("a1-v0000000000000077") == StatusCode::NOT_FOUND);
  CHECK(f.Ask("") == StatusCode::INVALID_ARGUMENT);
  CHECK(f.Ask("../x") == StatusCode::INVALID_ARGUMENT);
  REQUIRE(f.List(0, "") == StatusCode::OK);
  CHECK(f.listed.entries().empty());
}

TEST_CASE("a volume whose array does not answer is degraded, until it answers") {
  ControllerHealth f;
  const std::string volume = f.MustCreate(CreateRequest("pvc-1"));
  f.small.FailWith(absl::UnavailableError("array a1: connection refused"));
  CHECK(f.ReasonOf(volume) == "ArrayNotAnswering");
  CHECK_THAT(f.health.volume_health().health_statuses(0).message(), Catch::Contains("connection refused"));
  CHECK(f.List(0, "") == StatusCode::UNAVAILABLE);  // a shorter list would look like the truth
  f.small.FailWith(absl::OkStatus());
  CHECK(f.ReasonOf(volume).empty());
}

TEST_CASE("thin volumes of a full pool are degraded; a thick one has its space") {
  ControllerHealth f;
  const std::string thin = f.MustCreate(CreateRequest("thin"));
  const std::string thick = f.MustCreateThick("thick", 56 * kTestMiB);
  CHECK(f.ReasonOf(thin) == "PoolFull");
  CHECK(f.ReasonOf(thick).empty());
  REQUIRE(f.Delete(thick).ok());
  CHECK(f.ReasonOf(thin).empty());
}

TEST_CASE("the volumes that are not well are listed in pages") {
  ControllerHealth f;
  std::set<std::string> thin, found;
  for (const char* name : {"a", "c", "e"}) {
    thin.insert(f.MustCreate(CreateRequest(name)));
    f.MustCreateThick(absl::StrCat(name, "-thick"), 17 * kTestMiB);
  }
  std::string token;
  int pages = 0;
  do {
    REQUIRE(f.List(2, token) == StatusCode::OK);
    CHECK(f.listed.entries_size() <= 2);
    for (const auto& entry : f.listed.entries()) {
      CHECK(entry.health_statuses(0).reason() == "PoolFull");
      CHECK(found.insert(entry.volume_id()).second);
    }
    token = f.listed.next_token();
    REQUIRE(++pages <= 4);
  } while (!token.empty());
  CHECK(found == thin);
  CHECK(f.List(2, "no token of ours") == StatusCode::ABORTED);
  CHECK(f.List(-1, "") == StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace lunkeeper
