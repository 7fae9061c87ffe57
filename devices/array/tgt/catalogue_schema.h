#pragma once
// The catalogue's tables, and the way to them from those of an older program.
//
// The order is: ReadHead, CheckHead, and only then CreateTables or MigrateTables; the first two change
// nothing. So a catalogue that is refused stays as it is, byte for byte: a newer program's, or another
// array's. A migration is one transaction: killed at any moment, it leaves the old tables or the new ones.
// Functions without state; the caller serialises them. Failure: as SqlDatabase's, and what is said below.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/tgt/sqlite.h"

namespace lunkeeper {

// What a catalogue says of itself.
struct CatalogueHead {
  std::string array;
  int64_t schema = 0;
};

// Nothing: nothing was ever stored in it.
absl::StatusOr<std::optional<CatalogueHead>> ReadHead(SqlDatabase& database);
// FAILED_PRECONDITION: it belongs to an array of another name, or to a newer program.
absl::Status CheckHead(const std::string& path, const CatalogueHead& head, const std::string& array);

absl::Status CreateTables(SqlDatabase& database, const std::string& array);
// From any older schema to this program's; does nothing for this program's own. A copy of the old catalogue
// is kept beside it, `<path>.schema-<N>`, if there is room for one.
absl::Status MigrateTables(SqlDatabase& database, const std::string& path, const CatalogueHead& head);

}  // namespace lunkeeper
