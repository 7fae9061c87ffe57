#include "fencing/coordinator/known_replicas.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

using Addresses = std::vector<std::string>;
constexpr KnownReplicas::Time kStart{};

}  // namespace

TEST_CASE("a replica that asked is known for some seconds, at the port where it serves") {
  KnownReplicas known;
  known.NoteReplica("ipv4:10.0.0.1:51234", 7443, kStart);
  known.NoteReplica("ipv4:10.0.0.2:51234", 7443, kStart + std::chrono::seconds(10));
  known.NoteReplica("ipv4:10.0.0.2:51235", 7443, kStart + std::chrono::seconds(10));
  CHECK(known.ListReplicas(kStart + std::chrono::seconds(14)) == Addresses{"10.0.0.1:7443", "10.0.0.2:7443"});
  CHECK(known.ListReplicas(kStart + std::chrono::seconds(15)) == Addresses{"10.0.0.2:7443"});
}

TEST_CASE("addresses of IPv6 keep their brackets, as gRPC writes them or not") {
  KnownReplicas known;
  known.NoteReplica("ipv6:%5Bfd00::1%5D:51234", 7443, kStart);
  known.NoteReplica("ipv6:[fd00::2]:51234", 7443, kStart);
  CHECK(known.ListReplicas(kStart) == Addresses{"[fd00::1]:7443", "[fd00::2]:7443"});
}

TEST_CASE("an older replica, and what has no address, are not known") {
  KnownReplicas known;
  known.NoteReplica("ipv4:10.0.0.1:51234", 0, kStart);
  known.NoteReplica("ipv4:10.0.0.1:51234", 70000, kStart);
  known.NoteReplica("unix:/socket", 7443, kStart);
  known.NoteReplica("", 7443, kStart);
  CHECK(known.ListReplicas(kStart).empty());
}

TEST_CASE("no number of callers makes nodes open more than sixteen connections") {
  KnownReplicas known;
  for (int i = 0; i < 100; ++i) known.NoteReplica(absl::StrCat("ipv4:10.0.0.", i, ":1"), 7443, kStart);
  CHECK(known.ListReplicas(kStart).size() == 16);
}

}  // namespace lunkeeper
