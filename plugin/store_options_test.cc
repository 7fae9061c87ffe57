#include "plugin/store_options.h"

#include <catch2/catch.hpp>
#include <string>

namespace lunkeeper {
namespace {

CephOptions Parse(const std::string& option) {
  CLI::App app;
  CephOptions ceph;
  AddStoreOptions(&app, &ceph);
  app.parse(option);
  return ceph;
}

TEST_CASE("a store is files or a pool of Ceph, and nothing else") {
  CHECK(Parse("").pool.empty());
  CHECK(Parse("--store=files").pool.empty());
  CHECK(Parse("--store=rbd:disks").pool == "disks");
  for (const std::string store : {"rbd:", "rbd:a/b", "rbd:a@b", "rbd:a;b", "rbd:a,b", "lvm"}) {
    INFO(store);
    CHECK_THROWS_AS(Parse("--store=" + store), CLI::ValidationError);
  }
}

TEST_CASE("the path of Ceph's conf depends on no folder that a process starts in") {
  CHECK(Parse("--ceph-conf=/etc/other/ceph.conf").conf == "/etc/other/ceph.conf");
  for (const std::string path : {"ceph.conf", "../ceph.conf", "/etc/../ceph.conf", "/etc/.."}) {
    INFO(path);
    CHECK_THROWS_AS(Parse("--ceph-conf=" + path), CLI::ValidationError);
  }
}

}  // namespace
}  // namespace lunkeeper
