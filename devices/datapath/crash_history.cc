#include "devices/datapath/crash_history.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"

namespace lunkeeper {
namespace {

SupervisedVolume* FindCulprit(const VolumeTable& table) {
  std::vector<SupervisedVolume*> at_work;
  for (const auto& [id, volume] : table.volumes()) {
    const SlotWork work = table.SlotOf(*volume).work;
    if (work == SlotWork::kCrashed) return volume.get();
    if (work == SlotWork::kUnderWay) at_work.push_back(volume.get());
  }
  return at_work.size() == 1 ? at_work[0] : nullptr;
}

}  // namespace

SupervisedVolume* CrashHistory::CountCrash(const VolumeTable& table, Clock::time_point now) {
  std::erase_if(records_, [&](const auto& item) { return now - item.second.last > kForgottenAfter; });
  SupervisedVolume* const culprit = FindCulprit(table);
  if (culprit == nullptr) return nullptr;
  Record& record = records_[culprit->id];
  record.last = now;
  ++record.crashes;
  LogWarn("datapath", "worker crashed while it worked on a volume",
          {{"volume", culprit->id.value()}, {"crashes", std::to_string(record.crashes)}});
  if (record.crashes < kMostCrashes) return nullptr;
  records_.erase(culprit->id);  // staged again, it is tried again
  return culprit;
}

}  // namespace lunkeeper
