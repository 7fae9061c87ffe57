#pragma once
// A real API server on a real etcd, for tests: two processes of their own, on free ports of loopback, in a
// directory of their own. They die with this process and are killed by pid. There are no controllers, so
// objects stay as they are written. kube-apiserver is that of LUNKEEPER_KUBE_BIN or of .cache/kube/bin. One
// thread uses it.

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/testing/test_host.h"
#include "fencing/kube/config.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper::kube {

class RealApi {
 public:
  RealApi();
  ~RealApi();

  std::unique_ptr<KubeClient> Client() const;
  KubeConfig Config() const;

  // Starts both and waits until the server says that it is ready.
  void Start();
  void Kill();  // SIGKILL, both
  // SIGSTOP to the API server; returns when it has stopped.
  void Freeze();
  void Thaw();
  // Saves what etcd stores, and restores it. Both while it is down.
  void Save();
  void Restore();

 private:
  void MakeFiles() const;
  pid_t Spawn(const std::string& log, const std::vector<std::string>& command) const;

  const testing::TempDir directory_;
  uint16_t etcd_port_ = 0, peer_port_ = 0, port_ = 0;
  pid_t etcd_ = -1, server_ = -1;
};

}  // namespace lunkeeper::kube
