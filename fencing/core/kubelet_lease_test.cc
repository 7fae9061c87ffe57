// What a renewal of a kubelet's lease proves that comes late, or in another order than it was made.
#include <catch2/catch.hpp>

#include "fencing/core/evidence.h"

namespace lunkeeper::fencing {
namespace {

const NodeId kSilentNode("n1.0000000000000001");

// A node that fell silent on both channels at 100 s. Its clock is another than the observer's.
struct SilentNodeRig {
  SilentNodeRig() {
    evidence.Observe(Instant(90_s));
    Node node;
    node.name = NameOf(kSilentNode), node.node_id = kSilentNode;
    evidence.NoteEvent(NodeSeen{node}, Instant(90_s));
    evidence.NoteEvent(Watched(1, 5000_s), Instant(90_s));
    evidence.ApiAnswers(Instant(90_s));
    evidence.NoteEvent(Heartbeat{kSilentNode, "boot", 1, true, {}, {}, {}, {}}, Instant(100_s));
    evidence.NoteEvent(ArrayView{array, Instant(100_s), {}, {}, {{kSilentNode, 1, 0_s}}, std::nullopt},
                       Instant(100_s));
  }
  static KubeletLease Watched(int number, Span renewed) {
    return {NameOf(kSilentNode), Version(std::to_string(number)), KubeletTime(renewed)};
  }
  void Read(int number, Span renewed, Span asked, Span now) {
    evidence.NoteRead({kSilentNode, Instant(asked)},
                      KubeletState{Version(std::to_string(number)), true, KubeletTime(renewed)},
                      Instant(now));
  }
  bool IsRenewedSince(Span now) const { return evidence.SignalsOf(kSilentNode, Instant(now)).renewed_since; }

  const ArrayId array{"a1"};
  const Settings settings;
  Evidence evidence{settings};
};

}  // namespace

TEST_CASE("what a lagging watch brings after a read that was ahead of it is no renewal") {
  SilentNodeRig rig;
  rig.Read(3, 5009_s, 103_s, 104_s);
  CHECK_FALSE(rig.IsRenewedSince(104_s));
  rig.evidence.NoteEvent(rig.Watched(2, 5004_s), Instant(105_s));
  CHECK_FALSE(rig.IsRenewedSince(105_s));
  rig.evidence.NoteEvent(rig.Watched(3, 5009_s), Instant(106_s));
  CHECK_FALSE(rig.IsRenewedSince(106_s));
  rig.evidence.NoteEvent(rig.Watched(4, 5019_s), Instant(110_s));
  CHECK(rig.IsRenewedSince(110_s));
}

TEST_CASE("a slow read that the watch has overtaken is no renewal") {
  SilentNodeRig rig;
  rig.evidence.NoteEvent(rig.Watched(2, 5009_s), Instant(101_s));
  rig.Read(1, 5000_s, 100_s, 105_s);
  CHECK_FALSE(rig.IsRenewedSince(105_s));
}

TEST_CASE("a kubelet whose clock was set back renews its lease") {
  SilentNodeRig rig;
  SECTION("as the watch has it") { rig.evidence.NoteEvent(rig.Watched(2, 100_s), Instant(105_s)); }
  SECTION("as the API server has it, asked after the last renewal was seen") {
    rig.Read(2, 4999_s, 104_s, 105_s);
  }
  SECTION("also between what the watch brought and what a read did, once more") {
    rig.Read(3, 5009_s, 103_s, 104_s);
    rig.evidence.NoteEvent(rig.Watched(4, 5004_s), Instant(105_s));
    CHECK_FALSE(rig.IsRenewedSince(105_s));
    rig.Read(4, 5004_s, 106_s, 106_s);
  }
  CHECK(rig.IsRenewedSince(106_s));
}

}  // namespace lunkeeper::fencing
