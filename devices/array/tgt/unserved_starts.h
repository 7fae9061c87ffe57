#pragma once
// What a gateway knows of its own starts: how often in a row it has taken the array and ended before it
// answered calls. A program that crashes at each start, or is killed for its memory, cannot say so, and each
// of its starts renews the record, so that no gateway that stands by would ever take the array.
//
// It is a file of the gateway's folder, gateway_starts, with a "." for each such start, and a "/" for each
// time that it has left nodes to another gateway. What cannot be written is not counted. No state of its own;
// for one process at a time, which has the folder's lock.

#include <cstdint>
#include <string>
#include <vector>

namespace lunkeeper {

class UnservedStarts {
 public:
  explicit UnservedStarts(const std::string& pool_dir) : path_(pool_dir + "/gateway_starts") {}

  // So many others were cut short by the same chance, such as an impatient operator.
  static constexpr uint64_t kMost = 3;
  uint64_t Count() const;
  void CountUp() const { Append('.'); }
  // Whether to leave nodes that are served: after so many starts since the last time, and twice as many each
  // time. What crashes here may crash every gateway, and each change makes I/O wait.
  bool IsTimeToLeave() const;
  void NoteGivenAway() const { Append('/'); }
  // It answers calls.
  void ForgetStarts() const;

 private:
  void Append(char entry) const;
  std::string Read() const;

  const std::string path_;
};

// Whether a tgtd of this folder lets nodes in: it has a portal open. Also if one does not say. `portals`: of
// tgtd 0, as they are set.
bool DoTgtdsServe(const std::string& pool_dir, const std::vector<std::string>& portals);

}  // namespace lunkeeper
