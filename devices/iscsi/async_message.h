#pragma once
// What an asynchronous message of the target asks for (RFC 7143, 11.9). Pure.

#include <chrono>

#include "devices/iscsi/pdu_reader.h"

namespace lunkeeper::iscsi {

// Any other event ends the session, too.
enum AsyncEvent : uint8_t {
  kScsiEvent = 0,
  kLogoutRequested = 1,
  kConnectionDropped = 2,
  kSessionDropped = 3,
  kNegotiationRequested = 4,
  kVendorEvent = 255,
};

struct AsyncMessage {
  enum class Kind {
    kNews,       // nothing
    kLostWrite,  // to take note that a write which was acknowledged has failed
    kLogout,     // to end the session, within `time`
    kEnd,        // not to log in before `time` is over: the target ends the session itself
  };
  Kind kind = Kind::kNews;
  std::chrono::seconds time{};
};

AsyncMessage ReadAsyncMessage(const PduReader::Pdu& pdu);

}  // namespace lunkeeper::iscsi
