// A request is walked down through its messages. What a certificate vouches for is who calls, not what the
// caller sends: texts end up in log lines, file names and SQL.
#include "devices/array/remote/request_texts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// More than any text that a client of ours sends: CSI names have at most 128 bytes, node ids 190.
constexpr size_t kLongestText = 256;

absl::Status CheckText(const FieldDescriptor& field, const std::string& text) {
  const bool plain = std::ranges::none_of(text, [](unsigned char c) { return absl::ascii_iscntrl(c); });
  if (plain && text.size() <= kLongestText) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field.name(), ": want at most ", kLongestText, " bytes without control characters"));
}

}  // namespace

absl::Status CheckTexts(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  const auto* reflection = message.GetReflection();
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && field->is_repeated()) {
      for (int i = 0; i < reflection->FieldSize(message, field); ++i)
        RETURN_IF_ERROR(CheckTexts(reflection->GetRepeatedMessage(message, field, i)));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      RETURN_IF_ERROR(CheckTexts(reflection->GetMessage(message, field)));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && field->is_repeated()) {
      for (int i = 0; i < reflection->FieldSize(message, field); ++i)
        RETURN_IF_ERROR(CheckText(*field, reflection->GetRepeatedString(message, field, i)));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      RETURN_IF_ERROR(CheckText(*field, reflection->GetString(message, field)));
    }
  }
  return absl::OkStatus();
}

}  // namespace lunkeeper
