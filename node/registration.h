#pragma once
// Registers this driver with kubelet, without a registrar container: serves the plugin registration service
// on a socket in the directory that kubelet watches. The socket is made again when it disappears (kubelet was
// restarted, or the directory was cleaned), replaces one that a killed predecessor left, and is removed with
// this object. A socket that another process still answers on is left alone until that process ends.
//
// Thread-safe; has threads of its own, which the destructor joins. A failure is logged, shown by Status, and
// tried again each second; kubelet itself tries again after it has refused a driver.

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace lunkeeper {

struct RegistrationOptions {
  std::string directory;  // /var/lib/kubelet/plugins_registry
  std::string driver;     // csi.lunkeeper.io
  std::string endpoint;   // the path of the driver's socket on kubelet's host
};

class Registration {
 public:
  virtual ~Registration() = default;
  // OK: kubelet has registered this driver. UNAVAILABLE: it has not asked yet. FAILED_PRECONDITION: it
  // refused, or the socket cannot be made.
  virtual absl::Status Status() const = 0;
};

std::unique_ptr<Registration> StartRegistration(const RegistrationOptions& options);

}  // namespace lunkeeper
