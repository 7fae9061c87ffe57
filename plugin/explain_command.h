#pragma once
// `lunkeeper explain pvc/NAME`: why a claim is pending, stuck or slow, in sentences, from what the API server
// and the arrays say at this moment. Runs in a controller's pod, with its rights, and changes nothing. One
// thread.

#include <string>
#include <vector>

#include "fencing/kube/json.h"
#include "plugin/admin.pb.h"
#include "plugin/admin_client.h"

namespace lunkeeper {

// What was read for one claim. Null JSON: there is no such object.
struct ClaimFacts {
  kube::Json claim, storage_class, volume;
  std::vector<kube::Json> pods;  // that use it
  bool may_list_pods = true;     // false: `pods` is empty, and says nothing
  admin::v1::StatusResponse status;
  admin::v1::ListVolumesResponse volumes;
};

// A sentence each, what matters most first; never none. A pure function.
std::vector<std::string> ExplainClaim(const ClaimFacts& facts);

void AddExplainCommand(CLI::App* app, int* exit_code, const MakeClient& cluster);

}  // namespace lunkeeper
