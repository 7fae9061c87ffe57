// Bytes as if from /dev/fuse.

#include <cstdlib>

#include "devices/datapath/fuse_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* text = reinterpret_cast<const char*>(data);
  const auto request = lunkeeper::fuse::ParseRequest(text, size);
  using lunkeeper::fuse::FuseAction;
  if (request && (request->action == FuseAction::kRead || request->action == FuseAction::kWrite)) {
    if (request->length > lunkeeper::fuse::kMaxTransfer) std::abort();
    if (request->offset + request->length < request->offset) std::abort();
  }
  lunkeeper::fuse::AnswerInit(text, size);
  return 0;
}
