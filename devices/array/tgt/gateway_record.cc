// The record as text and back, and its change from exactly what was read. What cannot be read as a record of
// this array is an error, and not an empty one: a gateway that took it for empty would shut nobody out.
#include "devices/array/tgt/gateway_record.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr char kReleased[] = "released:";

// As monitors want them to be shut out, and let this user do it: never a whole host.
bool IsClientAddress(const std::string& text) {
  const size_t slash = text.find('/');
  const auto is_digit = [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); };
  return slash != std::string::npos && slash > 0 && slash + 1 < text.size() &&
         std::all_of(text.begin() + static_cast<ptrdiff_t>(slash) + 1, text.end(), is_digit);
}

// Reads the members of an object; one that is missing or of another kind is remembered.
class Members {
 public:
  explicit Members(const Json& object) : object_(object), right_(object.is_object()) {}
  uint64_t Number(const char* name) {
    const Json* const found = Find(name, &Json::is_number_unsigned);
    return found == nullptr ? 0 : found->get<uint64_t>();
  }
  std::string String(const char* name) {
    const Json* const found = Find(name, &Json::is_string);
    return found == nullptr ? "" : found->get<std::string>();
  }
  bool Truth(const char* name) {
    const Json* const found = Find(name, &Json::is_boolean);
    return found != nullptr && found->get<bool>();
  }
  std::set<ClientAddress> Addresses(const char* name) {
    const Json* const found = Find(name, &Json::is_array);
    return found == nullptr ? std::set<ClientAddress>() : AddressesOf(*found);
  }
  std::map<std::string, std::set<ClientAddress>> AddressesByName(const char* name) {
    std::map<std::string, std::set<ClientAddress>> all;
    const Json* const found = Find(name, &Json::is_object);
    if (found == nullptr) return all;
    for (const auto& [key, list] : found->items()) all[key] = AddressesOf(list);
    return all;
  }
  bool right() const { return right_; }

 private:
  const Json* Find(const char* name, bool (Json::*is_right)() const noexcept) {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    const bool right = found != object_.end() && ((*found).*is_right)();
    right_ = right_ && right;
    return right ? &*found : nullptr;
  }
  std::set<ClientAddress> AddressesOf(const Json& list) {
    std::set<ClientAddress> addresses;
    right_ = right_ && list.is_array();
    for (const Json& entry : list.is_array() ? list : Json::array()) {
      right_ = right_ && entry.is_string() && IsClientAddress(entry.get<std::string>());
      if (right_) addresses.insert(entry.get<std::string>());
    }
    return addresses;
  }

  const Json& object_;
  bool right_;
};

absl::Status WrongRecord(const std::string& array, const std::string& what) {
  const std::string name = GatewayRecordName(array);
  return absl::FailedPreconditionError(absl::StrCat(
      "object ", name, " ", what, ", so nobody knows which gateways of array ", array,
      " may still write; end the agents and tgtds of this array on every host, then `rados rm ", name, "`"));
}

}  // namespace

// To a program that does not know it, it is another gateway, which does not count any more.
std::string FormatReleased(const std::string& holder) { return kReleased + holder; }

std::string ParseReleased(const GatewayRecord& record) {
  absl::string_view holder = record.holder;
  return absl::ConsumePrefix(&holder, kReleased) ? std::string(holder) : "";
}

void MarkReleased(GatewayRecord& record) {
  record.holder = FormatReleased(record.holder);
  record.ready = false;
}

std::string GatewayRecordName(const std::string& array) {
  return absl::StrCat("lunkeeper.", array, ".gateway");
}

std::string FormatGatewayRecord(const std::string& array, const GatewayRecord& record) {
  const Json json = {{"format", kFormat},       {"array", array},
                     {"epoch", record.epoch},   {"holder", record.holder},
                     {"host", record.host},     {"counter", record.counter},
                     {"ready", record.ready},   {"clients", record.clients},
                     {"images", record.images}, {"unfenced", record.unfenced}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<GatewayRecord> ParseGatewayRecord(const std::string& array, const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Members members(json);
  const uint64_t format = members.Number("format");
  if (members.right() && format != kFormat)
    return WrongRecord(array, absl::StrCat("is of a newer program (format ", format, ")"));
  const std::string of_array = members.String("array");
  GatewayRecord record = {.epoch = members.Number("epoch"),
                          .holder = members.String("holder"),
                          .host = members.String("host"),
                          .counter = members.Number("counter"),
                          .ready = members.Truth("ready"),
                          .clients = members.Addresses("clients"),
                          .images = members.AddressesByName("images"),
                          .unfenced = members.Addresses("unfenced")};
  // It is replaced from exactly these contents, so there must be nothing in it that is not understood.
  if (!members.right() || (of_array == array && FormatGatewayRecord(array, record) != text))
    return WrongRecord(array, "is no gateway's record, or a damaged one");
  if (of_array != array) return WrongRecord(array, absl::StrCat("is the record of array ", of_array));
  return record;
}

absl::StatusOr<std::optional<GatewayRecord>> ReadGatewayRecord(const CephPool& pool,
                                                               const std::string& array) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, pool.ReadObject(GatewayRecordName(array)));
  if (!text) return std::nullopt;
  ASSIGN_OR_RETURN(GatewayRecord record, ParseGatewayRecord(array, *text));
  return std::optional(std::move(record));
}

absl::Status ReplaceGatewayRecord(const CephPool& pool, const std::string& array,
                                  const std::optional<GatewayRecord>& from, const GatewayRecord& to) {
  std::optional<std::string> before;
  if (from) before = FormatGatewayRecord(array, *from);
  return pool.ReplaceObject(GatewayRecordName(array), before, FormatGatewayRecord(array, to));
}

}  // namespace lunkeeper
