#include "fencing/kube/json_cutter.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace lunkeeper::kube {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

absl::Status Broken(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("the API server's reply is not JSON as expected: ", why));
}

}  // namespace

absl::Status JsonCutter::Feed(std::string_view bytes) {
  piece_from_ = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      const bool begins = depth_ == piece_depth_;
      if (!begins && !InPiece()) RETURN_IF_ERROR(Outside(c));
      RETURN_IF_ERROR(Open(c));
      if (begins) piece_from_ = i;
      continue;
    } else if (c == '}' || c == ']') {
      RETURN_IF_ERROR(Close(bytes, i));
      continue;
    }
    if (!InPiece()) RETURN_IF_ERROR(Outside(c));
  }
  if (InPiece()) piece_.append(bytes.substr(piece_from_));
  if (piece_.size() > kMostBytes || rest_.size() > kMostBytes) return Broken("an object is too large");
  return absl::OkStatus();
}

absl::Status JsonCutter::Open(char c) {
  if (depth_ == piece_depth_ && c != '{') return Broken("an array where an object was due");
  if (depth_ == 1 && c == '[' && AtItems()) piece_depth_ = 2;
  if (++depth_ > kMostDepth) return Broken("it is nested too deeply");
  return absl::OkStatus();
}

absl::Status JsonCutter::Close(std::string_view bytes, size_t at) {
  if (depth_ == 0) return Broken("a bracket closes what was not opened");
  const bool in_piece = InPiece();
  --depth_;
  if (in_piece) {
    if (depth_ > piece_depth_) return absl::OkStatus();
    const std::string_view end = bytes.substr(piece_from_, at + 1 - piece_from_);
    if (piece_.empty()) return sink_(end);
    piece_.append(end);
    return sink_(std::exchange(piece_, {}));
  }
  if (shape_ == Shape::kList && depth_ < piece_depth_) piece_depth_ = -1;  // the end of the items
  return Outside(bytes[at]);
}

// A byte that belongs to no piece.
absl::Status JsonCutter::Outside(char c) {
  if (piece_depth_ < 0 || depth_ < piece_depth_) {
    rest_ += c;
    return absl::OkStatus();
  }
  if (IsSpace(c) || (c == ',' && shape_ == Shape::kList)) return absl::OkStatus();
  return Broken(absl::StrCat("'", absl::string_view(&c, 1), "' between two objects"));
}

// Was the last thing said the key "items" of the list itself?
bool JsonCutter::AtItems() const {
  if (shape_ != Shape::kList) return false;
  size_t end = rest_.size() - 1;  // the bracket itself is there already
  while (end > 0 && IsSpace(rest_[end - 1])) --end;
  if (end == 0 || rest_[--end] != ':') return false;
  while (end > 0 && IsSpace(rest_[end - 1])) --end;
  constexpr absl::string_view kKey = "\"items\"";
  return end > kKey.size() && absl::EndsWith(absl::string_view(rest_.data(), end), kKey) &&
         rest_[end - kKey.size() - 1] != '\\';
}

absl::StatusOr<std::string> JsonCutter::Finish() && {
  if (depth_ > 0 || in_string_) return Broken("it ends in the middle of an object");
  return std::move(rest_);
}

}  // namespace lunkeeper::kube
