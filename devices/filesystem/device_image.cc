// What is on a device decides whether it is formatted, so a wrong answer destroys data. The rules:
//
//  - only what was read counts: an error anywhere means "unknown", never "blank";
//  - blank means that libblkid knows nothing of it and that the first and last MiB are zero, both;
//  - no range of the device is trusted to be zero because another one is.
//
// The device is read by a child (base/child.h), which copies its edges into a memfd that libblkid then works
// on here. A device whose target is gone may hold up a read for ever; it then holds up that child only.

#include "devices/filesystem/device_image.h"

#include <blkid/blkid.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
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
#include "devices/filesystem/raw_device.h"
#include "devices/filesystem/superblock.h"
#include "devices/filesystem/unfinished_mark.h"

namespace lunkeeper {
namespace {

// libblkid looks for nothing further in than this (VMFS, at 2 MiB), nor further from the end than the tail.
constexpr uint64_t kHeadBytes = 2 * kMiB + 256 * 1024;
constexpr uint64_t kTailBytes = 2 * kMiB;
// A file system is never larger in whole blocks than this below its device.
constexpr uint64_t kLargestBlock = 64 * 1024;

// Sent by the child that reads the device.
struct Edges {
  DeviceGeometry geometry;
  bool blank = true;
};

// From here to the next mark: between fork and exit, so system calls and plain memory only. Results are 0 or
// an errno.

// Asks for a MiB at a time: the kernel by itself reads ahead by far less, and each command has its price.
int CopyRange(int from, int to, uint64_t begin, uint64_t end, Edges& edges) {
  char buffer[kDeviceChunk];
  for (uint64_t at = begin; at < end; at += kDeviceChunk) {
    if ((at - begin) % kMiB == 0) {
      const uint64_t ahead = std::min(kMiB, end - at);
      ::posix_fadvise(from, static_cast<off_t>(at), static_cast<off_t>(ahead), POSIX_FADV_WILLNEED);
    }
    const size_t size = static_cast<size_t>(std::min<uint64_t>(kDeviceChunk, end - at));
    if (const int error = ReadFully(from, buffer, size, at)) return error;
    if (std::memcmp(buffer, kDeviceZeroes, size) == 0) continue;
    const uint64_t bytes = edges.geometry.bytes;
    if (at < kMiB || at + size > bytes - std::min(bytes, kMiB)) edges.blank = false;
    if (const int error = WriteFully(to, buffer, size, at)) return error;
  }
  return 0;
}

int CopyEdges(const char* device_path, int image, int out) {
  const UniqueFd device(::open(device_path, O_RDONLY | O_CLOEXEC));
  if (!device) return errno;
  Edges edges;
  if (const int error = GetGeometry(device.get(), edges.geometry)) return error;
  const uint64_t bytes = edges.geometry.bytes;
  // The unit of the device's cache. mkfs.xfs sets it to a sector, which empties the cache, and would then
  // read all this again in small pieces; set to a sector now, it stays. Refused for a file, and while
  // mounted.
  const int unit = static_cast<int>(edges.geometry.sector_bytes);
  ::ioctl(device.get(), BLKBSZSET, &unit);
  if (::ftruncate(image, static_cast<off_t>(bytes)) != 0) return errno;
  const uint64_t head_end = std::min(bytes, kHeadBytes);
  const uint64_t tail_begin = std::max(head_end, bytes - std::min(bytes, kTailBytes));
  if (const int error = CopyRange(device.get(), image, 0, head_end, edges)) return error;
  if (const int error = CopyRange(device.get(), image, tail_begin, bytes, edges)) return error;
  return ::write(out, &edges, sizeof edges) == sizeof edges ? 0 : EIO;
}

int SendHead(const char* device_path, int out) {
  const UniqueFd device(::open(device_path, O_RDONLY | O_CLOEXEC));
  if (!device) return errno;
  DeviceGeometry geometry;
  char head[kSuperblockBytes];
  if (const int error = GetGeometry(device.get(), geometry)) return error;
  if (const int error = ReadFully(device.get(), head, sizeof head, 0)) return error;
  if (::write(out, &geometry.bytes, sizeof geometry.bytes) != sizeof geometry.bytes) return EIO;
  return ::write(out, head, sizeof head) == sizeof head ? 0 : EIO;
}

// Here the part between fork and exit ends.

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

// A file system by another UUID is used: the mark is what somebody has written to a file.
bool IsUnfinished(const DeviceImage& image, const std::optional<Signature>& signature) {
  const std::string uuid = MarkOf(image.file.get(), image.bytes);
  return !uuid.empty() && (!signature || signature->uuid == uuid);
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
  Edges edges;
  // A child that was killed at the wrong moment has sent less, or nothing: that is no answer.
  if (sent->output.size() != sizeof edges)
    return absl::InternalError(absl::StrCat("reading ", device, ": no answer"));
  std::memcpy(&edges, sent->output.data(), sizeof edges);
  image.bytes = edges.geometry.bytes;
  image.sector_bytes = edges.geometry.sector_bytes;
  image.blank_edges = edges.blank;
  return image;
}

absl::StatusOr<FilesystemProbe> ClassifyImage(const DeviceImage& image) {
  FilesystemProbe result;
  result.device_bytes = image.bytes;
  ASSIGN_OR_RETURN(const std::optional<Signature> signature, FindSignature(image));
  if (IsUnfinished(image, signature)) {
    result.content = Content::kBlank;
    result.description = "a file system that was never finished";
    return result;
  }
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

}  // namespace lunkeeper
