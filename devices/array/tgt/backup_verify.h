#pragma once
// Whether a backup is what was written: where it is kept, and where it is restored to. Functions without
// state; failure of the disk: INTERNAL.

#include <string>

#include "absl/status/status.h"
#include "devices/array/tgt/pool_backup.h"

namespace lunkeeper {

// Reads all of it, and needs no agent. OK: the backup is whole, has an image for each row of its catalogue,
// and each of its files is as it was read from the pool. NOT_FOUND: there is no backup. DATA_LOSS: a file is
// missing, was changed, or is not its own (such as a log that would change the catalogue); the message names
// it. FAILED_PRECONDITION: it broke off, or an agent has opened it.
absl::Status VerifyBackup(const std::string& folder, const BackupWatch& watch);

// For a pool that is locked and may be a backup that was copied over an older pool, before its catalogue is
// opened: removes the log of the older pool's catalogue, which SQLite would replay into the new one. A backup
// is marked when this is done, and its log is its own from then on. FAILED_PRECONDITION: the catalogue is not
// the one of the backup, so this was copied in part.
absl::Status RemoveOldLog(const std::string& pool);

// Before a backup is accepted: whether each of its images is there, and as large as it was; what is in them
// is not read. FAILED_PRECONDITION: one is not, which is named.
absl::Status CheckRestoredImages(const std::string& pool);

}  // namespace lunkeeper
