// The images themselves say little: whether one is kept, deleted or set aside stands in one object beside
// them (the marks), which is changed by one operation each and read as a whole at a start. So no image has to
// be opened for it, which would take its exclusive lock from tgtd.
//
// The exclusive lock of an image that is served is tgtd's. A snapshot or a growth that is asked for here goes
// by librbd's own message to tgtd's librbd, which does it between two writes: so a snapshot is of one moment.
#include "devices/array/tgt/rbd_store.h"

#include <algorithm>
#include <cerrno>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/fail_point.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/array/tgt/image_lock.h"
#include "devices/array/tgt/pool_clones.h"

namespace lunkeeper {
namespace {

constexpr char kNew[] = "new", kKept[] = "kept", kDeleted[] = "deleted", kOrphan[] = "orphan";

// Of <rbd/librbd.h> and <rbd/features.h>: layering, exclusive-lock, deep-flatten; see CephPool::CheckCacheOf.
constexpr int kFeaturesOption = 1, kCloneFormatOption = 12;
constexpr uint64_t kFeatures = 1 | 4 | 32, kSecondFormat = 2;

absl::Status CheckThin(const std::string& path, bool thick) {
  if (!thick) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("image ", path,
                   ": on Ceph volumes are thin: use provisioning: thin, and a quota or reserve of the pool"));
}

class ImageOptions {
 public:
  explicit ImageOptions(const CephLibrary& ceph) : ceph_(ceph) {
    ceph_.rbd_image_options_create(&options_);
    ceph_.rbd_image_options_set_uint64(options_, kFeaturesOption, kFeatures);
  }
  ~ImageOptions() { ceph_.rbd_image_options_destroy(options_); }
  ImageOptions(const ImageOptions&) = delete;
  ImageOptions& operator=(const ImageOptions&) = delete;
  void UseSecondFormat() { ceph_.rbd_image_options_set_uint64(options_, kCloneFormatOption, kSecondFormat); }
  CephLibrary::Handle get() const { return options_; }

 private:
  const CephLibrary& ceph_;
  CephLibrary::Handle options_ = nullptr;
};

}  // namespace

std::string RbdStore::VolumePath(const VolumeId& id) const {
  return absl::StrCat(pool_->options().pool, "/", prefix_, id.value());
}

std::string RbdStore::SnapshotPath(const VolumeId& source, const SnapshotId& id) const {
  return absl::StrCat(VolumePath(source), "@", id.value());
}

RbdName RbdStore::NameOf(const std::string& path) const {
  return ParseRbdName(path.substr(pool_->options().pool.size() + 1));
}

// Monitors first: tgtd connects to them for each image, in its only main thread. While they answer nobody,
// images that it has open are served all the same, as long as it opens no other.
absl::StatusOr<LunBacking> RbdStore::BackingOf(const std::string& path) const {
  const RbdName name = NameOf(path);
  RETURN_IF_ERROR(pool_->WaitForMap());
  RETURN_IF_ERROR(pool_->CheckName());
  const absl::Status ended = lease_->clients().ShutOutEnded(path);
  if (!ended.ok()) LogWarn("array", std::string(ended.message()));  // and it is tried again
  ASSIGN_OR_RETURN(const RbdImage image, pool_->OpenImage(name.image, "", /*read_only=*/true));
  RETURN_IF_ERROR(pool_->CheckCacheOf(image, name.image));
  // Also that of a tgtd that was killed, which a first write would wait for until its watch ends, up to 30 s.
  const absl::Status freed = BreakImageLock(*pool_, image, lease_->shut_out());
  if (!freed.ok()) LogWarn("array", std::string(freed.message()));  // tgtd does it when it first writes
  const CephOptions& options = pool_->options();
  return LunBacking{.path = path,
                    .type = "rbd",
                    .options = absl::StrCat("conf=", options.conf, ";id=", options.user),
                    .clients_are_registered = true,
                    .discards_right = false,  // tgtd's rbd store answers them with an error
                    .may_be_silent_alone = true};
}

