// Messages and their descriptors stay in a socket's buffer when the sender has died (unix(7)), and a socket
// can itself be sent through a socket. A message carries few descriptors, a parcel any number.

#include "devices/datapath/inheritance.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fail_point.h"
#include "base/status_macros.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/control_socket.h"

namespace lunkeeper {
namespace {

// For each volume: a message, and what the kernel needs beside it.
constexpr int kBufferBytes = 8 << 10;

datapath::InheritedVolume ToMessage(const SupervisedVolume& volume, std::vector<int>* fds) {
  datapath::InheritedVolume message;
  *message.mutable_options() = volume.options;
  message.set_slot(volume.slot);
  message.set_loop_number(volume.loop.number);
  message.set_can_resend(volume.fuse.can_resend);
  message.set_given(volume.service == SupervisedVolume::Service::kGiven);
  message.set_lost(volume.lost());
  message.set_fail_requested(volume.fail_requested);
  message.set_reason(volume.reason);
  message.set_set_aside(volume.set_aside);
  message.set_cut_off(volume.cut_off);
  message.set_loss(volume.loss);
  message.set_has_device(volume.fuse.device.get() >= 0);
  message.set_has_root(volume.fuse.root.get() >= 0);
  message.set_has_loop(volume.loop.fd.get() >= 0);
  // In the order in which FromMessage takes them. The three flags above say which are missing.
  for (const UniqueFd* fd : {&volume.fuse.device, &volume.fuse.root, &volume.loop.fd}) {
    if (*fd) fds->push_back(fd->get());
  }
  return message;
}

SupervisedVolume::Service ServiceOf(const datapath::InheritedVolume& message) {
  if (message.lost()) return SupervisedVolume::Service::kLost;
  return message.given() ? SupervisedVolume::Service::kGiven : SupervisedVolume::Service::kNotGiven;
}

absl::StatusOr<std::unique_ptr<SupervisedVolume>> FromMessage(const datapath::InheritedVolume& message,
                                                              std::vector<UniqueFd> fds) {
  const size_t expected = size_t{message.has_device()} + message.has_root() + message.has_loop();
  if (message.slot() >= kMaxVolumes || message.options().volume().empty() || fds.size() != expected) {
    return absl::InvalidArgumentError("an inherited volume without its name, slot or descriptors");
  }
  auto volume = std::make_unique<SupervisedVolume>();
  volume->id = VolumeId(message.options().volume());
  volume->options = message.options();
  volume->slot = message.slot();
  volume->loop.number = message.loop_number();
  volume->fuse.can_resend = message.can_resend();
  // The call that worked on it has ended, or died with its supervisor.
  volume->in_call = false;
  volume->service = ServiceOf(message);
  volume->fail_requested = message.fail_requested();
  volume->reason = message.reason();
  volume->set_aside = message.set_aside();
  volume->cut_off = message.cut_off();
  volume->loss = message.loss();
  volume->attachment = message.attachment();
  auto next = fds.begin();
  if (message.has_device()) volume->fuse.device = std::move(*next++);
  if (message.has_root()) volume->fuse.root = std::move(*next++);
  if (message.has_loop()) volume->loop.fd = std::move(*next++);
  return volume;
}

absl::StatusOr<VolumeTable::Volumes> UnpackVolumes(int parcel, uint32_t count, int flags) {
  VolumeTable::Volumes volumes;
  std::set<uint32_t> slots;
  for (uint32_t i = 0; i < count; ++i) {
    datapath::InheritedVolume message;
    std::vector<UniqueFd> fds;
    // All of it is in the socket's buffer already, so there is nothing to wait for.
    RETURN_IF_ERROR(ReceiveMessage(parcel, absl::Now(), &message, &fds, flags));
    ASSIGN_OR_RETURN(std::unique_ptr<SupervisedVolume> volume, FromMessage(message, std::move(fds)));
    const VolumeId id = volume->id;
    // Two volumes in one slot would write over each other's state: rather inherit none.
    if (!slots.insert(volume->slot).second || !volumes.emplace(id, std::move(volume)).second) {
      return absl::InvalidArgumentError("two inherited volumes are one");
    }
  }
  return volumes;
}

}  // namespace

absl::Status WriteVolumes(int socket, datapath::InheritedState state, const std::vector<int>& fds,
                          const SharedMemory& memory, const std::vector<const SupervisedVolume*>& volumes) {
  // Beyond the usual limit; without the right to it, as much as there is.
  const int bytes = kBufferBytes * (static_cast<int>(volumes.size()) + 8);
  if (::setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0) {
    ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  }
  state.set_volumes(static_cast<uint32_t>(volumes.size()));
  RETURN_IF_ERROR(SendMessage(socket, state, fds));
  FAIL_POINT("duplicates.edition.begun");
  for (const SupervisedVolume* volume : volumes) {
    std::vector<int> descriptors;
    datapath::InheritedVolume message = ToMessage(*volume, &descriptors);
    message.set_attachment(memory.state()->slots[volume->slot].attachment);
    RETURN_IF_ERROR(SendMessage(socket, message, descriptors));
  }
  return absl::OkStatus();
}

absl::StatusOr<BufferedVolumes> ReadVolumes(int socket, int flags) {
  BufferedVolumes read;
  RETURN_IF_ERROR(ReceiveMessage(socket, absl::Now(), &read.state, &read.fds, flags));
  if (read.state.volumes() > kMaxVolumes) return absl::InvalidArgumentError("too many inherited volumes");
  ASSIGN_OR_RETURN(read.volumes, UnpackVolumes(socket, read.state.volumes(), flags));
  return read;
}

absl::StatusOr<UniqueFd> PackParcel(const SharedMemory& memory, const VolumeTable::Volumes& volumes,
                                    uint64_t next_tag, int lock, int listener) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "making the parcel");
  }
  const UniqueFd ours(ends[0]);
  UniqueFd parcel(ends[1]);
  datapath::InheritedState state;
  state.set_next_tag(next_tag);
  std::vector<const SupervisedVolume*> all;
  for (const auto& [id, volume] : volumes) all.push_back(volume.get());
  RETURN_IF_ERROR(WriteVolumes(ours.get(), state, {memory.fd(), lock, listener}, memory, all));
  return parcel;
}

absl::StatusOr<Inheritance> UnpackParcel(UniqueFd parcel) {
  ASSIGN_OR_RETURN(BufferedVolumes read, ReadVolumes(parcel.get(), 0));
  if (read.fds.size() != 3) {
    return absl::InvalidArgumentError("an inheritance without memory, lock or socket");
  }
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(std::move(read.fds[0])));
  return Inheritance{
      std::move(read.fds[1]),
      std::move(read.fds[2]),
      {std::move(memory), std::move(read.volumes), std::max<uint64_t>(read.state.next_tag(), 1)}};
}

}  // namespace lunkeeper
