#pragma once
// How often workers crashed on each volume, so that one whose requests crash every worker (a bug of ours, an
// answer of its target that nobody foresaw) is set aside and the others go on.
//
// A crash counts against a volume if the crashed thread was working on it and marked it (crash_marks.h); a
// thread that computes for ever crashes itself (hang_watch.h). Any other death of a worker, by a signal from
// outside or an exit code, counts against none.
// Thread safety: none; the lock of SupervisedVolumes guards it.

#include <chrono>
#include <cstdint>
#include <map>

#include "devices/datapath/volume_table.h"

namespace lunkeeper {

class CrashHistory {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMostCrashes = 5;
  // Where one follows the other within kForgottenAfter, whatever the volume completed: a busy one completes
  // much beside a request that crashes every worker.
  static constexpr int kMostInAll = 25;
  // A volume begins anew when it worked between two crashes: it completed more than can be under way beside
  // the request that crashes, which each worker is sent again with it.
  static constexpr uint64_t kQueueDepth = 64;  // LunOptions::queue_depth
  // And after so long without a crash. A request that crashes every worker does so within seconds.
  static constexpr auto kForgottenAfter = std::chrono::minutes(1);

  // After a worker's death, before the next worker is started. The volume that crashed once too often;
  // nullptr: none.
  SupervisedVolume* CountCrash(const VolumeTable& table, Clock::time_point now);

 private:
  struct Record {
    int crashes = 0, in_all = 0;
    uint64_t completed = 0;  // by the volume, at its last crash
    Clock::time_point last;
  };
  std::map<VolumeId, Record> records_;
};

}  // namespace lunkeeper
