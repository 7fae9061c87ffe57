// A volume's file, by what has happened since its data path died:
//
//   NAME        nothing
//   NAME.told   one detach has said DATA_LOSS
//   none        two have

#include "devices/datapath/attachment_records.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

constexpr char kTold[] = ".told";

std::string ReadWord(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

std::string BootId() { return ReadWord("/proc/sys/kernel/random/boot_id"); }

// One that was not written to its end is of an attach that was not answered.
bool IsOfThisBoot(const std::string& path) {
  const std::string word = ReadWord(path);
  return !word.empty() && word == BootId();
}

}  // namespace

// A volume's name may have any characters.
std::string AttachmentRecords::PathOf(const VolumeId& volume) const {
  return absl::StrCat(folder_, "/", absl::WebSafeBase64Escape(volume.value()));
}

absl::Status AttachmentRecords::Write(const VolumeId& volume) const {
  std::error_code ignored;
  std::filesystem::create_directory(folder_, ignored);
  const std::string path = PathOf(volume);
  errno = 0;
  std::ofstream file(path);
  file << BootId() << '\n';
  file.close();
  if (file) return absl::OkStatus();
  return absl::ErrnoToStatus(errno == 0 ? EIO : errno,
                             absl::StrCat("volume ", volume.value(), ": writing ", path));
}

bool AttachmentRecords::Remove(const VolumeId& volume) const {
  const std::string path = PathOf(volume), told = path + kTold;
  const bool was_there = IsOfThisBoot(path) || IsOfThisBoot(told);
  ::unlink(path.c_str());
  ::unlink(told.c_str());
  return was_there;
}

absl::Status AttachmentRecords::TellLoss(const VolumeId& volume) const {
  const std::string path = PathOf(volume), told = path + kTold;
  const bool first = IsOfThisBoot(path);
  if (!first && !IsOfThisBoot(told)) {
    Remove(volume);
    return absl::OkStatus();
  }
  if (!first || ::rename(path.c_str(), told.c_str()) != 0) Remove(volume);
  return absl::DataLossError(
      absl::StrCat("volume ", volume.value(),
                   ": the data path died while the volume was attached: what was written and not synced may "
                   "be lost. A repeated call goes on"));
}

}  // namespace lunkeeper
