// Reading goes around SQLite's locks and logs, since nobody else has the file. Forgetting is several changes
// without a transaction around them: a backup that is killed between two copies the catalogue anew.
#include "devices/array/tgt/backup_catalogue.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "devices/array/tgt/sqlite.h"

namespace lunkeeper {
namespace {

constexpr char kVolumes[] = "volumes/", kSnapshots[] = "snapshots/";

// As it is on the disk: without a lock, which a read-only disk has not, and without a log.
absl::StatusOr<std::unique_ptr<SqlDatabase>> OpenUnchanged(const std::string& path) {
  const std::string escaped = absl::StrReplaceAll(path, {{"%", "%25"}, {"?", "%3f"}, {"#", "%23"}});
  // Two slashes end at once what would be a host's name.
  const char* const scheme = absl::StartsWith(path, "/") ? "file://" : "file:";
  return SqlDatabase::Open(absl::StrCat(scheme, escaped, "?immutable=1"), SqlDatabase::Mode::kReadOnly);
}

// What a group has is of one moment, or it is nothing.
absl::Status DropBrokenGroups(SqlDatabase& catalogue, std::set<std::string>* copied) {
  std::set<std::string> broken;
  RETURN_IF_ERROR(
      catalogue.Query("SELECT id, group_id FROM snapshots WHERE group_id <> ''", {}, [&](const SqlRow& row) {
        if (!copied->contains(kSnapshots + row.Text(0))) broken.insert(row.Text(1));
      }));
  for (const std::string& group : broken)
    RETURN_IF_ERROR(catalogue.Query("SELECT id FROM snapshots WHERE group_id = ?1", {group},
                                    [&](const SqlRow& row) { copied->erase(kSnapshots + row.Text(0)); }));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListUncopied(SqlDatabase& catalogue, const char* sql,
                                                      const char* folder,
                                                      const std::set<std::string>& copied) {
  std::vector<std::string> ids;
  RETURN_IF_ERROR(catalogue.Query(sql, {}, [&](const SqlRow& row) {
    if (!copied.contains(folder + row.Text(0))) ids.push_back(row.Text(0));
  }));
  return ids;
}

}  // namespace

absl::StatusOr<std::map<std::string, bool>> ListCatalogueImages(const std::string& catalogue) {
  ASSIGN_OR_RETURN(const auto rows, OpenUnchanged(catalogue));
  std::map<std::string, bool> images;
  RETURN_IF_ERROR(rows->Query("SELECT id, copying FROM volumes", {}, [&](const SqlRow& row) {
    images[kVolumes + row.Text(0)] = row.Integer(1) == 0;
  }));
  RETURN_IF_ERROR(rows->Query("SELECT id, copying FROM snapshots", {}, [&](const SqlRow& row) {
    images[kSnapshots + row.Text(0)] = row.Integer(1) == 0;
  }));
  return images;
}

absl::Status ForgetUncopied(const std::string& path, std::set<std::string>* copied) {
  ASSIGN_OR_RETURN(const auto catalogue, SqlDatabase::Open(path, SqlDatabase::Mode::kReadWrite));
  RETURN_IF_ERROR(DropBrokenGroups(*catalogue, copied));
  ASSIGN_OR_RETURN(const auto volumes, ListUncopied(*catalogue, "SELECT id FROM volumes", kVolumes, *copied));
  ASSIGN_OR_RETURN(const auto snapshots,
                   ListUncopied(*catalogue, "SELECT id FROM snapshots", kSnapshots, *copied));
  for (const std::string& id : volumes) {
    RETURN_IF_ERROR(catalogue->Change("DELETE FROM grants WHERE volume = ?1", {id}).status());
    RETURN_IF_ERROR(catalogue->Change("DELETE FROM volumes WHERE id = ?1", {id}).status());
  }
  for (const std::string& id : snapshots)
    RETURN_IF_ERROR(catalogue->Change("DELETE FROM snapshots WHERE id = ?1", {id}).status());
  RETURN_IF_ERROR(
      catalogue->Change("DELETE FROM snapshot_groups WHERE id NOT IN (SELECT group_id FROM snapshots)", {})
          .status());
  // An image has its name only when it is whole: a copy that was under way has ended since.
  RETURN_IF_ERROR(catalogue->Change("UPDATE volumes SET copying = 0 WHERE copying = 1", {}).status());
  return catalogue->Change("UPDATE snapshots SET copying = 0 WHERE copying = 1", {}).status();
}

}  // namespace lunkeeper
