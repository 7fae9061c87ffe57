#include "devices/array/tgt/spawn_tgtd.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "devices/array/tgt/tgtd_guard_image.h"

extern char** environ;

namespace lunkeeper {
namespace {

constexpr int kLockInTgtd = 3;
constexpr int kGuardInTgtd = 4;

// tgtd_guard.c, as a file that needs no place. Its number is none of those above.
UniqueFd MakeGuard() {
  const UniqueFd file(::memfd_create("lunkeeper-tgtd-guard", MFD_CLOEXEC));
  if (file && ::write(file.get(), kTgtdGuard, sizeof kTgtdGuard) == ssize_t{sizeof kTgtdGuard})
    return UniqueFd(::fcntl(file.get(), F_DUPFD_CLOEXEC, kGuardInTgtd + 1));
  LogWarn("array", "tgtd starts without its guard: one packet of a stranger can end it",
          {{"error", std::strerror(errno)}});
  return UniqueFd();
}

// Beside what this program has been started with.
std::string PreloadGuard() {
  const char* const own = std::getenv("LD_PRELOAD");
  return absl::StrCat("LD_PRELOAD=/proc/self/fd/", kGuardInTgtd, own == nullptr ? "" : ":",
                      own == nullptr ? "" : own);
}

// tgtd reads Ceph's conf anew for each image that it opens, and by then the file may be another one than the
// agent has read. These come before it; without Ceph nobody reads them. What a write-back cache acknowledged
// is lost with this host, and a write that was given up may land later, over a newer one.
std::string CephArguments() {
  const char* const own = std::getenv("CEPH_ARGS");
  return absl::StrCat("CEPH_ARGS=", own == nullptr ? "" : own,
                      " --rbd_cache=false --rbd_persistent_cache_mode=disabled --rados_osd_op_timeout=0");
}

// tgtd allocates one buffer per command. glibc returns large buffers to the kernel as soon as they are freed,
// and mapping and zeroing the pages again costs a third of a large transfer. These settings keep up to 32
// MiB.
std::vector<char*> Environment(std::string& ceph, std::string* preload) {
  static char keep_buffers[] =
      "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=33554432";
  std::vector<char*> environment = {keep_buffers, ceph.data()};
  if (preload != nullptr) environment.push_back(preload->data());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool is_replaced = preload != nullptr && absl::StartsWith(*variable, "LD_PRELOAD=");
    if (!is_replaced) environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  return environment;
}

// Half of the processors: tgtd's main thread and the network need the others. More threads than processors
// only add context switches while the data are in memory.
int IoThreads(int wanted) {
  if (wanted > 0) return wanted;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency() / 2), 1, 4);
}

}  // namespace

absl::StatusOr<pid_t> SpawnTgtd(const TgtDaemonOptions& options, const std::string& output,
                                const UniqueFd& lock) {
  // Without a portal named here tgtd would listen on port 3260 of every address. This one is on loopback with
  // an ephemeral port, and CloseOtherPortals removes it before the first target exists.
  std::vector<std::string> words = {options.binary, "-f",
                                    "-C",           absl::StrCat(options.control_port),
                                    "-t",           absl::StrCat(IoThreads(options.io_threads)),
                                    "--iscsi",      "portal=127.0.0.1:0"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_RDWR | O_NONBLOCK, 0);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  // Not closed on exec in tgtd, and also not when it has this number here already.
  posix_spawn_file_actions_adddup2(&actions, lock.get(), kLockInTgtd);
  const UniqueFd guard = MakeGuard();
  if (guard) posix_spawn_file_actions_adddup2(&actions, guard.get(), kGuardInTgtd);
  posix_spawn_file_actions_addclosefrom_np(&actions, guard ? kGuardInTgtd + 1 : kLockInTgtd + 1);
  // Signals that this program blocks would stay blocked in tgtd, which then could not be ended by SIGTERM.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  std::string ceph = CephArguments(), preload = PreloadGuard();
  const int error = ::posix_spawn(&pid, options.binary.c_str(), &actions, &attributes, arguments.data(),
                                  Environment(ceph, guard ? &preload : nullptr).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return pid;
  return absl::UnavailableError(absl::StrCat("start ", options.binary, ": ", std::strerror(error)));
}

}  // namespace lunkeeper
