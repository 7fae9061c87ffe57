// Files are written beside their place and renamed into it, so that the agent, which reads them each second,
// finds the old ones or the new ones. A certificate and its key change together: `tls` is a link, and what is
// renamed is the link.
#include "plugin/join.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/certificate.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "fencing/kube/json.h"
#include "fencing/kube/kube_client.h"

namespace lunkeeper {
namespace {

namespace fs = std::filesystem;
using kube::Json;
using kube::TextAt;

constexpr std::array<const char*, 3> kFiles = {"tls.crt", "tls.key", "ca.crt"};
constexpr char kWhichSecret[] = "lunkeeper.io/certificate";  // an annotation of the invitation
using Texts = std::map<std::string, std::string>;

absl::Status CannotStore(const std::string& path, const std::string& why) {
  return absl::InternalError(absl::StrCat("join: cannot write ", path, ": ", why));
}

// Whole and on the disk, or not there.
absl::Status WriteFile(const std::string& path, const std::string& text) {
  const std::string beside = path + ".new";
  const UniqueFd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const auto size = static_cast<ssize_t>(text.size());
  if (!file || ::write(file.get(), text.data(), text.size()) != size || ::fsync(file.get()) != 0 ||
      ::rename(beside.c_str(), path.c_str()) != 0)
    return CannotStore(path, std::generic_category().message(errno));
  return absl::OkStatus();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

absl::Status MakePrivateFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) fs::permissions(path, fs::perms::owner_all, error);
  return error ? CannotStore(path, error.message()) : absl::OkStatus();
}

// A value of a Secret's data; empty: there is none.
std::string DataAt(const Json& secret, const char* key) {
  std::string value;
  return absl::Base64Unescape(TextAt(secret, {"data", key}), &value) ? value : "";
}

// So that a daily run changes nothing while the cluster has nothing new: the agent would reload for nothing.
bool IsInUse(const std::string& folder, const Texts& files) {
  for (const auto& [name, text] : files)
    if (ReadFile(absl::StrCat(folder, "/tls/", name)) != text) return false;
  return true;
}

// Removes the folders that the link leads to no more, those of runs that were killed too. A reader that has
// one of their files open keeps it.
void RemoveFormer(const std::string& folder, const std::string& current) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.rfind("tls-", 0) == 0 && name != current) fs::remove_all(entry.path(), error);
  }
}

// Killed in here, the link still leads to the former files, which are whole.
absl::Status ReplaceCertificate(const std::string& folder, const Texts& files) {
  const std::string name = absl::StrCat("tls-", RandomHexDigits()), link = folder + "/tls";
  RETURN_IF_ERROR(MakePrivateFolder(absl::StrCat(folder, "/", name)));
  for (const auto& [file, text] : files)
    RETURN_IF_ERROR(WriteFile(absl::StrCat(folder, "/", name, "/", file), text));
  std::error_code error;
  fs::remove(link + ".new", error);  // of a run that was killed
  fs::create_symlink(name, link + ".new", error);
  if (!error) fs::rename(link + ".new", link, error);
  if (error) return CannotStore(link, error.message());
  RemoveFormer(folder, name);
  return absl::OkStatus();
}

// The invitation's token may read this one Secret and do nothing else.
absl::StatusOr<Texts> ReadSecret(const std::string& folder, absl::Time deadline) {
  const auto api = kube::ParseJson(ReadFile(folder + "/api.json"));
  if (!api.ok())
    return absl::FailedPreconditionError(
        absl::StrCat(folder,
                     " has no invitation: give --server, and the invitation's Secret as JSON on the "
                     "standard input"));
  kube::KubeConfig config;
  config.server = TextAt(*api, {"server"});
  config.ca_file = folder + "/api-ca.crt";
  config.token_file = folder + "/api-token";
  ASSIGN_OR_RETURN(const auto client, kube::MakeKubeClient(config));
  const kube::ObjectRef where{{"", "v1", "secrets"}, TextAt(*api, {"namespace"}), TextAt(*api, {"secret"})};
  ASSIGN_OR_RETURN(const Json secret, client->Get(where, deadline));
  Texts files;
  for (const char* name : kFiles) files[name] = DataAt(secret, name);
  return files;
}

