#include "plugin/table.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace lunkeeper {

// Two passes: the widths must be known before the first line is printed.
void Table::Print(std::ostream& out, Output output, const std::string& indent) const {
  if (output == Output::kJson) return PrintJson(out);
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(columns_[i].title.size());
    for (const auto& row : rows_) widths[i] = std::max(widths[i], row[i].text.size());
  }
  const auto print_line = [&](const auto& text_of) {
    std::string line = indent;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].only_wide && output != Output::kWide) continue;
      const std::string& text = text_of(i);
      absl::StrAppend(&line, text, std::string(widths[i] - text.size() + 2, ' '));
    }
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  };
  print_line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) print_line([&](size_t i) -> const std::string& { return row[i].text; });
}

void Table::PrintJson(std::ostream& out) const {
  auto all = nlohmann::json::array();
  for (const auto& row : rows_) {
    auto object = nlohmann::json::object();
    for (size_t i = 0; i < columns_.size(); ++i)
      if (!columns_[i].key.empty()) object[columns_[i].key] = row[i].value;
    all.push_back(std::move(object));
  }
  out << all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

std::string GiB(uint64_t bytes) {
  return absl::StrCat(bytes >> 30, ".", (bytes >> 20) % 1024 * 10 / 1024, " GiB");
}

Cell SizeCell(uint64_t bytes) { return {GiB(bytes), bytes}; }

Cell TimeCell(int64_t unix_seconds) {
  if (unix_seconds == 0) return {"-", nullptr};
  const std::string text =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(unix_seconds), absl::UTCTimeZone());
  return {text, text};
}

Cell OrDash(const std::string& text) { return text.empty() ? Cell("-", nullptr) : Cell(text); }

}  // namespace lunkeeper
