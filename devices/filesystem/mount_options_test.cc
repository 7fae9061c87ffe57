#include "devices/filesystem/mount_options.h"

#include <catch2/catch.hpp>

namespace lunkeeper {
namespace {

TEST_CASE("ordinary mount options are passed on") {
  CHECK(CheckMountOptions({}).ok());
  CHECK(CheckMountOptions({"noatime", "discard", "data=ordered,commit=30", "ro"}).ok());
  CHECK(CheckMountOptions({"suid", "dev", "errors=continue", "barrier=1"}).ok());
  CHECK(CheckMountOptions({"inode64,logbsize=256k", "allocsize=64m", "wsync"}).ok());
}

TEST_CASE("an SELinux label is one option, with or without quotes") {
  CHECK(CheckMountOptions({"context=system_u:object_r:container_file_t:s0"}).ok());
  CHECK(CheckMountOptions({R"(context="system_u:object_r:container_file_t:s0:c15,c25")", "noatime"}).ok());
  CHECK(CheckMountOptions({R"(noatime,context="system_u:object_r:x:s0:c1,c2",ro)"}).ok());
  for (const std::string option : {R"(context="a,bind)", "context=", R"(context="")", R"(context="a",bind)",
                                   "context=a,bind", R"(context=a"b)", R"(context="a"b")"}) {
    INFO(option);
    CHECK(absl::IsInvalidArgument(CheckMountOptions({option})));
  }
}

TEST_CASE("mount options that are not a user's to set are refused by their place, and not repeated") {
  for (const std::string option :
       {"bind", "loop=/dev/loop0", "logdev=/dev/sda", "X-mount.mkdir", "x-systemd.automount", "noload",
        "norecovery", "noatime,remount", "journal_path=/dev/sda", "helper=sh", "nouuid", "no-such-option"}) {
    INFO(option);
    const absl::Status status = CheckMountOptions({"noatime", option});
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()),
               Catch::Contains("number 2 of 2") && !Catch::Contains(option.substr(option.find(',') + 1)));
  }
}

// The kernel reads numbers in many ways, and names in upper and lower case.
TEST_CASE("an option that stops the node or loses acknowledged writes is refused, however it is written") {
  for (const std::string option :
       {"errors=panic", "ERRORS=panic", "errors=panic,errors=continue", "errors=", "errors", "barrier=0",
        "barrier=00", "barrier=0x0", "barrier=", "nobarrier", "NOBARRIER", "data=writeback", "abort",
        "journal_async_commit", "commit=-1", "commit=", "commit=30;", "commit=3000000000000"}) {
    INFO(option);
    CHECK(absl::IsInvalidArgument(CheckMountOptions({option})));
  }
}

TEST_CASE("mount options that are not plain text are refused") {
  for (const std::string option : {"", "a b", "a\nb", "a\"b", "a\\b", "\x7f", "caf\xc3\xa9", "noatime,"}) {
    INFO(option);
    CHECK(absl::IsInvalidArgument(CheckMountOptions({option})));
  }
  CHECK(absl::IsInvalidArgument(CheckMountOptions({std::string(5000, 'a')})));
}

TEST_CASE("a read-only mount is asked for by any flag, and the last word counts") {
  CHECK(IsReadOnlyMount({"noatime", "noexec,ro"}));
  CHECK(IsReadOnlyMount({"rw", "ro"}));
  CHECK_FALSE(IsReadOnlyMount({"ro,noatime", "rw"}));
  CHECK_FALSE(IsReadOnlyMount({"noatime", R"(context="a,ro")"}));
}

TEST_CASE("a label is asked for by any flag") {
  CHECK(AsksForLabel({"noatime", R"(ro,context="system_u:object_r:x:s0:c1,c2")"}));
  CHECK_FALSE(AsksForLabel({}));
  CHECK_FALSE(AsksForLabel({"noatime,ro", "commit=30"}));
}

TEST_CASE("a volume's content is kept from harming the node, unless its class says otherwise") {
  CHECK(WithDefaultOptions(FilesystemType::kExt4, {}) == "nosuid,nodev,errors=remount-ro");
  CHECK(WithDefaultOptions(FilesystemType::kXfs, {"noatime"}) == "nosuid,nodev,noatime");
  CHECK(WithDefaultOptions(FilesystemType::kExt4, {"suid", "errors=continue"}) ==
        "nosuid,nodev,errors=remount-ro,suid,errors=continue");
}

}  // namespace
}  // namespace lunkeeper
