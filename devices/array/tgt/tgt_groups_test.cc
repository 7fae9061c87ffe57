// Groups of snapshots of a real tgtd's volumes, on file systems with and without reflinks. Needs root.
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "devices/array/testing/group_contract.h"
#include "devices/array/testing/name_contract.h"
#include "devices/array/tgt/file_extents.h"
#include "devices/array/tgt/pool_clones.h"
#include "devices/array/tgt/testing/array_fixture.h"
#include "devices/array/tgt/tgt_client.h"
#include "devices/array/tgt/tgtd_pause.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("a.0000000000000001"), kB("b.0000000000000002");

struct GroupsOnXfs {
  GroupsOnXfs() { REQUIRE(fixture.Open() == absl::OkStatus()); }

  // The first byte of a block of a snapshot, as it is in its file.
  char ByteOf(const SnapshotGroup& group, const VolumeId& source, std::streamoff block) const {
    for (const Snapshot& snapshot : group.snapshots) {
      if (snapshot.source != source) continue;
      std::ifstream file(absl::StrCat(pool, "/snapshots/", snapshot.id.value()), std::ios::binary);
      file.seekg(block * 512);
      return static_cast<char>(file.get());
    }
    return '?';
  }
  std::unique_ptr<PlainInitiator> Use(Array& array, const VolumeId& volume, const NodeId& node) {
    const auto grant = array.grants().AcquireGrant({.volume = volume, .node = node}, absl::ZeroDuration());
    REQUIRE(grant.status() == absl::OkStatus());
    auto initiator = PlainInitiator::Login(grant->connection);
    REQUIRE(initiator.status() == absl::OkStatus());
    return *std::move(initiator);
  }
  size_t CountFiles(const char* folder) const {
    size_t files = 0;
    for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(pool + "/" + folder))
      ++files;
    return files;
  }

  TempDir directory;
  LoopMount mount{directory.path(), "512M"};
  const std::string pool = mount.path() + "/pool";
  ArrayFixture fixture{pool};
};

}  // namespace

TEST_CASE_METHOD(GroupsOnXfs, "a real array keeps what groups of snapshots promise") {
  const auto array = fixture.Cluster(), other = fixture.Cluster("c2");
  CheckGroupLife(*array);
  CheckGroupRefusals(*array);
  CheckRestoreFromMember(*array);
  CheckGroupsAreSeparate(*array, *other);
  CHECK(CountFiles("snapshots") == 0);
}

TEST_CASE_METHOD(GroupsOnXfs, "a real array finds names as promised") {
  const auto array = fixture.Cluster(), other = fixture.Cluster("c2");
  CheckNames(*array, *other);
}

TEST_CASE_METHOD(GroupsOnXfs, "a group has what was written before it, flushed or not, and nothing later") {
  const auto array = fixture.Cluster();
  const VolumeId a = MakeContractVolume(*array, "a"), b = MakeContractVolume(*array, "b");
  const auto on_a = Use(*array, a, kA), on_b = Use(*array, b, kB);
  REQUIRE(on_a->Write(7, 'x'));
  REQUIRE(on_b->Write(9, 'y'));
  const SnapshotGroup group = MustCreateGroup(*array, "g", {a, b});
  REQUIRE(on_a->Write(7, 'z'));
  REQUIRE(on_b->Write(9, 'z'));
  CHECK(ByteOf(group, a, 7) == 'x');
  CHECK(ByteOf(group, b, 9) == 'y');
  CHECK(on_a->Read(7) == 'z');
}

TEST_CASE_METHOD(GroupsOnXfs, "a write that waited for another volume's is never in a group without it") {
  const auto array = fixture.Cluster();
  const VolumeId a = MakeContractVolume(*array, "a"), b = MakeContractVolume(*array, "b");
  const auto on_a = Use(*array, a, kA), on_b = Use(*array, b, kB);
  std::atomic<bool> over = false;
  std::atomic<bool> well = true;
  std::thread writer([&] {
    for (char n = 1; !over && well; n = static_cast<char>(n % 100 + 1))
      well = on_a->Write(0, n) && on_b->Write(0, n);
  });
  for (int round = 0; round < 20; ++round) {
    const auto made = array->groups().CreateGroup(absl::StrCat("g", round), {a, b});
    INFO(made.status());
    if (absl::IsUnavailable(made.status())) continue;  // too slow a machine for the barrier's limit
    REQUIRE(made.ok());
    const int first = ByteOf(*made, a, 0), second = ByteOf(*made, b, 0);
    INFO("the first volume has " << first << ", the second " << second);
    CHECK((first == second || first == second % 100 + 1));
    CHECK(array->groups().DeleteGroup(made->id).ok());
  }
  over = true;
  writer.join();
  CHECK(well);
}

