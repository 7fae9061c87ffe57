// A statement is prepared once, under its text, and reset after each use: one that is not reset keeps a read
// transaction open, and then the write-ahead log could never be truncated.
#include "devices/array/tgt/sqlite.h"

#include <cerrno>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace lunkeeper {
namespace {

constexpr char kDiskFull[] = "lunkeeper/disk-full";
constexpr char kOpenElsewhere[] =
    "; another program has the catalogue open, perhaps sqlite3 in a shell: close that program";

int BindValue(sqlite3_stmt* statement, int index, const SqlValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return sqlite3_bind_int64(statement, index, *number);
  const auto& text = std::get<std::string>(value);
  return sqlite3_bind_text(statement, index, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
}

// Leaves a statement ready for its next use, however its use ends.
class ResetOnExit {
 public:
  explicit ResetOnExit(sqlite3_stmt* statement) : statement_(statement) {}
  ~ResetOnExit() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  ResetOnExit(const ResetOnExit&) = delete;
  ResetOnExit& operator=(const ResetOnExit&) = delete;

 private:
  sqlite3_stmt* statement_;
};

// SQLite's own word is for writes only; a file that cannot be made or grown is an I/O error to it.
bool IsNoSpace(sqlite3* handle, int code) {
  if ((code & 0xff) == SQLITE_FULL) return true;
  const bool of_file = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN;
  return of_file && (sqlite3_system_errno(handle) == ENOSPC || sqlite3_system_errno(handle) == EDQUOT);
}

}  // namespace

bool IsDiskFull(const absl::Status& status) { return status.GetPayload(kDiskFull).has_value(); }

std::string SqlRow::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return text == nullptr ? std::string() : std::string(text, sqlite3_column_bytes(statement_, column));
}

absl::StatusOr<std::unique_ptr<SqlDatabase>> SqlDatabase::Open(const std::string& path, Mode mode) {
  sqlite3* handle = nullptr;
  // Also who only reads: the process's lock on the file needs a descriptor that writes.
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (IsUri(path) ? SQLITE_OPEN_URI : 0) |
                    (mode == Mode::kReadWrite ? SQLITE_OPEN_CREATE : 0);
  const int result = sqlite3_open_v2(path.c_str(), &handle, flags, IsUri(path) ? nullptr : "unix-excl");
  // Also after a failure there is a handle: it holds the error's text and has to be closed.
  std::unique_ptr<SqlDatabase> database(new SqlDatabase(handle));
  if (result != SQLITE_OK) return database->Error("open");
  sqlite3_extended_result_codes(handle, 1);
  // Reader and writer of one file are on two connections; in WAL mode they meet only at checkpoints.
  sqlite3_busy_timeout(handle, 5000);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  // Before anything is read: without it a log would need memory that is shared with other programs.
  if (IsUri(path))
    RETURN_IF_ERROR(database->Script("PRAGMA locking_mode=EXCLUSIVE; PRAGMA temp_store=MEMORY"));
  if (mode == Mode::kReadOnly) RETURN_IF_ERROR(database->Script("PRAGMA query_only=1"));
  return database;
}

SqlDatabase::~SqlDatabase() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close_v2(handle_);
}

// A hint allocates up to the end of a step. Blocks behind the file's end would not do: SQLite cuts them off
// at each checkpoint.
void SqlDatabase::GrowInSteps(int bytes) {
  sqlite3_int64 at_least = 1;
  sqlite3_file_control(handle_, "main", SQLITE_FCNTL_CHUNK_SIZE, &bytes);
  sqlite3_file_control(handle_, "main", SQLITE_FCNTL_SIZE_HINT, &at_least);
}

absl::Status SqlDatabase::Script(const char* sql) {
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return Error(sql);
  return absl::OkStatus();
}

absl::Status SqlDatabase::Query(const char* sql, SqlValues values,
                                const std::function<void(const SqlRow&)>& each) {
  ASSIGN_OR_RETURN(sqlite3_stmt * statement, Prepared(sql));
  const ResetOnExit reset(statement);
  int index = 0;
  for (const SqlValue& value : values) {
    if (BindValue(statement, ++index, value) != SQLITE_OK) return Error(sql);
  }
  int result = SQLITE_OK;
  while ((result = sqlite3_step(statement)) == SQLITE_ROW) each(SqlRow(statement));
  return result == SQLITE_DONE ? absl::OkStatus() : Error(sql);
}

absl::StatusOr<std::vector<std::string>> SqlDatabase::ReadTexts(const char* sql, SqlValues values) {
  std::vector<std::string> texts;
  RETURN_IF_ERROR(Query(sql, values, [&](const SqlRow& row) { texts.push_back(row.Text(0)); }));
  return texts;
}

absl::StatusOr<int> SqlDatabase::Change(const char* sql, SqlValues values) {
  RETURN_IF_ERROR(Query(sql, values, [](const SqlRow&) {}));
  return sqlite3_changes(handle_);
}

// SQLite's online backup; in one step, as of one commit.
absl::Status SqlDatabase::CopyInto(SqlDatabase& copy) {
  sqlite3_backup* const backup = sqlite3_backup_init(copy.handle_, "main", handle_, "main");
  if (backup == nullptr) return copy.Error("copy");
  const bool copied = sqlite3_backup_step(backup, -1) == SQLITE_DONE;
  return sqlite3_backup_finish(backup) == SQLITE_OK && copied ? absl::OkStatus() : copy.Error("copy");
}

absl::StatusOr<std::unique_ptr<SqlDatabase>> SqlDatabase::CopyToMemory() {
  ASSIGN_OR_RETURN(auto copy, Open(":memory:", Mode::kReadWrite));
  RETURN_IF_ERROR(CopyInto(*copy));
  return copy;
}

absl::Status SqlDatabase::CopyTo(const std::string& path) {
  ASSIGN_OR_RETURN(const auto copy, Open(path, Mode::kReadWrite));
  RETURN_IF_ERROR(CopyInto(*copy));
  return copy->Script("PRAGMA journal_mode=DELETE");
}

absl::StatusOr<sqlite3_stmt*> SqlDatabase::Prepared(const char* sql) {
  sqlite3_stmt*& statement = statements_[sql];
  if (statement == nullptr &&
      sqlite3_prepare_v3(handle_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
    return Error(sql);
  }
  return statement;
}

absl::Status SqlDatabase::Error(const char* doing) const {
  const int code = sqlite3_extended_errcode(handle_);
  const char* const what_to_do = (code & 0xff) == SQLITE_BUSY ? kOpenElsewhere : "";
  const std::string message =
      absl::StrCat("catalogue: ", sqlite3_errmsg(handle_), " (", code, ") in: ", doing, what_to_do);
  if (IsNoSpace(handle_, code)) {
    absl::Status full = absl::ResourceExhaustedError(message);
    full.SetPayload(kDiskFull, absl::Cord());
    return full;
  }
  if (code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY) {
    return absl::AlreadyExistsError(message);
  }
  return absl::InternalError(message);
}

}  // namespace lunkeeper
