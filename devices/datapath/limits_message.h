#pragma once
// Limits as the control socket carries them. Pure functions.

#include "devices/datapath/control.pb.h"
#include "devices/volume_limits.h"

namespace lunkeeper {

inline VolumeLimits FromMessage(const datapath::Limits& message) {
  return {
      .iops = message.iops(), .bytes_per_second = message.bytes_per_second(), .version = message.version()};
}

inline datapath::Limits ToMessage(const VolumeLimits& limits) {
  datapath::Limits message;
  message.set_iops(limits.iops);
  message.set_bytes_per_second(limits.bytes_per_second);
  message.set_version(limits.version);
  return message;
}

}  // namespace lunkeeper
