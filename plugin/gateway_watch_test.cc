#include "plugin/gateway_watch.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/testing/captured_log.h"
#include "base/testing/test_host.h"
#include "plugin/testing/shell.h"

namespace lunkeeper {
namespace {

using testing::Eventually;

GatewayState Served(const std::string& host, uint64_t epoch, GatewayChange change) {
  return {.host = host,
          .epoch = epoch,
          .before = "a",
          .change = change,
          .since = absl::FromUnixSeconds(1'800'000'000),
          .phases = {{"catalogue", absl::Milliseconds(500)}}};
}

// An array, and what Kubernetes knows of it. Thread-safe.
struct Watched {
  void Set(const std::optional<GatewayState>& now) {
    const absl::MutexLock lock(&mutex);
    state = now;
  }
  size_t CountTold() {
    const absl::MutexLock lock(&mutex);
    return told.size();
  }
  uint64_t SeenEpoch() const {
    const auto seen = watch.ListGateways();
    return seen.empty() ? 0 : seen.front().state.epoch;
  }
  std::string MetricsText() const {
    Metrics metrics("controller");
    watch.ReportMetrics(metrics);
    return metrics.ToText();
  }

  absl::Mutex mutex;
  std::optional<GatewayState> state ABSL_GUARDED_BY(mutex) = Served("a", 1, GatewayChange::kFirst);
  std::vector<uint64_t> told ABSL_GUARDED_BY(mutex);
  int failures ABSL_GUARDED_BY(mutex) = 0;  // of the next calls that tell
  int looks ABSL_GUARDED_BY(mutex) = 0;
  GatewayWatch watch{
      [this]() -> std::vector<ArrayGateway> {
        const absl::MutexLock lock(&mutex);
        ++looks;
        return state ? std::vector{ArrayGateway{"rack1", *state}} : std::vector<ArrayGateway>();
      },
      [this](const ArrayGateway& gateway) {
        const absl::MutexLock lock(&mutex);
        if (failures > 0) return --failures, absl::UnavailableError("the API server is away");
        told.push_back(gateway.state.epoch);
        return absl::OkStatus();
      },
      absl::Milliseconds(5)};

  void AwaitLooks(int more) {
    const auto count = [this] {
      const absl::MutexLock lock(&mutex);
      return looks;
    };
    const int wanted = count() + more;
    REQUIRE(Eventually([&] { return count() >= wanted; }));
  }
};

}  // namespace

TEST_CASE("takeovers and planned handovers are counted apart, and a restart is neither") {
  Watched array;
  REQUIRE(Eventually([&] { return array.SeenEpoch() == 1; }));
  CHECK_THAT(array.MetricsText(),
             Catch::Contains("lunkeeper_array_takeovers_total{array=\"rack1\"} 0\n") &&
                 Catch::Contains("lunkeeper_array_handovers_total{array=\"rack1\"} 0\n"));
  const GatewayChange changes[] = {GatewayChange::kTakeover, GatewayChange::kRestart,
                                   GatewayChange::kHandover, GatewayChange::kTakeover};
  uint64_t epoch = 1;
  for (const GatewayChange change : changes) {
    array.Set(Served("b", ++epoch, change));
    REQUIRE(Eventually([&] { return array.SeenEpoch() == epoch; }));
  }
  const std::string text = array.MetricsText();
  for (const char* line : {"lunkeeper_array_takeovers_total{array=\"rack1\"} 2\n",
                           "lunkeeper_array_handovers_total{array=\"rack1\"} 1\n",
                           "lunkeeper_array_gateway_epoch{array=\"rack1\"} 5\n",
                           "lunkeeper_array_gateway_since_seconds{array=\"rack1\",host=\"b\"} 1800000000\n",
                           "lunkeeper_array_takeover_seconds{array=\"rack1\",phase=\"catalogue\"} 0.5\n"})
    CHECK_THAT(text, Catch::Contains(line));
}

TEST_CASE("a change is told until it is known, once, and an old one not at all") {
  Watched array;
  {
    const absl::MutexLock lock(&array.mutex);
    array.failures = 3;
  }
  const testing::TempDir folder;
  {
    const testing::CapturedLog log(folder / "log");
    array.Set(Served("b", 2, GatewayChange::kTakeover));
    REQUIRE(Eventually([&] { return array.CountTold() == 1; }));
    const std::string text = log.Text(), said = "Kubernetes takes no event";
    CHECK_THAT(text, Catch::Contains("the API server is away"));
    CHECK(text.find(said) == text.rfind(said));
  }
  array.AwaitLooks(5);
  CHECK(array.CountTold() == 1);
  GatewayState old = Served("b", 3, GatewayChange::kTakeover);
  old.served_for = absl::Hours(1);
  array.Set(old);
  array.AwaitLooks(5);
  array.Set(Served("b", 4, GatewayChange::kRestart));
  array.AwaitLooks(5);
  CHECK(array.CountTold() == 1);
}

TEST_CASE("another gateway is news also when it was started again before anybody had asked it") {
  Watched array;
  REQUIRE(Eventually([&] { return array.SeenEpoch() == 1; }));
  {
    const absl::MutexLock lock(&array.mutex);
    array.failures = 3;
  }
  GatewayState again = Served("b", 3, GatewayChange::kRestart);
  again.before = "b";
  array.Set(again);
  CHECK(Eventually([&] { return array.CountTold() == 1; }));
  const WatchedGateway seen = array.watch.ListGateways().front();
  CHECK(DescribeGateway(seen) ==
        "array rack1 is served by gateway b since 2027-01-15T08:00:00Z (epoch 3): a had it before");
  CHECK_THAT(array.MetricsText(), Catch::Contains("lunkeeper_array_takeovers_total{array=\"rack1\"} 1\n"));
  ++again.epoch;
  array.Set(again);
  REQUIRE(Eventually([&] { return array.SeenEpoch() == 4; }));
  array.AwaitLooks(3);
  CHECK(array.CountTold() == 1);
  CHECK(array.watch.ListGateways().front().state.change == GatewayChange::kRestart);
}

TEST_CASE("an array that does not answer now is shown as it was, and one that was removed no more") {
  Watched array;
  REQUIRE(Eventually([&] { return array.SeenEpoch() == 1; }));
  array.Set(Served("b", 2, GatewayChange::kTakeover));
  REQUIRE(Eventually([&] { return array.SeenEpoch() == 2; }));
  array.Set(GatewayState());
  array.AwaitLooks(3);
  CHECK(array.SeenEpoch() == 2);
  CHECK_FALSE(array.watch.ListGateways().front().answers);
  array.Set(std::nullopt);
  CHECK(Eventually([&] { return array.watch.ListGateways().empty(); }));
  CHECK_THAT(array.MetricsText(), !Catch::Contains("lunkeeper_array_gateway_epoch{array=\"rack1\"}"));
  array.Set(Served("c", 5, GatewayChange::kTakeover));
  REQUIRE(Eventually([&] { return array.SeenEpoch() == 5; }));
  CHECK(array.watch.ListGateways().front().answers);
  // It may be another array of that name, so nothing is known of what it had before.
  CHECK_THAT(array.MetricsText(), Catch::Contains("lunkeeper_array_takeovers_total{array=\"rack1\"} 1\n"));
}

TEST_CASE("status says of an array that does not answer that it does not") {
  std::atomic<bool> answers = true;
  Shell shell([&](Backends& backends) {
    const auto ask = [&] {
      return std::vector{
          ArrayGateway{"a1", answers ? Served("b", 7, GatewayChange::kHandover) : GatewayState()}};
    };
    backends.gateways = std::make_shared<GatewayWatch>(ask, nullptr, absl::Milliseconds(5));
  });
  REQUIRE(Eventually([&] { return !shell.backends.gateways->ListGateways().empty(); }));
  CHECK_THAT(shell.Run({"status"}), !Catch::Contains("none of its agents answers now"));
  answers = false;
  REQUIRE(Eventually([&] { return !shell.backends.gateways->ListGateways().front().answers; }));
  CHECK_THAT(shell.Run({"status"}), Catch::Contains("ready 0.5 s later; none of its agents answers now\n"));
}

TEST_CASE("status and the list of arrays say which gateway serves, since when, and how it came to it") {
  const auto serve = [](Backends& backends) {
    const auto ask = [] { return std::vector{ArrayGateway{"a1", Served("b", 7, GatewayChange::kHandover)}}; };
    backends.gateways = std::make_shared<GatewayWatch>(ask, nullptr);
  };
  Shell shell(serve);
  REQUIRE(Eventually([&] { return !shell.backends.gateways->ListGateways().empty(); }));
  CHECK_THAT(
      shell.Run({"status"}),
      Catch::Contains("array a1 is served by gateway b since 2027-01-15T08:00:00Z (epoch 7): a gave it "
                      "away; it was ready 0.5 s later\n"));
  const auto listed = nlohmann::json::parse(shell.Run({"arrays", "-o", "json"}));
  CHECK(listed[0]["gateway"] == "b");
  CHECK(listed[0]["gateway_since"] == "2027-01-15T08:00:00Z");
  CHECK(listed[0]["gateway_change"] == "handover");
  CHECK_THAT(shell.Run({"arrays"}), Catch::Contains("GATEWAY"));
}

TEST_CASE("the status of a node says by which portal the I/O of each device goes") {
  Shell shell([](Backends& backends) {
    struct OneDevice final : Initiator {
      absl::StatusOr<Device> Attach(const AttachRequest&) override { return absl::InternalError(""); }
      absl::Status Detach(const VolumeId&) override { return absl::OkStatus(); }
      absl::Status Fail(const VolumeId&, const Iqn&, const std::string&) override { return absl::OkStatus(); }
      absl::Status SetLimits(const VolumeId&, const VolumeLimits&) override { return absl::OkStatus(); }
      absl::StatusOr<Device> Resize(const VolumeId&) override { return absl::InternalError(""); }
      absl::StatusOr<std::vector<Device>> List() override {
        Device device;
        device.volume = VolumeId("a1-v0000000000000001");
        device.path = "/dev/loop7";
        device.portal = "10.0.0.5:3260";
        device.used_portal = "10.0.1.5:3260";
        device.statistics.path_moves = 3;
        device.statistics.path_since = absl::FromUnixSeconds(1'800'000'000);
        return std::vector{device};
      }
      absl::StatusOr<std::optional<Device>> Find(const VolumeId&) override { return std::nullopt; }
      bool IsOfAnyDatapath(dev_t) override { return false; }
    };
    const auto devices = std::make_shared<OneDevice>();
    backends.node = kNode;
    backends.prober = devices;
    backends.list_statistics = [devices] { return devices->List(); };
  });
  CHECK_THAT(shell.Run({"status"}), Catch::Contains("/dev/loop7") && Catch::Contains("10.0.1.5:3260") &&
                                        Catch::Contains("2027-01-15T08:00:00Z  3") &&
                                        !Catch::Contains("10.0.0.5"));
}

}  // namespace lunkeeper
