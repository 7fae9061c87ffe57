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

ClusterQuotas ParseQuotas(const std::string& options) {
  CLI::App app;
  PoolLimits limits;
  AddLimitOptions(&app, &limits);
  app.parse(options);
  return limits.quotas;
}

TEST_CASE("a quota is of a cluster, or of all that are not named") {
  CHECK(ParseQuotas("").Of(ClusterId("prod")) == 0);
  const ClusterQuotas quotas = ParseQuotas("--quota=prod=2TiB --quota=5G --quota=lab=0");
  CHECK(quotas.Of(ClusterId("prod")) == uint64_t{2} << 40);
  CHECK(quotas.Of(ClusterId("other")) == uint64_t{5} << 30);
  CHECK(quotas.Of(ClusterId("lab")) == 0);
  for (const std::string wrong : {"prod=", "=5G", "Prod=5G", "prod", "prod=-1", "prod=5X", "5G=prod",
                                  "prod=99E", "prod=1=2", "prod=1.5TiB", "prod=2G,lab=1G", "prod=0x10"}) {
    INFO(wrong);
    CHECK_THROWS_AS(ParseQuotas("--quota=" + wrong), CLI::ParseError);
    CHECK_THROWS_WITH(ParseQuotas("--quota=" + wrong),
                      Catch::Contains("--quota: ") && Catch::Contains("want "));
  }
}

}  // namespace
}  // namespace lunkeeper
