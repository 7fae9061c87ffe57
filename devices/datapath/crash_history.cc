#include "devices/datapath/crash_history.h"

#include <string>

#include "base/log.h"

namespace lunkeeper {
namespace {

SupervisedVolume* FindCulprit(const VolumeTable& table) {
  for (const auto& [id, volume] : table.volumes()) {
    if (table.SlotOf(*volume).work == SlotWork::kCrashed) return volume.get();
  }
  return nullptr;
}

uint64_t CompletedBy(const LunState& lun) { return lun.reads + lun.writes + lun.flushes; }

}  // namespace

SupervisedVolume* CrashHistory::CountCrash(const VolumeTable& table, Clock::time_point now) {
  std::erase_if(records_, [&](const auto& item) { return now - item.second.last > kForgottenAfter; });
  SupervisedVolume* const culprit = FindCulprit(table);
  if (culprit == nullptr) return nullptr;
  Record& record = records_[culprit->id];
  // Less than before: the volume is attached anew. More than can be under way: it worked, or other requests
  // of it did; a request that crashes every worker differs from chance in how often it does.
  const uint64_t completed = CompletedBy(table.SlotOf(*culprit).lun);
  if (completed < record.completed) record = {};
  if (completed - record.completed > kQueueDepth) record.crashes = 0;
  record.completed = completed;
  record.last = now;
  ++record.crashes;
  ++record.in_all;
  LogWarn("datapath", "worker crashed while it worked on a volume",
          {{"volume", culprit->id.value()}, {"crashes", std::to_string(record.in_all)}});
  if (record.crashes < kMostCrashes && record.in_all < kMostInAll) return nullptr;
  records_.erase(culprit->id);  // staged again, it is tried again
  return culprit;
}

}  // namespace lunkeeper
