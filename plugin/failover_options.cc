// The chart has a value for each of these, under `failover`. The defaults are those of fencing::Settings.
// Choices between two words are kept as a bool, so their defaults are written here once more.
#include "plugin/failover_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lunkeeper {
namespace {

// As Kubernetes writes them: StatefulSet.
std::string IsKind(const std::string& value) {
  const bool plain = std::all_of(value.begin(), value.end(),
                                 [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); });
  if (plain && !value.empty() && absl::ascii_isupper(static_cast<unsigned char>(value.front()))) return "";
  return absl::StrCat("\"", value, "\": want the kind of an owner, such as StatefulSet");
}

// An option in whole seconds.
void AddSeconds(CLI::App* command, const std::string& name, fencing::Span* value, const std::string& help) {
  command
      ->add_option_function<int>(
          name, [value](int seconds) { *value = fencing::Span::OfMilliseconds(int64_t{1000} * seconds); },
          help)
      ->check(CLI::Range(1, 86400))
      ->default_str(std::to_string(value->milliseconds() / 1000));
}

void AddPercent(CLI::App* command, const std::string& name, int* value, const std::string& text) {
  command->add_option(name, *value, text)->check(CLI::Range(1, 100))->capture_default_str();
}

}  // namespace

void AddFailoverOptions(CLI::App* command, FailoverFlags* flags) {
  fencing::Settings& settings = flags->settings;
  command->add_flag("--no-failover", flags->off, "Serve volumes, and never fail a node over");
  command->add_flag("--failover-paused", settings.paused,
                    "Begin no failover on evidence; finish those that have begun");
  command->add_flag("--failover-dry-run", settings.dry_run, "Log what failover would do, and do nothing");
  command->add_flag("--failover-opt-in", settings.opt_in,
                    "Move only pods that say lunkeeper.io/failover: always");
  command->add_option("--failover-owner-kinds", settings.owner_kinds, "Kinds of owners whose pods may move")
      ->delimiter(',')
      ->check(std::function<std::string(const std::string&)>(IsKind))
      ->default_str("StatefulSet,ReplicaSet,Job");
  AddPercent(command, "--failover-budget-percent", &settings.budget_percent,
             "Share of the nodes with volumes that may be fenced in five minutes; at least one node");
  AddPercent(command, "--failover-mass-percent", &settings.mass_percent,
             "With more nodes, and at least three, in trouble within a minute: only the plainly dead");
  command
      ->add_option_function<std::string>(
          "--failover-over-budget",
          [&settings](const std::string& what) { settings.one_by_one = what == "one-by-one"; },
          "Beyond the budget: one-by-one (a node each 30 s, after a self-test), or stop")
      ->check(CLI::IsMember({"one-by-one", "stop"}))
      ->default_str("one-by-one");
  command
      ->add_option_function<std::string>(
          "--failover-partitioned",
          [&settings](const std::string& what) { settings.fence_partitioned = what == "fence"; },
          "What to do with a node that the control plane has lost and that does no I/O: fence or hold")
      ->check(CLI::IsMember({"fence", "hold"}))
      ->default_str("fence");
  AddSeconds(command, "--failover-partition-grace", &settings.partition_grace,
             "How long such a node may be without I/O, in seconds");
  AddSeconds(command, "--failover-probation", &settings.probation,
             "How long a kubelet or container runtime may hang, in seconds");
  AddSeconds(command, "--failover-graceful", &settings.graceful_deadline,
             "How long pods may take to leave a node whose storage path is lost, in seconds");
}

}  // namespace lunkeeper
