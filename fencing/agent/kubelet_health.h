#pragma once
// Whether this machine's kubelet and container runtime answer, seen from the machine itself: kubelet's health
// page, and the runtime's Version call. Asked each `every` from a thread of its own, a second at most each
// time. Thread-safe; nothing fails. What has never answered is not known, and taken to be well: a page that
// is switched off says nothing about kubelet.

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace lunkeeper {

struct KubeletHealthOptions {
  std::string healthz;         // host:port of kubelet's /healthz; a number, no name. Empty: not asked
  std::string runtime_socket;  // path of the CRI socket; empty: not asked
  absl::Duration every = absl::Seconds(1);
  int misses = 3;  // in a row, before one that answered once counts as hung
};

class KubeletHealth {
 public:
  virtual ~KubeletHealth() = default;
  virtual bool Ok() const = 0;
};

std::unique_ptr<KubeletHealth> WatchKubelet(const KubeletHealthOptions& options);

}  // namespace lunkeeper
