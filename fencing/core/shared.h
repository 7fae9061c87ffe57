#pragma once
// An immutable value that its copies share: for what many hold and few look at. What was not given is a T(),
// and costs nothing. Equal is what has equal values. Copies may be used by several threads at once.

#include <memory>
#include <utility>

namespace lunkeeper::fencing {

template <class T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(T value) : value_(value == T() ? nullptr : std::make_shared<const T>(std::move(value))) {}

  const T& operator*() const {
    static const T kNothing;
    return value_ ? *value_ : kNothing;
  }
  const T* operator->() const { return &**this; }
  friend bool operator==(const Shared& a, const Shared& b) { return a.value_ == b.value_ || *a == *b; }

 private:
  std::shared_ptr<const T> value_;
};

}  // namespace lunkeeper::fencing
