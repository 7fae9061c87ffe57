// A pool without a free byte: what needs space is refused, and everything else works, so that it can be
// emptied.

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/units.h"
#include "devices/array/tgt/ballast.h"
#include "devices/array/tgt/catalogue.h"
#include "devices/array/tgt/testing/array_fixture.h"

namespace lunkeeper::testing {
namespace {

const NodeId kA("node-a.1");

// While this file has a size, this program's renames fail as over a quota. Null: none fails.
std::atomic<const char*> uses_up_the_quota{nullptr};

// An index of the catalogue's log that was mapped from a file would have pages without blocks here.
constexpr char kExt4[] = "mkfs.ext4 -q -b 1024 -m 0 -N 4096";
constexpr char kXfs[] = "mkfs.xfs -q -m reflink=1";

uint64_t SizeOf(const std::string& path) {
  struct stat file {};
  return ::stat(path.c_str(), &file) == 0 ? static_cast<uint64_t>(file.st_size) : 0;
}

struct SmallPool {
  explicit SmallPool(const char* mkfs)
      : mount(directory.path(), mkfs == kXfs ? "340M" : "128M", mkfs), fixture(mount.path() + "/pool") {}
  void Open() {
    REQUIRE(fixture.Open() == absl::OkStatus());
    array = fixture.Cluster();
  }
  // As after a power cut or a kill: nothing was closed.
  VolumeId MakeVolumeAndDie() {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool made = fixture.Open().ok() && fixture.Cluster()->volumes().CreateVolume(Spec("v", 16)).ok();
      ::_exit(made ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    REQUIRE(status == 0);
    const auto file = std::filesystem::directory_iterator(fixture.options.pool_dir + "/volumes");
    return VolumeId(file->path().filename().string());
  }
  VolumeId MakeVolumeAndStop() {
    Open();
    const auto volume = array->volumes().CreateVolume(Spec("v", 16));
    REQUIRE(volume.ok());
    array.reset();
    fixture.Close();
    return volume->id;
  }
  std::string BallastPath() const { return fixture.options.pool_dir + "/ballast"; }
  // Everything but what needs space.
  void CheckWorks(const VolumeId& volume, int rounds) {
    const auto term = array->fences().BeginTerm("leader");
    REQUIRE(term.status() == absl::OkStatus());
    for (int i = 0; i < rounds; ++i) {
      const auto grant = array->grants().AcquireGrant(
          {.volume = volume, .node = kA, .access = Access::kExclusive, .owner = GrantOwner::kNode},
          absl::ZeroDuration());
      REQUIRE(grant.status() == absl::OkStatus());
      const auto fence = array->fences().FenceNode(*term, {kA, {volume}});
      REQUIRE(fence.status() == absl::OkStatus());
      REQUIRE(array->fences().UnfenceNode(*term, kA, fence->generation) == absl::OkStatus());
    }
  }

  TempDir directory;
  LoopMount mount;
  ArrayFixture fixture;
  std::unique_ptr<Array> array;
};

TEST_CASE("a full pool starts after a stop or a kill, serves, and can be emptied") {
  const char* mkfs = GENERATE(kExt4, kXfs);
  const bool killed = GENERATE(false, true);
  INFO(mkfs << (killed ? ", killed" : ", stopped"));
  SmallPool pool(mkfs);
  const VolumeId volume = killed ? pool.MakeVolumeAndDie() : pool.MakeVolumeAndStop();
  pool.mount.Fill();
  pool.Open();
  VolumeStore& volumes = pool.array->volumes();
  CHECK(volumes.ListVolumes("", 0)->items.size() == 1);
  CHECK(absl::IsResourceExhausted(volumes.CreateVolume(Spec("another", 16)).status()));
  VolumeSpec thick = Spec("thick", 16);
  thick.provisioning = Provisioning::kThick;
  CHECK(absl::IsResourceExhausted(volumes.CreateVolume(thick).status()));
  CHECK(absl::IsResourceExhausted(volumes.CreateSnapshot("s", volume).status()));
  pool.CheckWorks(volume, 5);
  CHECK(volumes.DeleteVolume(volume) == absl::OkStatus());
  CHECK(volumes.ListVolumes("", 0)->items.empty());
  CHECK(std::filesystem::is_empty(pool.fixture.options.pool_dir + "/volumes"));
}

TEST_CASE("a pool that is filled while it serves goes on granting, releasing, fencing and deleting") {
  SmallPool pool(GENERATE(kExt4, kXfs));
  pool.Open();
  const auto volume = pool.array->volumes().CreateVolume(Spec("v", 16));
  REQUIRE(volume.ok());
  pool.mount.Fill();
  CHECK(absl::IsResourceExhausted(pool.array->volumes().CreateVolume(Spec("another", 16)).status()));
  pool.CheckWorks(volume->id, 50);
  CHECK(pool.array->volumes().DeleteVolume(volume->id) == absl::OkStatus());
}

TEST_CASE("the catalogue is one process's, and needs no file that is mapped") {
  SmallPool pool(kExt4);
  pool.Open();
  REQUIRE(pool.array->volumes().CreateVolume(Spec("v", 16)).ok());
  CHECK_FALSE(std::filesystem::exists(pool.fixture.options.pool_dir + "/catalogue.db-shm"));
}

TEST_CASE("a pool releases its ballast, and reserves it again when there is room") {
  SmallPool pool(kExt4);
  const std::string path = pool.mount.path() + "/ballast";
  Ballast ballast(path, std::chrono::seconds(0));
  CHECK_FALSE(ballast.ReleaseSpace());
  ballast.ReserveSpace();
  const uint64_t whole = SizeOf(path);
  CHECK(whole >= 3 << 20);
  pool.mount.Fill();
  CHECK(ballast.ReleaseSpace());
  CHECK(SizeOf(path) == 0);
  Run("head -c 1M /dev/zero >" + pool.mount.path() + "/more");
  pool.mount.Fill();
  ballast.ReserveSpace();
  CHECK(SizeOf(path) == 0);
  CHECK_FALSE(ballast.ReleaseSpace());
  Run("rm " + pool.mount.path() + "/filler && sync -f " + pool.mount.path());
  ballast.ReserveSpace();
  CHECK(SizeOf(path) == whole);
}

// Otherwise what it was released for may find no room: the array reserves it again each second.
TEST_CASE("a ballast that was released is not reserved again at once") {
  SmallPool pool(kExt4);
  const std::string path = pool.mount.path() + "/ballast";
  Ballast ballast(path, std::chrono::hours(1));
  ballast.ReserveSpace();
  REQUIRE(SizeOf(path) > 0);
  CHECK(ballast.ReleaseSpace());
  ballast.ReserveSpace();
  CHECK(SizeOf(path) == 0);
}

TEST_CASE("the ballast is a part of its folder's size, which a project quota may have set") {
  SmallPool pool(kExt4);
  // The file tells of the whole file system, and here of another one.
  std::filesystem::create_symlink(pool.directory / "elsewhere", pool.mount.path() + "/ballast");
  Ballast(pool.mount.path() + "/ballast").ReserveSpace();
  CHECK(SizeOf(pool.directory / "elsewhere") > 0);
  CHECK(SizeOf(pool.directory / "elsewhere") <= 4 << 20);
}

TEST_CASE("a pool whose quota is used up is emptied as a full one is") {
  SmallPool pool(kExt4);
  pool.Open();
  const auto volume = pool.array->volumes().CreateVolume(Spec("v", 16));
  REQUIRE(volume.ok());
  const std::string ballast = pool.BallastPath();
  REQUIRE(SizeOf(ballast) > 0);
  uses_up_the_quota = ballast.c_str();
  CHECK(pool.array->volumes().DeleteVolume(volume->id) == absl::OkStatus());
  uses_up_the_quota = nullptr;
}

TEST_CASE("a change for which the disk has no room is made in the room that is released") {
  SmallPool pool(kExt4);
  const std::string path = pool.mount.path() + "/catalogue.db";
  Run("head -c 24M /dev/zero >" + pool.mount.path() + "/given");
  int asked = 0, made = 0, made_before = 0;
  const auto catalogue = Catalogue::Open(path, "a1", [&] {
    if (++asked == 1) made_before = made;
    return ::truncate((pool.mount.path() + "/given").c_str(), 0) == 0 && asked == 1;
  });
  REQUIRE(catalogue.status() == absl::OkStatus());
  pool.mount.Fill();
  // Rows of 1 MiB: more than what is reserved, and then more than what is released.
  absl::Status status;
  for (; status.ok() && made < 200; ++made) {
    VolumeRow row;
    row.cluster = ClusterId("c1");
    row.volume.id = VolumeId(absl::StrCat("a1-v", made));
    row.volume.spec.name = absl::StrCat(made, std::string(1 << 20, 'n'));
    const uint64_t before = (*catalogue)->sequence();
    status = (*catalogue)->volumes().InsertVolume(row);
    CHECK((*catalogue)->sequence() == before + (status.ok() ? 1 : 0));
  }
  CHECK(absl::IsResourceExhausted(status));
  CHECK(asked == 2);
  CHECK(made > made_before + 5);
  CHECK((*catalogue)->volumes().ListAllVolumes()->size() == static_cast<size_t>(made - 1));
}

TEST_CASE("the catalogue of a full pool grows, and takes more changes than its log has room for") {
  SmallPool pool(GENERATE(kExt4, kXfs));
  const auto catalogue = Catalogue::Open(pool.mount.path() + "/catalogue.db", "a1");
  REQUIRE(catalogue.status() == absl::OkStatus());
  pool.mount.Fill();
  VolumeCatalogue& volumes = (*catalogue)->volumes();
  for (int made = 0; made < 200; ++made) {
    VolumeRow row;
    row.cluster = ClusterId("c1");
    row.volume.id = VolumeId(absl::StrCat("a1-v", made));
    row.volume.spec.name = std::string(64 << 10, 'n');
    REQUIRE(volumes.InsertVolume(row) == absl::OkStatus());
    REQUIRE(volumes.DeleteVolume(row.volume.id) == absl::OkStatus());
  }
}

// As tgtd writes it.
void Overwrite(const std::string& path, const std::string& data) {
  Run("dd if=" + data + " of=" + path + " bs=1M conv=notrunc,fsync 2>/dev/null");
}

VolumeSpec Thick(const std::string& name) {
  VolumeSpec spec = Spec(name, 16);
  spec.provisioning = Provisioning::kThick;
  return spec;
}

TEST_CASE("a thick volume has its space in a full pool, also when it has snapshots or is a clone") {
  SmallPool pool(kXfs);
  pool.Open();
  VolumeStore& volumes = pool.array->volumes();
  const std::string folder = pool.fixture.options.pool_dir, data = pool.directory / "data";
  Run("head -c 16M /dev/urandom >" + data + "1 && head -c 16M /dev/urandom >" + data + "2");
  const auto volume = volumes.CreateVolume(Thick("v"));
  REQUIRE(volume.status() == absl::OkStatus());
  const std::string path = folder + "/volumes/" + volume->id.value();
  Overwrite(path, data + "1");
  const auto snapshot = volumes.CreateSnapshot("s", volume->id);
  REQUIRE(snapshot.status() == absl::OkStatus());
  VolumeSpec of_volume = Thick("of a volume"), of_snapshot = Thick("of a snapshot"), thin = Spec("thin", 16);
  of_volume.source_volume = thin.source_volume = volume->id;
  of_snapshot.source_snapshot = snapshot->id;
  std::vector<std::string> thick = {path};
  for (const VolumeSpec& spec : {of_volume, of_snapshot}) {
    const auto clone = volumes.CreateVolume(spec);
    REQUIRE(clone.status() == absl::OkStatus());
    thick.push_back(folder + "/volumes/" + clone->id.value());
    Run("cmp " + thick.back() + " " + data + "1");
  }
  REQUIRE(volumes.CreateVolume(thin).status() == absl::OkStatus());
  pool.mount.Fill();
  for (const std::string& file : thick) {
    CHECK_NOTHROW(Overwrite(file, data + "2"));
    CHECK_NOTHROW(Run("cmp " + file + " " + data + "2"));
  }
  CHECK_NOTHROW(Run("cmp " + folder + "/snapshots/" + snapshot->id.value() + " " + data + "1"));
}

TEST_CASE("a thick volume has its space again in a copy of the pool with holes") {
  SmallPool pool(kXfs);
  pool.Open();
  const auto volume = pool.array->volumes().CreateVolume(Thick("v"));
  REQUIRE(volume.ok());
  const std::string file = pool.fixture.options.pool_dir + "/volumes/" + volume->id.value();
  pool.array.reset();
  pool.fixture.Close();
  Run("fallocate --punch-hole --offset 0 --length 16M " + file);  // as cp --sparse=always leaves it
  pool.Open();
  pool.mount.Fill();
  CHECK_NOTHROW(Overwrite(file, "/dev/urandom count=16"));
}

TEST_CASE("a snapshot of a thin volume takes no space until something changes") {
  SmallPool pool(kXfs);
  pool.Open();
  const auto volume = pool.array->volumes().CreateVolume(Spec("v", 16));
  const std::string folder = pool.fixture.options.pool_dir;
  Overwrite(folder + "/volumes/" + volume->id.value(), "/dev/urandom count=16");
  const uint64_t before = pool.fixture.array->MeasureUse()->used_bytes;
  REQUIRE(pool.array->volumes().CreateSnapshot("s", volume->id).ok());
  CHECK(pool.fixture.array->MeasureUse()->snapshots == 1);
  CHECK(pool.fixture.array->MeasureUse()->used_bytes < before + (4 << 20));
}

TEST_CASE("no more is promised than the limit says") {
  SmallPool pool(kExt4);
  pool.fixture.options.limits.overcommit = 2;
  pool.Open();
  VolumeStore& volumes = pool.array->volumes();
  const auto first = volumes.CreateVolume(Spec("first", 100));
  REQUIRE(first.status() == absl::OkStatus());
  CHECK(absl::IsResourceExhausted(volumes.CreateVolume(Spec("second", 180)).status()));
  REQUIRE(volumes.CreateVolume(Spec("second", 60)).ok());
  CHECK(pool.fixture.array->MeasureUse()->promised_bytes.at(ClusterId("c1")) == 160 << 20);
  CHECK(pool.fixture.array->MeasureUse()->total_bytes > 100 << 20);
  CHECK(pool.fixture.array->MeasureUse()->volumes == 2);
  CHECK(absl::IsResourceExhausted(volumes.CreateSnapshot("s", first->id).status()));
  CHECK(absl::IsResourceExhausted(volumes.ExpandVolume(first->id, 250 << 20).status()));
  CHECK(volumes.ExpandVolume(first->id, 110 << 20).ok());
  CHECK(volumes.DeleteVolume(first->id).ok());
  CHECK(volumes.CreateVolume(Spec("third", 100)).ok());
}

TEST_CASE("all that a pool offers can be made one thick volume") {
  SmallPool pool(GENERATE(kXfs, kExt4));
  const PoolLimits limits =
      GENERATE(PoolLimits{}, PoolLimits{.keep_free_percent = 20}, PoolLimits{.overcommit = 0.5});
  pool.fixture.options.limits = limits;
  pool.Open();
  VolumeStore& volumes = pool.array->volumes();
  const uint64_t offered = volumes.GetCapacity()->creatable_bytes;
  CHECK(offered > 32 << 20);
  CHECK(offered < volumes.GetCapacity()->available_bytes);
  VolumeSpec all = Thick("all");
  all.size_bytes = offered / kMiB * kMiB;
  CHECK(volumes.CreateVolume(all).status() == absl::OkStatus());
  CHECK(volumes.GetCapacity()->creatable_bytes < kMiB);
}

TEST_CASE("a thick growth that was cut short takes no space when it is repeated") {
  SmallPool pool(kXfs);
  pool.Open();
  VolumeStore& volumes = pool.array->volumes();
  const auto volume = volumes.CreateVolume(Thick("v"));
  REQUIRE(volume.ok());
  // As a crash leaves it: the file has grown, and the catalogue does not know.
  Run("fallocate -l 160M " + pool.fixture.options.pool_dir + "/volumes/" + volume->id.value());
  CHECK(volumes.ExpandVolume(volume->id, 160 << 20).status() == absl::OkStatus());
  CHECK(volumes.GetVolume(volume->id)->spec.size_bytes == 160 << 20);
  CHECK(absl::IsResourceExhausted(volumes.ExpandVolume(volume->id, 240 << 20).status()));
}

TEST_CASE("a copied snapshot and a copied clone find room for their data, or are refused") {
  SmallPool pool(kExt4);
  pool.fixture.options.limits.keep_free_percent = 50;
  pool.Open();
  VolumeStore& volumes = pool.array->volumes();
  const auto volume = volumes.CreateVolume(Spec("v", 64));
  const auto small = volumes.CreateVolume(Spec("small", 64));
  REQUIRE(small.ok());
  Overwrite(pool.fixture.options.pool_dir + "/volumes/" + volume->id.value(), "/dev/urandom count=20");
  Overwrite(pool.fixture.options.pool_dir + "/volumes/" + small->id.value(), "/dev/urandom count=1");
  CHECK(absl::IsResourceExhausted(volumes.CreateSnapshot("s", volume->id).status()));
  VolumeSpec clone = Spec("clone", 64);
  clone.source_volume = volume->id;
  CHECK(absl::IsResourceExhausted(volumes.CreateVolume(clone).status()));
  clone.source_volume = small->id;
  CHECK(volumes.CreateVolume(clone).status() == absl::OkStatus());
  const auto snapshot = volumes.CreateSnapshot("s", small->id);
  REQUIRE(snapshot.status() == absl::OkStatus());
  CHECK(Eventually([&] { return volumes.GetSnapshot(snapshot->id)->ready; }));
}

TEST_CASE("new volumes, growth and snapshots leave free what they are told to") {
  SmallPool pool(kXfs);
  pool.fixture.options.limits.keep_free_percent = 50;
  pool.Open();
  VolumeStore& volumes = pool.array->volumes();
  const auto volume = volumes.CreateVolume(Spec("v", 16));
  REQUIRE(volume.ok());
  REQUIRE(volumes.CreateSnapshot("s", volume->id).ok());
  VolumeSpec large = Thick("large");
  large.size_bytes = 200 << 20;
  CHECK(absl::IsResourceExhausted(volumes.CreateVolume(large).status()));
  Run("fallocate -l 150M " + pool.mount.path() + "/filler");
  CHECK(absl::IsResourceExhausted(volumes.CreateVolume(Spec("another", 16)).status()));
  CHECK(absl::IsResourceExhausted(volumes.ExpandVolume(volume->id, 32 << 20).status()));
  CHECK(absl::IsResourceExhausted(volumes.CreateSnapshot("s2", volume->id).status()));
  CHECK(volumes.CreateSnapshot("s", volume->id).ok());
}

bool IsOverQuota() {
  const char* const file = uses_up_the_quota;
  return file != nullptr && SizeOf(file) > 0;
}

}  // namespace
}  // namespace lunkeeper::testing

// In place of libc's.
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned int flags) noexcept {
  if (!lunkeeper::testing::IsOverQuota())
    return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  errno = EDQUOT;
  return -1;
}
