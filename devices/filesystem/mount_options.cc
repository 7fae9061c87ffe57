// A flag of CSI may hold several options, as mount(8) takes them: it is split at its commas, and each
// option must be on one of three lists: whole words, names with a number, names with an SELinux label.
// There is no list of bad options, because each kernel has new ones.
//
// Errors name the place of a flag in the request and never its text, which may be confidential.
#include "devices/filesystem/mount_options.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace lunkeeper {
namespace {

constexpr size_t kMostOptionBytes = 4096;  // CSI: mount_flags in all; also a page, the kernel's limit

// Taken as they stand.
constexpr absl::string_view kWords[] = {
    // Of every mount. "_netdev" and "nofail" mean something in /etc/fstab only, and are often copied from it.
    "ro",
    "rw",
    "defaults",
    "_netdev",
    "nofail",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "diratime",
    "nodiratime",
    "lazytime",
    "nolazytime",
    "sync",
    "async",
    "dirsync",
    "exec",
    "noexec",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    // Of both file systems.
    "discard",
    "nodiscard",
    "grpid",
    "nogrpid",
    "bsdgroups",
    "sysvgroups",
    "quota",
    "noquota",
    "usrquota",
    "grpquota",
    "prjquota",
    // ext4. Of its answers to an error, "panic" would carry one node's damage to each node that comes after.
    "errors=remount-ro",
    "errors=continue",
    "data=ordered",
    "data=journal",
    "barrier",
    "barrier=1",
    "acl",
    "noacl",
    "user_xattr",
    "nouser_xattr",
    "delalloc",
    "nodelalloc",
    "auto_da_alloc",
    "block_validity",
    "dioread_lock",
    "dioread_nolock",
    "init_itable",
    "noinit_itable",
    "journal_checksum",
    // XFS.
    "filestreams",
    "inode32",
    "inode64",
    "largeio",
    "nolargeio",
    "noalign",
    "swalloc",
    "wsync",
    "uquota",
    "gquota",
    "pquota",
    "uqnoenforce",
    "gqnoenforce",
    "pqnoenforce",
    "qnoenforce",
};

// Their value is a number, with a unit or without.
constexpr absl::string_view kNumbers[] = {
    "commit",      "stripe",         "inode_readahead_blks",
    "init_itable", "max_batch_time", "min_batch_time",
    "allocsize",   "logbufs",        "logbsize",
    "sunit",       "swidth",         "journal_ioprio",
};

// Their value is an SELinux label; kubelet puts it in quotes, since it may have commas.
constexpr absl::string_view kLabels[] = {"context", "fscontext", "defcontext", "rootcontext"};

template <size_t N>
bool Contains(const absl::string_view (&list)[N], absl::string_view option) {
  return std::find(std::begin(list), std::end(list), option) != std::end(list);
}

// Longer ones are no number that a file system takes.
bool IsNumber(absl::string_view value) {
  if (!value.empty() && std::string("kKmMgG").find(value.back()) != std::string::npos) value.remove_suffix(1);
  return !value.empty() && value.size() <= 12 && std::all_of(value.begin(), value.end(), absl::ascii_isdigit);
}

bool IsLabel(absl::string_view value) {
  const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  if (quoted) value = value.substr(1, value.size() - 2);
  return !value.empty() && std::all_of(value.begin(), value.end(), [quoted](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' ||
           c == ':' || (quoted && c == ',');
  });
}

bool IsAllowed(absl::string_view option) {
  if (Contains(kWords, option)) return true;
  const size_t equals = option.find('=');
  if (equals == absl::string_view::npos) return false;
  const absl::string_view name = option.substr(0, equals);
  const absl::string_view value = option.substr(equals + 1);
  return (Contains(kNumbers, name) && IsNumber(value)) || (Contains(kLabels, name) && IsLabel(value));
}

// At commas, but for those in quotes, as the kernel does.
std::vector<absl::string_view> SplitFlag(absl::string_view flag) {
  std::vector<absl::string_view> options;
  size_t begin = 0;
  bool quoted = false;
  for (size_t at = 0; at < flag.size(); ++at) {
    if (flag[at] == '"') quoted = !quoted;
    if (flag[at] != ',' || quoted) continue;
    options.push_back(flag.substr(begin, at - begin));
    begin = at + 1;
  }
  options.push_back(flag.substr(begin));
  return options;
}

}  // namespace

absl::Status CheckMountOptions(const std::vector<std::string>& options) {
  size_t bytes = 0;
  size_t number = 0;  // in place of the flag, which may be confidential
  for (const std::string& flag : options) {
    ++number;
    bytes += flag.size() + 1;
    if (bytes > kMostOptionBytes)
      return absl::InvalidArgumentError("mount_flags: are longer than 4096 bytes");
    const bool plain = std::all_of(flag.begin(), flag.end(), absl::ascii_isgraph);
    if (flag.empty() || !plain) {
      return absl::InvalidArgumentError(absl::StrCat("mount_flags: number ", number,
                                                     " is empty or has characters that no mount option has"));
    }
    for (const absl::string_view option : SplitFlag(flag)) {
      if (IsAllowed(option)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("mount_flags: number ", number, " of ", options.size(),
                       " has a mount option that is not for users to set; leave it out"));
    }
  }
  return absl::OkStatus();
}

bool IsReadOnlyMount(const std::vector<std::string>& options) {
  bool read_only = false;
  for (const std::string& flag : options) {
    for (const absl::string_view option : SplitFlag(flag)) {
      if (option == "ro" || option == "rw") read_only = option == "ro";
    }
  }
  return read_only;
}

bool AsksForLabel(const std::vector<std::string>& options) {
  for (const std::string& flag : options) {
    for (const absl::string_view option : SplitFlag(flag)) {
      if (Contains(kLabels, option.substr(0, option.find('=')))) return true;
    }
  }
  return false;
}

std::string WithDefaultOptions(FilesystemType type, const std::vector<std::string>& options) {
  std::vector<std::string> all = {"nosuid", "nodev"};
  if (type == FilesystemType::kExt4) all.push_back("errors=remount-ro");
  all.insert(all.end(), options.begin(), options.end());  // behind: of two that disagree, the last one counts
  return absl::StrJoin(all, ",");
}

}  // namespace lunkeeper
