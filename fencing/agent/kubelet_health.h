#pragma once
// Whether this machine's kubelet and container runtime answer, as seen on the machine itself: kubelet's
// health page and the runtime's Version call. A thread of its own asks both each `every`, and gives each at
// most one second. Thread-safe; nothing fails. A part that has never answered is taken to be well: a health
// page that is switched off says nothing about kubelet.

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace lunkeeper {

struct KubeletHealthOptions {
  std::string healthz;  // host:port of kubelet's /healthz, the host as a number; empty: it is not asked
  std::string runtime_socket;  // path of the CRI socket; empty: not asked
  absl::Duration every = absl::Seconds(1);
  int misses = 3;  // in a row, before one that answered once counts as hung
};

class KubeletHealth {
 public:
  virtual ~KubeletHealth() = default;
  virtual bool IsWell() const = 0;
};

std::unique_ptr<KubeletHealth> WatchKubelet(const KubeletHealthOptions& options);

}  // namespace lunkeeper
