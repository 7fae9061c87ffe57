#pragma once
// For tests of what a real Ceph does seldom: a call of its library that fails, or hangs.

#include <utility>

#include "devices/array/tgt/ceph_library.h"

namespace lunkeeper::testing {

// Ceph's library as this process has loaded it, of which a test replaces calls.
inline CephLibrary& Library() { return const_cast<CephLibrary&>(**LoadCephLibrary()); }

// While it lives, a call of the library is another one.
template <class Function>
class ReplacedCall {
 public:
  ReplacedCall(Function& call, Function instead) : call_(call), real_(std::exchange(call, instead)) {}
  ~ReplacedCall() { call_ = real_; }
  ReplacedCall(const ReplacedCall&) = delete;
  ReplacedCall& operator=(const ReplacedCall&) = delete;

 private:
  Function& call_;
  const Function real_;
};

}  // namespace lunkeeper::testing
