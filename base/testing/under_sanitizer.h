#pragma once
// Whether this program runs under AddressSanitizer or ThreadSanitizer. Both keep memory for themselves, so
// that a test's figures of memory are not the product's.

namespace lunkeeper::testing {

constexpr bool UnderSanitizer() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return true;
#endif
#endif
  return false;
}

}  // namespace lunkeeper::testing
