#pragma once
// What makes two calls the same call: the outbox sends none while one of its key waits for an answer. A plain
// value; the fields that a kind does not need are empty.

#include <compare>

#include "fencing/core/types.h"

namespace lunkeeper::fencing {

struct CallKey {
  enum class Kind {
    kLease,         // each attempt is a call of its own, by `sent`: the election paces itself
    kBeginTerm,     // by array
    kReadKubelet,   // by node
    kAskReplicas,   // by node; without one, what the replicas see
    kAskSights,     // no call: its key paces the latter
    kRecord,        // creates or replaces a NodeFence; by node
    kRemoveRecord,  // by its UID; no call: by node
    // Fences and unfences, by array and node. They share a kind because they exclude each other: an unfence
    // that is sent while a fence of the same node is on its way could lift what that fence has just put in
    // force, and its answer would be taken for the other's.
    kFence,
    kTaint,        // of a fence: sets and removes, by machine
    kPluginTaint,  // the same of a silent plugin: that it is refused must not delay the other one
    kDeletePod,    // by force, by the pod's UID
    kAskPod,       // an ordinary deletion, by UID
    kKickPod,      // of a crash-looping pod, by UID
    kCharge,       // by volume
    kNotify        // no call: its key paces what nobody answers; by array and node
  };
  Kind kind = Kind::kLease;
  ArrayId array = {};
  NodeId node = {};
  Uid uid = {};
  NodeName machine = {};
  VolumeId volume = {};
  Instant sent = {};
  friend auto operator<=>(const CallKey&, const CallKey&) = default;

  static CallKey ForFenceOf(const ArrayId& array, const NodeId& node) {
    return {.kind = Kind::kFence, .array = array, .node = node};
  }
  static CallKey ForRecordOf(const NodeId& node) { return {.kind = Kind::kRecord, .node = node}; }
  static CallKey ForTaintOf(const NodeName& machine) { return {.kind = Kind::kTaint, .machine = machine}; }
  static CallKey ForPluginTaintOf(const NodeName& machine) {
    return {.kind = Kind::kPluginTaint, .machine = machine};
  }
  static CallKey ForChargeOf(const VolumeId& volume) { return {.kind = Kind::kCharge, .volume = volume}; }
  static CallKey ForPod(Kind kind, const Uid& pod) { return {.kind = kind, .uid = pod}; }
};

}  // namespace lunkeeper::fencing