absl::Status RbdStore::CheckIsClosed(const std::string& path) const {
  ASSIGN_OR_RETURN(const std::set<ClientAddress> others, FindOpen(path));
  if (others.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "image ", path, " is open elsewhere, by ", absl::StrJoin(others, ", "),
      " (`rbd status` shows it): end that program. One that was killed is forgotten after 30 s"));
}

// tgtd has a client for each LUN, which it does not name. An image that is open has a watch of each client,
// so it is read off there: tgtd's clients have it from before they can write until they close the image.
absl::StatusOr<std::set<ClientAddress>> RbdStore::FindOpen(const std::string& path) const {
  ASSIGN_OR_RETURN(const RbdImage image, pool_->OpenImage(NameOf(path).image, "", /*read_only=*/true));
  ASSIGN_OR_RETURN(const std::vector<std::string> clients, pool_->ListWatchers(image));
  return std::set<ClientAddress>(clients.begin(), clients.end());
}

absl::StatusOr<std::set<std::string>> RbdStore::ListOpeners(const std::string& path) const {
  ASSIGN_OR_RETURN(const std::set<ClientAddress> open, FindOpen(path));
  RETURN_IF_ERROR(lease_->clients().CheckOnlyOwn(path, open));
  return open;
}

absl::StatusOr<std::string> RbdStore::RegisterOpened(const std::string& path,
                                                     const std::set<std::string>& before,
                                                     const std::function<bool()>& is_awaited) const {
  ASSIGN_OR_RETURN(const std::set<ClientAddress> open, FindOpen(path));
  if (!is_awaited()) return absl::UnavailableError("image " + path + " was seen too late; try again");
  ASSIGN_OR_RETURN(const ClientAddress client, lease_->clients().TakeOpened(path, before, open));
  RETURN_IF_ERROR(lease_->RegisterImage(path, {client}));
  return client;
}

void RbdStore::ForgetClosed(const std::function<absl::StatusOr<std::set<std::string>>()>& list_open) const {
  const absl::Status forgotten = lease_->ForgetClosed(list_open);
  if (!forgotten.ok()) LogWarn("array", std::string(forgotten.message()));
}

absl::Status RbdStore::CreateImage(const std::string& path, uint64_t size_bytes,
                                   Provisioning provisioning) const {
  RETURN_IF_ERROR(CheckThin(path, provisioning == Provisioning::kThick));
  const CephLibrary& ceph = pool_->library();
  const ImageOptions options(ceph);
  RETURN_IF_ERROR(MarkNew(NameOf(path)));
  const int made = ceph.rbd_create4(pool_->context(), NameOf(path).image.c_str(), size_bytes, options.get());
  FAIL_POINT("array.pool.file_made");
  if (made < 0) DropNewImage(path);
  return made < 0 ? CephError("make image " + path, made) : absl::OkStatus();
}

absl::Status RbdStore::CloneImage(const std::string& from, const std::string& to, uint64_t size_bytes,
                                  Provisioning provisioning, bool own_space) const {
  RETURN_IF_ERROR(CheckThin(to, own_space || provisioning == Provisioning::kThick));
  const RbdName source = NameOf(from), name = NameOf(to);
  RETURN_IF_ERROR(MarkNew(name));
  const absl::Status made =
      name.snapshot.empty() ? CloneVolume(source, name, size_bytes) : MakeSnapshot(name);
  if (!made.ok()) DropNewImage(to);
  FAIL_POINT("array.pool.file_made");
  return made;
}

// A clone is always of a snapshot. For one of a volume as it is now, a snapshot is made that goes again at
// once; it stays below the clone without a name. A kill in between leaves it, and TidyImages removes it.
absl::Status RbdStore::CloneVolume(const RbdName& from, const RbdName& to, uint64_t size_bytes) const {
  if (!from.snapshot.empty()) {
    RETURN_IF_ERROR(CloneSnapshot(from, to));
  } else {
    const RbdName passing = {from.image, kPassing + to.image};
    RETURN_IF_ERROR(MarkNew(passing));
    RETURN_IF_ERROR(MakeSnapshot(passing));
    const absl::Status cloned = CloneSnapshot(passing, to);
    const absl::Status dropped = removals_.Remove(passing);
    RETURN_IF_ERROR(cloned);
    RETURN_IF_ERROR(dropped);
  }
  return GrowImage(absl::StrCat(pool_->options().pool, "/", to.image), size_bytes, Provisioning::kThin);
}

