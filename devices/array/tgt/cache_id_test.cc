#include "devices/array/tgt/cache_id.h"

#include <signal.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <utility>

#include "devices/array/tgt/testing/array_fixture.h"

namespace lunkeeper::testing {
namespace {

constexpr char kBoot[] = "0123456789abcdef";

struct Host {
  explicit Host(const std::string& boot = "01234567-89ab-cdef-0123-456789abcdef") { Boot(boot); }
  void Boot(const std::string& id) const { std::ofstream(paths.boot_id) << id << "\n"; }
  std::string Read() const {
    const auto id = ReadCacheId(paths);
    REQUIRE(id.status() == absl::OkStatus());
    CHECK(id->size() == 16);
    return *id;
  }
  void Flush() const { REQUIRE(FlushPool(paths) == absl::OkStatus()); }
  TempDir directory;
  CacheIdPaths paths = {directory / "boot_id", directory.path(), directory / "memory"};
};

// A pool on a disk that two hosts reach.
struct TwoHosts {
  TwoHosts() { first.paths.pool = second.paths.pool = mount.path(); }
  Host first, second{"fedcba98-7654-3210-0123-456789abcdef"};
  LoopMount mount{first.directory.path(), "340M", GENERATE("mkfs.xfs -q", "mkfs.ext4 -q")};
};

TEST_CASE_METHOD(Host, "the first mount after a boot is known by the boot id, and each later one differs") {
  LoopMount mount(directory.path(), "340M", GENERATE("mkfs.xfs -q", "mkfs.ext4 -q"));
  paths.pool = mount.path();
  CHECK(Read() == kBoot);
  CHECK(Read() == kBoot);
  mount.MountAnew();
  const std::string second = Read();
  CHECK(second != kBoot);
  CHECK(Read() == second);
  mount.MountAnew();
  const std::string third = Read();
  CHECK(third != kBoot);
  CHECK(third != second);
  Boot("fedcba98-7654-3210-0123-456789abcdef");
  CHECK(Read() == "fedcba9876543210");
}

TEST_CASE_METHOD(Host, "a bind mount, in another mount namespace too, is the same mount") {
  LoopMount mount(directory.path(), "340M");
  paths.pool = mount.path();
  Read();
  mount.MountAnew();
  const std::string id = Read();
  std::filesystem::create_directory(directory / "bound");
  Run("mount --bind " + mount.path() + " " + (directory / "bound"));
  paths.pool = directory / "bound";
  CHECK(Read() == id);
  Run("umount " + (directory / "bound"));
}

TEST_CASE_METHOD(Host, "where no mount can be told from another, and without a memory, the boot id counts") {
  CHECK(Read() == kBoot);
  std::ofstream(paths.memory) << "01234567";  // cut short
  CHECK(Read() == kBoot);
  paths.memory = "";
  CHECK(Read() == kBoot);
  Boot("none");
  CHECK(absl::IsFailedPrecondition(ReadCacheId(paths).status()));
}

TEST_CASE_METHOD(Host, "the memory is written when there is something new to remember") {
  Read();
  const auto inode = [this] {
    struct stat file {};
    REQUIRE(::stat(paths.memory.c_str(), &file) == 0);
    return file.st_ino;
  };
  const auto before = inode();
  Read();
  CHECK(inode() == before);
  Boot("fedcba98-7654-3210-0123-456789abcdef");
  Read();
  CHECK(inode() != before);
}

TEST_CASE_METHOD(Host, "a memory that cannot be written stops no start, and a known mount is still told") {
  LoopMount mount(directory.path(), "340M");
  paths.pool = mount.path();
  const std::string memory = std::exchange(paths.memory, directory / "none/memory");
  CHECK(Read() == kBoot);
  paths.memory = memory;
  Read();
  std::filesystem::create_directory(memory + ".new");  // where it would be written
  CHECK(Read() == kBoot);
  mount.MountAnew();
  const std::string second = Read();
  CHECK(second != kBoot);
  CHECK(Read() == second);
}

TEST_CASE_METHOD(TwoHosts, "a pool that was flushed has the same id on another host, and on the way back") {
  const std::string id = first.Read();
  first.Flush();
  first.Flush();
  mount.MountAnew();
  CHECK(second.Read() == id);
  CHECK(second.Read() == id);
  second.Flush();
  mount.MountAnew();
  CHECK(first.Read() == id);
  first.Flush();
  CHECK(first.Read() == id);  // it was not unmounted after all
}

TEST_CASE_METHOD(TwoHosts, "a pool that was flushed for one move has other ids after each loss") {
  const std::string id = first.Read();
  first.Flush();
  mount.MountAnew();
  CHECK(second.Read() == id);
  mount.MountAnew();
  const bool comes_back = GENERATE(false, true);
  const std::string after_loss = (comes_back ? first : second).Read();
  CHECK(after_loss != id);
  mount.MountAnew();
  const std::string again = (comes_back ? second : first).Read();
  CHECK(again != id);
  CHECK(again != after_loss);
}

TEST_CASE_METHOD(TwoHosts, "an id is not shown again by a host that has lost its memory of it") {
  const std::string id = first.Read();
  first.Flush();
  mount.MountAnew();
  CHECK(second.Read() == id);
  mount.MountAnew();
  std::filesystem::remove(first.paths.memory);
  const std::string after_loss = first.Read();
  CHECK(after_loss != id);
  CHECK(first.Read() == after_loss);
}

TEST_CASE_METHOD(TwoHosts, "a flush says nothing for a mount that no agent has seen") {
  const std::string id = first.Read();
  mount.MountAnew();  // and what was in the cache is lost
  first.Flush();
  mount.MountAnew();
  CHECK(second.Read() != id);
}

TEST_CASE_METHOD(TwoHosts, "an id that the host cannot remember stays on that host") {
  first.paths.memory = first.directory / "none/memory";
  const std::string id = first.Read();
  first.Flush();
  mount.MountAnew();
  CHECK(second.Read() != id);
}

TEST_CASE_METHOD(Host, "what was written to a pool that was flushed outlives its power cut") {
  LoopMount mount(directory.path(), "340M", "mkfs.xfs -q");
  paths.pool = mount.path();
  const std::string id = Read();
  std::ofstream(mount.path() + "/data") << "written";
  Flush();
  Run("xfs_io -x -c shutdown " + mount.path());
  mount.MountAnew();
  std::string data;
  std::ifstream(mount.path() + "/data") >> data;
  CHECK(data == "written");
  CHECK(Read() == id);
}

TEST_CASE_METHOD(Host, "a pool whose disk does not take its data is not flushed") {
  LoopMount mount(directory.path(), "340M", "mkfs.xfs -q");
  paths.pool = mount.path();
  const std::string id = Read();
  std::ofstream(mount.path() + "/data") << "not on the disk yet";
  Run("xfs_io -x -c shutdown " + mount.path());
  CHECK_FALSE(FlushPool(paths).ok());
  mount.MountAnew();
  CHECK(Read() != id);
}

TEST_CASE("a node sees that the pool was mounted anew, and no change when only tgtd or the agent restart") {
  TempDir directory;
  LoopMount mount(directory.path(), "340M");
  ArrayFixture fixture(mount.path() + "/pool");
  const auto product = [&fixture] {
    REQUIRE(fixture.Open() == absl::OkStatus());
    const auto array = fixture.Cluster();
    const auto volume = array->volumes().CreateVolume(Spec("v", 16));
    REQUIRE(volume.ok());
    const auto grant = array->grants().AcquireGrant({.volume = volume->id,
                                                     .node = NodeId("node-a.1"),
                                                     .access = Access::kExclusive,
                                                     .owner = GrantOwner::kNode},
                                                    absl::ZeroDuration());
    REQUIRE(grant.ok());
    const auto initiator = PlainInitiator::Login(grant->connection);
    REQUIRE(initiator.ok());
    return (*initiator)->Identity().product;
  };
  const auto end_tgtd = [&fixture] {
    fixture.Close();
    REQUIRE(::kill(TgtdProcess(fixture.options.control_port), SIGKILL) == 0);
    REQUIRE(Eventually([&] { return TgtdProcess(fixture.options.control_port) == 0; }));
  };
  const std::string first = product();
  fixture.Close();
  CHECK(product() == first);
  end_tgtd();
  CHECK(product() == first);
  end_tgtd();
  mount.MountAnew();
  CHECK(product() != first);
}

}  // namespace
}  // namespace lunkeeper::testing
