#include "devices/filesystem/mount_options.h"

#include <catch2/catch.hpp>

namespace lunkeeper {
namespace {

TEST_CASE("ordinary mount options are passed on") {
  CHECK(CheckMountOptions({}).ok());
  CHECK(CheckMountOptions(
            {"noatime", "discard", "data=ordered,commit=30", "ro", "context=system_u:object_r:x:s0"})
            .ok());
}

TEST_CASE("mount options that are not a user's to set are refused by name") {
  for (const std::string option :
       {"bind", "loop=/dev/loop0", "logdev=/dev/sda", "X-mount.mkdir", "x-systemd.automount", "noload",
        "norecovery", "noatime,remount", "journal_path=/dev/sda", "helper=sh"}) {
    INFO(option);
    const absl::Status status = CheckMountOptions({"noatime", option});
    CHECK(absl::IsInvalidArgument(status));
    CHECK(std::string(status.message()).find(option.substr(option.find(',') + 1)) != std::string::npos);
  }
}

TEST_CASE("mount options that are not plain text are refused") {
  for (const std::string option : {"", "a b", "a\nb", "a\"b", "a\\b", "\x7f", "caf\xc3\xa9"}) {
    INFO(option);
    CHECK(absl::IsInvalidArgument(CheckMountOptions({option})));
  }
  CHECK(absl::IsInvalidArgument(CheckMountOptions({std::string(5000, 'a')})));
}

}  // namespace
}  // namespace lunkeeper
