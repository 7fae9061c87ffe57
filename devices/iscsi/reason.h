#pragma once
// A short text for people, in a buffer of fixed size, so that saying what went wrong allocates nothing.

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
  }
  const char* text() const { return text_; }

 private:
  char text_[160] = "";
};

}  // namespace lunkeeper::iscsi
