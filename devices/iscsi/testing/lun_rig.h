#pragma once
// A Lun on a FakeTarget, driven on the test's thread.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "devices/iscsi/lun_loop.h"
#include "devices/iscsi/testing/fake_target.h"

namespace lunkeeper {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr uint8_t kRead = 0x88, kWrite = 0x8a, kFlush = 0x91;  // operation codes

// A request with memory of its own, which notes the order in which requests were answered.
struct TestRequest : LunRequest {
  explicit TestRequest(LunOp wanted, uint64_t at = 0, uint64_t size = 512, char fill = '\0')
      : buffer(size, fill) {
    op = wanted, offset = at, length = size, data = buffer.data();
    done = [](LunRequest* request) { static_cast<TestRequest*>(request)->answers++; };
  }
  std::vector<char> buffer;
  int answers = 0;
};

class LunRig {
 public:
  explicit LunRig(const std::function<void(LunOptions&)>& adjust = [](LunOptions&) {}) {
    options.connection.portal = target.portal();
    options.connection.target = Iqn("iqn.2026-11.io.lunkeeper:test");
    options.connection.initiator = Iqn("iqn.2026-11.io.lunkeeper:node");
    options.serial = "serial-1";
    options.size_bytes = 8192 * 512;
    adjust(options);
    Make();
  }
  ~LunRig() { Drop(); }

  void Make() {
    lun = MakeLun(options, &state);
    loop.Add(lun.get());
  }
  void Drop() {
    if (lun == nullptr) return;
    lun->Fail("the test is over");
    loop.Remove(lun.get());
    lun.reset();
  }
  bool Becomes(LunHealth health, milliseconds limit = seconds(5)) {
    return loop.RunUntil([&] { return state.health == health; }, limit);
  }
  void Start() {
    lun->Start();
    REQUIRE(Becomes(LunHealth::kHealthy));
  }
  bool Answered(const TestRequest& request, milliseconds limit = seconds(5)) {
    return loop.RunUntil([&] { return request.answers > 0; }, limit);
  }
  // Submits, waits, and answers with the error.
  int Do(TestRequest& request) {
    lun->Submit(&request);
    REQUIRE(Answered(request));
    REQUIRE(request.answers == 1);
    return request.error;
  }
  int Write(uint64_t at, char fill, bool fua = false) {
    TestRequest request(LunOp::kWrite, at, 512, fill);
    request.fua = fua;
    return Do(request);
  }
  int Flush() {
    TestRequest request(LunOp::kFlush);
    return Do(request);
  }
  void CutAndWait(milliseconds limit = seconds(5)) {
    const uint64_t before = state.logins;
    target.Inject({});
    REQUIRE(
        loop.RunUntil([&] { return state.logins > before || state.health == LunHealth::kFailed; }, limit));
  }

  iscsi::FakeTarget target;
  LunOptions options;
  LunState state{};
  LunLoop loop;
  std::unique_ptr<Lun> lun;
};

// Lets `reaction` befall the first `times` commands with this operation code.
inline iscsi::FakeTarget::Script Once(uint8_t operation, iscsi::Reaction reaction, int times = 1) {
  auto left = std::make_shared<std::atomic<int>>(times);
  return [=](const iscsi::FakeCommand& command) {
    return command.operation == operation && left->fetch_sub(1) > 0 ? reaction : iscsi::Reaction{};
  };
}

// Where `event` is in `events`, at or after `from`; it must be there.
inline size_t IndexOf(const std::vector<std::string>& events, const std::string& event, size_t from = 0) {
  const auto at = std::find(events.begin() + static_cast<long>(from), events.end(), event);
  REQUIRE(at != events.end());
  return static_cast<size_t>(at - events.begin());
}

}  // namespace lunkeeper
