#include "fencing/kube/lease.h"

#include <algorithm>

#include "base/status_macros.h"

namespace lunkeeper::kube {
namespace {

ObjectRef RefOf(const LeaseName& name) {
  return {{"coordination.k8s.io", "v1", "leases"}, name.space, name.name};
}

Lease FromJson(const Json& object) {
  return {TextAt(object, {"spec", "holderIdentity"}), TextAt(object, {"metadata", "resourceVersion"}),
          NumberAt(object, {"spec", "leaseTransitions"}), TextAt(object, {"metadata", "uid"})};
}

}  // namespace

absl::StatusOr<Lease> ReadLease(KubeClient& client, const LeaseName& name, const Limits& limits) {
  const auto object = client.Get(RefOf(name), limits);
  if (absl::IsNotFound(object.status())) return Lease{};
  RETURN_IF_ERROR(object.status());
  return FromJson(*object);
}

absl::StatusOr<Lease> WriteLease(KubeClient& client, const LeaseName& name, const Lease& seen,
                                 const std::string& holder, absl::Duration duration, absl::Time now,
                                 const Limits& limits) {
  // leaseTransitions counts changes of the holder, as client-go's elector does; a renewal is none.
  const bool taken = holder != seen.holder && !holder.empty();
  // Other clients, such as `kubectl describe lease`, show these times. Our own election never compares them
  // with a clock: it watches the version change (fencing/core/election.h).
  Json spec = {{"holderIdentity", holder},
               {"renewTime", FormatMicroTime(now)},
               {"leaseDurationSeconds", std::max<int64_t>(1, absl::ToInt64Seconds(duration))},
               {"leaseTransitions", seen.transitions + (taken && !seen.version.empty() ? 1 : 0)}};
  if (taken) spec["acquireTime"] = FormatMicroTime(now);
  // The version makes it a compare-and-swap: of two replicas that saw the same lease, one succeeds.
  if (!seen.version.empty()) {
    ASSIGN_OR_RETURN(const Json object,
                     client.Patch(RefOf(name), {{"spec", spec}}, {.version = seen.version}, limits));
    return FromJson(object);
  }
  ObjectRef at = RefOf(name);
  at.name.clear();
  const Json lease = {{"apiVersion", at.resource.ApiVersion()},
                      {"kind", kLeaseKind},
                      {"metadata", {{"name", name.name}, {"namespace", name.space}}},
                      {"spec", spec}};
  ASSIGN_OR_RETURN(const Json object, client.Create(at, lease, limits));
  return FromJson(object);
}

}  // namespace lunkeeper::kube
