#pragma once
// The parts of a node's id, `<name>.<instance>`: the machine's name, and 16 hexadecimal digits that it keeps
// as long as it is the same machine. A machine can give itself new digits, so where a person means the
// machine, whatever it calls itself, `<name>.all` stands for all instances of that name, past and future. No
// node has that id. Pure functions.

#include <string>
#include <string_view>

#include "devices/types.h"

namespace lunkeeper {

constexpr size_t kInstanceDigits = 16;
constexpr char kAllInstances[] = "all";

inline bool IsInstance(std::string_view text) {
  return text.size() == kInstanceDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

inline bool IsNodeId(const std::string& text) {
  const size_t dot = text.rfind('.');
  return dot != text.npos && dot > 0 && IsInstance(std::string_view(text).substr(dot + 1));
}

inline std::string MachineOf(const NodeId& node) { return node.value().substr(0, node.value().rfind('.')); }
inline std::string InstanceOf(const NodeId& node) { return node.value().substr(node.value().rfind('.') + 1); }

inline NodeId MachineId(const std::string& name) { return NodeId(name + '.' + kAllInstances); }
inline bool IsMachineId(const NodeId& id) { return id.value() == MachineId(MachineOf(id)).value(); }
// `id` is `node` itself, or its machine's.
inline bool IsIdFor(const NodeId& id, const NodeId& node) {
  return id == node || id == MachineId(MachineOf(node));
}

}  // namespace lunkeeper
