#pragma once
// The real Ceph of a test: its conf is in LUNKEEPER_CEPH_CONF, and the user in LUNKEEPER_CEPH_USER; e2e/ceph
// starts one.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "devices/array/tgt/ceph_pool.h"

namespace lunkeeper::testing {

inline std::string Conf() {
  const char* const conf = std::getenv("LUNKEEPER_CEPH_CONF");
  REQUIRE(conf != nullptr);
  return conf;
}

// The pool `lk`, for a user with no more rights than the documentation gives.
inline CephOptions TestCeph() {
  const char* const user = std::getenv("LUNKEEPER_CEPH_USER");
  return {.pool = "lk", .conf = Conf(), .user = user == nullptr ? "admin" : user};
}

inline std::unique_ptr<CephPool> ConnectToCeph() {
  auto connected = CephPool::Connect(TestCeph());
  REQUIRE(connected.status() == absl::OkStatus());
  return *std::move(connected);
}

}  // namespace lunkeeper::testing
