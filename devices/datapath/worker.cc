// Two kinds of threads. The main thread (ServeSupervisor) receives commands, makes Luns and channels, frees
// what the loops are done with, and logs: all that allocates. The event loops move the data and do none of
// that (event_loop.h). A volume belongs to one loop for its life, the one with the fewest volumes at that
// time.
//
// A volume lives from ObeyCommand(add) until the loop has returned its kRemove command. In between, only its
// loop touches the channel. Its slot in the shared memory may be used again as soon as the removal is
// answered there, which is why finished commands are collected before the next command is obeyed.
//
// Killed at any line: the supervisor starts another worker and gives it the same volumes; LunState in the
// shared memory says how far each LUN was, and the kernel sends the requests again.

#include "devices/datapath/worker.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/event_fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/connection_message.h"
#include "devices/datapath/control.pb.h"
#include "devices/datapath/control_socket.h"
#include "devices/datapath/crash_marks.h"
#include "devices/datapath/event_loop.h"
#include "devices/datapath/locked_memory.h"

namespace lunkeeper {
namespace {

const char* HealthName(LunHealth health) {
  constexpr std::array kNames = {"connecting", "healthy", "reconnecting", "failed", "closed"};
  const auto index = static_cast<size_t>(health);
  return index < kNames.size() ? kNames[index] : "unknown";
}

// `iqn...:ARRAY:VOLUME:GENERATION`, as the built-in array names its targets. Of another's, the whole name.
std::string ArrayOf(const std::string& target) {
  size_t end = target.rfind(':');
  if (end != target.npos && end > 0) end = target.rfind(':', end - 1);
  return end == target.npos || end == target.find(':') ? target : target.substr(0, end);
}

LunOptions OptionsOf(const datapath::Attach& volume, uint64_t replacement_timeout_ms) {
  LunOptions options;
  options.connection = FromMessage(volume.connection());
  options.serial = volume.serial();
  options.size_bytes = volume.size_bytes();
  options.read_only = volume.read_only();
  options.replacement_timeout = std::chrono::milliseconds(replacement_timeout_ms);
  return options;
}

class Worker {
 public:
  Worker(SharedMemory memory, UniqueFd answers, const datapath::WorkerCommand::Start& start)
      : memory_(std::move(memory)),
        answers_(std::move(answers)),
        replacement_timeout_ms_(start.replacement_timeout_ms()) {
    const size_t threads = std::clamp<size_t>(start.threads(), 1, kMaxThreads);
    for (size_t i = 0; i < threads; ++i) {
      loops_.push_back(std::make_unique<EventLoop>(start.pool_bytes() / threads,
                                                   &memory_.state()->heartbeats[i], answers_.get()));
    }
    memory_.state()->version = kSharedStateVersion;  // last: it says that this worker is ready
  }
  // The process ends with its volumes attached; the loops are stopped before what they use.
  ~Worker() { loops_.clear(); }

  absl::Status ObeyCommand(const datapath::WorkerCommand& command, std::vector<UniqueFd> fds) {
    // The supervisor may be of another version: what it sends is checked as anybody's.
    if (command.slot() >= kMaxVolumes) return absl::InvalidArgumentError("no such slot");
    if (command.has_add()) {
      if (fds.empty()) return absl::InvalidArgumentError("a volume without its FUSE descriptor");
      return AddVolume(command, std::move(fds[0]));
    }
    const auto volume = volumes_.find(command.slot());
    if (volume == volumes_.end()) return AnswerGone(memory_.state()->slots[command.slot()], command.tag());
    using Kind = LoopCommand::Kind;
    const Kind kind = command.has_remove()    ? Kind::kRemove
                      : command.has_refresh() ? Kind::kRefresh
                                              : Kind::kFail;
    PostCommand(volume->second, kind, command.tag(), command.fail().reason());
    return absl::OkStatus();
  }

  // Frees what the loops are done with, and says what became of the volumes.
  void CollectFinished() {
    for (const auto& loop : loops_) {
      for (LoopCommand* command = loop->TakeFinished(); command != nullptr;) {
        const std::unique_ptr<LoopCommand> finished(std::exchange(command, command->next));
        if (finished->kind == LoopCommand::Kind::kRemove && finished->error == 0)
          ForgetChannel(finished->channel);
      }
    }
    for (auto& [slot, volume] : volumes_) {
      const LunHealth health = volume.channel->slot().lun.health;
      if (std::exchange(volume.reported, health) == health) continue;
      const std::string reason =
          health == LunHealth::kHealthy ? "" : volume.channel->slot().lun.reason.Load();
      LogInfo("datapath", absl::StrCat("volume ", HealthName(health)),
              {{"volume", volume.name}, {"reason", reason}});
    }
  }

 private:
  struct Volume {
    std::string name;
    std::string array;
    EventLoop* loop;
    std::shared_ptr<ReserveUse> reserve_use = nullptr;  // with the loop's other volumes of that array
    std::unique_ptr<FuseChannel> channel = nullptr;
    LunHealth reported = LunHealth::kConnecting;
  };

