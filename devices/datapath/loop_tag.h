#pragma once
// Whose device a loop device is: the tag in its file name field says which supervisor made it and for which
// volume, and the mark in its size limit says the former to who only reads sysfs. Thread-safe.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace lunkeeper {

// What a loop device's tag begins with for the supervisor whose control socket is at `socket_path`, wherever
// that is mounted.
std::string LoopTagPrefix(const std::string& socket_path);
// At most 63 characters; a name that does not fit is replaced by its hash.
std::string LoopTag(const std::string& prefix, const std::string& volume);

// Of the supervisor whose prefix `tag` begins with. A limit larger than any device limits nothing.
uint64_t LoopMark(const std::string& tag);
// Of the device with that folder in sysfs; 0: it has none, or is no loop device.
uint64_t ReadLoopMark(const std::filesystem::path& folder);
// Whether the device bears the mark of any supervisor.
bool IsMarkedLoop(dev_t number);

}  // namespace lunkeeper
