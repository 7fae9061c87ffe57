#include "fencing/kube/json_cutter.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

// The state is a depth (how many brackets are open) and whether the current byte is inside a string. A piece
// is everything from a '{' at `piece_depth_` to its closing '}'. All other bytes go to `rest_`.
//
//   list:  {"kind":"PodList","metadata":{…},"items":[ {…} , {…} ]}      depth at a piece's '{': 2
//   watch: {…}\n{…}\n                                                   depth at a piece's '{': 0
//
// A piece that lies within one call of Feed is handed to the sink without a copy; that is nearly every one.
namespace lunkeeper::kube {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

absl::Status MalformedReply(const std::string& why) {
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
      // Brackets within a string do not count, and a backslash hides the quotation mark after it.
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      const bool begins = depth_ == piece_depth_;
      if (!begins && !InPiece()) RETURN_IF_ERROR(TakeOutside(c));
      RETURN_IF_ERROR(OpenBracket(c));
      if (begins) piece_from_ = i;
      continue;
    } else if (c == '}' || c == ']') {
      RETURN_IF_ERROR(CloseBracket(bytes, i));
      continue;
    }
    if (!InPiece()) RETURN_IF_ERROR(TakeOutside(c));
  }
  // The rest of a piece that goes on in the next bytes must be copied, as `bytes` is the caller's buffer.
  if (InPiece()) piece_.append(bytes.substr(piece_from_));
  if (piece_.size() > kMostBytes || rest_.size() > kMostBytes)
    return MalformedReply("an object is too large");
  return absl::OkStatus();
}

absl::Status JsonCutter::OpenBracket(char c) {
  if (depth_ == piece_depth_ && c != '{') return MalformedReply("an array where an object was due");
  if (depth_ == 1 && c == '[' && AtItems()) piece_depth_ = 2;
  if (++depth_ > kMostDepth) return MalformedReply("it is nested too deeply");
  return absl::OkStatus();
}

// Types of brackets are not compared: the parser finds a ']' that closes a '{'.
absl::Status JsonCutter::CloseBracket(std::string_view bytes, size_t at) {
  if (depth_ == 0) return MalformedReply("a bracket closes what was not opened");
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
  return TakeOutside(bytes[at]);
}

// Takes a byte that belongs to no piece. Between pieces only separators are allowed.
absl::Status JsonCutter::TakeOutside(char c) {
  if (piece_depth_ < 0 || depth_ < piece_depth_) {
    rest_ += c;
    return absl::OkStatus();
  }
  if (IsSpace(c) || (c == ',' && shape_ == Shape::kList)) return absl::OkStatus();
  return MalformedReply(absl::StrCat("'", absl::string_view(&c, 1), "' between two objects"));
}

// Whether the array that just opened is the value of the list's own key "items". Called at depth 1, so nested
// objects cannot match; the byte before the key must not be a backslash, or the text is the end of a longer,
// escaped string.
bool JsonCutter::AtItems() const {
  if (shape_ != Shape::kList) return false;
  size_t end = rest_.size() - 1;  // without the bracket itself
  while (end > 0 && IsSpace(rest_[end - 1])) --end;
  if (end == 0 || rest_[--end] != ':') return false;
  while (end > 0 && IsSpace(rest_[end - 1])) --end;
  constexpr absl::string_view kKey = "\"items\"";
  return end > kKey.size() && absl::EndsWith(absl::string_view(rest_.data(), end), kKey) &&
         rest_[end - kKey.size() - 1] != '\\';
}

absl::StatusOr<std::string> JsonCutter::TakeRest() && {
  if (depth_ > 0 || in_string_) return MalformedReply("it ends in the middle of an object");
  return std::move(rest_);
}

}  // namespace lunkeeper::kube
