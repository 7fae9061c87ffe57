#include "fencing/sim/feeds.h"

#include <algorithm>

namespace lunkeeper::fencing::sim {
namespace {

constexpr Span kLook = 1_s, kKeepAlive = 5_s;  // fencing/kube/https.h

}  // namespace

void Feeds::Add(const std::shared_ptr<Feed>& feed, Span lasts) {
  feed->next_at = world_.now();
  feeds_.push_back(feed);
  world_.After(lasts, [this, of = std::weak_ptr<Feed>(feed)] {
    if (const auto at = of.lock(); at && IsOpen(*at)) at->Close(absl::OkStatus());
  });
}

void Feeds::Push(const std::string& plural, const kube::Change& change, int late_percent) {
  for (const auto& feed : feeds_)
    if (feed->selection.resource.plural == plural && Selects(feed->selection, change.object))
      PushTo(feed, change, late_percent);
}

void Feeds::PushTo(const std::shared_ptr<Feed>& feed, const kube::Change& change, int late_percent) {
  const auto delay = world_.random().Percent(late_percent) ? world_.random().Between(50_ms, 3_s) : 2_ms;
  const bool twice = world_.random().Percent(late_percent / 4);
  feed->next_at = std::max(feed->next_at, world_.now() + delay);
  world_.After(feed->next_at - world_.now(), [this, feed, change, twice] {
    Arrive(feed, change);
    if (twice) Arrive(feed, change);
  });
}

// What a cut keeps back comes when it is mended, if the connection lives so long.
void Feeds::Arrive(const std::shared_ptr<Feed>& feed, const kube::Change& change) {
  if (feed->end) return;
  if (!feed->kept_back.empty() || !IsOpen(*feed)) return feed->kept_back.push_back(change);
  feed->changes.push_back(change);
  if (feed->arrived) feed->arrived();
}

void Feeds::Close(const absl::Status& status) {
  for (const auto& feed : feeds_) world_.Send(server_, feed->reader, [feed, status] { feed->Close(status); });
  feeds_.clear();
}

void Feeds::LookAfterFeeds() {
  world_.After(kLook, [this] { LookAfterFeeds(); });
  std::erase_if(feeds_, [](const auto& feed) { return feed->end.has_value(); });
  for (const auto& feed : feeds_) {
    if (!IsOpen(*feed)) {
      if (!feed->cut_at) feed->cut_at = world_.now();
      if (world_.now() - *feed->cut_at >= kKeepAlive) feed->Close(absl::UnavailableError("connection lost"));
      continue;
    }
    feed->cut_at.reset();
    for (const auto& change : std::exchange(feed->kept_back, {})) Arrive(feed, change);
  }
}

}  // namespace lunkeeper::fencing::sim