absl::Status RbdStore::CloneSnapshot(const RbdName& from, const RbdName& to) const {
  const CephLibrary& ceph = pool_->library();
  ImageOptions options(ceph);
  options.UseSecondFormat();
  const int cloned = ceph.rbd_clone3(pool_->context(), from.image.c_str(), from.snapshot.c_str(),
                                     pool_->context(), to.image.c_str(), options.get());
  if (cloned < 0) return CephError(absl::StrCat("clone ", from.Text(), " as ", to.image), cloned);
  return absl::OkStatus();
}

absl::Status RbdStore::MakeSnapshot(const RbdName& name) const {
  ASSIGN_OR_RETURN(const RbdImage image, pool_->OpenImage(name.image, "", /*read_only=*/false));
  const int made = pool_->library().rbd_snap_create(image.get(), name.snapshot.c_str());
  return made < 0 ? CephError("make snapshot " + name.Text(), made) : absl::OkStatus();
}

absl::Status RbdStore::CopyImage(const std::string&, const std::string& to, uint64_t, Provisioning,
                                 const std::function<bool(uint64_t)>&) const {
  return absl::InternalError("image " + to + ": nothing is copied in this store, it clones");
}

absl::StatusOr<std::unique_ptr<PoolClones>> RbdStore::MakeClones(std::vector<PoolClone>) const {
  return absl::FailedPreconditionError(
      "groups of snapshots are not offered for volumes on Ceph yet; stop what writes to these volumes and "
      "snapshot them one by one");
}

absl::Status RbdStore::GrowImage(const std::string& path, uint64_t size_bytes, Provisioning) const {
  ASSIGN_OR_RETURN(const RbdImage image, pool_->OpenImage(NameOf(path).image, "", /*read_only=*/false));
  uint64_t size = 0;
  const int measured = pool_->library().rbd_get_size(image.get(), &size);
  if (measured < 0) return CephError("measure image " + path, measured);
  // A repeated call after a later, larger growth must not shrink it.
  if (size >= size_bytes) return absl::OkStatus();
  const int grown = pool_->library().rbd_resize(image.get(), size_bytes);
  return grown < 0 ? CephError("grow image " + path, grown) : absl::OkStatus();
}

absl::Status RbdStore::MarkNew(const RbdName& name) const {
  return pool_->WriteKey(marks_, name.Text(), kNew);
}

absl::Status RbdStore::KeepImage(const std::string& path) const {
  return pool_->WriteKey(marks_, NameOf(path).Text(), kKept);
}

void RbdStore::DropNewImage(const std::string& path) const {
  const absl::Status dropped = removals_.Remove(NameOf(path));
  if (!dropped.ok())  // its mark says that it is new: the next start finds it
    LogWarn("array", "a new image is left", {{"image", path}, {"error", std::string(dropped.message())}});
}

absl::Status RbdStore::PrepareDeletion(const std::string& path) const {
  const RbdName name = NameOf(path);
  if (name.snapshot.empty()) {
    const absl::Status closed = CheckIsClosed(path);
    if (absl::IsNotFound(closed)) return absl::OkStatus();
    RETURN_IF_ERROR(closed);
  }
  return pool_->WriteKey(marks_, name.Text(), kDeleted);
}

absl::Status RbdStore::UnmarkDeleted(const std::string& path) const { return KeepImage(path); }

absl::Status RbdStore::RemoveMarked(const std::string& path) const { return removals_.Remove(NameOf(path)); }

absl::StatusOr<std::vector<std::string>> RbdStore::ListNames() const {
  ASSIGN_OR_RETURN(Listing listing, ListAll());
  return std::move(listing.names);
}

