#pragma once
// An array one of whose images does not answer, with this test's own targets and tgtd. Needs root.

#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/array/tgt/grant_targets.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/testing/one_is_silent.h"
#include "devices/array/tgt/tgt_daemon.h"
#include "devices/array/tgt/tgtd_lock.h"

namespace lunkeeper::testing {

// An array that was used and is closed. Its tgtd and targets are then this test's own.
struct WithOneSilent : ArrayFixture {
  WithOneSilent() {
    REQUIRE(Open() == absl::OkStatus());
    for (int i = 0; i < 8; ++i) {
      const VolumeId volume = Cluster()->volumes().CreateVolume(Spec(absl::StrCat("v", i), 1)).value().id;
      grants.push_back(
          Cluster()
              ->grants()
              .AcquireGrant({.volume = volume, .node = NodeId("node-a.1"), .access = Access::kSharedWrite},
                            absl::ZeroDuration())
              .value());
    }
    Close();
    store.Silence(grants[1].volume);
    catalogue = Catalogue::Open(options.pool_dir + "/catalogue.db", options.name).value();
    BeginAgent();
  }
  // As after the end of the one before.
  void BeginAgent() {
    daemon.reset();
    targets.reset();
    table.emplace(&client, TargetTableOptions{.array = options.name,
                                              .portals = [this] { return options.portals; },
                                              .cache_id = "unchanged",
                                              .images_may_be_silent = true,
                                              .opening_mark = options.pool_dir + "/opening"});
    targets = std::make_unique<GrantTargets>(*catalogue, store, *table, gates, drain_timeout, 0);
  }
  void EndTgtd() {
    const TgtdLock lock(TgtdLockPath(options.pool_dir, 0));
    ::kill(TgtdProcess(options.control_port), SIGKILL);
    REQUIRE(Eventually([&] { return TgtdProcess(options.control_port) == 0 && lock.FindHolder() == 0; }));
  }
  void Serve() { REQUIRE(StartServing() == absl::OkStatus()); }
  absl::Status StartServing() { return StartServing(client); }
  absl::Status StartServing(TgtClient& at) {
    daemon = std::make_unique<TgtDaemon>(
        TgtDaemonOptions{.control_port = options.control_port,
                         .portals = options.portals,
                         .io_threads = options.tgtd_io_threads,
                         .output_path = options.tgtd_output_path,
                         .lock_path = TgtdLockPath(options.pool_dir, 0)},
        at, &table->openings(), [this](bool taken_over) { return targets->RestoreTargets({}, taken_over); },
        [this] { targets->RetryHeld(); });
    return daemon->StartServing();
  }
  GrantRow RowOf(const Grant& grant) {
    return catalogue->grants().FindGeneration(grant.generation).value().value();
  }
  bool HasTarget(const Grant& grant) {
    const auto there = client.ListTargets();
    REQUIRE(there.ok());
    return std::ranges::count(*there, grant.connection.target.value(), &TgtTarget::name) > 0;
  }
  bool Writes(const Grant& grant) { return CanWrite(grant.connection, 0, 'x'); }
  GrantRow AddGrant(const VolumeId& volume) {
    const GrantRow first = RowOf(grants[0]);
    const GrantRequest request = {
        .volume = volume, .node = NodeId("node-b.1"), .access = Access::kSharedWrite};
    return catalogue->grants().AddGrant(first.cluster, request, {"secret"}).value();
  }
  // Nor does it hold up a fence.
  void CheckHoldsUpNoRelease(const Grant& grant, const std::function<void()>& call) {
    const GrantRow row = RowOf(grant);
    std::jthread calling([&] {
      const auto pass = gates.Enter(row.volume, absl::Now() + absl::Minutes(1));
      call();
    });
    REQUIRE(Eventually([&] { return !gates.Enter(row.volume, absl::InfinitePast()).has_value(); }));
    REQUIRE(catalogue->grants().SetReleasing(row.generation) == absl::OkStatus());
    CHECK(targets->FinishReleasing({row}, absl::Now() + absl::Seconds(20)) == absl::OkStatus());
    CHECK_FALSE(HasTarget(grant));
    store.LetAnswer();
    calling.join();
    daemon.reset();
  }
  ~WithOneSilent() { store.LetAnswer(); }

  absl::Duration drain_timeout = absl::Seconds(1);  // from the next BeginAgent on
  std::vector<Grant> grants;
  OneIsSilent store{options.pool_dir};
  std::unique_ptr<Catalogue> catalogue;
  TgtClient client{options.control_port};
  std::optional<TargetTable> table;
  VolumeGates gates;
  std::unique_ptr<GrantTargets> targets;
  std::unique_ptr<TgtDaemon> daemon;
};

}  // namespace lunkeeper::testing
