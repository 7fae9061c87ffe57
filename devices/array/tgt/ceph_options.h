#pragma once
// Which pool of which Ceph cluster, and as whom.

#include <functional>
#include <string>

#include "absl/time/time.h"

namespace lunkeeper {

struct CephOptions {
  std::string pool;  // empty: no Ceph
  std::string conf = "/etc/ceph/ceph.conf";
  std::string user = "admin";
  // How long another gateway's record stands still until its array is taken.
  absl::Duration takeover_after = absl::Seconds(5);
  // Asked about once a second while another gateway serves the array: whether to stand by for longer, which
  // has no end of its own. Without it, opening the array fails then.
  std::function<bool()> stands_by = nullptr;
  // Each call of a cluster's view begins with TgtArray::ConfirmServing. CheckServing goes by a clock, which
  // stands still with a paused host. Without this, those who answer others for the array ask it.
  bool confirms_calls = false;
  // Between attempts to remove what could not be removed before.
  absl::Duration removals_every = absl::Seconds(30);
  // Between looks whether a tgtd lets nodes in that another gateway has left.
  absl::Duration peers_every = absl::Hours(1);
};

}  // namespace lunkeeper
