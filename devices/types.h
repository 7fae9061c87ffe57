#pragma once
// The domain's own types: one type for each kind of name, so that a node cannot be passed where a volume is
// meant. Plain values; nothing here allocates resources or fails.

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace lunkeeper {

// A string that means one thing. Ordered and hashable, printed as its text.
template <class Tag>
class Name {
 public:
  Name() = default;
  explicit Name(std::string value) : value_(std::move(value)) {}

  const std::string& value() const { return value_; }
  bool empty() const { return value_.empty(); }

  friend bool operator==(const Name&, const Name&) = default;
  friend std::strong_ordering operator<=>(const Name& a, const Name& b) {
    return a.value_.compare(b.value_) <=> 0;
  }
  friend std::ostream& operator<<(std::ostream& out, const Name& name) { return out << name.value_; }
  template <class H>
  friend H AbslHashValue(H state, const Name& name) {
    return H::combine(std::move(state), name.value_);
  }

 private:
  std::string value_;
};

using ClusterId = Name<struct ClusterTag>;  // who may see a volume: one orchestrator's installation
using VolumeId = Name<struct VolumeTag>;    // given by the array, never used again; also the CSI volume_id
using SnapshotId =
    Name<struct SnapshotTag>;  // given by the array, never used again; also the CSI snapshot_id
using NodeId =
    Name<struct NodeTag>;  // `<name>.<instance>`: a re-created machine of the same name is another node
using Iqn = Name<struct IqnTag>;  // RFC 3720, 3.2.6.3.1

// Counts up for ever, per array: one for each grant and each fence. A target's name carries its grant's
// generation.
using Generation = uint64_t;
// Leadership terms, handed out by the array, rising for ever.
using Term = uint64_t;

// A CHAP user and secret. Never printed: it has no stream operator, and logs take only the Iqn.
struct ChapCredentials {
  std::string user;
  std::string secret;
  friend bool operator==(const ChapCredentials&, const ChapCredentials&) = default;
};

// Which parts of what an iSCSI session sends and receives carry a checksum, CRC32C (RFC 7143, 13.1): none,
// headers, or headers and data. The more, the greater.
enum class Digests { kNone, kHeader, kAll };

inline const char* ToString(Digests digests) {
  switch (digests) {
    case Digests::kNone:
      return "none";
    case Digests::kHeader:
      return "header";
    case Digests::kAll:
      break;
  }
  return "all";
}

// All an initiator needs to reach one volume as one node.
struct Connection {
  std::string portal;  // address:port
  Iqn target;
  Iqn initiator;
  uint64_t lun = 1;
  ChapCredentials chap;
  // By which the target proves itself to the initiator. Empty: it does not, its array agent is an older one.
  ChapCredentials target_chap = {};
  std::vector<std::string> other_portals = {};  // where the same target is reached as well
  // Those among them that lead to other hosts: commands there are not the ones here. An older array agent
  // names none.
  std::vector<std::string> peer_portals = {};
  // What the session has to have; a target that does not agree is not used.
  Digests digests = Digests::kNone;
  // Of a heartbeat LUN: the key that signs what is written to it (devices/heartbeat/signature.h). Empty:
  // nothing is signed.
  std::string signing_key = {};
  friend bool operator==(const Connection&, const Connection&) = default;
};

}  // namespace lunkeeper

template <class Tag>
struct std::hash<lunkeeper::Name<Tag>> {
  size_t operator()(const lunkeeper::Name<Tag>& name) const { return std::hash<std::string>()(name.value()); }
};