// Each image has to be opened for it: many are at the same time, and one that does not answer is left out.
absl::StatusOr<RbdStore::Listing> RbdStore::ListAll() const {
  ASSIGN_OR_RETURN(const std::vector<std::string> images, pool_->ListImages());
  Listing listing;
  for (const std::string& image : images) {
    if (!absl::StartsWith(image, prefix_)) continue;
    listing.names.push_back(image);
    listing.unread.insert(image);
    snapshots_.Ask(image, [this, image] { return pool_->ListSnapshots(image); });
  }
  while (const auto answered = snapshots_.TakeAnswer(kStoreAnswers)) {
    const auto& [image, snapshots] = *answered;
    if (snapshots.ok() || absl::IsNotFound(snapshots.status())) listing.unread.erase(image);
    if (!snapshots.ok()) continue;  // not found: a kill left it half made, or half removed
    for (const std::string& snapshot : *snapshots)
      listing.names.push_back(absl::StrCat(image, "@", snapshot));
  }
  return listing;
}

// What cannot be read is no reason to keep all other volumes away. Nothing is concluded of it, and of its
// snapshots: a mark without which one that was set aside would be removed has to stay.
absl::Status RbdStore::TidyImages(const std::set<std::string>& known, const std::string&) const {
  ASSIGN_OR_RETURN(const auto marks, pool_->ReadKeys(marks_));
  ASSIGN_OR_RETURN(Listing listing, ListAll());
  for (const std::string& image : listing.unread)
    LogError("array", "an image is damaged or does not answer, and is left as it is", {{"image", image}});
  std::vector<std::string>& names = listing.names;
  std::ranges::sort(names, std::greater());  // snapshots before their images
  for (const std::string& text : names) {
    if (listing.unread.contains(text)) continue;
    const auto mark = marks.find(text);
    const bool has_row = known.contains(absl::StrCat(pool_->options().pool, "/", text));
    RETURN_IF_ERROR(TidyOne(ParseRbdName(text), mark == marks.end() ? "" : mark->second, has_row));
  }
  // Marks whose image is gone.
  for (const auto& [text, mark] : marks) {
    if (listing.unread.contains(ParseRbdName(text).image)) continue;
    if (!std::ranges::binary_search(names, text, std::greater()))
      RETURN_IF_ERROR(pool_->WriteKey(marks_, text, ""));
  }
  removals_.Begin();
  LogInfo("array", "the images are tidied", {{"names", absl::StrCat(names.size())}});
  return absl::OkStatus();
}

// With a row it is kept, whatever the mark says: the row was stored last, or is not deleted yet. Without one
// it is removed only if its mark says so: nobody has needed it since. One without a mark is a person's
// snapshot or copy; or the marks are lost, where images came from another Ceph without them.
absl::Status RbdStore::TidyOne(const RbdName& name, const std::string& mark, bool known) const {
  const std::string text = name.Text();
  if (known) return mark == kKept ? absl::OkStatus() : pool_->WriteKey(marks_, text, kKept);
  if (mark == kOrphan || mark == kRemovedMark) return absl::OkStatus();
  if (mark.empty() && !IsMadeHere(name, prefix_)) return absl::OkStatus();
  if (mark == kKept || mark.empty()) {
    LogWarn("array", "setting an image aside that the catalogue does not know", {{"image", text}});
    return pool_->WriteKey(marks_, text, kOrphan);
  }
  LogInfo("array", "removing a left-over image", {{"image", text}});
  return pool_->WriteKey(marks_, text, kRemovedMark);
}

// Half an image, which nobody can open, is one too.
absl::StatusOr<std::vector<OrphanFile>> RbdStore::ListOrphans() const {
  ASSIGN_OR_RETURN(const auto marks, pool_->ReadKeys(marks_));
  std::vector<OrphanFile> orphans;
  for (const auto& [text, mark] : marks) {
    if (mark != kOrphan) continue;
    const RbdName name = ParseRbdName(text);
    const auto image = pool_->OpenImage(name.image, name.snapshot, /*read_only=*/true);
    timespec changed{};
    if (image.ok()) pool_->library().rbd_get_modify_timestamp(image->get(), &changed);
    const auto taken = MeasureImage(absl::StrCat(pool_->options().pool, "/", text));
    orphans.push_back(
        {.name = text, .taken_bytes = taken.value_or(0), .changed = absl::TimeFromTimespec(changed)});
  }
  return orphans;
}

