// The file of failover's settings: what it says, what is refused, and that a change is noticed.

#include "plugin/failover_settings.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "base/testing/test_host.h"

namespace lunkeeper {
namespace {

using fencing::Settings;
using fencing::Span;

struct SettingsFile {
  void Write(const std::string& text) const {
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
  }
  const testing::TempDir folder;
  const std::string path = folder.path() + "/failover.json";
};

}  // namespace

TEST_CASE("every value of the chart has its setting") {
  const auto read = ParseFailoverSettings(R"({
    "paused": true, "dryRun": true, "optIn": true, "ownerKinds": ["Job", "Cluster.postgresql.cnpg.io", "*"],
    "budgetPercent": 7,
    "massPercent": 8, "overBudget": "stop", "partitioned": "trust-kubernetes", "silenceSeconds": 3.5,
    "slowSilenceSeconds": 11, "neverMetSilenceSeconds": 31, "partitionGraceSeconds": 12,
    "probationSeconds": 13, "gracefulSeconds": 14, "pluginNotReadySeconds": 15,
    "kicksPerWindow": 3, "kickWindowSeconds": 61, "crashLoops": "always",
    "idlePods": "wait"})",
                                          Settings());
  REQUIRE(read.ok());
  CHECK(read->paused);
  CHECK(read->dry_run);
  CHECK(read->opt_in);
  CHECK(read->owner_kinds == std::set<std::string>{"Job", "Cluster.postgresql.cnpg.io", "*"});
  CHECK(read->budget_percent == 7);
  CHECK(read->mass_percent == 8);
  CHECK_FALSE(read->one_by_one);
  CHECK(read->partitioned == fencing::Partitioned::kTrustKubernetes);
  CHECK(read->silence == Span::OfMilliseconds(3500));
  CHECK(read->slow_silence == Span::OfMilliseconds(11'000));
  CHECK(read->never_met_silence == Span::OfMilliseconds(31'000));
  CHECK(read->partition_grace == Span::OfMilliseconds(12'000));
  CHECK(read->probation == Span::OfMilliseconds(13'000));
  CHECK(read->graceful_deadline == Span::OfMilliseconds(14'000));
  CHECK(read->plugin_not_ready == Span::OfMilliseconds(15'000));
  CHECK(read->kicks == 3);
  CHECK(read->kick_window == Span::OfMilliseconds(61'000));
  CHECK(read->crash_loops == fencing::CrashLoops::kAlways);
  CHECK(!read->move_idle);
}

TEST_CASE("nodes of silent plugins are never tainted with 0, and not after less than 10 seconds") {
  const auto off = ParseFailoverSettings(R"({"pluginNotReadySeconds": 0})", Settings());
  REQUIRE(off.ok());
  CHECK(off->plugin_not_ready == Span());
  const auto short_one = ParseFailoverSettings(R"({"pluginNotReadySeconds": 9})", Settings());
  CHECK_THAT(std::string(short_one.status().message()), Catch::Contains("want 0, or 10 to 86400 seconds"));
}

TEST_CASE("what the file leaves out is as the options say") {
  Settings base;
  base.paused = true;
  base.budget_percent = 50;
  const auto read = ParseFailoverSettings(R"({"paused": false})", base);
  REQUIRE(read.ok());
  CHECK_FALSE(read->paused);
  CHECK(read->budget_percent == 50);
}

TEST_CASE("a wrong file is refused as a whole, with what is wanted") {
  const std::pair<const char*, const char*> rows[] = {
      {"", "JSON object"},
      {"[]", "JSON object"},
      {R"({"paused": true)", "JSON object"},
      {R"({"pause": true})", "--failover-pause"},
      {R"({"settings": "/other"})", "--failover-settings"},
      {R"({"paused": "perhaps"})", "--failover-paused"},
      {R"({"paused": null})", "paused: want"},
      {R"({"ownerKinds": [1]})", "ownerKinds: want"},
      {R"({"ownerKinds": ["Cluster. postgresql"]})", "such as StatefulSet"},
      {R"({"budgetPercent": 0})", "1 to 100"},
      {R"({"kicksPerWindow": 0})", "1 to 1000"},
      {R"({"kickWindowSeconds": 59})", "60 to 86400 seconds"},
      {R"({"crashLoops": "often"})", "after-outage,always,never"},
      {R"({"idlePods": "stay"})", "move,wait"},
      {R"({"silenceSeconds": 1})", "2.5 to 86400 seconds"},
      {R"({"silenceSeconds": "-"})", "2.5 to 86400 seconds"},
  };
  for (const auto& [text, wanted] : rows) {
    CAPTURE(text);
    const auto read = ParseFailoverSettings(text, Settings());
    CHECK(absl::IsInvalidArgument(read.status()));
    CHECK_THAT(std::string(read.status().message()), Catch::Contains(wanted));
  }
}

TEST_CASE("with a wrong file, or none, at the start failover is paused until the file is good") {
  const SettingsFile file;
  const bool wrong = GENERATE(true, false);
  if (wrong) file.Write(R"({"paused": "perhaps"})");
  Settings base;
  base.budget_percent = 50;
  FailoverSettingsFile settings(file.path, base);
  const Settings first = settings.ReadFirst();
  CHECK(first.paused);
  CHECK(first.budget_percent == 50);
  CHECK_FALSE(settings.IsInForce());
  std::atomic<int> changes = 0, paused = 1;
  settings.StartWatching([&](const Settings& changed) {
    paused = changed.paused;
    ++changes;
  });
  file.Write(R"({"budgetPercent": 10})");
  CHECK(testing::Eventually([&] { return changes == 1 && paused == 0; }));
  CHECK(settings.IsInForce());
}

TEST_CASE("a change is noticed, and a wrong one leaves the settings as they were") {
  const SettingsFile file;
  FailoverSettingsFile settings(file.path, Settings());
  file.Write(R"({"budgetPercent": 10})");
  REQUIRE(settings.ReadFirst().budget_percent == 10);
  std::atomic<int> changes = 0, budget = 0;
  settings.StartWatching([&](const Settings& changed) {
    budget = changed.budget_percent;
    ++changes;
  });
  file.Write(R"({"budgetPercent": 1000})");
  CHECK(testing::Eventually([&] { return !settings.IsInForce(); }));
  CHECK(changes == 0);
  file.Write(R"({"budgetPercent": 30})");
  CHECK(testing::Eventually([&] { return budget == 30; }));
  CHECK(settings.IsInForce());
}

}  // namespace lunkeeper
