// Any bytes at all as a watch and as a list: never a crash, the same however they are split, and whole events
// survive the way.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "fencing/kube/informer.h"
#include "fencing/kube/json_cutter.h"
#include "fencing/kube/watch_event.h"

namespace {

using namespace lunkeeper::kube;

struct SeenPieces {
  std::vector<std::string> pieces;
  bool good = true;
  std::string rest;
  bool operator==(const SeenPieces&) const = default;
};

SeenPieces CutUp(JsonCutter::Shape shape, std::string_view text, size_t step) {
  SeenPieces seen;
  JsonCutter cutter(shape, [&](std::string_view piece) {
    seen.pieces.emplace_back(piece);
    return absl::OkStatus();
  });
  for (size_t at = 0; at < text.size() && seen.good; at += step)
    seen.good = cutter.Feed(text.substr(at, step)).ok();
  if (!seen.good) return seen;
  auto rest = std::move(cutter).TakeRest();
  seen.good = rest.ok();
  if (rest.ok()) seen.rest = *std::move(rest);
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = data[0] % 16 + 1;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const auto shape : {JsonCutter::Shape::kStream, JsonCutter::Shape::kList}) {
    const SeenPieces whole = CutUp(shape, text, text.size() + 1);
    if (!(CutUp(shape, text, step) == whole)) std::abort();
    for (const std::string& piece : whole.pieces) {
      const auto change = ParseWatchEvent("watch", piece);
      if (change.ok()) KeyOf(change->object);
    }
  }
  // What a JSON parser takes as one object is one event to us, and its neighbours stay whole.
  const auto json = ParseJson(text);
  if (size + 2 < JsonCutter::kMostDepth && json.ok() && json->is_object()) {
    const std::string one = ToText(*json);
    const SeenPieces three = CutUp(JsonCutter::Shape::kStream, one + "\n" + one + one, step);
    if (!three.good || three.pieces != std::vector<std::string>(3, one)) std::abort();
    const SeenPieces list = CutUp(JsonCutter::Shape::kList, "{\"items\":[" + one + "," + one + "]}", step);
    if (!list.good || list.pieces != std::vector<std::string>(2, one)) std::abort();
  }
  return 0;
}
