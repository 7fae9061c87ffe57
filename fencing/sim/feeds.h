#pragma once
// The watches that an API server serves: each change goes to every feed that selects its object, late or
// twice if the world wants that, but in order, as a watch never skips one. A cut keeps changes back; one that
// lasts ends the connection, as TCP's keep-alive does. One thread.

#include <memory>
#include <string>
#include <vector>

#include "fencing/sim/object_store.h"
#include "fencing/sim/world.h"

namespace lunkeeper::fencing::sim {

class Feeds {
 public:
  Feeds(World& world, Endpoint server) : world_(world), server_(server) { LookAfterFeeds(); }

  // For at most `lasts`; then the server ends it in order.
  void Add(const std::shared_ptr<Feed>& feed, Span lasts);
  // `late_percent` of the changes come late, and some of those twice.
  void Push(const std::string& plural, const kube::Change& change, int late_percent);
  void PushTo(const std::shared_ptr<Feed>& feed, const kube::Change& change, int late_percent);
  // The server closes all of them.
  void Close(const absl::Status& status);

 private:
  void Arrive(const std::shared_ptr<Feed>& feed, const kube::Change& change);
  bool IsOpen(const Feed& feed) const {
    return world_.Open(server_, feed.reader) && world_.Open(feed.reader, server_);
  }
  void LookAfterFeeds();

  World& world_;
  const Endpoint server_;
  std::vector<std::shared_ptr<Feed>> feeds_;
};

}  // namespace lunkeeper::fencing::sim