absl::Status RbdStore::DeleteOrphan(const std::string& name) const {
  ASSIGN_OR_RETURN(const auto marks, pool_->ReadKeys(marks_));
  const auto mark = marks.find(name);
  if (mark == marks.end() || mark->second != kOrphan)
    return absl::NotFoundError(absl::StrCat("orphaned image '", name, "': there is none of this name"));
  LogWarn("array", "an orphaned image is deleted, as an operator asked", {{"image", name}});
  return RemoveMarked(absl::StrCat(pool_->options().pool, "/", name));
}

namespace {

struct DiffPage {
  BlockPage page;
  size_t limit = 0;
  uint64_t bytes = 0;
};

// Ends the listing, by an error of its own, where the page is full.
int AddDiff(uint64_t offset, size_t length, int, void* context) {
  DiffPage& diff = *static_cast<DiffPage*>(context);
  auto& ranges = diff.page.ranges;
  diff.bytes += length;
  const bool joins = !ranges.empty() && ranges.back().offset + ranges.back().length == offset;
  if (joins) {
    ranges.back().length += length;
  } else if (ranges.size() == diff.limit) {
    return -EFBIG;
  } else {
    ranges.push_back({offset, length});
  }
  diff.page.next_offset = offset + length;
  return 0;
}

}  // namespace

absl::StatusOr<BlockPage> RbdStore::ListDiff(const PoolImage& image, const char* base, uint64_t offset,
                                             size_t limit) const {
  const RbdName name = NameOf(image.path);
  ASSIGN_OR_RETURN(const RbdImage opened, pool_->OpenImage(name.image, name.snapshot, /*read_only=*/true));
  DiffPage diff{.page = {.ranges = {}, .size_bytes = image.size_bytes, .next_offset = offset},
                .limit = limit};
  const int listed =
      pool_->library().rbd_diff_iterate2(opened.get(), base, offset, image.size_bytes - offset,
                                         /*include_parent=*/1, /*whole_object=*/0, AddDiff, &diff);
  if (listed == -EFBIG) return diff.page;
  if (listed < 0) return CephError("list the blocks of " + name.Text(), listed);
  diff.page.next_offset = image.size_bytes;
  return diff.page;
}

absl::StatusOr<uint64_t> RbdStore::ReadSize(const std::string& path) const {
  const RbdName name = NameOf(path);
  ASSIGN_OR_RETURN(const RbdImage image, pool_->OpenImage(name.image, name.snapshot, /*read_only=*/true));
  uint64_t size = 0;
  const int measured = pool_->library().rbd_get_size(image.get(), &size);
  return measured < 0 ? absl::StatusOr<uint64_t>(CephError("measure image " + path, measured)) : size;
}

absl::StatusOr<uint64_t> RbdStore::MeasureImage(const std::string& path) const {
  const RbdName name = NameOf(path);
  ASSIGN_OR_RETURN(const RbdImage image, pool_->OpenImage(name.image, name.snapshot, /*read_only=*/true));
  uint64_t size = 0;
  const int measured = pool_->library().rbd_get_size(image.get(), &size);
  if (measured < 0) return CephError("measure image " + path, measured);
  DiffPage diff{.page = {}, .limit = SIZE_MAX};
  const int listed = pool_->library().rbd_diff_iterate2(image.get(), nullptr, 0, size, /*include_parent=*/0,
                                                        /*whole_object=*/1, AddDiff, &diff);
  return listed < 0 ? absl::StatusOr<uint64_t>(CephError("measure image " + path, listed)) : diff.bytes;
}

absl::StatusOr<BlockPage> RbdStore::FindData(const PoolImage& image, uint64_t offset, size_t limit) const {
  return ListDiff(image, nullptr, offset, limit);
}

absl::StatusOr<BlockPage> RbdStore::FindChanges(const PoolImage& base, const PoolImage& image,
                                                uint64_t offset, size_t limit) const {
  return ListDiff(image, NameOf(base.path).snapshot.c_str(), offset, limit);
}

}  // namespace lunkeeper
