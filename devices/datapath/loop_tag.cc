#include "devices/datapath/loop_tag.h"

#include <linux/loop.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lunkeeper {
namespace {

constexpr size_t kPrefixLength = 11;
constexpr uint64_t kMark = uint64_t{1} << 62;  // of every supervisor; below it are 32 bits of its own

uint64_t HashOf(const std::string& text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::string LoopTagPrefix(const std::string& socket_path) {
  const std::filesystem::path path(socket_path);
  const std::string directory = path.parent_path().empty() ? "." : path.parent_path().string();
  struct stat status = {};
  ::stat(directory.c_str(), &status);
  const std::string identity = absl::StrCat(status.st_dev, ":", status.st_ino, ":", path.filename().string());
  return absl::StrFormat("lk%08x/", static_cast<uint32_t>(HashOf(identity)));  // of kPrefixLength
}

std::string LoopTag(const std::string& prefix, const std::string& volume) {
  if (prefix.size() + volume.size() < LO_NAME_SIZE) return prefix + volume;
  return absl::StrFormat("%s#%016x", prefix, HashOf(volume));
}

uint64_t LoopMark(const std::string& tag) {
  return kMark | static_cast<uint32_t>(HashOf(tag.substr(0, kPrefixLength)));
}

uint64_t ReadLoopMark(const std::filesystem::path& folder) {
  uint64_t limit = 0;
  std::ifstream(folder / "loop/sizelimit") >> limit;
  return limit;
}

bool IsMarkedLoop(dev_t number) {
  const uint64_t mark = ReadLoopMark(absl::StrCat("/sys/dev/block/", major(number), ":", minor(number)));
  return mark >> 32 == kMark >> 32;
}

}  // namespace lunkeeper
