// Which arrays were asked for a fence, as it is stored: a lifted fence waits for no others.

#include "fencing/failover/record.h"

#include <catch2/catch.hpp>

namespace lunkeeper::fencing {

TEST_CASE("an array that was never asked for a fence is stored as such; of an older record nobody knows") {
  const ArrayId asked("a1"), away("a2");
  NodeFence fence;
  fence.node = NodeId("n1.00000000000000aa");
  fence.volumes[asked], fence.volumes[away];
  fence.unasked = {away};
  kube::Json object = NewRecord(fence, {});
  CHECK(ReadRecord(object).fence.unasked == std::set<ArrayId>{away});

  // A merge patch has to take it back in so many words.
  fence.unasked.clear();
  object.merge_patch(RecordPatch(fence, {}));
  CHECK(ReadRecord(object).fence.unasked.empty());

  for (auto& array : object["status"]["arrays"]) array.erase("asked");
  CHECK(ReadRecord(object).fence.unasked.empty());
}

}  // namespace lunkeeper::fencing
