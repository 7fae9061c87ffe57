#pragma once
// Tables for an operator: aligned columns for people, or JSON for scripts. Plain values; nothing here fails.

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lunkeeper {

enum class Output {
  kTable,
  kWide,  // with the columns that few ask for
  kJson,  // an array with an object for each row
};

// What a cell shows to people and to scripts.
struct Cell {
  Cell(std::string shown) : text(std::move(shown)), value(text) {}  // NOLINT: a text is a cell
  Cell(const char* shown) : Cell(std::string(shown)) {}             // NOLINT: the same
  Cell(std::string shown, nlohmann::json meant) : text(std::move(shown)), value(std::move(meant)) {}
  std::string text;
  nlohmann::json value;
};

class Table {
 public:
  struct Column {
    std::string title;
    std::string key = {};  // in JSON; empty: not there
    bool only_wide = false;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // With a cell for each column.
  void AddRow(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  // Each line begins with `indent`, in JSON nothing does.
  void Print(std::ostream& out, Output output, const std::string& indent = "") const;

 private:
  void PrintJson(std::ostream& out) const;

  const std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Rounded down to a tenth: a volume never looks larger than it is.
std::string GiB(uint64_t bytes);
// A size, in bytes for scripts.
Cell SizeCell(uint64_t bytes);
// Seconds since 1970 as UTC; "-", and null for scripts, if they are 0, which means that nobody knows.
Cell TimeCell(int64_t unix_seconds);
// "-" for an empty text.
Cell OrDash(const std::string& text);

}  // namespace lunkeeper
