#pragma once
// A thin cover over SQLite: one connection, statements kept prepared, errors as absl::Status.
//
// The file belongs to this process while a connection is open: others, such as sqlite3 on the command line,
// are refused, and may read a copy. So SQLite keeps the index of the log in its own memory. Otherwise it
// would map a `-shm` file, whose pages have no blocks when the disk is full: touching one is SIGBUS. Closing
// a connection writes nothing; the log stays beside the file.
//
// A path that begins with `file:` is a URI, with a VFS of its own (vfs=ceph). Such a file has one connection,
// and no descriptor here.
//
// Not thread-safe: the owner serialises calls. Statement text is a literal, used as the key of the prepared
// statement. Failure: RESOURCE_EXHAUSTED when the disk is full (IsDiskFull), ALREADY_EXISTS when a UNIQUE
// constraint is violated, INTERNAL otherwise.

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lunkeeper {

// One row of a result, valid during the callback only. Columns count from 0.
class SqlRow {
 public:
  explicit SqlRow(sqlite3_stmt* statement) : statement_(statement) {}
  int64_t Integer(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string Text(int column) const;

 private:
  sqlite3_stmt* statement_;
};

// Whether a statement failed for want of room on the disk.
bool IsDiskFull(const absl::Status& status);

using SqlValue = std::variant<int64_t, std::string>;
using SqlValues = std::initializer_list<SqlValue>;

class SqlDatabase {
 public:
  enum class Mode { kReadWrite, kReadOnly };
  static bool IsUri(const std::string& path) { return path.starts_with("file:"); }
  static absl::StatusOr<std::unique_ptr<SqlDatabase>> Open(const std::string& path, Mode mode);
  ~SqlDatabase();
  SqlDatabase(const SqlDatabase&) = delete;
  SqlDatabase& operator=(const SqlDatabase&) = delete;

  // From now on the file is a multiple of so many bytes, allocated as far as there is room, and never less.
  void GrowInSteps(int bytes);
  // One or more statements without parameters.
  absl::Status Script(const char* sql);
  // Calls `each` for every row.
  absl::Status Query(const char* sql, SqlValues values, const std::function<void(const SqlRow&)>& each);
  // The first column of every row.
  absl::StatusOr<std::vector<std::string>> ReadTexts(const char* sql, SqlValues values);
  // Runs a statement that returns no rows; answers how many rows it changed.
  absl::StatusOr<int> Change(const char* sql, SqlValues values);
  // All of it, as of one moment, in memory.
  absl::StatusOr<std::unique_ptr<SqlDatabase>> CopyToMemory();
  // Makes another file of all of it, as of one moment, that needs no log. The file is empty, or not there.
  absl::Status CopyTo(const std::string& path);

 private:
  explicit SqlDatabase(sqlite3* handle) : handle_(handle) {}
  absl::Status CopyInto(SqlDatabase& copy);
  absl::StatusOr<sqlite3_stmt*> Prepared(const char* sql);
  absl::Status Error(const char* doing) const;

  sqlite3* const handle_;
  std::map<const char*, sqlite3_stmt*> statements_;
};

}  // namespace lunkeeper
