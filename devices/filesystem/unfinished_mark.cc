// The mark of an unfinished Make: a tool that is killed half way leaves a device that is neither blank nor a
// file system, and nobody could tell that from data. So the device is marked before the tool starts, and a
// marked device may be formatted again. The mark stands where neither mke2fs nor mkfs.xfs writes (2 MiB
// before the end).
//
//   blank --MarkUnfinished--> marked --the tool--> marked file system --ClearUnfinished--> file system
//                               ^                          |
//                               +--------------------------+  killed anywhere: the next Make starts here
//
// A device that grows then has its mark no more where it is looked for. So a tool that failed, as on a full
// pool, is cleaned up after at once (WipeUnfinished): its device is blank also without the mark.

#include "devices/filesystem/unfinished_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/child.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "devices/filesystem/raw_device.h"

namespace lunkeeper {
namespace {

constexpr size_t kPiece = 4096;
constexpr uint64_t kMarkFromEnd = 2 * kMiB;
constexpr size_t kMarkBytes = 4096;
// Then comes the UUID of the file system, and zeroes. Users write what they like where the mark is, and do
// not know the UUID.
constexpr char kMarkText[] = "lunkeeper: a file system was being made here, and nothing was on this device\n";
constexpr size_t kMarkTextBytes = sizeof kMarkText - 1;
constexpr size_t kUuidBytes = 36;
// On a smaller one the mark could be inside what the tool writes. No volume is that small.
constexpr uint64_t kSmallestMarked = 8 * kMiB;

// From here to the next mark: between fork and exit, so system calls and plain memory only. Results are 0 or
// an errno.

// Writes only where there is something: mostly there is nothing, and a look at the device has just read it.
// And a full pool refuses what was never written, while what is there can be written over.
int ZeroRange(int device, uint64_t begin, uint64_t end) {
  char there[kDeviceChunk];
  for (uint64_t at = begin; at < end; at += kDeviceChunk) {
    const size_t size = static_cast<size_t>(std::min<uint64_t>(kDeviceChunk, end - at));
    if (const int error = ReadFully(device, there, size, at)) return error;
    for (size_t piece = 0; piece < size; piece += kPiece) {
      const size_t part = std::min(kPiece, size - piece);
      if (std::memcmp(there + piece, kDeviceZeroes, part) == 0) continue;
      if (const int error = WriteFully(device, kDeviceZeroes, part, at + piece)) return error;
    }
  }
  return 0;
}

int WipeEdges(int device, uint64_t bytes) {
  if (const int error = ZeroRange(device, 0, kMiB)) return error;
  if (const int error = ZeroRange(device, bytes - kMiB, bytes)) return error;
  return ::fsync(device) == 0 ? 0 : errno;
}

// Goes by what the device has, not by what the cache could not write.
int WipeWritten(int device, uint64_t bytes) {
  ::fsync(device);  // what fails is clean then, too
  ::posix_fadvise(device, 0, 0, POSIX_FADV_DONTNEED);
  return WipeEdges(device, bytes);
}

// The text of a UUID, or nothing: empty.
using MarkUuid = char[kUuidBytes + 1];

int FindMark(int device, uint64_t bytes, MarkUuid& uuid) {
  uuid[0] = '\0';
  if (bytes < kSmallestMarked) return 0;
  char there[kMarkBytes];
  if (const int error = ReadFully(device, there, kMarkBytes, bytes - kMarkFromEnd)) return error;
  constexpr size_t kEnd = kMarkTextBytes + kUuidBytes;
  const bool marked = std::memcmp(there, kMarkText, kMarkTextBytes) == 0 &&
                      std::memcmp(there + kEnd, kDeviceZeroes, kMarkBytes - kEnd) == 0;
  if (!marked) return 0;  // a tool put something of its own there
  std::memcpy(uuid, there + kMarkTextBytes, kUuidBytes);
  uuid[kUuidBytes] = '\0';
  return 0;
}

// The mark first: what it promises holds until the first mount. One that is there already stays, as it tells
// whose the remains are that are wiped here.
int WriteMark(const char* device_path, const char* new_uuid, int out) {
  const UniqueFd device(::open(device_path, O_RDWR | O_EXCL | O_CLOEXEC));
  if (!device) return errno;
  DeviceGeometry geometry;
  MarkUuid uuid;
  if (const int error = GetGeometry(device.get(), geometry)) return error;
  if (geometry.bytes < kSmallestMarked) return 0;
  if (const int error = FindMark(device.get(), geometry.bytes, uuid)) return error;
  if (uuid[0] == '\0') {
    char mark[kMarkBytes] = {};
    std::memcpy(uuid, new_uuid, kUuidBytes);
    std::memcpy(mark, kMarkText, kMarkTextBytes);
    std::memcpy(mark + kMarkTextBytes, uuid, kUuidBytes);
    if (const int error = WriteFully(device.get(), mark, kMarkBytes, geometry.bytes - kMarkFromEnd))
      return error;
    if (::fsync(device.get()) != 0) return errno;
  }
  if (const int error = WipeEdges(device.get(), geometry.bytes)) return error;
  return ::write(out, uuid, kUuidBytes) == kUuidBytes ? 0 : EIO;
}

// The data path has its devices open, and so they keep what was read; of one that nodes share, another one
// may have written there since.
void ForgetMark(int device, uint64_t bytes) {
  if (bytes < kSmallestMarked) return;
  ::posix_fadvise(device, static_cast<off_t>(bytes - kMarkFromEnd), kMarkBytes, POSIX_FADV_DONTNEED);
}

// Calls `work` with a device that bears the mark, and its size. Only that one is opened for writing: another
// may be in use.
template <typename Work>
int WithMarked(const char* device_path, Work work) {
  DeviceGeometry geometry;
  MarkUuid uuid;
  const UniqueFd seen(::open(device_path, O_RDONLY | O_CLOEXEC));
  if (!seen) return errno;
  if (const int error = GetGeometry(seen.get(), geometry)) return error;
  if (const int error = FindMark(seen.get(), geometry.bytes, uuid)) return error;
  ForgetMark(seen.get(), geometry.bytes);
  if (uuid[0] == '\0') return 0;
  const UniqueFd device(::open(device_path, O_RDWR | O_EXCL | O_CLOEXEC));
  return device ? work(device.get(), geometry.bytes) : errno;
}

int EraseMark(int device, uint64_t bytes) {
  if (const int error = WriteFully(device, kDeviceZeroes, kMarkBytes, bytes - kMarkFromEnd)) return error;
  if (::fsync(device) != 0) return errno;
  ForgetMark(device, bytes);
  return 0;
}

int SendMark(const char* device_path, int out) {
  DeviceGeometry geometry;
  MarkUuid uuid;
  const UniqueFd device(::open(device_path, O_RDONLY | O_CLOEXEC));
  if (!device) return errno;
  if (const int error = GetGeometry(device.get(), geometry)) return error;
  if (const int error = FindMark(device.get(), geometry.bytes, uuid)) return error;
  if (uuid[0] == '\0') return 0;
  return ::write(out, uuid, kUuidBytes) == kUuidBytes ? 0 : EIO;
}

// Here the part between fork and exit ends.

// RFC 4122, version 4.
std::string RandomUuid() {
  const std::string digits = absl::StrCat(RandomHexDigits(), RandomHexDigits());
  const absl::string_view all(digits);
  return absl::StrCat(all.substr(0, 8), "-", all.substr(8, 4), "-4", all.substr(13, 3), "-8",
                      all.substr(17, 3), "-", all.substr(20));
}

}  // namespace

absl::StatusOr<std::string> MarkUnfinished(const std::string& device, absl::Time deadline) {
  ChildCall call = {.subject = absl::StrCat("preparing ", device), .deadline = deadline};
  const auto write = [&device, uuid = RandomUuid()](int out) {
    return WriteMark(device.c_str(), uuid.c_str(), out);
  };
  ASSIGN_OR_RETURN(const ChildAnswer answer, CallInChild(std::move(call), write));
  return answer.output;
}

absl::StatusOr<std::string> ReadMark(const std::string& device, absl::Time deadline) {
  ChildCall call = {.subject = absl::StrCat("reading ", device), .deadline = deadline};
  const auto send = [&](int out) { return SendMark(device.c_str(), out); };
  ASSIGN_OR_RETURN(const ChildAnswer answer, CallInChild(std::move(call), send));
  return answer.output;
}

absl::Status ClearUnfinished(const std::string& device, absl::Time deadline) {
  ChildCall call = {.subject = absl::StrCat("finishing ", device), .deadline = deadline};
  return CallInChild(std::move(call), [&](int) { return WithMarked(device.c_str(), EraseMark); }).status();
}

absl::Status WipeUnfinished(const std::string& device, absl::Time deadline) {
  ChildCall call = {.subject = absl::StrCat("wiping ", device), .deadline = deadline};
  return CallInChild(std::move(call), [&](int) { return WithMarked(device.c_str(), WipeWritten); }).status();
}

std::string MarkOf(int file, uint64_t bytes) {
  MarkUuid uuid;
  return FindMark(file, bytes, uuid) == 0 ? uuid : "";
}

}  // namespace lunkeeper
