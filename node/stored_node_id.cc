// The file is made complete under another name, flushed, and then linked to its own name: after a crash or a
// power loss it is either whole or absent. link(2), unlike rename(2), never replaces: of two processes that
// start on a new host, the second uses the id of the first. The directory is flushed before the id is used,
// since a volume may be granted to it at once, and an id that a power loss undoes could never be unfenced.
#include "node/stored_node_id.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/fail_point.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "devices/node_id.h"

namespace lunkeeper {
namespace {

// With a dot and the instance that makes 190, the longest node id an array takes: an iSCSI initiator's name
// has 223 bytes at most, and holds it.
constexpr size_t kLongestName = 173;

// Reads errno.
absl::Status IdentityError(const std::string& what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("node identity: cannot ", what, " ", path));
}

absl::StatusOr<std::string> ReadInstance(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return IdentityError("open", path);
  char buffer[kInstanceDigits + 2];
  const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
  if (got < 0) return IdentityError("read", path);
  const std::string text(buffer, static_cast<size_t>(got));
  const std::string digits = text.substr(0, kInstanceDigits);
  if (!IsInstance(digits) || text != digits + "\n") {
    return absl::FailedPreconditionError(
        absl::StrCat("node identity: ", path, " does not hold ", kInstanceDigits,
                     " hexadecimal digits; put the right file back, or remove it to make this a new node"));
  }
  return digits;
}

absl::Status WriteDurably(const std::string& path, const std::string& text) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return IdentityError("create", path);
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) return IdentityError("write", path);
  if (::fsync(file.get()) != 0) return IdentityError("flush", path);
  return absl::OkStatus();
}

// EEXIST: another process was first, and LoadNodeId reads what that one made.
absl::Status MakeInstance(const std::string& path) {
  // A name of this thread alone; one left by a crash is overwritten.
  const std::string temporary = absl::StrCat(path, ".", ::gettid());
  RETURN_IF_ERROR(WriteDurably(temporary, RandomHexDigits() + "\n"));
  const int linked = ::link(temporary.c_str(), path.c_str());
  const int link_errno = errno;
  ::unlink(temporary.c_str());
  errno = link_errno;
  if (linked != 0 && errno != EEXIST) return IdentityError("make", path);
  FAIL_POINT("node.identity.made");
  return absl::OkStatus();
}

absl::Status FlushDirectory(const std::string& path) {
  const UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) return IdentityError("flush", path);
  return absl::OkStatus();
}

absl::Status CheckNodeName(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
  if (!name.empty() && name.size() <= kLongestName && plain) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("node identity: the node name must have 1 to ", kLongestName,
                                                 " letters, digits, '.', '-' or '_'"));
}

}  // namespace

absl::StatusOr<NodeId> LoadNodeId(const std::string& name, const std::string& state_dir) {
  RETURN_IF_ERROR(CheckNodeName(name));
  if (::mkdir(state_dir.c_str(), 0700) != 0 && errno != EEXIST) return IdentityError("make", state_dir);
  const std::string path = state_dir + "/node-instance";
  if (::access(path.c_str(), F_OK) != 0) RETURN_IF_ERROR(MakeInstance(path));
  RETURN_IF_ERROR(FlushDirectory(state_dir));
  ASSIGN_OR_RETURN(const std::string instance, ReadInstance(path));
  return NodeId(absl::StrCat(name, ".", instance));
}

}  // namespace lunkeeper
