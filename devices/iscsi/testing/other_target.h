#pragma once
// An iSCSI target that is not ours, for other_targets_test.cc: istgt, and in the guest LIO. Each serves LUN 0
// and LUN 1 of one target on 127.0.0.1, and is gone with its object.

#include <memory>
#include <string>

#include "devices/types.h"

namespace lunkeeper {

inline constexpr char kOtherTarget[] = "iqn.2026-11.org.example:other";
inline constexpr uint64_t kOtherSize = 64 << 20;

struct OtherSettings {
  ChapCredentials chap = {};         // empty: none is asked for
  ChapCredentials target_chap = {};  // by which it proves itself; only with `chap`
  bool cache = false;                // LIO, thin too; istgt always has a cache
  bool solicited = true;             // LIO: the first data wait for an R2T; istgt always wants that
};

class OtherTarget {
 public:
  virtual ~OtherTarget() = default;
  virtual uint16_t port() const = 0;
  std::string portal() const { return "127.0.0.1:" + std::to_string(port()); }
  // Ends all sessions from the target's side, as for its maintenance; and takes logins again.
  virtual void Stop() = 0;
  virtual void StartServing() = 0;
  // What INQUIRY page 80h says of a LUN.
  static std::string SerialOf(uint64_t lun) { return "other-" + std::to_string(lun); }
};

std::unique_ptr<OtherTarget> StartIstgt(const OtherSettings& settings);
// Needs root and the modules target_core_file and iscsi_target_mod, with configfs at its usual place.
std::unique_ptr<OtherTarget> StartLio(const OtherSettings& settings);

}  // namespace lunkeeper
