#include "fencing/kube/api_path.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lunkeeper::kube {
namespace {

// Leaves the unreserved characters of RFC 3986, 2.3, as they are.
std::string PercentEncode(const std::string& text) {
  std::string out;
  for (const unsigned char c : text) {
    if (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~') {
      out += static_cast<char>(c);
    } else {
      absl::StrAppend(&out, "%", absl::Hex(c, absl::kZeroPad2));
    }
  }
  // A part that is "." or ".." would be resolved away (RFC 3986, 5.2.4), and the request would hit another
  // object. Names come from users.
  return out == "." || out == ".." ? absl::StrCat("%2e", out.substr(1)) : out;
}

void AppendPart(std::string& path, const std::string& part) {
  if (!part.empty()) absl::StrAppend(&path, "/", PercentEncode(part));
}

}  // namespace

// The core group has a prefix of its own for historical reasons: /api/v1/… against /apis/GROUP/VERSION/….
std::string PathOf(const ObjectRef& object) {
  std::string path = object.resource.group.empty() ? "/api" : "/apis";
  AppendPart(path, object.resource.group);
  AppendPart(path, object.resource.version);
  if (!object.space.empty()) path += "/namespaces";
  AppendPart(path, object.space);
  AppendPart(path, object.resource.plural);
  AppendPart(path, object.name);
  AppendPart(path, object.subresource);
  return path;
}

std::string QueryOf(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string query;
  for (const auto& [key, value] : fields)
    if (!value.empty()) absl::StrAppend(&query, query.empty() ? "?" : "&", key, "=", PercentEncode(value));
  return query;
}

std::string DisplayName(const ObjectRef& object) {
  std::string text = object.resource.plural;
  for (const std::string* part : {&object.space, &object.name, &object.subresource})
    if (!part->empty()) absl::StrAppend(&text, "/", *part);
  return text;
}

}  // namespace lunkeeper::kube
