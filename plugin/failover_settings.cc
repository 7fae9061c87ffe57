// A key is turned into its option, and the parser of the command line reads it: so a value is checked, and
// refused, in one place.
#include "plugin/failover_settings.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "plugin/failover_options.h"

namespace lunkeeper {
namespace {

using nlohmann::json;

constexpr absl::Duration kReadInterval = absl::Seconds(1);

// probationSeconds → --failover-probation
std::string OptionOf(absl::string_view key) {
  std::string name = "--failover-";
  absl::ConsumeSuffix(&key, "Seconds");
  for (const char c : key) {
    const auto letter = static_cast<unsigned char>(c);
    if (absl::ascii_isupper(letter)) name += '-';
    name += absl::ascii_tolower(letter);
  }
  return name;
}

// As on a command line; nullopt: no option has such a value.
std::optional<std::string> TextOf(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean() || value.is_number()) return value.dump();
  if (!value.is_array()) return std::nullopt;
  std::vector<std::string> words;
  for (const json& each : value) {
    if (!each.is_string()) return std::nullopt;
    words.push_back(each.get<std::string>());
  }
  return absl::StrJoin(words, ",");
}

}  // namespace

absl::StatusOr<fencing::Settings> ParseFailoverSettings(const std::string& text,
                                                        const fencing::Settings& base) {
  const json content = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!content.is_object()) return absl::InvalidArgumentError("want a JSON object");
  std::vector<std::string> arguments;
  for (const auto& [key, value] : content.items()) {
    const auto words = TextOf(value);
    if (!words) return absl::InvalidArgumentError(absl::StrCat(key, ": want a word, a number or a list"));
    arguments.push_back(absl::StrCat(OptionOf(key), "=", *words));
  }
  fencing::Settings settings = base;
  CLI::App app;
  AddFailoverSettings(&app, &settings);
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& wrong) {
    return absl::InvalidArgumentError(wrong.what());
  }
  return settings;
}

absl::StatusOr<fencing::Settings> FailoverSettingsFile::ReadSettings() {
  std::ifstream file(path_);
  text_.assign(std::istreambuf_iterator<char>(file), {});
  auto settings = file ? ParseFailoverSettings(text_, base_)
                       : absl::StatusOr<fencing::Settings>(absl::NotFoundError("it cannot be read"));
  const std::string problem =
      settings.ok() ? "" : absl::StrCat("failover settings ", path_, ": ", settings.status().message());
  absl::MutexLock lock(&mutex_);
  // Logged once, not every second.
  if (problem != problem_ && !problem.empty())
    LogError("failover", absl::StrCat(problem, "; this file is not in force"));
  problem_ = problem;
  return settings;
}

// A controller that did not start would serve no volumes either. But the file may be meant to stop failover,
// so nothing is begun before it can be read.
fencing::Settings FailoverSettingsFile::ReadFirst() {
  auto settings = ReadSettings();
  if (settings.ok()) return *std::move(settings);
  LogError("failover", "there are no settings yet, so failover is paused", {{"file", path_}});
  fencing::Settings paused = base_;
  paused.paused = true;
  return paused;
}

void FailoverSettingsFile::StartWatching(std::function<void(const fencing::Settings&)> changed) {
  watch_.emplace(kReadInterval, [this, in_force = text_, changed = std::move(changed)]() mutable {
    const auto settings = ReadSettings();
    if (!settings.ok() || text_ == in_force) return;
    in_force = text_;
    LogInfo("failover", "the settings have changed", {{"file", path_}});
    changed(*settings);
  });
}

bool FailoverSettingsFile::IsInForce() const {
  absl::MutexLock lock(&mutex_);
  return problem_.empty();
}

}  // namespace lunkeeper
