#pragma once
// Makes this driver known to kubelet, with no registrar beside it: serves the plugin registration service on
// a socket in the directory that kubelet watches, makes the socket anew when it is gone (kubelet was
// restarted, or somebody tidied up), replaces one that a killed predecessor left, and takes it away when this
// object goes. One that another process still answers on is left alone until that process has gone.
//
// Thread-safe; has threads of its own, which the destructor joins. What fails is logged, shown by Status, and
// tried again each second; kubelet itself tries again after it has refused a driver.

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace lunkeeper {

struct RegistrationOptions {
  std::string directory;  // /var/lib/kubelet/plugins_registry
  std::string driver;     // csi.lunkeeper.io
  std::string endpoint;   // the path of the driver's socket, as kubelet sees it
};

class Registration {
 public:
  virtual ~Registration() = default;
  // OK: kubelet has taken this driver. UNAVAILABLE: it has not asked yet. FAILED_PRECONDITION: it refused, or
  // the socket cannot be made.
  virtual absl::Status Status() const = 0;
};

std::unique_ptr<Registration> StartRegistration(const RegistrationOptions& options);

}  // namespace lunkeeper
