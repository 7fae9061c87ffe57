#include "devices/datapath/shared_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/status_macros.h"

namespace lunkeeper {

absl::StatusOr<SharedMemory> SharedMemory::Create() {
  // A memfd lives as long as somebody has it open, so no file is left behind by a supervisor that is killed.
  UniqueFd memfd(::memfd_create("lunkeeper-datapath", MFD_CLOEXEC));
  if (!memfd || ::ftruncate(memfd.get(), sizeof(SharedState)) != 0) {
    return absl::ErrnoToStatus(errno, "making the memory that supervisor and worker share");
  }
  return Map(std::move(memfd));
}

absl::StatusOr<SharedMemory> SharedMemory::Map(UniqueFd memfd) {
  // The size is half of the version (kSharedStateVersion): access past the end would be a SIGBUS.
  struct stat status = {};
  if (::fstat(memfd.get(), &status) != 0 || static_cast<size_t>(status.st_size) != sizeof(SharedState)) {
    return absl::FailedPreconditionError("the memory that supervisor and worker share is of another version");
  }
  void* area = ::mmap(nullptr, sizeof(SharedState), PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  if (area == MAP_FAILED)
    return absl::ErrnoToStatus(errno, "mapping the memory that supervisor and worker share");
  return SharedMemory(std::move(memfd), static_cast<SharedState*>(area));
}

// A lock of the process, not of the descriptor (fcntl(2)): supervisors have the same one open. The kernel
// drops it with the process, after the last of its threads has left the kernel.
absl::Status SharedMemory::LockForWorker() const {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  while (::fcntl(memfd_.get(), F_SETLKW, &whole) != 0) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "waiting for the worker before this one to end");
  }
  return absl::OkStatus();
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : memfd_(std::move(other.memfd_)), state_(std::exchange(other.state_, nullptr)) {}

SharedMemory::~SharedMemory() {
  if (state_ != nullptr) ::munmap(state_, sizeof(SharedState));
}

}  // namespace lunkeeper