// All kinds of change between the steps, and at last each block as it was within the barrier.
TEST_CASE("a clone that is made in rounds has every block as it was at the last one, holes too") {
  const TempDir directory;
  const LoopMount mount(directory.path(), "512M");
  const auto pool = Pool::Open(mount.path() + "/pool");
  REQUIRE(pool.ok());
  constexpr uint64_t kSize = 4 << 20;
  const std::string source = (*pool)->VolumePath(VolumeId("v"));
  const UniqueFd file(::open(source.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::ftruncate(file.get(), kSize) == 0);
  std::mt19937 random(7);
  const auto change = [&] {
    for (int i = 0; i < 300; ++i) {
      const off_t offset = static_cast<off_t>(random() % 1023) * 4096;
      const std::string data(4096, static_cast<char>('a' + random() % 26));
      const int kind = static_cast<int>(random() % 4);
      const int mode = kind == 0 ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE;
      if (kind < 2) REQUIRE(::fallocate(file.get(), mode | FALLOC_FL_KEEP_SIZE, offset, 8192) == 0);
      if (kind >= 2) REQUIRE(::pwrite(file.get(), data.data(), data.size(), offset) == 4096);
    }
  };
  const auto content = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  // Clones that were made before share blocks with the source too.
  std::vector<std::pair<std::string, std::string>> made;
  for (int round = 0; round < 5; ++round) {
    const std::string to = (*pool)->SnapshotPath({}, SnapshotId(absl::StrCat("s", round)));
    const auto clones =
        PoolClones::MakeFiles(**pool, {{.from = source, .to = to, .size_bytes = kSize, .own_space = false}});
    REQUIRE(clones.ok());
    change();
    REQUIRE((*clones)->ShareMost() == absl::OkStatus());
    change();
    REQUIRE((*clones)->ShareMost() == absl::OkStatus());
    change();
    const std::string then = content(source);
    REQUIRE((*clones)->ShareAll(TgtdPause::Clock::now() + std::chrono::hours(1)) == absl::OkStatus());
    change();
    REQUIRE((*clones)->Complete() == absl::OkStatus());
    (*clones)->Keep();
    made.emplace_back(to + ".new", then);
  }
  for (const auto& [path, then] : made) CHECK(content(path) == then);
}

TEST_CASE("what would take long within a barrier is known before it, and what to do is said") {
  const TempDir directory;
  const LoopMount mount(directory.path(), "512M");
  const auto pool = Pool::Open(mount.path() + "/pool");
  REQUIRE(pool.ok());
  const std::string source = (*pool)->VolumePath(VolumeId("v"));
  const UniqueFd file(::open(source.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  for (off_t block = 0; block < 200; block += 2) REQUIRE(::pwrite(file.get(), "x", 1, block * 4096) == 1);
  const auto clones = PoolClones::MakeFiles(**pool, {{.from = source,
                                                      .to = (*pool)->SnapshotPath({}, SnapshotId("s")),
                                                      .size_bytes = 1 << 20,
                                                      .own_space = false}});
  REQUIRE(clones.ok());
  REQUIRE((*clones)->ShareMost() == absl::OkStatus());
  CHECK((*clones)->CheckLastRound(std::chrono::hours(1)) == absl::OkStatus());
  CHECK((*clones)->CanCatchUp(100));
  CHECK_FALSE((*clones)->CanCatchUp(99));
  CHECK(absl::IsUnavailable((*clones)->CheckLastRound(std::chrono::nanoseconds(1), 100)));
  const absl::Status refused = (*clones)->CheckLastRound(std::chrono::nanoseconds(1), 99);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("they are in 100 pieces, 100 of them in " + source));
}

TEST_CASE("two files differ where their blocks are not the same, or not known") {
  const std::vector<FileExtent> a = {{.offset = 0, .length = 8, .place = 100, .known = true},
                                     {.offset = 16, .length = 8, .place = 200, .known = true},
                                     {.offset = 24, .length = 4, .place = 300, .known = false}};
  const auto differences = [&](const std::vector<FileExtent>& b) {
    std::string text;
    for (const FileRange& range : FindDifferences(a, b, 32))
      absl::StrAppend(&text, range.offset, "-", range.end, " ");
    return text;
  };
  CHECK(differences(a) == "24-28 ");
  CHECK(differences({}) == "0-8 16-28 ");
  // In other pieces, and one block moved; a hole that was filled.
  CHECK(differences({{.offset = 0, .length = 4, .place = 100, .known = true},
                     {.offset = 4, .length = 4, .place = 104, .known = true},
                     {.offset = 16, .length = 4, .place = 200, .known = true},
                     {.offset = 20, .length = 4, .place = 400, .known = true}}) == "20-28 ");
  CHECK(differences({{.offset = 0, .length = 16, .place = 100, .known = true}}) == "8-28 ");
  CHECK(FindDifferences({}, {}, 32).empty());
}

TEST_CASE_METHOD(GroupsOnXfs, "a pool without room makes no group at all") {
  const auto array = fixture.Cluster();
  const VolumeId a = MakeContractVolume(*array, "a");
  VolumeSpec spec = Spec("thick", 64);
  spec.provisioning = Provisioning::kThick;
  const VolumeId thick = array->volumes().CreateVolume(spec).value().id;
  const auto initiator = Use(*array, thick, kA);
  for (uint64_t block = 0; block < (32 << 11); block += 8) REQUIRE(initiator->Write(block, 'x'));
  mount.Fill();
  // The snapshot of a thick volume shares nothing.
  CHECK(absl::IsResourceExhausted(array->groups().CreateGroup("g", {a, thick}).status()));
  CHECK(CountFiles("snapshots") == 0);
  CHECK(CountSnapshots(*array) == 0);
  CHECK(initiator->Write(0, 'y'));
}

TEST_CASE("a pool that cannot reflink refuses groups, and says what to do") {
  ArrayFixture fixture;  // on the disk of the machine
  REQUIRE(fixture.Open() == absl::OkStatus());
  const auto array = fixture.Cluster();
  const VolumeId a = MakeContractVolume(*array, "a");
  const absl::Status refused = array->groups().CreateGroup("g", {a}).status();
  const bool reflinks = refused.ok();  // where the temporary folder is on XFS or btrfs
  if (reflinks) return;
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()), Catch::Contains("XFS or btrfs"));
}

