#pragma once
// What all do that make files in a pool: the steps, and their errors in the words of Pool. Functions without
// state; failure as in image_store.h. NOT_FOUND: there is no such file.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "devices/array/volume_store.h"

namespace lunkeeper {

// Of a file whose row is not stored yet (pool.h).
inline constexpr char kNewSuffix[] = ".new";
// Of a file whose row is about to be deleted.
inline constexpr char kGoneSuffix[] = ".gone";

bool IsNoSpace(int error);
// `doing` in the infinitive; `error` is an errno.
absl::Status FileError(const char* doing, const std::string& path, int error);
absl::StatusOr<UniqueFd> OpenFile(const std::string& path, int flags);
// For this user alone; OK when it is there.
absl::Status MakeDirectory(const std::string& path);
absl::Status SyncDirectoryOf(const std::string& path);
// Syncs an image that tgtd may have open, by a call such as fdatasync. After an error the image has a cache
// id of its own (cache_id.h): the kernel tells an error of writing back to those who had the file open then,
// and to who opens it later only while nobody knows it yet. So a tgtd that opens the image anew from here on
// would never learn of it, and would say of lost writes that they last.
absl::Status SyncImageFile(int fd, const std::string& path, int (*sync)(int));
// Empty: the array's.
absl::StatusOr<std::string> ReadCacheIdOf(const std::string& path);
// Makes `path`.new, as `fill` fills it, synced with its directory entry; or nothing.
absl::Status WriteNewFile(const std::string& path, const std::function<absl::Status(int fd)>& fill);
// What is before `allocated` has its space already.
absl::Status SetSize(int fd, const std::string& path, uint64_t size_bytes, Provisioning provisioning,
                     off_t allocated = 0);
// How many bytes of the file system it takes, shared ones too.
absl::StatusOr<uint64_t> MeasureFile(int fd, const std::string& path);
// Gives a file whose blocks are shared its own copies of them; at most `shared` bytes are.
// RESOURCE_EXHAUSTED: there is no room for all that is left. FAILED_PRECONDITION: this file system cannot.
absl::Status UnshareData(int fd, const std::string& path, uint64_t shared);

}  // namespace lunkeeper
