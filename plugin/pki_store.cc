// The certificates in their objects: a Secret with the authorities and their keys, a Secret for each leaf,
// and a ConfigMap with the authorities that nodes trust. All are read before anything is stored, and each is
// stored only if it is still as it was read (its resourceVersion). So of two runs at once the later one
// fails, and its next attempt begins with what the other has stored.
#include "plugin/pki_store.h"

#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

using kube::FieldAt;
using kube::Json;
using Data = std::map<std::string, std::string>;

const kube::Resource kSecrets{"", "v1", "secrets"};
const kube::Resource kConfigMaps{"", "v1", "configmaps"};

// One Secret or ConfigMap, seen as a map.
class DataObject {
 public:
  // `type` of a Secret; empty: a ConfigMap.
  DataObject(std::string space, std::string name, std::string type)
      : type_(std::move(type)), at_{IsSecret() ? kSecrets : kConfigMaps, std::move(space), std::move(name)} {}

  absl::Status ReadData(kube::KubeClient& client, const kube::Limits& limits) {
    const auto object = client.Get(at_, limits);
    if (absl::IsNotFound(object.status())) return absl::OkStatus();
    RETURN_IF_ERROR(object.status());
    version_ = kube::TextAt(*object, {"metadata", "resourceVersion"});
    for (const auto& [key, value] : FieldAt(*object, {"data"}).items())
      if (value.is_string()) RETURN_IF_ERROR(TakeEncoded(key, value.get<std::string>()));
    return absl::OkStatus();
  }

  std::string DataAt(const std::string& key) const {
    const auto found = data_.find(key);
    return found == data_.end() ? "" : found->second;
  }

  // Only if it still is as it was read. Keys without a value are left out.
  absl::Status StoreData(kube::KubeClient& client, Data data, const kube::Limits& limits) {
    std::erase_if(data, [](const auto& entry) { return entry.second.empty(); });
    if (data == data_ && !version_.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(version_.empty() ? CreateWith(client, data, limits) : PatchData(client, data, limits));
    LogInfo("pki", "stored", {{"kind", IsSecret() ? "Secret" : "ConfigMap"}, {"name", at_.name}});
    return absl::OkStatus();
  }

 private:
  bool IsSecret() const { return !type_.empty(); }

  // The API has the values of a Secret in base64, those of a ConfigMap as they are.
  absl::Status TakeEncoded(const std::string& key, const std::string& value) {
    if (!IsSecret()) {
      data_[key] = value;
    } else if (!absl::Base64Unescape(value, &data_[key])) {
      return absl::InternalError(absl::StrCat("read Secret ", at_.name, ": ", key, " is not in base64"));
    }
    return absl::OkStatus();
  }

  Json EncodeData(const Data& data) const {
    Json encoded = Json::object();
    for (const auto& [key, value] : data) encoded[key] = IsSecret() ? absl::Base64Escape(value) : value;
    return encoded;
  }

  absl::Status CreateWith(kube::KubeClient& client, const Data& data, const kube::Limits& limits) const {
    kube::ObjectRef kind = at_;
    kind.name.clear();
    Json object = {{"apiVersion", "v1"},
                   {"kind", IsSecret() ? "Secret" : "ConfigMap"},
                   {"metadata",
                    {{"name", at_.name},
                     {"namespace", at_.space},
                     {"labels", {{"app.kubernetes.io/managed-by", "lunkeeper-pki"}}}}},
                   {"data", EncodeData(data)}};
    if (IsSecret()) object["type"] = type_;
    return client.Create(kind, object, limits).status();
  }

  absl::Status PatchData(kube::KubeClient& client, const Data& data, const kube::Limits& limits) const {
    // A JSON merge patch (RFC 7386): null removes a key.
    Json merge = {{"data", EncodeData(data)}};
    for (const auto& [key, value] : data_)
      if (!data.contains(key)) merge["data"][key] = nullptr;
    return client.Patch(at_, merge, {.version = version_}, limits).status();
  }

  const std::string type_;
  const kube::ObjectRef at_;
  std::string version_;  // empty: it is not there
  Data data_;
};

// In seconds; nothing for a moment that has not come.
std::string ToText(absl::Time time) {
  return time == absl::InfiniteFuture() ? "" : absl::StrCat(absl::ToUnixSeconds(time));
}

absl::Time ToMoment(const std::string& text) {
  int64_t seconds = 0;
  return absl::SimpleAtoi(text, &seconds) ? absl::FromUnixSeconds(seconds) : absl::InfiniteFuture();
}

// All objects of a cluster's certificates.
class PkiObjects {
 public:
  explicit PkiObjects(const PkiNames& names)
      : names_(names),
        authority_(names.space, names.authority, "Opaque"),
        trust_(names.space, names.trust, "") {
    for (const LeafSecret& leaf : names.leaves)
      leaves_.emplace_back(names.space, leaf.secret, "kubernetes.io/tls");
  }

