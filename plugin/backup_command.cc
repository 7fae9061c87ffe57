// The agent makes a backup, since only it may read the catalogue; the folder is one of its host. A check
// needs no agent.
#include "plugin/backup_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/grpc_status.h"
#include "base/steady_deadline.h"
#include "devices/array/tgt/backup_verify.h"
#include "plugin/admin_call.h"

namespace lunkeeper {
namespace {

constexpr absl::Duration kLineInterval = absl::Seconds(10);
constexpr double kMiB = 1 << 20;

// On a terminal one line that is written over; elsewhere a line now and then, for a log.
class ProgressPrinter {
 public:
  void ShowProgress(uint64_t done, uint64_t images, uint64_t copied_bytes, const std::string& of) {
    const std::string line = absl::StrFormat("%d of %d files, %.0f%s MiB", done, images,
                                             static_cast<double>(copied_bytes) / kMiB, of);
    if (terminal_) {
      std::cerr << "\r" << line << "\033[K" << std::flush;
    } else if (next_line_.IsOver()) {
      next_line_ = SteadyDeadline(kLineInterval);
      std::cerr << line << std::endl;
    }
  }
  void ClearLine() const {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  SteadyDeadline next_line_{absl::ZeroDuration()};
};

// No deadline: it takes as long as the pool is large. Ctrl-C ends it, and the next call continues.
absl::Status MakeBackup(const AdminTarget& target, const std::string& folder) {
  const auto stub = ConnectToServer(target);
  grpc::ClientContext context;
  admin::v1::BackupRequest request;
  request.set_folder(folder);
  const auto reader = stub->Backup(&context, request);
  ProgressPrinter printer;
  admin::v1::BackupProgress progress;
  while (reader->Read(&progress))
    printer.ShowProgress(progress.done_images(), progress.images(), progress.copied_bytes(),
                         absl::StrFormat(" of about %.0f", static_cast<double>(progress.bytes()) / kMiB));
  printer.ClearLine();
  return FromGrpcStatus(reader->Finish());
}

absl::Status CheckBackup(const std::string& folder) {
  ProgressPrinter printer;
  const absl::Status checked = VerifyBackup(folder, [&](const BackupProgress& progress) {
    printer.ShowProgress(progress.done_images, progress.images, progress.copied_bytes, "");
    return true;
  });
  printer.ClearLine();
  return checked;
}

int PrintOutcome(const absl::Status& status, const std::string& sentence) {
  if (status.ok()) std::cout << sentence << "\n";
  return ExitCode(status);
}

}  // namespace

void AddBackupCommand(CLI::App* app, int* exit_code) {
  CLI::App* backup = app->add_subcommand("backup", "Copy the pool of a running array, or check such a copy");
  backup->require_subcommand(1);
  const auto target = std::make_shared<AdminTarget>();
  const auto folder = std::make_shared<std::string>();
  CLI::App* make = backup->add_subcommand("make", "Copy the pool into a folder of the array's host");
  AddAdminEndpoint(make, target.get());
  make->add_option("FOLDER", *folder, "A new folder on another disk, or one of a backup that broke off")
      ->required();
  make->callback([=] {
    *exit_code =
        PrintOutcome(MakeBackup(*target, *folder), absl::StrCat("the backup in ", *folder, " is whole"));
  });
  CLI::App* verify = backup->add_subcommand("verify", "Check that a backup is whole and was not changed");
  verify->add_option("FOLDER", *folder, "The backup")->required();
  verify->callback([=] {
    *exit_code = PrintOutcome(CheckBackup(*folder),
                              absl::StrCat("the backup in ", *folder, " is whole, and as it was made"));
  });
}

}  // namespace lunkeeper
