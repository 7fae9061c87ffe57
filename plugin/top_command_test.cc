// `lunkeeper top`: the rates from two readings, and the command over a real socket.

#include "plugin/top_command.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "plugin/testing/shell.h"

namespace lunkeeper {
namespace {

using admin::v1::StatusResponse;
using Catch::Contains;

void AddGrant(StatusResponse& status, const std::string& volume, uint64_t reads, uint64_t read_bytes) {
  if (status.arrays().empty()) status.add_arrays()->set_name("a1");
  auto* grant = status.mutable_arrays(0)->add_grants();
  grant->set_volume(volume);
  grant->set_node(kNode.value());
  grant->set_reads(reads);
  grant->set_read_bytes(read_bytes);
}

void AddDevice(StatusResponse& status, const std::string& volume, uint64_t writes, uint64_t microseconds) {
  status.set_node_id(kNode.value());
  auto* device = status.add_devices();
  device->set_volume(volume);
  device->mutable_io()->set_writes(writes);
  device->mutable_io()->set_written_bytes(writes * 4096);
  device->mutable_io()->set_write_microseconds(microseconds);
}

}  // namespace

TEST_CASE("what two readings of an array differ by is a rate, the busiest volume first") {
  StatusResponse before, after;
  AddGrant(before, "v1", 100, 4096);
  AddGrant(before, "v2", 0, 0);
  AddGrant(after, "v1", 110, 4096 + 8192);
  AddGrant(after, "v2", 2, 1 << 20);
  const auto rates = RatesBetween(before, after, absl::Seconds(2));
  REQUIRE(rates.size() == 2);
  CHECK(rates[0].volume == "v2");
  CHECK(rates[1].volume == "v1");
  CHECK(rates[1].node == kNode.value());
  CHECK(rates[1].reads == 5);
  CHECK(rates[1].read_bytes == 4096);
  CHECK_FALSE(rates[1].read_milliseconds);
  CHECK_FALSE(rates[1].in_flight);
}

TEST_CASE("a node knows latencies, and how much was under way") {
  StatusResponse before, after;
  AddDevice(before, "v", 10, 5000);
  AddDevice(after, "v", 1010, 5000 + 4'000'000);
  const auto rates = RatesBetween(before, after, absl::Seconds(1));
  REQUIRE(rates.size() == 1);
  CHECK(rates[0].writes == 1000);
  CHECK(rates[0].written_bytes == 4096e3);
  CHECK(rates[0].write_milliseconds == 4);
  CHECK_FALSE(rates[0].read_milliseconds);
  CHECK(rates[0].in_flight == 4);
}

TEST_CASE(
    "counters that begin again count from zero, and a volume that is new waits for its second reading") {
  StatusResponse before, after;
  AddGrant(before, "moved", 1'000'000, 0);
  AddGrant(after, "moved", 7, 0);
  AddGrant(after, "new", 1'000'000, 0);
  const auto rates = RatesBetween(before, after, absl::Seconds(1));
  REQUIRE(rates.size() == 1);
  CHECK(rates[0].reads == 7);
  CHECK(RatesBetween(after, before, absl::ZeroDuration()).size() == 1);  // the clock was set back
}

// Where standard output is no terminal it does so by itself, which an end-to-end test looks at.
TEST_CASE("once, top prints one table and ends") {
  Shell shell;
  CHECK(shell.Run({"top", "--once"}) == "no node has a volume\n");
  const VolumeId volume = Granted(*shell.array, "v");
  const std::string told = shell.Run({"top", "--once"});
  CHECK_THAT(told, Contains(volume.value()) && Contains(kNode.value()) && !Contains("\x1b"));
  const auto json = nlohmann::json::parse(shell.Run({"top", "--once", "-o", "json"}));
  REQUIRE(json.size() == 1);
  CHECK(json[0]["volume"] == volume.value());
  CHECK(json[0]["reads_per_second"] == 0);
  CHECK(json[0]["read_milliseconds"].is_null());
  shell.array->FailWith(absl::UnavailableError("its host is down"));
  const auto away = shell.RunFully({"top", "--once"});
  CHECK(away.exit_code == 1);
  CHECK_THAT(away.errors, Contains("a1: its host is down"));
}

TEST_CASE("for some seconds, top prints a table for each reading") {
  Shell shell;
  Granted(*shell.array, "v");
  const std::string told = shell.Run({"top", "--seconds", "2"});
  CHECK(told.find("VOLUME") != told.rfind("VOLUME"));
}

}  // namespace lunkeeper
