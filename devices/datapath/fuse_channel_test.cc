// What volumes of a silent array leave of a loop's memory, request by request. The kernel is a socket here.
#include "devices/datapath/fuse_channel.h"

#include <sys/socket.h>

#include <array>
#include <catch2/catch.hpp>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/units.h"

namespace lunkeeper {
namespace {

class SilentLun final : public Lun {
 public:
  void Start() override {}
  Interest interest() const override { return {-1, 0}; }
  void OnReady() override {}
  Clock::time_point NextDeadline() const override { return Clock::time_point::max(); }
  void OnTimer(Clock::time_point) override {}
  void Submit(LunRequest* request) override { pending.push_back(request); }
  void SendQueued() override {}
  void Fail(const std::string&) override {}
  void Close() override {}

  std::deque<LunRequest*> pending;
};

class SilentVolume {
 public:
  SilentVolume(IoResources* resources, std::shared_ptr<ReserveUse> array) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    kernel_.Reset(ends[1]);
    slot_.lun.health = LunHealth::kHealthy;
    slot_.lun.size_bytes = 64 * kMiB;
    auto lun = std::make_unique<SilentLun>();
    lun_ = lun.get();
    channel_ = std::make_unique<FuseChannel>(UniqueFd(ends[0]), std::move(lun), &slot_, /*resend=*/false,
                                             resources, std::move(array));
    channel_->Open();
  }
  // Whether it is taken on.
  bool Read(uint32_t bytes) {
    struct {
      fuse_in_header header{};
      fuse_read_in body{};
    } packet;
    packet.header.len = sizeof(packet);
    packet.header.opcode = FUSE_READ;
    packet.body.size = bytes;
    return Take(&packet, packet.header.len);
  }
  bool Flush() {
    fuse_in_header header{};
    header.len = sizeof(header);
    header.opcode = FUSE_FSYNC;
    return Take(&header, header.len);
  }
  // All that it has on its way.
  void Answer() {
    for (LunRequest* request : std::exchange(lun_->pending, {})) request->done(request);
  }

 private:
  bool Take(const void* packet, size_t size) {
    REQUIRE(::send(kernel_.get(), packet, size, 0) == static_cast<ssize_t>(size));
    const size_t before = lun_->pending.size();
    channel_->ReadRequests();
    return lun_->pending.size() > before;
  }

  UniqueFd kernel_;
  VolumeSlot slot_{};
  SilentLun* lun_ = nullptr;
  std::unique_ptr<FuseChannel> channel_;
};

struct SilentAndOther {
  explicit SilentAndOther(size_t pool_bytes) : resources(pool_bytes) {}
  SilentVolume& AddSilent() { return volumes.emplace_back(&resources, silent); }

  IoResources resources;
  const std::shared_ptr<ReserveUse> silent = std::make_shared<ReserveUse>();
  std::deque<SilentVolume> volumes;
  SilentVolume of_other{&resources, std::make_shared<ReserveUse>()};
};

}  // namespace

// Large ones until nothing is left but the reserve, then others of each size, each of a volume of its own.
TEST_CASE("requests of any sizes to a silent array leave another one a whole block") {
  const size_t mib = GENERATE(8, 9, 15, 16, 24, 64);
  const auto sizes =
      GENERATE(std::vector<uint32_t>{1 << 20}, std::vector<uint32_t>{4096, 1 << 20},
               std::vector<uint32_t>{1 << 20, 4096}, std::vector<uint32_t>{4096, 4096, 1 << 20});
  INFO(mib << " MiB, and " << sizes.size() << " sizes from " << sizes.front() << " on");
  SilentAndOther f(mib * kMiB);
  for (int i = 0; i < 16; ++i)
    for (SilentVolume& volume = f.AddSilent(); volume.Read(1 << 20);) continue;
  for (int i = 0; i < 16; ++i)
    for (const uint32_t size : sizes) f.AddSilent().Read(size);
  for (int i = 0; i < 4; ++i) {
    CHECK(f.of_other.Read(1 << 20));
    f.of_other.Answer();
  }
}

TEST_CASE("requests without data to a silent array leave another one some") {
  SilentAndOther f(8 * kMiB);
  for (int i = 0; i < 64; ++i)
    for (SilentVolume& volume = f.AddSilent(); volume.Flush();) continue;
  CHECK(f.of_other.Flush());
  f.of_other.Answer();
  CHECK(f.of_other.Read(1 << 20));
}

TEST_CASE("an array that answers again has all of the loop's memory again") {
  SilentAndOther f(8 * kMiB);
  for (int i = 0; i < 16; ++i)
    for (SilentVolume& volume = f.AddSilent(); volume.Read(1 << 20);) continue;
  for (SilentVolume& volume : f.volumes) volume.Answer();
  CHECK(f.silent->bytes == 0);
  CHECK(f.silent->requests == 0);
  CHECK(f.resources.in_flight() == 0);
}

}  // namespace lunkeeper
