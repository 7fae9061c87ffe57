#pragma once
// A gateway of an array on a real Ceph (test_ceph.h), as far as Ceph sees one: a client and a lease, without
// a catalogue or a tgtd. For one test.

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "base/random.h"
#include "base/testing/test_host.h"
#include "devices/array/tgt/gateway_lease.h"
#include "devices/array/tgt/testing/test_ceph.h"

namespace lunkeeper::testing {

inline constexpr absl::Duration kTakeover = absl::Seconds(4);

class Gateway {
 public:
  Gateway(std::string array, const std::string& host, absl::Duration takeover_after = kTakeover,
          bool gives_away = false)
      : options_{.array = std::move(array),
                 .holder = host + ".boot",
                 .host = host,
                 .takeover_after = takeover_after,
                 .gives_away = gives_away,
                 .on_lost = [this](const absl::Status&) { ++lost; }} {}
  // `stand_by`: as of the options.
  absl::Status Take(std::function<absl::Status(const absl::Status&)> stand_by = nullptr) {
    GatewayLeaseOptions options = options_;
    options.stand_by = std::move(stand_by);
    auto taken = GatewayLease::TakeArray(*pool, options);
    if (taken.ok()) lease = *std::move(taken);
    return taken.status();
  }
  // Stands by until it takes the array, or is to stop, on a thread of its own.
  std::jthread StandBy(absl::Status* taken) {
    return std::jthread([this, taken](const std::stop_token& stop) {
      *taken = Take([&](const absl::Status&) {
        ++seen;
        return stop.stop_requested() ? absl::CancelledError("stop") : absl::OkStatus();
      });
    });
  }
  // All of it, as far as one can without a second client.
  void TakeAndServe() {
    REQUIRE(Take() == absl::OkStatus());
    REQUIRE(lease->ShutOut() == absl::OkStatus());
    REQUIRE(lease->BeginServing(kCatalogue) == absl::OkStatus());
  }
  void Die() { lease.reset(); }
  GatewayRecord Record() const {
    const auto read = ReadGatewayRecord(*pool, options_.array);
    REQUIRE(read.status() == absl::OkStatus());
    REQUIRE(read->has_value());
    return **read;
  }
  // Takes the array from the gateway that has it, in the record alone.
  void WriteNextRecord() const {
    REQUIRE(Eventually([&] {  // beside renewals
      const GatewayRecord before = Record();
      GatewayRecord next = before;
      ++next.epoch;
      next.holder = options_.holder;
      return ReplaceGatewayRecord(*pool, options_.array, before, next).ok();
    }));
  }
  // Always the same object. An OSD refuses those who were shut out from the first operation on that a client
  // sends which knows it.
  bool CanWrite() const { return pool->WriteKey("lunkeeper.test." + options_.array, "k", "v").ok(); }

  inline static const ClientAddress kCatalogue = "127.0.0.1:0/4294967290";
  std::unique_ptr<CephPool> pool = ConnectToCeph();
  std::unique_ptr<GatewayLease> lease;
  std::atomic<int> lost = 0, seen = 0;

 private:
  const GatewayLeaseOptions options_;
};

struct Leases {
  std::string array = "l" + RandomHexDigits().substr(0, 8);
};

}  // namespace lunkeeper::testing
