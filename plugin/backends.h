#pragma once
// What a server stands on: the array, if it has one, and this node's devices, if it is a node. Made in one
// place (wiring for the real ones, the fake server for tests) and handed to Serve; nobody else knows which
// they are.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "devices/array/array.h"
#include "devices/filesystem/filesystem.h"
#include "devices/filesystem/mounter.h"
#include "devices/initiator/initiator.h"

namespace lunkeeper {

struct Backends {
  std::shared_ptr<void> owner;  // outlives the rest
  std::string array_name;

  // Null without the Controller service.
  std::unique_ptr<Array> array;
  std::function<absl::Status()> array_serving;  // OK, or why not
  std::function<absl::Status()> accept_restore;

  // Null, and no node id, without the Node service.
  NodeId node;
  std::unique_ptr<Initiator> initiator;
  std::unique_ptr<Filesystem> filesystem;
  std::unique_ptr<Mounter> mounter;
  std::function<absl::Status()> devices_serving;  // OK, or why not; answers within about a second

  // OK when every part serves.
  absl::Status Ready() const;
};

}  // namespace lunkeeper
