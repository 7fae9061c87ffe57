#pragma once
// The record of who serves an array on Ceph: one object, lunkeeper.ARRAY.gateway, in the array's pool. It is
// text (JSON), for people too: `rados -p POOL get lunkeeper.ARRAY.gateway -`.
//
// A gateway changes it only from the exact contents that it has read or written last: of two that try at the
// same time, one succeeds. The holder counts the counter up for as long as it lives, and enters the address
// of each of its RADOS clients before that client's first write. So who takes the array over knows what to
// shut out, and what the one before it had left to shut out.
//
//   epoch     rises with each gateway that takes the array
//   holder    whose it is: one folder of one host, from one boot to the next; `host` says it to people.
//             released:HOLDER when that one has given the array away: another one need not wait to take it
//   counter   rises with every change; a record that does not change any more is of a gateway that is dead
//   ready     false until the holder's own tgtds of an earlier time are gone
//   clients   of the agent and of its catalogue
//   images    image -> the clients by which tgtd has it open; by image, since they end with its last grant.
//             None: it is being opened for the first time, by a client that is not known yet
//   unfenced  clients of those before, which may still write
//
// Thread-safe; no state but the object. An object that is no record of this array's is never changed:
// FAILED_PRECONDITION.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "devices/array/tgt/ceph_pool.h"

namespace lunkeeper {

// "127.0.0.1:0/3081213471": the address that a RADOS client has for its life, and no other ever has again.
using ClientAddress = std::string;

struct GatewayRecord {
  uint64_t epoch = 0;
  std::string holder, host;
  uint64_t counter = 0;
  bool ready = false;
  std::set<ClientAddress> clients;
  std::map<std::string, std::set<ClientAddress>> images;
  std::set<ClientAddress> unfenced;

  bool operator==(const GatewayRecord&) const = default;
};

// How the record names a holder that has given the array away; and that one, or an empty text: it has not.
std::string FormatReleased(const std::string& holder);
std::string ParseReleased(const GatewayRecord& record);
// What the holder changes to give it away, but for the counter.
void MarkReleased(GatewayRecord& record);

// The object's name.
std::string GatewayRecordName(const std::string& array);

std::string FormatGatewayRecord(const std::string& array, const GatewayRecord& record);
absl::StatusOr<GatewayRecord> ParseGatewayRecord(const std::string& array, const std::string& text);

// Nothing: there is none.
absl::StatusOr<std::optional<GatewayRecord>> ReadGatewayRecord(const CephPool& pool,
                                                               const std::string& array);
// `from`: the record as it must be, or nothing: there must be none. ABORTED: it is another one, or this
// client has been shut out. Lasts when it returns OK; after another error it may be changed or not.
absl::Status ReplaceGatewayRecord(const CephPool& pool, const std::string& array,
                                  const std::optional<GatewayRecord>& from, const GatewayRecord& to);

}  // namespace lunkeeper
