#include "fencing/kube/api_error.h"

#include "absl/strings/str_cat.h"

namespace lunkeeper::kube {
namespace {

// A proxy in front of the API server may answer with a whole page of HTML.
constexpr size_t kMostText = 500;

// The codes that the API server uses, after "Response Status Kinds" in Kubernetes' API conventions.
absl::StatusCode CodeOf(int http_status, const std::string& reason) {
  switch (http_status) {
    case 400:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:  // AlreadyExists comes from create; Conflict means that a precondition does not hold
      return reason == "AlreadyExists" ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kAborted;
    case 410:  // etcd's compaction dropped this version; the same request cannot succeed again
      return absl::StatusCode::kOutOfRange;
    case 429:
      return absl::StatusCode::kUnavailable;
    default:
      return http_status >= 500 && http_status < 600 ? absl::StatusCode::kUnavailable
                                                     : absl::StatusCode::kUnknown;
  }
}

const char* AdviceFor(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnauthenticated:
      return "; is the token or client certificate still good?";
    case absl::StatusCode::kPermissionDenied:
      return "; does the role bound to this service account allow it?";
    default:
      return "";
  }
}

// Makes text from outside fit for a log: one line, of limited length, without control characters.
std::string TrimText(std::string text) {
  if (text.size() > kMostText) text = text.substr(0, kMostText) + "…";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text.empty() ? "no reason given" : text;
}

absl::Status RefusalError(const std::string& what, int http_status, const std::string& reason,
                          const std::string& message) {
  const absl::StatusCode code = CodeOf(http_status, reason);
  return absl::Status(
      code, absl::StrCat(what, ": the API server refused (", http_status, reason.empty() ? "" : " ", reason,
                         "): ", TrimText(message), AdviceFor(code)));
}

}  // namespace

// A proxy's error page is no Status; its text is then the message.
absl::Status ReplyError(const std::string& what, int http_status, std::string_view body) {
  const auto json = ParseJson(body);
  if (!json.ok() || TextAt(*json, {"kind"}) != "Status")
    return RefusalError(what, http_status, "", std::string(body));
  return RefusalError(what, http_status, TextAt(*json, {"reason"}), TextAt(*json, {"message"}));
}

absl::Status EventError(const std::string& what, const Json& status) {
  return RefusalError(what, static_cast<int>(NumberAt(status, {"code"})), TextAt(status, {"reason"}),
                      TextAt(status, {"message"}));
}

}  // namespace lunkeeper::kube
