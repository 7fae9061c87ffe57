#pragma once
// A Lun that is driven on the test's thread, whatever its target is.

#include <catch2/catch.hpp>
#include <memory>

#include "devices/iscsi/lun_loop.h"

namespace lunkeeper {

using std::chrono::seconds;

struct BlockRequest : LunRequest {
  BlockRequest() {
    data = buffer;
    done = [](LunRequest* request) { static_cast<BlockRequest*>(request)->answered = true; };
  }
  char buffer[4096] = {};
  bool answered = true;
};

class LunDriver {
 public:
  ~LunDriver() {
    if (lun != nullptr) lun->Fail("the test is over");
  }
  void Make() {
    lun = MakeLun(options, &state);
    loop.Add(lun.get());
    lun->Start();
  }
  bool Becomes(LunHealth health) {
    return loop.RunUntil([&] { return state.health == health; }, seconds(30));
  }
  int Do(LunOp op, uint64_t offset, uint64_t length, char* data = nullptr) {
    BlockRequest request;
    request.op = op, request.offset = offset, request.length = length;
    if (data != nullptr) request.data = data;
    request.answered = false;
    lun->Submit(&request);
    REQUIRE(loop.RunUntil([&] { return request.answered; }, seconds(60)));
    return request.error;
  }

  LunOptions options;
  LunState state{};
  LunLoop loop;
  std::unique_ptr<Lun> lun;
};

}  // namespace lunkeeper
