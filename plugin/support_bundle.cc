// Every part is asked for by itself, and a part that cannot be had says why: a bundle is wanted when
// something does not work. It goes to standard output, since the pods' file systems are read-only.
#include "plugin/support_bundle.h"

#include <google/protobuf/util/json_util.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/driver.h"
#include "fencing/failover/facts.h"
#include "fencing/failover/record.h"
#include "fencing/kube/list_all.h"
#include "plugin/admin_call.h"
#include "plugin/doctor.h"

namespace lunkeeper {
namespace {

using admin::v1::Admin;
using kube::Json;
using kube::TextAt;

constexpr char kLeftOut[] = "(left out: it looks like a secret)";

// Objects of a kind, and the fields that are taken of each; never annotations, where kubectl keeps a copy of
// everything.
struct KindInBundle {
  kube::Selection selection;
  std::vector<const char*> fields;
  bool (*is_ours)(const Json& object) = [](const Json&) { return true; };
};

// What helps to find a fault. Claims and Secrets are not asked for at all.
std::vector<KindInBundle> KindsInBundle(const std::string& own_namespace) {
  return {
      {{fencing::kNodeFences}, {"/spec", "/status"}},
      {{{"lunkeeper.io", "v1alpha1", "volumelocks"}}, {"/spec", "/status"}},
      {{kube::kNodes}, {"/spec/taints", "/spec/unschedulable", "/status/conditions", "/status/nodeInfo"}},
      {{kube::kCsiNodes}, {"/spec/drivers"}},
      {{kube::kPods, own_namespace},
       {"/spec/nodeName", "/status/phase", "/status/conditions", "/status/containerStatuses"}},
      {{{"storage.k8s.io", "v1", "storageclasses"}},
       {"/provisioner", "/parameters", "/reclaimPolicy", "/volumeBindingMode", "/allowVolumeExpansion",
        "/mountOptions"},
       [](const Json& object) { return TextAt(object, {"provisioner"}) == kDriverName; }},
      {{{"", "v1", "persistentvolumes"}},
       {"/spec/csi/volumeHandle", "/spec/claimRef/namespace", "/spec/claimRef/name", "/spec/capacity",
        "/spec/accessModes", "/spec/storageClassName", "/status/phase"},
       [](const Json& object) {
         return TextAt(object, {"spec", "csi", "driver"}) == kDriverName;
       }},
  };
}

constexpr const char* kAlwaysTaken[] = {"/metadata/name", "/metadata/namespace",
                                        "/metadata/creationTimestamp", "/metadata/deletionTimestamp",
                                        "/metadata/finalizers"};

Json TakeFields(const Json& object, const KindInBundle& kind) {
  Json taken = Json::object();
  const auto take = [&](const char* field) {
    const Json::json_pointer pointer(field);
    if (object.contains(pointer)) taken[pointer] = object.at(pointer);
  };
  for (const char* field : kAlwaysTaken) take(field);
  for (const char* field : kind.fields) take(field);
  return taken;
}

Json TroubleOf(const absl::Status& status) {
  return {{"trouble", absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message())}};
}

// One kind that may not be listed, or is not installed, leaves the others in the bundle.
Json ReadKind(kube::KubeClient& client, const KindInBundle& kind, absl::Time deadline) {
  const auto objects = kube::ListAll(client, kind.selection, {deadline});
  if (!objects.ok()) return TroubleOf(objects.status());
  Json taken = Json::array();
  for (const Json& object : *objects)
    if (kind.is_ours(object)) taken.push_back(TakeFields(object, kind));
  return taken;
}

template <class Request, class Response>
Json AskFor(const AdminTarget& target, AdminMethod<Request, Response> method) {
  const absl::StatusOr<Response> response = AskServer<Request, Response>(target, method, {});
  if (!response.ok()) return TroubleOf(response.status());
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(*response, &text, options).ok())
    return TroubleOf(absl::InternalError("the answer is not valid text"));
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// Wide on purpose, here and below: a harmless text that is missing costs a question, a secret that is there
// cannot be called back.
bool IsSecretName(const std::string& key) {
  const std::string name = absl::AsciiStrToLower(key);
  return absl::StrContains(name, "password") || absl::StrContains(name, "passphrase") ||
         absl::StrContains(name, "secret") || absl::StrContains(name, "token") ||
         absl::StrContains(name, "credential") || absl::StrContains(name, "privatekey");
}

// PEM, a JSON web token, or what names itself.
bool LooksSecret(const std::string& text) {
  if (absl::StrContains(text, "-----BEGIN") || absl::StrContains(text, "eyJ")) return true;
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* sign : {"bearer ", "password=", "password:", "secret=", "token="})
    if (absl::StrContains(lower, sign)) return true;
  return false;
}

struct BundleCommand {
  AdminTarget target;
  MakeClient cluster;
};

Json ReadServer(const AdminTarget& target) {
  return {
      {"status", AskFor<admin::v1::StatusRequest, admin::v1::StatusResponse>(target, &Admin::Stub::Status)},
      {"volumes", AskFor<admin::v1::ListVolumesRequest, admin::v1::ListVolumesResponse>(
                      target, &Admin::Stub::ListVolumes)},
      {"snapshots", AskFor<admin::v1::ListSnapshotsRequest, admin::v1::ListSnapshotsResponse>(
                        target, &Admin::Stub::ListSnapshots)}};
}

Json ReadCluster(const BundleCommand& command) {
  const auto client = command.cluster();
  if (!client.ok()) return TroubleOf(client.status());
  const absl::Time deadline = absl::Now() + absl::Seconds(command.target.timeout_seconds);
  Json objects = Json::object();
  for (const KindInBundle& kind : KindsInBundle(kube::InClusterNamespace().value_or("")))
    objects[kind.selection.resource.plural] = ReadKind(**client, kind, deadline);
  return objects;
}

int PrintBundle(const BundleCommand& command) {
  Json bundle = {{"version", LUNKEEPER_VERSION},
                 {"made", absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone())},
                 {"server", ReadServer(command.target)},
                 {"cluster", ReadCluster(command)}};
  Json faults = Json::array();
  for (const Fault& fault : FindFaults(command.target, command.cluster).faults)
    faults.push_back({{"about", fault.about}, {"what", fault.what}});
  bundle["doctor"] = std::move(faults);
  LeaveOutSecrets(bundle);
  // Bytes that are no UTF-8, from a status text say, are replaced. Otherwise dump would throw.
  std::cout << bundle.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
  return 0;
}

}  // namespace

void LeaveOutSecrets(Json& json) {
  if (json.is_string() && LooksSecret(json.get_ref<const std::string&>())) json = kLeftOut;
  if (!json.is_structured()) return;
  for (auto& [key, value] : json.items()) {
    // The key is reason enough: a secret may look like any other text.
    if (json.is_object() && value.is_string() && IsSecretName(key)) {
      value = kLeftOut;
    } else {
      LeaveOutSecrets(value);
    }
  }
}

void AddSupportBundleCommand(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  const auto command = std::make_shared<BundleCommand>();
  command->cluster = cluster;
  AddAdminCommand(app, "support-bundle", "Print all that helps to find a fault, without secrets, as JSON",
                  &command->target)
      ->callback([=] { *exit_code = PrintBundle(*command); });
}

}  // namespace lunkeeper
