#pragma once
// Fail points: named places in the code where a fault test lets something die.
//
//   FAIL_POINT("array.grant.stored");
//
// They do nothing unless the environment switches exactly one on, for this process:
//   LUNKEEPER_FAIL_POINT=array.grant.stored            SIGKILL this process there
//   LUNKEEPER_FAIL_POINT=array.grant.stored:exec=PROG  run PROG there and wait for it (it may kill another
//   process), then go on
//   LUNKEEPER_FAIL_POINT=worker.request.taken@4096     only where the point's number is this one; such points
//   are FAIL_POINT_AT("worker.request.taken", offset), and die by abort(), as of a bug
//   LUNKEEPER_FAIL_POINT=worker.request.taken@4096:hang   likewise, but compute there for ever
// All act once: with LUNKEEPER_FAIL_POINT_ONCE=FILE the point fires only if it can create FILE, so that a
// restarted process does not die at the same place for ever. Compiled out without the CMake option
// LUNKEEPER_FAIL_POINTS. Names are `<area>.<operation>.<step just done>`; every one is listed by
// FailPointNames() (`lunkeeper fail-points`), which is what the fault tests loop over. Thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lunkeeper {

// All fail points linked into this program, sorted.
std::vector<std::string> FailPointNames();

#ifdef LUNKEEPER_FAIL_POINTS
namespace internal {
// One static instance a site: registers the name before main() and fires when it is the one switched on.
class FailPointSite {
 public:
  explicit FailPointSite(const char* name);
  void Hit() const;
  void HitAt(uint64_t number) const;

 private:
  const char* name_;
};
template <size_t N>
struct FailPointName {
  // Implicit, so that a literal can be the template argument. NOLINTNEXTLINE(google-explicit-constructor)
  constexpr FailPointName(const char (&text)[N]) {
    for (size_t i = 0; i < N; ++i) value[i] = text[i];
  }
  char value[N] = {};
};
template <FailPointName Name>
inline const FailPointSite kFailPointSite{Name.value};
}  // namespace internal
#define FAIL_POINT(name) ::lunkeeper::internal::kFailPointSite<name>.Hit()
#define FAIL_POINT_AT(name, number) ::lunkeeper::internal::kFailPointSite<name>.HitAt(number)
#else
#define FAIL_POINT(name) static_cast<void>(0)
#define FAIL_POINT_AT(name, number) static_cast<void>(0)
#endif

}  // namespace lunkeeper
