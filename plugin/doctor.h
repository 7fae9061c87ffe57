#pragma once
// `lunkeeper doctor`: looks for what commonly goes wrong around a running server, and changes nothing. It
// runs where the server runs, in its pod: it uses the server's socket, the API server with its rights, its
// certificates, its network and its kernel. Checks that do not apply there (there is no cluster, or it is no
// node) are left out. The exit code is 1 if something is wrong. One thread.

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "fencing/kube/kube_client.h"
#include "plugin/admin_call.h"
#include "plugin/admin_client.h"

namespace lunkeeper {

// What a check found wrong.
struct Fault {
  std::string about;     // "clocks"
  std::string what;      // what is wrong, and what to do
  bool is_note = false;  // nothing is wrong, but somebody should know
};

// The machine around it, which tests replace.
struct Surroundings {
  absl::Time now;
  std::string own_namespace;  // empty: this is no pod
  // OK when somebody listens at host:port, as seen from here.
  std::function<absl::Status(const std::string& address)> connect;
  // OK when packets of full size arrive there.
  std::function<absl::Status(const std::string& address)> send_much;
  // OK when this name has an address.
  std::function<absl::Status(const std::string& host)> resolve;
  // OK when this device file can be opened.
  std::function<absl::Status(const std::string& path)> open_device;
  // The content of a file of /proc/sys; empty where this kernel does not have it.
  std::function<std::string(const std::string& path)> read_setting;
};

// Of what the server says: whether it is ready, arrays, certificates, portals, and on a node the kernel.
std::vector<Fault> CheckServer(const admin::v1::StatusResponse& status, const Surroundings& around);
// Of what the API server says: nodes without the driver and StorageClasses; where failover is on also clocks,
// kinds, Pod Security and sidecars, for which a controller has no right otherwise. One that does not answer
// is a fault, too.
std::vector<Fault> CheckCluster(kube::KubeClient& client, absl::Time deadline, const Surroundings& around,
                                bool failover);

struct Diagnosis {
  std::vector<Fault> faults;
  bool of_cluster = false;  // the API server was asked, too
};
// All checks that apply to the server behind `target`.
Diagnosis FindFaults(const AdminTarget& target, const MakeClient& cluster);

void AddDoctorCommand(CLI::App* app, int* exit_code, const MakeClient& cluster);

}  // namespace lunkeeper
