#include "fencing/failover/gateway_event.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "fencing/kube/object_event.h"

namespace lunkeeper::fencing {

// Without the Lease's uid `kubectl events` shows it all the same, and `kubectl describe` does not.
absl::Status TellGateway(kube::KubeClient& client, const kube::LeaseName& lease, const std::string& replica,
                         const ArrayGateway& gateway, const kube::Limits& limits) {
  const auto found = kube::ReadLease(client, lease, limits);
  const bool planned = gateway.state.change == GatewayChange::kHandover;
  kube::ObjectEvent event;
  event.api_version = "coordination.k8s.io/v1";
  event.kind = kube::kLeaseKind;
  event.space = lease.space;
  event.name = lease.name;
  event.uid = found.ok() ? found->uid : "";
  event.event_kind = planned ? kube::EventKind::kNormal : kube::EventKind::kWarning;
  event.reason = planned ? "ArrayHandedOver" : "ArrayTakenOver";
  event.action = "ServeArray";
  event.note = DescribeGateway(gateway);
  event.reporter_instance = replica;
  event.own_name = absl::StrCat("lunkeeper-", gateway.array, "-epoch-", gateway.state.epoch);
  const absl::Status recorded = kube::RecordEvent(client, event, absl::Now(), limits);
  return absl::IsAlreadyExists(recorded) ? absl::OkStatus() : recorded;
}

}  // namespace lunkeeper::fencing
