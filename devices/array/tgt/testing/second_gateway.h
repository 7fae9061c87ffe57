#pragma once
// Two gateways of an array on a real Ceph, in one process: as far as one can be without the other.

#include <memory>
#include <string>

#include "devices/array/tgt/gateway_record.h"
#include "devices/array/tgt/testing/on_ceph.h"

namespace lunkeeper::testing {

// An array with a volume that is granted, and whose gateway has ended; another one, with so many tgtds.
struct WithASecond : OnCeph {
  explicit WithASecond(int tgtds = 1) : second("", tgtds) {
    options.ceph.takeover_after = absl::Seconds(4);
    connection = cluster->grants()
                     .AcquireGrant({.volume = Make("v"), .node = kA}, absl::ZeroDuration())
                     .value()
                     .connection;
    cluster.reset();
    array.reset();
    second.options.name = options.name;
    second.options.ceph = options.ceph;
    connection.portal = second.options.portals.front();
    pool = CephPool::Connect(options.ceph).value();
  }
  bool IsGivenAway() const {
    return !ParseReleased(ReadGatewayRecord(*pool, options.name).value().value()).empty();
  }

  Connection connection;
  ArrayFixture second;
  std::unique_ptr<CephPool> pool;
};

}  // namespace lunkeeper::testing
