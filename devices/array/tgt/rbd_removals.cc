// Clones are of RBD's second format: the snapshot below one may be removed at any time, and stays without a
// name for as long as the clone. An image with such snapshots cannot be removed (ENOTEMPTY). One that was
// open to a client that died cannot either, for 30 s (EBUSY).
//
// One thing is removed at a time. Of two that remove the same image at once, one finds it gone and removes
// its mark, and the other may leave its name in the pool: nobody can open that image, or remove it.
#include "devices/array/tgt/rbd_removals.h"

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

// As arrays.h says: ARRAY, a hyphen, the kind, and 16 hex digits.
bool IsId(absl::string_view text, absl::string_view array, char kind) {
  return absl::ConsumePrefix(&text, array) && text.size() == 18 && text[0] == '-' && text[1] == kind &&
         text.find_first_not_of("0123456789abcdef", 2) == absl::string_view::npos;
}

// As Ceph names a snapshot that was removed below a clone: a UUID.
bool IsWithoutName(absl::string_view snapshot) {
  return snapshot.size() == 36 && snapshot[8] == '-' && snapshot[13] == '-' && snapshot[18] == '-' &&
         snapshot.find_first_not_of("0123456789abcdef-") == absl::string_view::npos;
}

}  // namespace

bool IsMadeHere(const RbdName& name, const std::string& prefix) {
  absl::string_view array = prefix, snapshot = name.snapshot;
  absl::ConsumePrefix(&array, "lunkeeper.");
  absl::ConsumeSuffix(&array, ".");
  const auto is_volume = [&](absl::string_view image) {
    return absl::ConsumePrefix(&image, prefix) && IsId(image, array, 'v');
  };
  if (!is_volume(name.image)) return false;
  if (absl::ConsumePrefix(&snapshot, kPassing)) return is_volume(snapshot);
  return snapshot.empty() || IsId(snapshot, array, 's');
}

RbdName ParseRbdName(const std::string& text) {
  const size_t at = text.find('@');
  if (at == std::string::npos) return {.image = text, .snapshot = {}};
  return {.image = text.substr(0, at), .snapshot = text.substr(at + 1)};
}

RbdRemovals::RbdRemovals(const CephPool& pool, std::string prefix, std::string marks, absl::Duration every)
    : pool_(pool),
      prefix_(std::move(prefix)),
      marks_(std::move(marks)),
      removals_(every, [this] { RemoveLeft(); }) {}

void RbdRemovals::Begin() {
  begun_ = true;
  removals_.Wake();
}

// What else waited for it is the thread's to find: it may be much, and large.
absl::Status RbdRemovals::Remove(const RbdName& name) {
  RETURN_IF_ERROR(pool_.WriteKey(marks_, name.Text(), kRemovedMark));
  bool wake = true;  // for this one, once the thread has removed what it is at
  if (mu_.TryLock()) {
    wake = RemoveMarked(name.Text()).value_or(false);
    mu_.Unlock();
  }
  if (wake) removals_.Wake();
  return absl::OkStatus();
}

// Until none goes: what went may be what another waited for.
void RbdRemovals::RemoveLeft() {
  for (bool some_went = begun_; some_went && !ends_;) {
    some_went = false;
    const auto marks = pool_.ReadKeys(marks_);
    if (!marks.ok()) return Report("", marks.status());
    std::erase_if(reported_, [&](const auto& each) { return !marks->contains(each.first); });
    for (const auto& [text, mark] : *marks) {
      if (mark != kRemovedMark || ends_) continue;
      const absl::MutexLock lock(&mu_);
      const absl::StatusOr<bool> removed = RemoveMarked(text);
      some_went |= removed.value_or(false);
      Report(text, removed.status());
    }
  }
}

void RbdRemovals::Report(const std::string& text, const absl::Status& status) {
  const std::string why(status.message());
  if (std::exchange(reported_[text], why) == why || status.ok()) return;
  LogWarn("array", "cannot be removed yet, and is tried again", {{"image", text}, {"error", why}});
}

absl::StatusOr<bool> RbdRemovals::RemoveMarked(const std::string& text) const {
  ASSIGN_OR_RETURN(const bool gone, RemoveName(ParseRbdName(text)));
  if (gone) RETURN_IF_ERROR(pool_.WriteKey(marks_, text, ""));
  return gone;
}

absl::StatusOr<bool> RbdRemovals::RemoveSnapshot(const RbdName& name) const {
  const absl::StatusOr<RbdImage> image = pool_.OpenImage(name.image, "", /*read_only=*/false);
  if (absl::IsNotFound(image.status())) return true;
  RETURN_IF_ERROR(image.status());
  const int removed = pool_.library().rbd_snap_remove(image->get(), name.snapshot.c_str());
  if (removed == 0 || removed == -ENOENT) return true;
  return CephError("remove snapshot " + name.Text(), removed);
}

// Those of this array go with their rows, and the ones without a name with their clones: no reason to warn.
absl::StatusOr<bool> RbdRemovals::CheckSnapshots(const std::string& image,
                                                 const std::vector<std::string>& snapshots) const {
  for (const std::string& snapshot : snapshots)
    if (!IsWithoutName(snapshot) && !IsMadeHere({image, snapshot}, prefix_))
      return absl::FailedPreconditionError(absl::StrCat(
          "the volume was deleted, and its space stays taken for a snapshot of somebody's: `rbd snap rm ",
          image, "@", snapshot, "`"));
  return false;
}

absl::StatusOr<bool> RbdRemovals::RemoveName(const RbdName& name) const {
  if (!name.snapshot.empty()) return RemoveSnapshot(name);
  const absl::StatusOr<std::vector<std::string>> snapshots = pool_.ListSnapshots(name.image);
  if (!snapshots.ok() && !absl::IsNotFound(snapshots.status())) return snapshots.status();
  if (snapshots.ok() && !snapshots->empty()) return CheckSnapshots(name.image, *snapshots);
  const int removed = pool_.library().rbd_remove(pool_.context(), name.image.c_str());
  if (removed == 0 || removed == -ENOENT) return true;
  if (removed == -ENOTEMPTY) return false;
  return CephError("remove image " + name.image, removed);
}

}  // namespace lunkeeper
