#pragma once
// A short text for people, in a buffer of fixed size, so that saying what went wrong allocates nothing.
//
// Parts of it may come from the wire. What is not printable ASCII becomes a question mark: the text goes into
// messages that are refused as a whole, for all volumes, where a text is not UTF-8, and to terminals.

#include <cstdarg>
#include <cstdio>

namespace lunkeeper::iscsi {

class Reason {
 public:
  __attribute__((format(printf, 2, 3))) void Format(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text_, sizeof text_, format, arguments);
    va_end(arguments);
    for (char* at = text_; *at != '\0'; ++at)
      if (*at < ' ' || *at > '~') *at = '?';
  }
  const char* text() const { return text_; }

 private:
  char text_[160] = "";
};

}  // namespace lunkeeper::iscsi
