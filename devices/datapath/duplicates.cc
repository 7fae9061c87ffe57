// Killed while it writes an edition: that one has fewer volumes than its first message says, and is not
// whole. Killed while it takes the old one out: the new one is whole, and of a higher number.
//
// A call announces its child before it starts (has_child). A child that was left behind is looked for
// whenever an edition is written, and each second: nobody says when it ends.

#include "devices/datapath/duplicates.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/loop_device.h"

namespace lunkeeper {
namespace {

bool MayBeKept(const SupervisedVolume& volume) {
  return volume.loop.fd && volume.fuse.device && volume.fuse.can_resend && !volume.lost() &&
         !volume.fail_requested;
}

// By a child that a call has now, or had to leave behind.
bool MayBeWaitedFor(const SupervisedVolume& volume) {
  return volume.has_child || (volume.loop.fd && HasWaitingChild(volume.loop));
}

size_t CountWaiting(const VolumeTable::Volumes& volumes) {
  return static_cast<size_t>(std::count_if(volumes.begin(), volumes.end(),
                                           [](const auto& item) { return MayBeWaitedFor(*item.second); }));
}

// Each one only rises.
uint64_t SumAttachments(const VolumeTable::Volumes& volumes, const SharedMemory& memory) {
  uint64_t sum = 0;
  for (const auto& [id, volume] : volumes) sum += memory.state()->slots[volume->slot].attachment;
  return sum;
}

// What the next supervisor has to say of a volume that it cannot have. Without the number of the loop device:
// somebody may still have that open, and then it is an orphan.
std::unique_ptr<SupervisedVolume> RecordOf(const SupervisedVolume& volume) {
  auto record = std::make_unique<SupervisedVolume>();
  record->id = volume.id;
  record->options = volume.options;
  record->slot = volume.slot;
  record->service = SupervisedVolume::Service::kLost;
  record->cut_off = true;
  record->reason = "the data path was killed while it waited for I/O of the volume, in a detach or a growth";
  return record;
}

bool IsThere(const SupervisedVolume& volume, const SharedMemory& memory) {
  return memory.state()->slots[volume.slot].attachment == volume.attachment;
}

void PeekFromBegin(int socket) {
  const int begin = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &begin, sizeof(begin));
}

std::optional<BufferedVolumes> NewestOf(const std::vector<UniqueFd>& parcels) {
  std::optional<BufferedVolumes> newest;
  for (const UniqueFd& parcel : parcels) {
    PeekFromBegin(parcel.get());
    absl::StatusOr<BufferedVolumes> read = ReadVolumes(parcel.get(), MSG_PEEK);
    if (!read.ok() || read->fds.size() != 1) continue;
    if (!newest || newest->state.edition() < read->state.edition()) newest = *std::move(read);
  }
  return newest;
}

// The tags of commands whose supervisor is dead must not come again.
uint64_t NextTag(const BufferedVolumes& read, const SharedMemory& memory) {
  uint64_t last = read.state.next_tag();
  for (const VolumeSlot& slot : memory.state()->slots) last = std::max<uint64_t>(last, slot.answered);
  return last + 1;
}

}  // namespace

absl::StatusOr<std::vector<int>> Duplicates::Offer(const VolumeTable::Volumes& volumes, uint64_t next_tag) {
  Withdraw();
  for (Parcel& parcel : parcels_) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
      return absl::ErrnoToStatus(errno, "making a parcel");
    }
    parcel = {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
  Update(volumes, next_tag);
  return std::vector{parcels_[0].out.get(), parcels_[1].out.get()};
}

void Duplicates::Update(const VolumeTable::Volumes& volumes, uint64_t next_tag) {
  if (!parcels_[1].in) return;
  ++edition_;
  const absl::Status written = WriteEdition(volumes, next_tag);
  FAIL_POINT("duplicates.edition.written");
  EmptyParcel(parcels_[(edition_ + 1) % kParcels].out.get());
  const bool failed_before = std::exchange(failed_, !written.ok());
  if (written.ok()) return;
  EmptyParcel(parcels_[edition_ % kParcels].out.get());
  if (failed_before) return;
  LogWarn("datapath", "no duplicates are kept: a killed supervisor would cost I/O errors",
          {{"error", std::string(written.message())}});
}

void Duplicates::Refresh(const VolumeTable::Volumes& volumes, uint64_t next_tag) {
  if (failed_ || CountWaiting(volumes) != waiting_ || SumAttachments(volumes, memory_) != attachments_)
    Update(volumes, next_tag);
}

absl::Status Duplicates::WriteEdition(const VolumeTable::Volumes& volumes, uint64_t next_tag) {
  datapath::InheritedState state;
  state.set_edition(edition_);
  state.set_next_tag(next_tag);
  state.set_shared_state(kSharedStateVersion);
  std::vector<const SupervisedVolume*> kept;
  std::vector<std::unique_ptr<SupervisedVolume>> records;
  waiting_ = 0;
  attachments_ = SumAttachments(volumes, memory_);  // first: what rises meanwhile is found by the next look
  for (const auto& [id, volume] : volumes) {
    const bool waiting = MayBeWaitedFor(*volume);
    waiting_ += waiting ? 1 : 0;
    if (!MayBeKept(*volume) && !volume->cut_off) continue;
    if (waiting) records.push_back(RecordOf(*volume));
    kept.push_back(waiting ? records.back().get() : volume.get());
  }
  return WriteVolumes(parcels_[edition_ % kParcels].in.get(), state, {memory_.fd()}, memory_, kept);
}

void Duplicates::Withdraw() {
  for (Parcel& parcel : parcels_) {
    if (parcel.out) EmptyParcel(parcel.out.get());
    parcel = Parcel{};
  }
}

// Without room for them, the kernel closes the descriptors of what is received.
void EmptyParcel(int parcel) {
  char start;
  while (::recv(parcel, &start, sizeof(start), MSG_DONTWAIT) > 0) {
  }
}

bool HoldsVolumes(int parcel) {
  PeekFromBegin(parcel);
  datapath::InheritedState state;
  return ReceiveMessage(parcel, absl::InfinitePast(), &state, nullptr, MSG_PEEK | MSG_DONTWAIT).ok() &&
         state.volumes() > 0;
}

absl::StatusOr<VolumesState> ReadDuplicates(const std::vector<UniqueFd>& parcels) {
  std::optional<BufferedVolumes> read = NewestOf(parcels);
  if (!read) return absl::NotFoundError("no duplicates are kept");
  if (read->state.shared_state() != kSharedStateVersion) {
    return absl::FailedPreconditionError("the duplicates are of another version of the data path");
  }
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(std::move(read->fds[0])));
  std::erase_if(read->volumes, [&](const auto& item) { return !IsThere(*item.second, memory); });
  const uint64_t next_tag = NextTag(*read, memory);
  return VolumesState{std::move(memory), std::move(read->volumes), next_tag};
}

}  // namespace lunkeeper