  // A detach that was given up in its last step is repeated after the volume has gone here: without an answer
  // each repetition would wait in vain.
  absl::Status AnswerGone(VolumeSlot& slot, uint64_t tag) const {
    if (tag == 0) return absl::NotFoundError("no volume in that slot");
    slot.AnswerCommand(tag, ENODEV);
    RaiseEvent(answers_.get());
    return absl::OkStatus();
  }

  absl::Status AddVolume(const datapath::WorkerCommand& command, UniqueFd fuse) {
    if (volumes_.count(command.slot()) != 0) return absl::AlreadyExistsError("the slot is taken");
    VolumeSlot& slot = memory_.state()->slots[command.slot()];
    Volume added{.name = command.add().volume().volume(),
                 .array = ArrayOf(command.add().volume().connection().target()),
                 .loop = LeastLoaded()};
    added.reserve_use = UseOf(added.array, added.loop);
    added.channel = MakeChannel(command, std::move(fuse), slot, added);
    const Volume& volume = volumes_[command.slot()] = std::move(added);
    PostCommand(volume, LoopCommand::Kind::kAdd, 0, "");
    return absl::OkStatus();
  }

  std::unique_ptr<FuseChannel> MakeChannel(const datapath::WorkerCommand& command, UniqueFd fuse,
                                           VolumeSlot& slot, const Volume& volume) const {
    const WorkOnVolume work(slot);
    auto lun = MakeLun(OptionsOf(command.add().volume(), replacement_timeout_ms_), &slot.lun);
    lun->Start();
    return std::make_unique<FuseChannel>(std::move(fuse), std::move(lun), &slot, command.add().resend(),
                                         &volume.loop->resources(), volume.reserve_use);
  }

  std::shared_ptr<ReserveUse> UseOf(const std::string& array, const EventLoop* loop) const {
    const auto found = std::ranges::find_if(volumes_, [&](const auto& entry) {
      return entry.second.array == array && entry.second.loop == loop;
    });
    return found == volumes_.end() ? std::make_shared<ReserveUse>() : found->second.reserve_use;
  }

  void PostCommand(const Volume& volume, LoopCommand::Kind kind, uint64_t tag, const std::string& reason) {
    auto command = std::make_unique<LoopCommand>();
    command->kind = kind;
    command->channel = volume.channel.get();
    command->slot = &volume.channel->slot();
    command->tag = tag;
    command->reason = reason;
    volume.loop->PostCommand(command.release());
  }

  void ForgetChannel(const FuseChannel* channel) {
    std::erase_if(volumes_, [&](const auto& item) { return item.second.channel.get() == channel; });
  }

  // By volumes, not by what they do: which of them will be busy is not known when they are attached.
  EventLoop* LeastLoaded() {
    std::map<EventLoop*, size_t> load;
    for (const auto& [slot, volume] : volumes_) ++load[volume.loop];
    const auto least = std::min_element(loops_.begin(), loops_.end(), [&](const auto& a, const auto& b) {
      return load[a.get()] < load[b.get()];
    });
    return least->get();
  }

  SharedMemory memory_;
  UniqueFd answers_;
  const uint64_t replacement_timeout_ms_;
  std::map<uint32_t, Volume> volumes_;  // by slot
  std::vector<std::unique_ptr<EventLoop>> loops_;
};

absl::StatusOr<std::unique_ptr<Worker>> StartWorker(int control) {
  datapath::WorkerCommand command;
  std::vector<UniqueFd> fds;
  RETURN_IF_ERROR(ReceiveMessage(control, absl::Now() + absl::Seconds(10), &command, &fds));
  if (!command.has_start() || fds.size() != 2)
    return absl::InvalidArgumentError("not started by a supervisor");
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(std::move(fds[0])));
  RETURN_IF_ERROR(memory.LockForWorker());
  return std::make_unique<Worker>(std::move(memory), std::move(fds[1]), command.start());
}

absl::Status ServeSupervisor(int control) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Worker> worker, StartWorker(control));
  PrefaultCode();
  while (true) {
    datapath::WorkerCommand command;
    std::vector<UniqueFd> fds;
    const absl::Status received =
        ReceiveMessage(control, absl::Now() + absl::Milliseconds(500), &command, &fds);
    if (!received.ok() && !absl::IsDeadlineExceeded(received)) return received;
    worker->CollectFinished();  // first, since a slot that was answered for may be used again by this very
                                // command
    if (received.ok()) {
      const absl::Status obeyed = worker->ObeyCommand(command, std::move(fds));
      if (!obeyed.ok())
        LogError("datapath", "command of the supervisor refused", {{"error", obeyed.ToString()}});
    }
  }
}

}  // namespace

int RunWorker(int control) {
  LockMemory();
  MarkCrashes();
  const CrashStack crash_stack;
  const absl::Status ended = ServeSupervisor(control);
  LogInfo("datapath", "worker ends", {{"reason", std::string(ended.message())}});
  return absl::IsUnavailable(ended) ? 0 : 1;
}

}  // namespace lunkeeper
