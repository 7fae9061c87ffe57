#include "fencing/core/state.h"

namespace lunkeeper::fencing {
namespace {

constexpr Span kRequestLasts = 5_s;  // they are repeated while someone waits

}  // namespace

VolumesByArray State::WantedFrom(const NodeId& node) const {
  VolumesByArray result;
  for (const auto& [volume, wish] : wanted)
    if (wish.holder == node && now - wish.at < kRequestLasts) result[wish.array].insert(volume);
  return result;
}

void State::ReportOnce(ReportKind kind, const NodeId& node, std::string text) {
  const auto found = said.find({kind, node});
  if (text.empty()) {
    if (found != said.end()) said.erase(found);
    return;
  }
  if (found != said.end() && found->second == text) return;
  said[{kind, node}] = text;
  outbox.Send(Report{kind, node, std::move(text)});
}

}  // namespace lunkeeper::fencing
