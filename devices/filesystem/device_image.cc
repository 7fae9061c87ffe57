// What is on a device decides whether it is formatted, so a wrong answer destroys data. The rules:
//
//  - only what was read counts: an error anywhere means "unknown", never "blank";
//  - blank means that libblkid knows nothing of it and that the first and last MiB are zero, both;
//  - no range of the device is trusted to be zero because another one is.
//
// The device is read by a child (base/child.h), which copies its edges into a memfd that libblkid then works
// on here. A device whose target is gone may hold up a read for ever; it then holds up that child only.
//
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

#include "devices/filesystem/device_image.h"

#include <blkid/blkid.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/child.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "devices/filesystem/superblock.h"

namespace lunkeeper {
namespace {

// libblkid looks for nothing further in than this (VMFS, at 2 MiB), nor further from the end than the tail.
constexpr uint64_t kHeadBytes = 2 * kMiB + 256 * 1024;
constexpr uint64_t kTailBytes = 2 * kMiB;
constexpr size_t kChunk = 64 * 1024;
constexpr size_t kPiece = 4096;
// A file system is never larger in whole blocks than this below its device.
constexpr uint64_t kLargestBlock = 64 * 1024;

constexpr uint64_t kMarkFromEnd = 2 * kMiB;
constexpr size_t kMarkBytes = 4096;
constexpr char kMark[kMarkBytes] =
    "lunkeeper: a file system was being made here, and nothing was on this device\n";
// On a smaller one the mark could be inside what the tool writes. No volume is that small.
constexpr uint64_t kSmallestMarked = 8 * kMiB;

constexpr char kZeroes[kChunk] = {};

// Sent by the child that reads the device.
struct Geometry {
  uint64_t bytes;
  uint32_t sector_bytes;
  bool blank_edges;
};

// From here to the next mark: between fork and exit, so system calls and plain memory only. Results are 0 or
// an errno.

int GetGeometry(int device, Geometry& geometry) {
  struct stat found = {};
  if (::fstat(device, &found) != 0) return errno;
  geometry = {static_cast<uint64_t>(found.st_size), 512, true};
  if (!S_ISBLK(found.st_mode)) return 0;
  int sector_bytes = 0;
  if (::ioctl(device, BLKGETSIZE64, &geometry.bytes) != 0) return errno;
  if (::ioctl(device, BLKSSZGET, &sector_bytes) != 0) return errno;
  geometry.sector_bytes = static_cast<uint32_t>(sector_bytes);
  return 0;
}

int ReadFully(int from, char* buffer, size_t size, uint64_t at) {
  for (size_t done = 0; done < size;) {
    const ssize_t got = ::pread(from, buffer + done, size - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0 ? EIO : errno;
    done += static_cast<size_t>(got);
  }
  return 0;
}

int WriteFully(int to, const char* buffer, size_t size, uint64_t at) {
  for (size_t done = 0; done < size;) {
    const ssize_t put = ::pwrite(to, buffer + done, size - done, static_cast<off_t>(at + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return put == 0 ? EIO : errno;
    done += static_cast<size_t>(put);
  }
  return 0;
}

// Asks for a MiB at a time: the kernel by itself reads ahead by far less, and each command has its price.
int CopyRange(int from, int to, uint64_t begin, uint64_t end, Geometry& geometry) {
  char buffer[kChunk];
  for (uint64_t at = begin; at < end; at += kChunk) {
    if ((at - begin) % kMiB == 0) {
      const uint64_t ahead = std::min(kMiB, end - at);
      ::posix_fadvise(from, static_cast<off_t>(at), static_cast<off_t>(ahead), POSIX_FADV_WILLNEED);
    }
    const size_t size = static_cast<size_t>(std::min<uint64_t>(kChunk, end - at));
    if (const int error = ReadFully(from, buffer, size, at)) return error;
    if (std::memcmp(buffer, kZeroes, size) == 0) continue;
    if (at < kMiB || at + size > geometry.bytes - std::min(geometry.bytes, kMiB))
      geometry.blank_edges = false;
    if (const int error = WriteFully(to, buffer, size, at)) return error;
  }
  return 0;
}

int CopyEdges(const char* device_path, int image, int out) {
  const UniqueFd device(::open(device_path, O_RDONLY | O_CLOEXEC));
  if (!device) return errno;
  Geometry geometry = {};
  if (const int error = GetGeometry(device.get(), geometry)) return error;
  // The unit of the device's cache. mkfs.xfs sets it to a sector, which empties the cache, and would then
  // read all this again in small pieces; set to a sector now, it stays. Refused for a file, and while
  // mounted.
  const int unit = static_cast<int>(geometry.sector_bytes);
  ::ioctl(device.get(), BLKBSZSET, &unit);
  if (::ftruncate(image, static_cast<off_t>(geometry.bytes)) != 0) return errno;
  const uint64_t head_end = std::min(geometry.bytes, kHeadBytes);
  const uint64_t tail_begin = std::max(head_end, geometry.bytes - std::min(geometry.bytes, kTailBytes));
  if (const int error = CopyRange(device.get(), image, 0, head_end, geometry)) return error;
  if (const int error = CopyRange(device.get(), image, tail_begin, geometry.bytes, geometry)) return error;
  return ::write(out, &geometry, sizeof geometry) == sizeof geometry ? 0 : EIO;
}

// Writes only where there is something: mostly there is nothing, and a look at the device has just read it.
// And a full pool refuses what was never written, while what is there can be written over.
int ZeroRange(int device, uint64_t begin, uint64_t end) {
  char there[kChunk];
  for (uint64_t at = begin; at < end; at += kChunk) {
    const size_t size = static_cast<size_t>(std::min<uint64_t>(kChunk, end - at));
    if (const int error = ReadFully(device, there, size, at)) return error;
    for (size_t piece = 0; piece < size; piece += kPiece) {
      const size_t part = std::min(kPiece, size - piece);
      if (std::memcmp(there + piece, kZeroes, part) == 0) continue;
      if (const int error = WriteFully(device, kZeroes, part, at + piece)) return error;
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

// The mark first: what it promises holds until the first mount.
int WriteMark(const char* device_path) {
  const UniqueFd device(::open(device_path, O_RDWR | O_EXCL | O_CLOEXEC));
  if (!device) return errno;
  Geometry geometry = {};
  if (const int error = GetGeometry(device.get(), geometry)) return error;
  if (geometry.bytes < kSmallestMarked) return 0;
  if (const int error = WriteFully(device.get(), kMark, kMarkBytes, geometry.bytes - kMarkFromEnd))
    return error;
  if (::fsync(device.get()) != 0) return errno;
  return WipeEdges(device.get(), geometry.bytes);
}

int FindMark(int device, uint64_t bytes, bool& marked) {
  marked = false;
  if (bytes < kSmallestMarked) return 0;
  char there[kMarkBytes];
  if (const int error = ReadFully(device, there, kMarkBytes, bytes - kMarkFromEnd)) return error;
  marked = std::memcmp(there, kMark, kMarkBytes) == 0;  // else a tool put something of its own there
  return 0;
}

// Calls `work` with a device that bears the mark, and its size. Only that one is opened for writing: another
// may be in use.
template <typename Work>
int WithMarked(const char* device_path, Work work) {
  Geometry geometry = {};
  bool marked = false;
  const UniqueFd seen(::open(device_path, O_RDONLY | O_CLOEXEC));
  if (!seen) return errno;
  if (const int error = GetGeometry(seen.get(), geometry)) return error;
  if (const int error = FindMark(seen.get(), geometry.bytes, marked)) return error;
  if (!marked) return 0;
  const UniqueFd device(::open(device_path, O_RDWR | O_EXCL | O_CLOEXEC));
  return device ? work(device.get(), geometry.bytes) : errno;
}

int EraseMark(int device, uint64_t bytes) {
  if (const int error = WriteFully(device, kZeroes, kMarkBytes, bytes - kMarkFromEnd)) return error;
  return ::fsync(device) == 0 ? 0 : errno;
}

int SendHead(const char* device_path, int out) {
  const UniqueFd device(::open(device_path, O_RDONLY | O_CLOEXEC));
  if (!device) return errno;
  Geometry geometry = {};
  char head[kSuperblockBytes];
  if (const int error = GetGeometry(device.get(), geometry)) return error;
  if (const int error = ReadFully(device.get(), head, sizeof head, 0)) return error;
  if (::write(out, &geometry.bytes, sizeof geometry.bytes) != sizeof geometry.bytes) return EIO;
  return ::write(out, head, sizeof head) == sizeof head ? 0 : EIO;
}

// Here the part between fork and exit ends.

bool IsMarked(const DeviceImage& image) {
  bool marked = false;
  return FindMark(image.file.get(), image.bytes, marked) == 0 && marked;
}

std::string ProbedValue(blkid_probe probe, const char* name) {
  const char* value = nullptr;
  return ::blkid_probe_lookup_value(probe, name, &value, nullptr) == 0 ? value : "";
}

// libblkid's values, or nothing if it knows nothing.
struct Signature {
  std::string type, uuid, partition_table;
  bool damaged = false;
  bool ambiguous = false;
};

absl::StatusOr<std::optional<Signature>> FindSignature(const DeviceImage& image) {
  const std::unique_ptr<blkid_struct_probe, decltype(&::blkid_free_probe)> probe(::blkid_new_probe(),
                                                                                 &::blkid_free_probe);
  if (probe == nullptr || ::blkid_probe_set_device(probe.get(), image.file.get(), 0, 0) != 0) {
    return absl::InternalError("libblkid cannot be set up");
  }
  ::blkid_probe_set_sectorsize(probe.get(), image.sector_bytes);
  ::blkid_probe_enable_superblocks(probe.get(), 1);
  ::blkid_probe_set_superblocks_flags(probe.get(),
                                      BLKID_SUBLKS_TYPE | BLKID_SUBLKS_UUID | BLKID_SUBLKS_BADCSUM);
  ::blkid_probe_enable_partitions(probe.get(), 1);
  // The "safe" probe looks for all kinds and says when there is more than one (-2); the plain one stops at
  // the first, and would call an old RAID member with an ext4 inside an ext4.
  const int found = ::blkid_do_safeprobe(probe.get());
  if (found == 1) return std::optional<Signature>();
  if (found == -1) return absl::InternalError("libblkid cannot read the device's image");
  Signature signature;
  signature.ambiguous = found == -2;
  signature.type = ProbedValue(probe.get(), "TYPE");
  signature.uuid = ProbedValue(probe.get(), "UUID");
  signature.partition_table = ProbedValue(probe.get(), "PTTYPE");
  signature.damaged = !ProbedValue(probe.get(), "SBBADCSUM").empty();
  return std::optional<Signature>(std::move(signature));
}

std::string DescribeSignature(const Signature& signature) {
  if (signature.ambiguous) return "more than one kind of data";
  if (signature.type.empty()) return absl::StrCat("a ", signature.partition_table, " partition table");
  return absl::StrCat(signature.type, signature.damaged ? " with a damaged superblock" : "");
}

absl::Status UnreadableError(const std::string& device, const absl::Status& why) {
  if (absl::IsDeadlineExceeded(why) || absl::IsNotFound(why)) return why;
  return absl::UnavailableError(absl::StrCat("device ", device,
                                             " cannot be read, so nobody knows what is on it (",
                                             std::string(why.message()), "); see that its storage is well"));
}

}  // namespace

absl::StatusOr<DeviceImage> ReadDeviceImage(const std::string& device, absl::Time deadline) {
  DeviceImage image;
  image.file.Reset(::memfd_create("lunkeeper-probe", MFD_CLOEXEC));
  if (!image.file) return absl::ErrnoToStatus(errno, "memory for a probe");
  const int file = image.file.get();
  ChildCall call = {.subject = absl::StrCat("reading ", device), .deadline = deadline, .lent = file};
  const auto copy = [&](int out) { return CopyEdges(device.c_str(), file, out); };
  const absl::StatusOr<ChildAnswer> sent = CallInChild(std::move(call), copy);
  if (!sent.ok()) return UnreadableError(device, sent.status());
  Geometry geometry = {};
  // A child that was killed at the wrong moment has sent less, or nothing: that is no answer.
  if (sent->output.size() != sizeof geometry)
    return absl::InternalError(absl::StrCat("reading ", device, ": no answer"));
  std::memcpy(&geometry, sent->output.data(), sizeof geometry);
  image.bytes = geometry.bytes;
  image.sector_bytes = geometry.sector_bytes;
  image.blank_edges = geometry.blank_edges;
  return image;
}

absl::StatusOr<FilesystemProbe> ClassifyImage(const DeviceImage& image) {
  FilesystemProbe result;
  result.device_bytes = image.bytes;
  if (IsMarked(image)) {
    result.content = Content::kBlank;
    result.description = "a file system that was never finished";
    return result;
  }
  ASSIGN_OR_RETURN(const std::optional<Signature> signature, FindSignature(image));
  if (!signature) {
    result.content = image.blank_edges ? Content::kBlank : Content::kForeign;
    result.description = image.blank_edges ? "nothing" : "data of an unknown kind";
    return result;
  }
  result.description = DescribeSignature(*signature);
  const std::optional<FilesystemType> type = ParseFilesystemType(signature->type);
  if (!type || signature->damaged || signature->ambiguous) return result;
  std::string head(kSuperblockBytes, '\0');
  ReadFully(image.file.get(), head.data(), head.size(), 0);
  const std::optional<uint64_t> bytes = FilesystemBytes(*type, head);
  // Such a file system would be mounted and fail at the first access past the end.
  if (!bytes || *bytes > image.bytes) {
    result.description += " that is larger than its device: damaged, or copied from a larger one";
    return result;
  }
  result.content = Content::kFilesystem;
  result.type = *type;
  result.uuid = signature->uuid;
  result.filesystem_bytes = *bytes;
  return result;
}

absl::StatusOr<DeviceHead> ReadDeviceHead(const std::string& device, absl::Time deadline) {
  ChildCall call = {.subject = absl::StrCat("reading the head of ", device), .deadline = deadline};
  const auto send = [&](int out) { return SendHead(device.c_str(), out); };
  const absl::StatusOr<ChildAnswer> sent = CallInChild(std::move(call), send);
  if (!sent.ok()) return UnreadableError(device, sent.status());
  DeviceHead head;
  if (sent->output.size() != sizeof head.device_bytes + kSuperblockBytes)
    return absl::InternalError(absl::StrCat("reading the head of ", device, ": no answer"));
  std::memcpy(&head.device_bytes, sent->output.data(), sizeof head.device_bytes);
  head.bytes = sent->output.substr(sizeof head.device_bytes);
  return head;
}

absl::StatusOr<bool> FillsDevice(const std::string& device, FilesystemType type, absl::Time deadline) {
  ASSIGN_OR_RETURN(const DeviceHead head, ReadDeviceHead(device, deadline));
  const std::optional<uint64_t> bytes = FilesystemBytes(type, head.bytes);
  return bytes && *bytes + kLargestBlock > head.device_bytes;
}

absl::Status MarkUnfinished(const std::string& device, absl::Time deadline) {
  ChildCall call = {.subject = absl::StrCat("preparing ", device), .deadline = deadline};
  return CallInChild(std::move(call), [&](int) { return WriteMark(device.c_str()); }).status();
}

absl::Status ClearUnfinished(const std::string& device, absl::Time deadline) {
  ChildCall call = {.subject = absl::StrCat("finishing ", device), .deadline = deadline};
  return CallInChild(std::move(call), [&](int) { return WithMarked(device.c_str(), EraseMark); }).status();
}

absl::Status WipeUnfinished(const std::string& device, absl::Time deadline) {
  ChildCall call = {.subject = absl::StrCat("wiping ", device), .deadline = deadline};
  return CallInChild(std::move(call), [&](int) { return WithMarked(device.c_str(), WipeWritten); }).status();
}

}  // namespace lunkeeper
