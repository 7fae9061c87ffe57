#pragma once
// A store of which one image does not answer, or is damaged, as a placement group of Ceph that is down.

#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "devices/array/tgt/testing/bare_store.h"

namespace lunkeeper::testing {

// Files, one of which does not answer for now. Only what targets need of a store.
class OneIsSilent final : public BareStore {
 public:
  explicit OneIsSilent(std::string directory) : directory_(std::move(directory)) {}
  ~OneIsSilent() override { LetAnswer(); }
  void Silence(const VolumeId& id) { silent_ = VolumePath(id); }
  // Only when tgtd has it open.
  void SilenceRegistering(const VolumeId& id) { unregistered_ = VolumePath(id); }
  // Its answer is an error, after this.
  void Damage(const VolumeId& id, std::function<void()> before) {
    before_ = std::move(before);
    damaged_ = VolumePath(id);
  }
  void LetAnswer() {
    if (!answers_.HasBeenNotified()) answers_.Notify();
  }

  std::string VolumePath(const VolumeId& id) const override { return directory_ + "/volumes/" + id.value(); }
  absl::StatusOr<LunBacking> BackingOf(const std::string& path) const override {
    if (path == silent_) answers_.WaitForNotification();
    if (path == damaged_) {
      before_();
      return kNot;
    }
    LunBacking backing = {.path = path, .may_be_silent_alone = true};
    backing.clients_are_registered = path == unregistered_;
    return backing;
  }
  absl::StatusOr<std::set<std::string>> ListOpeners(const std::string& path) const override {
    if (const absl::Status looked = BackingOf(path).status(); !looked.ok()) return looked;
    return std::set<std::string>();
  }
  absl::StatusOr<std::string> RegisterOpened(const std::string& path, const std::set<std::string>&,
                                             const std::function<bool()>&) const override {
    if (path == unregistered_) answers_.WaitForNotification();
    return "client";
  }

 private:
  const std::string directory_;
  std::string silent_, unregistered_, damaged_;
  std::function<void()> before_;
  mutable absl::Notification answers_;
};

}  // namespace lunkeeper::testing
