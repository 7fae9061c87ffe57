// The chart has a value for each of these, under `failover`. The defaults are those of fencing::Settings.
// They are also the floors of the three silences. A choice that is kept as a bool has its default written
// here once more.
#include "plugin/failover_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

constexpr double kMostSeconds = 86400;

// As kubectl writes them: StatefulSet, or StatefulSet.apps; or *. A word that can name no owner would leave
// its pods alone without a sign.
std::string IsOwnerKind(const std::string& value) {
  static const std::regex kKind(R"(\*|[A-Z][A-Za-z0-9]*(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)");
  if (std::regex_match(value, kKind)) return "";
  return absl::StrCat("\"", value,
                      "\": want the kind of an owner, such as StatefulSet or "
                      "Cluster.postgresql.cnpg.io, or *");
}

// An option in seconds. The floor of a detection time is what keeps a moment's trouble from being a failure.
void AddSeconds(CLI::App* command, const std::string& name, fencing::Span* value, double least,
                const std::string& help, bool or_none = false) {
  const auto check = [least, or_none](const std::string& text) -> std::string {
    double seconds = 0;
    const bool is_number = absl::SimpleAtod(text, &seconds);
    if (is_number && seconds >= least && seconds <= kMostSeconds) return "";
    if (is_number && or_none && seconds == 0) return "";
    return absl::StrCat("\"", text, "\": want ", or_none ? "0, or " : "", least, " to ", kMostSeconds,
                        " seconds");
  };
  command
      ->add_option_function<double>(
          name,
          [value](double seconds) { *value = fencing::Span::OfMilliseconds(std::llround(seconds * 1000)); },
          help)
      ->check(std::function<std::string(const std::string&)>(check))
      ->default_str(absl::StrCat(static_cast<double>(value->milliseconds()) / 1000));
}

void AddPercent(CLI::App* command, const std::string& name, int* value, const std::string& text) {
  command->add_option(name, *value, text)->check(CLI::Range(1, 100))->capture_default_str();
}

template <class T>
void AddChoice(CLI::App* command, const std::string& name, T* value,
               const std::vector<std::pair<std::string, T>>& words, const std::string& help) {
  std::vector<std::string> texts;
  std::string chosen;
  for (const auto& [text, meaning] : words) {
    texts.push_back(text);
    if (meaning == *value) chosen = text;
  }
  command
      ->add_option_function<std::string>(
          name,
          [value, words](const std::string& text) {
            for (const auto& word : words)
              if (word.first == text) *value = word.second;
          },
          help)
      ->check(CLI::IsMember(texts))
      ->default_str(chosen);
}

void AddKickSettings(CLI::App* command, fencing::Settings* settings) {
  using fencing::CrashLoops;
  command
      ->add_option("--failover-kicks-per-window", settings->kicks,
                   "How many pods that do not come back by themselves are replaced in a window, at most")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  AddSeconds(command, "--failover-kick-window", &settings->kick_window, 60,
             "How long that window is, and how long after an outage crash-looping pods are replaced");
  AddChoice<CrashLoops>(command, "--failover-crash-loops", &settings->crash_loops,
                        {{"after-outage", CrashLoops::kAfterOutage},
                         {"always", CrashLoops::kAlways},
                         {"never", CrashLoops::kNever}},
                        "When crash-looping pods are replaced: after-outage, always or never");
}

}  // namespace

void AddFailoverOptions(CLI::App* command, FailoverFlags* flags) {
  command->add_flag("--no-failover", flags->off, "Serve volumes, and never fail a node over");
  command->add_option(
      "--failover-settings", flags->settings_file,
      "A JSON file of the settings below, such as {\"paused\": true}; read again each second");
  AddFailoverSettings(command, &flags->settings);
}

void AddFailoverSettings(CLI::App* command, fencing::Settings* settings) {
  using fencing::Partitioned;
  command->add_flag("--failover-paused", settings->paused,
                    "Begin no failover on evidence; finish those that have begun");
  command->add_flag("--failover-dry-run", settings->dry_run, "Log what failover would do, and do nothing");
  command->add_flag("--failover-opt-in", settings->opt_in,
                    "Move only pods that say lunkeeper.io/failover: always");
  command
      ->add_option("--failover-owner-kinds", settings->owner_kinds,
                   "Kinds of owners whose pods may move, each with or without its API group; or *")
      ->delimiter(',')
      ->check(std::function<std::string(const std::string&)>(IsOwnerKind))
      ->default_str("StatefulSet,ReplicaSet,Job");
  AddPercent(command, "--failover-budget-percent", &settings->budget_percent,
             "Share of the nodes with volumes that may be fenced in five minutes; at least one node");
  AddPercent(command, "--failover-mass-percent", &settings->mass_percent,
             "With more nodes, and at least three, in trouble within a minute: only the plainly dead");
  AddSeconds(command, "--failover-silence", &settings->silence, 2.5,
             "How long a node's heartbeats may be missing, in seconds");
  AddSeconds(command, "--failover-slow-silence", &settings->slow_silence, 10,
             "The same where no probe shows that its kernel is dead");
  AddSeconds(command, "--failover-never-met-silence", &settings->never_met_silence, 30,
             "The same of a node of which the controller never had a heartbeat");
  command
      ->add_option_function<std::string>(
          "--failover-over-budget",
          [settings](const std::string& what) { settings->one_by_one = what == "one-by-one"; },
          "Beyond the budget: one-by-one (a node each 30 s, after a self-test), or stop")
      ->check(CLI::IsMember({"one-by-one", "stop"}))
      ->default_str("one-by-one");
  AddChoice<Partitioned>(command, "--failover-partitioned", &settings->partitioned,
                         {{"fence", Partitioned::kFence},
                          {"hold", Partitioned::kHold},
                          {"trust-kubernetes", Partitioned::kTrustKubernetes}},
                         "What to do with a node that the control plane has lost: fence it once it does no "
                         "I/O, hold, or trust-kubernetes (fence it although its I/O goes on)");
  AddSeconds(command, "--failover-partition-grace", &settings->partition_grace, 10,
             "How long such a node may be without I/O, or not ready with trust-kubernetes, in seconds");
  AddSeconds(command, "--failover-probation", &settings->probation, 10,
             "How long a kubelet or container runtime may hang, in seconds");
  AddSeconds(command, "--failover-plugin-not-ready", &settings->plugin_not_ready, 10,
             "How long a node's plugin may be silent before the node is tainted, in seconds; 0: for ever",
             /*or_none=*/true);
  AddSeconds(command, "--failover-graceful", &settings->graceful_deadline, 1,
             "How long pods may take to leave a node whose storage path is lost, in seconds");
  AddChoice<bool>(command, "--failover-idle-pods", &settings->move_idle, {{"move", true}, {"wait", false}},
                  "What becomes of pods that do no I/O when the path is lost: move, or wait until they do");
  AddKickSettings(command, settings);
}

}  // namespace lunkeeper
