// `lunkeeper pki renew`, a job in the cluster. It repeats the whole renewal, from reading on, until it
// succeeds, until an error that repetition cannot mend, or until --timeout. It may be killed anywhere: what
// it has stored is a state from which the next run goes on.
#include "plugin/pki_command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "fencing/kube/call_pool.h"
#include "fencing/kube/config.h"
#include "plugin/pki_store.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kTryAgain = absl::Seconds(1);

struct PkiCommandLine {
  PkiNames names;
  int days = 90;
  int ca_days = 3650;
  int timeout_seconds = 60;
  std::string log_format = "text";
};

// What waiting does not mend.
bool IsFinal(const absl::Status& status) {
  return status.ok() || absl::IsFailedPrecondition(status) || absl::IsInvalidArgument(status);
}

absl::Status RenewUntilDone(PkiCommandLine command_line, const MakeClient& cluster) {
  if (command_line.names.space.empty()) {
    ASSIGN_OR_RETURN(command_line.names.space, kube::InClusterNamespace());
  }
  ASSIGN_OR_RETURN(const auto client, cluster());
  const PkiOptions options{.leaf_life = absl::Hours(24 * command_line.days),
                           .authority_life = absl::Hours(24 * command_line.ca_days)};
  const kube::Limits limits(absl::Now() + absl::Seconds(command_line.timeout_seconds));
  while (true) {
    const absl::Status status = RenewStoredPki(*client, command_line.names, options, absl::Now(), limits);
    if (IsFinal(status) || kTryAgain > limits.TimeLeft()) return status;
    LogWarn("pki", "again in a second", {{"why", std::string(status.message())}});
    kube::PauseFor(kTryAgain, std::stop_token());
  }
}

// The exit code decides whether Kubernetes runs the Job's pod again.
int RunPkiRenew(const PkiCommandLine& command_line, const MakeClient& cluster) {
  SetUpLogging("info", command_line.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  const absl::Status status = RenewUntilDone(command_line, cluster);
  if (status.ok()) {
    LogInfo("pki", "the cluster's certificates are in order",
            {{"leaves", std::to_string(command_line.names.leaves.size())}});
    return 0;
  }
  LogError("pki", std::string(status.message()), {{"code", absl::StatusCodeToString(status.code())}});
  return 1;
}

void AddDays(CLI::App* command, const char* name, int* days, const char* help) {
  command->add_option(name, *days, help)->check(CLI::Range(1, 36500))->capture_default_str();
}

// --server and --client: SECRET=NAME, where NAME is the DNS name in the certificate.
void AddLeaves(CLI::App* command, const char* option, CertificateUse use, std::vector<LeafSecret>* leaves,
               const char* help) {
  command
      ->add_option_function<std::vector<std::string>>(
          option,
          [=](const std::vector<std::string>& given) {
            for (const std::string& text : given) {
              const size_t at = text.find('=');
              leaves->push_back({text.substr(0, at), use, text.substr(at + 1)});
            }
          },
          help)
      ->allow_extra_args(false)
      ->check([](const std::string& text) -> std::string {
        const size_t at = text.find('=');
        if (at != std::string::npos && at > 0 && at + 1 < text.size()) return "";
        return absl::StrCat("\"", text, "\": want SECRET=NAME");
      });
}

void AddPkiOptions(CLI::App* command, PkiCommandLine* command_line) {
  PkiNames& names = command_line->names;
  command->add_option("--namespace", names.space, "The namespace of all these; if not given, this pod's");
  command->add_option("--ca-secret", names.authority, "The Secret with the CA and its key")->required();
  command->add_option("--ca-config-map", names.trust, "The ConfigMap with the CA's certificate, for nodes");
  AddLeaves(command, "--server", CertificateUse::kServer, &names.leaves,
            "SECRET=NAME: a Secret for the certificate of a server with this DNS name. May be repeated");
  AddLeaves(command, "--client", CertificateUse::kClient, &names.leaves,
            "SECRET=NAME: the same for a client. May be repeated");
  AddDays(command, "--days", &command_line->days,
          "Days that a certificate is valid; it is renewed in the last third");
  AddDays(command, "--ca-days", &command_line->ca_days, "The same for the CA");
  command->add_option("--timeout", command_line->timeout_seconds, "Seconds after which to give up")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command->add_option("--log-format", command_line->log_format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace

void AddPkiCommand(CLI::App* app, int* exit_code, const MakeClient& cluster) {
  CLI::App* pki = app->add_subcommand("pki", "The certificates that a cluster makes for itself");
  pki->require_subcommand(1);
  const auto command_line = std::make_shared<PkiCommandLine>();
  CLI::App* renew = pki->add_subcommand(
      "renew", "Make the missing ones, renew those that expire soon, and leave the others alone");
  AddPkiOptions(renew, command_line.get());
  renew->callback([=] { *exit_code = RunPkiRenew(*command_line, cluster); });
}

}  // namespace lunkeeper
