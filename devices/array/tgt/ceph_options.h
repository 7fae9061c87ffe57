#pragma once
// Which pool of which Ceph cluster, and as whom.

#include <string>

namespace lunkeeper {

struct CephOptions {
  std::string pool;  // empty: no Ceph
  std::string conf = "/etc/ceph/ceph.conf";
  std::string user = "admin";
};

}  // namespace lunkeeper