  absl::StatusOr<ClusterPki> Load(kube::KubeClient& client, const kube::Limits& limits) {
    RETURN_IF_ERROR(authority_.ReadData(client, limits));
    ClusterPki pki;
    pki.authority = {authority_.DataAt("ca.crt"), authority_.DataAt("ca.key")};
    pki.next_authority = {authority_.DataAt("next.crt"), authority_.DataAt("next.key")};
    pki.former_authority = authority_.DataAt("former.crt");
    pki.next_trusted = ToMoment(authority_.DataAt("next.trusted"));
    if (!names_.trust.empty()) {
      RETURN_IF_ERROR(trust_.ReadData(client, limits));
      pki.trust = trust_.DataAt("ca.crt");
    }
    for (size_t i = 0; i < leaves_.size(); ++i) {
      RETURN_IF_ERROR(leaves_[i].ReadData(client, limits));
      pki.leaves.push_back({names_.leaves[i].use,
                            names_.leaves[i].name,
                            {leaves_[i].DataAt("tls.crt"), leaves_[i].DataAt("tls.key")},
                            leaves_[i].DataAt("ca.crt")});
    }
    return pki;
  }

  // In this order: what signs is kept before it is trusted, and trusted before it is shown.
  absl::Status Store(kube::KubeClient& client, const ClusterPki& pki, const kube::Limits& limits) {
    RETURN_IF_ERROR(authority_.StoreData(client,
                                         {{"ca.crt", pki.authority.certificate},
                                          {"ca.key", pki.authority.key},
                                          {"next.crt", pki.next_authority.certificate},
                                          {"next.key", pki.next_authority.key},
                                          {"next.trusted", ToText(pki.next_trusted)},
                                          {"former.crt", pki.former_authority}},
                                         limits));
    if (!names_.trust.empty()) RETURN_IF_ERROR(trust_.StoreData(client, {{"ca.crt", pki.trust}}, limits));
    for (size_t i = 0; i < leaves_.size(); ++i) {
      const LeafCertificate& leaf = pki.leaves[i];
      RETURN_IF_ERROR(leaves_[i].StoreData(
          client, {{"tls.crt", leaf.pair.certificate}, {"tls.key", leaf.pair.key}, {"ca.crt", leaf.trust}},
          limits));
    }
    return absl::OkStatus();
  }

 private:
  const PkiNames& names_;
  DataObject authority_, trust_;
  std::vector<DataObject> leaves_;  // in the order of their names
};

}  // namespace

absl::Status RenewStoredPki(kube::KubeClient& client, const PkiNames& names, const PkiOptions& options,
                            absl::Time now, const kube::Limits& limits) {
  PkiObjects objects(names);
  ASSIGN_OR_RETURN(ClusterPki pki, objects.Load(client, limits));
  ASSIGN_OR_RETURN(pki, RenewClusterPki(std::move(pki), options, now));
  return objects.Store(client, pki, limits);
}

}  // namespace lunkeeper
