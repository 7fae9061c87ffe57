#include "devices/array/tgt/tgtd_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"

namespace lunkeeper {
namespace {

constexpr size_t kPipeBytes = 64 << 10;
constexpr size_t kMostLines = 50;
constexpr size_t kLongestLine = 1000;

// A node chooses some of these words, such as its initiator's name.
std::string ToPrintable(std::string line) {
  if (line.size() > kLongestLine) line.resize(kLongestLine);
  for (char& c : line) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return line;
}

// tgt's words of iscsi/chap.c, of which some end no line. An initiator chooses its name in them, and so may
// be counted more than once.
size_t CountRefusals(const std::string& text) {
  size_t count = 0;
  for (const char* words :
       {"CHAP initiator auth.: authentication of", "No valid user/pass combination for initiator"})
    for (size_t at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++count;
  return count;
}

}  // namespace

TgtdOutput::TgtdOutput(const std::string& path, Tell tell) : path_("/dev/null"), tell_(std::move(tell)) {
  if (path.empty()) return;
  struct stat file {};
  const bool there = ::mkfifo(path.c_str(), 0600) == 0 || errno == EEXIST;
  // Opened for writing, too: else it would read as ended while there is no tgtd.
  if (there) fifo_ = UniqueFd(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (fifo_ && ::fstat(fifo_.get(), &file) == 0 && S_ISFIFO(file.st_mode)) {
    path_ = path;
    return;
  }
  fifo_.Reset();
  LogWarn("array", "tgtd's messages will be lost: there is no FIFO for them",
          {{"file", path}, {"error", std::strerror(errno)}});
}

void TgtdOutput::RelayLines() {
  if (!fifo_) return;
  std::string text(kPipeBytes, '\0');
  const ssize_t size = ::read(fifo_.get(), text.data(), text.size());
  if (size <= 0) return;
  text.resize(static_cast<size_t>(size));
  text = absl::StrCat(rest_, text);
  refused_logins_ += CountRefusals(text) - CountRefusals(rest_);
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  // The last line may still be going on. One that never ends is dropped, or it would grow for ever.
  rest_ = lines.back().size() > kLongestLine ? "" : lines.back();
  lines.pop_back();
  for (size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) tell_(ToPrintable(std::move(lines[i])));
  if (lines.size() > kMostLines) tell_(absl::StrCat("and ", lines.size() - kMostLines, " more lines"));
}

}  // namespace lunkeeper