#ifdef LUNKEEPER_FAIL_POINTS
// The agent in a process of its own, which dies at the fail point.
TEST_CASE_METHOD(GroupsOnXfs,
                 "an agent that is killed leaves a group whole or not at all, and tgtd serving") {
  const auto [fail_point, stored] = GENERATE(table<const char*, bool>({{"array.group.files_made", false},
                                                                       {"array.barrier.begun", false},
                                                                       {"array.barrier.worked", false},
                                                                       {"array.group.shared", false},
                                                                       {"array.group.completed", false},
                                                                       {"array.group.stored", true}}));
  CAPTURE(fail_point);
  std::vector<VolumeId> volumes;
  {
    const auto array = fixture.Cluster();
    volumes = {MakeContractVolume(*array, "a"), MakeContractVolume(*array, "b")};
  }
  fixture.Close();
  const pid_t agent = ::fork();
  if (agent == 0) {
    ::setenv("LUNKEEPER_FAIL_POINT", fail_point, 1);
    const bool opened = fixture.Open().ok();
    ::_exit(opened && fixture.Cluster()->groups().CreateGroup("g", volumes).ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(agent, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  // Nobody but the guard is there to let it go. An answer that takes the limit of a pause would be an end by
  // time, and not by the agent's death; how long exactly, no test can say.
  CHECK(TgtClient(fixture.options.control_port).ListPortals().ok());

  REQUIRE(fixture.Open() == absl::OkStatus());
  const auto array = fixture.Cluster();
  CHECK(CountSnapshots(*array) == (stored ? 2 : 0));
  CHECK(CountFiles("snapshots") == (stored ? 2 : 0));
  CHECK(MustCreateGroup(*array, "g", volumes).snapshots.size() == 2);
  CHECK(CountFiles("snapshots") == 2);
}

TEST_CASE_METHOD(GroupsOnXfs, "a deletion that is killed is over after the next start, or has not begun") {
  const auto [fail_point, left] = GENERATE(table<const char*, size_t>(
      {{"array.delete_group.files_condemned", 2}, {"array.delete_group.rows_deleted", 0}}));
  CAPTURE(fail_point);
  SnapshotGroupId group;
  {
    const auto array = fixture.Cluster();
    group =
        MustCreateGroup(*array, "g", {MakeContractVolume(*array, "a"), MakeContractVolume(*array, "b")}).id;
  }
  fixture.Close();
  const pid_t agent = ::fork();
  if (agent == 0) {
    ::setenv("LUNKEEPER_FAIL_POINT", fail_point, 1);
    ::_exit(fixture.Open().ok() && fixture.Cluster()->groups().DeleteGroup(group).ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(agent, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(fixture.Open() == absl::OkStatus());
  const auto array = fixture.Cluster();
  CHECK(CountSnapshots(*array) == left);
  CHECK(CountFiles("snapshots") == left);
  CHECK(array->groups().DeleteGroup(group).ok());
  CHECK(CountFiles("snapshots") == 0);
}
#endif

// Its guard died with the agent: the worst case.
TEST_CASE_METHOD(GroupsOnXfs, "a tgtd that was left stopped goes on when the next agent takes it over") {
  const auto array = fixture.Cluster();
  const VolumeId a = MakeContractVolume(*array, "a");
  const auto initiator = Use(*array, a, kA);
  fixture.Close();
  ::kill(TgtdProcess(fixture.options.control_port), SIGSTOP);
  REQUIRE(fixture.Open() == absl::OkStatus());
  CHECK(initiator->Write(1, 'x'));
}

TEST_CASE_METHOD(GroupsOnXfs,
                 "a tgtd that is killed takes no group with it, and the repeated call succeeds") {
  const auto array = fixture.Cluster();
  const VolumeId a = MakeContractVolume(*array, "a");
  ::kill(TgtdProcess(fixture.options.control_port), SIGKILL);
  const absl::Status at_once = array->groups().CreateGroup("g", {a}).status();
  CHECK((at_once.ok() || absl::IsUnavailable(at_once)));
  CHECK(Eventually([&] { return array->groups().CreateGroup("g", {a}).ok(); }, absl::Minutes(1)));
  CHECK(CountSnapshots(*array) == 1);
  CHECK(CountFiles("snapshots") == 1);
}

}  // namespace lunkeeper::testing
