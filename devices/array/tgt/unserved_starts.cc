// Whether nodes have their volumes here shows in what the tgtds do, and not in the record: that says "ready"
// from before the first tgtd of a start runs.
#include "devices/array/tgt/unserved_starts.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/array/tgt/tgt_servers.h"
#include "devices/array/tgt/tgtd_lock.h"

namespace lunkeeper {
namespace {

// One that needs longer hangs, or is as good as that. The array's record stands still meanwhile, and another
// gateway takes it after some seconds.
constexpr absl::Duration kAnswers = absl::Milliseconds(500);

constexpr int64_t kMostDoublings = 6;

bool HasPortalOpen(pid_t tgtd, int number, const std::vector<std::string>& portals) {
  int control_port = 0;
  if (!absl::SimpleAtoi(ReadControlPort(tgtd), &control_port)) return true;
  TgtClient client(control_port, kAnswers);
  client.TalkOnlyTo(tgtd);
  const absl::StatusOr<std::vector<std::string>> open = client.ListPortals();
  // One that hangs has them, for all that is known; its nodes wait, and would have to log in anew elsewhere.
  if (!open.ok()) return true;
  return std::ranges::any_of(portals, [&](const std::string& portal) {
    return std::ranges::count(*open, PortalOfTgtd(portal, number).value_or("")) > 0;
  });
}

}  // namespace

std::string UnservedStarts::Read() const {
  std::string entries;
  std::ifstream(path_) >> entries;
  return entries;
}

// A crash of this program takes nothing of it along, and after one of the host it is another gateway.
void UnservedStarts::Append(char entry) const { std::ofstream(path_, std::ios::app) << entry; }

uint64_t UnservedStarts::Count() const { return static_cast<uint64_t>(std::ranges::count(Read(), '.')); }

bool UnservedStarts::IsTimeToLeave() const {
  const std::string entries = Read();
  const auto times = std::min<int64_t>(std::ranges::count(entries, '/'), kMostDoublings);
  return entries.size() - (entries.rfind('/') + 1) >= kMost << times;
}

void UnservedStarts::ForgetStarts() const {
  std::error_code none;
  std::filesystem::remove(path_, none);
}

bool DoTgtdsServe(const std::string& pool_dir, const std::vector<std::string>& portals) {
  for (int number = 0; number < kMostTgtds; ++number) {
    const std::string path = TgtdLockPath(pool_dir, number);
    const TgtdLock lock(path);
    if (::access(path.c_str(), F_OK) != 0 || lock.TryLock()) continue;
    const pid_t tgtd = lock.FindHolder();
    if (tgtd == 0 || HasPortalOpen(tgtd, number, portals)) return true;
  }
  return false;
}

}  // namespace lunkeeper
