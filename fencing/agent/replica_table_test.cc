#include "fencing/agent/replica_table.h"

#include <catch2/catch.hpp>

#include "absl/time/clock.h"

namespace lunkeeper {
namespace {

// It answers, or is silent for as long as it may be.
class ScriptedReplica final : public ReplicaConnection {
 public:
  ScriptedReplica(const std::string& its_address, bool answers)
      : ReplicaConnection(its_address), answers_(answers) {}

  bool IsConnected() const override { return true; }
  CallOutcome ReleaseGrant(const NodeId&, const VolumeId&, Generation, absl::Duration limit) const override {
    ++calls;
    if (answers_) return {absl::OkStatus(), true};
    absl::SleepFor(limit);
    return {absl::DeadlineExceededError("Deadline Exceeded")};
  }
  CallOutcome AcquireGrant(const NodeId&, const VolumeId&, const WantedUse&, absl::Duration, absl::Duration,
                           Grant*) const override {
    return {absl::UnimplementedError("not asked for")};
  }
  CallOutcome ListGrants(const NodeId&, const VolumeId&, absl::Duration,
                         std::vector<HeldGrant>*) const override {
    return {absl::UnimplementedError("not asked for")};
  }
  CallOutcome OpenHeartbeatLun(const NodeId&, const std::string&, absl::Duration,
                               Connection*) const override {
    return {absl::UnimplementedError("not asked for")};
  }

  mutable int calls = 0;

 private:
  const bool answers_;
};

}  // namespace

// The first one does not reach the array, and takes longer to find out than the caller has. The second one,
// which nobody had the time to ask, used to count as one that could not answer, too: the first was asked
// first for ever.
TEST_CASE("a replica that there was no time to ask is the first that is asked the next time") {
  std::map<std::string, std::shared_ptr<ScriptedReplica>> replicas = {
      {"a", std::make_shared<ScriptedReplica>("a", false)},
      {"b", std::make_shared<ScriptedReplica>("b", true)}};
  ReplicaTable table([&](const std::string& address, const std::string&) { return replicas.at(address); },
                     "a, b");
  table.NoteResolved({{"a", "name"}, {"b", "name"}}, true);
  const auto release = [&] {
    return table.CallAny("release", absl::Milliseconds(100), [](const auto& replica, absl::Duration limit) {
      return replica.ReleaseGrant(NodeId("n1.0000000000000001"), VolumeId("a-v1"), 1, limit);
    });
  };
  CHECK(absl::IsUnavailable(release()));
  CHECK(release().ok());
  CHECK(replicas.at("a")->calls == 1);
  CHECK(replicas.at("b")->calls == 1);
}

}  // namespace lunkeeper
