#include "fencing/core/testing/script_settings.h"

#include <map>
#include <sstream>
#include <stdexcept>

namespace lunkeeper::fencing {
namespace {

template <class T>
T ReadWord(const std::map<std::string, T>& words, const std::string& word) {
  const auto found = words.find(word);
  if (found == words.end()) throw std::runtime_error("no such value of a setting: " + word);
  return found->second;
}

}  // namespace

void SetSetting(const std::string& name, const std::string& value, Settings& settings) {
  const std::map<std::string, bool*> switches = {{"paused", &settings.paused},
                                                 {"dry_run", &settings.dry_run},
                                                 {"opt_in", &settings.opt_in},
                                                 {"move_idle", &settings.move_idle},
                                                 {"one_by_one", &settings.one_by_one}};
  const std::map<std::string, int*> numbers = {{"budget_percent", &settings.budget_percent},
                                               {"mass_percent", &settings.mass_percent},
                                               {"kicks", &settings.kicks}};
  if (switches.contains(name)) {
    *switches.at(name) = value == "yes";
  } else if (numbers.contains(name)) {
    *numbers.at(name) = std::stoi(value);
  } else if (name == "owner_kinds") {
    std::istringstream kinds(value);
    settings.owner_kinds.clear();
    for (std::string kind; std::getline(kinds, kind, ',');) settings.owner_kinds.insert(kind);
  } else if (name == "kick_window") {
    settings.kick_window = Span::OfMilliseconds(std::stoi(value) * 1000);
  } else if (name == "partitioned") {
    settings.partitioned = ReadWord<Partitioned>({{"hold", Partitioned::kHold},
                                                  {"fence", Partitioned::kFence},
                                                  {"trust-kubernetes", Partitioned::kTrustKubernetes}},
                                                 value);
  } else if (name == "crash_loops") {
    settings.crash_loops = ReadWord<CrashLoops>({{"never", CrashLoops::kNever},
                                                 {"after-outage", CrashLoops::kAfterOutage},
                                                 {"always", CrashLoops::kAlways}},
                                                value);
  } else {
    throw std::runtime_error("no such setting: " + name);
  }
}

}  // namespace lunkeeper::fencing