// Its command line, and the command.
struct JoinCommandLine {
  std::string folder, server;
  int timeout_seconds = 30;
};

absl::Status Join(const JoinCommandLine& command_line) {
  if (!command_line.server.empty()) {
    const std::string document(std::istreambuf_iterator<char>(std::cin), {});
    ASSIGN_OR_RETURN(const Invitation invitation, ParseInvitation(document, command_line.server));
    RETURN_IF_ERROR(KeepInvitation(command_line.folder, invitation));
  }
  return FetchCertificate(command_line.folder, absl::Now() + absl::Seconds(command_line.timeout_seconds));
}

int RunJoin(const JoinCommandLine& command_line) {
  const absl::Status status = Join(command_line);
  if (status.ok()) {
    std::cout << command_line.folder << "/tls has the cluster's certificate\n";
    return 0;
  }
  std::cerr << "error: " << status.message() << '\n';
  return 1;
}

}  // namespace

absl::StatusOr<Invitation> ParseInvitation(const std::string& document, const std::string& server) {
  RETURN_IF_ERROR(kube::ParseServer(server).status());
  const auto secret = kube::ParseJson(document);
  Invitation invitation;
  invitation.server = server;
  if (secret.ok()) {
    invitation.ca = DataAt(*secret, "ca.crt");
    invitation.token = DataAt(*secret, "token");
    invitation.space = DataAt(*secret, "namespace");
    invitation.secret = TextAt(*secret, {"metadata", "annotations", kWhichSecret});
  }
  if (!invitation.ca.empty() && !invitation.token.empty() && !invitation.space.empty() &&
      !invitation.secret.empty())
    return invitation;
  return absl::InvalidArgumentError(
      "the standard input is no invitation: want what `kubectl get secret RELEASE-array-NAME-join --output "
      "json` prints, with a token in it");
}

// api.json comes last: ReadSecret takes a folder that has it for a whole invitation.
absl::Status KeepInvitation(const std::string& folder, const Invitation& invitation) {
  RETURN_IF_ERROR(MakePrivateFolder(folder));
  RETURN_IF_ERROR(WriteFile(folder + "/api-ca.crt", invitation.ca));
  RETURN_IF_ERROR(WriteFile(folder + "/api-token", invitation.token));
  const Json api = {
      {"server", invitation.server}, {"namespace", invitation.space}, {"secret", invitation.secret}};
  return WriteFile(folder + "/api.json", kube::ToText(api) + "\n");
}

// Checked before it takes the place of one that works.
absl::Status FetchCertificate(const std::string& folder, absl::Time deadline) {
  ASSIGN_OR_RETURN(const Texts files, ReadSecret(folder, deadline));
  const absl::Status good = CheckKeyPair({files.at("tls.crt"), files.at("tls.key")});
  if (!good.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("the cluster's Secret has no usable certificate: ",
                                                      good.message(), "; is the certificates' Job well?"));
  }
  return IsInUse(folder, files) ? absl::OkStatus() : ReplaceCertificate(folder, files);
}

void AddJoinCommand(CLI::App* app, int* exit_code) {
  CLI::App* join = app->add_subcommand(
      "join", "Get and renew the certificate of this storage host's agent from a cluster that invited it");
  const auto command_line = std::make_shared<JoinCommandLine>();
  join->add_option("--folder", command_line->folder, "Where it is kept, an absolute path")
      ->required()
      ->check([](const std::string& value) {
        return value.rfind('/', 0) == 0 ? std::string() : "want an absolute path";
      });
  join->add_option("--server", command_line->server,
                   "The first time: https://HOST[:PORT] of the cluster's API server, with the invitation's "
                   "Secret as JSON on the standard input");
  join->add_option("--timeout", command_line->timeout_seconds, "Seconds after which to give up")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  join->callback([=] { *exit_code = RunJoin(*command_line); });
}

}  // namespace lunkeeper
