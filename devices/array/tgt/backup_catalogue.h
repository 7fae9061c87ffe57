#pragma once
// The catalogue in a backup: which images it has, and how rows of images that the backup lacks are taken out.
// It is a file of its own that nobody serves. Functions without state; failure as in sqlite.h.

#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lunkeeper {

inline constexpr char kCatalogueFile[] = "catalogue.db";  // in a pool, and in a backup
// SQLite's logs of a catalogue. It believes one that it finds, whatever file it was of.
inline constexpr const char* kCatalogueLogs[] = {"-wal", "-journal"};
// Where the images are.
inline constexpr const char* kImageFolders[] = {"volumes", "snapshots"};

// By their paths in the pool, and in the backup; false: its content was still being made. Changes nothing,
// and works on a disk that is read-only.
absl::StatusOr<std::map<std::string, bool>> ListCatalogueImages(const std::string& catalogue);

// Takes the rows out of images that are not in `copied`: what was deleted after the catalogue was copied, or
// was still being made then. A group of snapshots that lacks one goes with all of them, which are taken out
// of `copied` too.
absl::Status ForgetUncopied(const std::string& catalogue, std::set<std::string>* copied);

}  // namespace lunkeeper
