#pragma once
// Cuts the bytes that a target sends into PDUs (RFC 7143, section 11). Large Data-In payloads are received
// straight into their task's memory; everything else goes through one buffer, and PDUs are handed out where
// they lie there.
//
// One thread; nothing allocates after the constructor. It trusts no length: a PDU that does not fit the
// buffer is reported, and what a Data-In PDU may hold is decided by the owner before it calls BeginDataIn.
// After kTooLong, kWrongHeader and kWrongData only ForgetInput makes it useful again.

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "devices/iscsi/pdu.h"
#include "devices/iscsi/task.h"

namespace lunkeeper::iscsi {

class PduReader {
 public:
  enum class Found {
    kNothing,    // more bytes are needed
    kPdu,        // a whole PDU; it stays put until the next call
    kDataIn,     // the header of a Data-In PDU: call BeginDataIn, or give up the connection
    kDataInEnd,  // the last of that PDU's data has come: call EndDataIn
    kTooLong,    // a PDU larger than the buffer
    // The digest is another one: of this header, or of the data, of which nothing may be used.
    kWrongHeader,
    kWrongData,
  };
  struct Pdu {
    const uint8_t* header = nullptr;
    const uint8_t* data = nullptr;
    uint32_t length = 0;  // of the data, without padding
    size_t size = 0;      // of the PDU; of Data-In, up to its data
  };

  PduReader();

  // Forgets all, for a new connection, and expects no digests.
  void ForgetInput();
  // From the next PDU on there are digests behind headers, behind data, or both.
  void ExpectDigests(bool of_headers, bool of_data);

  // Where to receive to, in this order; returns the number of places (1 or 2).
  int InputSpace(iovec space[2]);
  // With fewer bytes than these there is nothing to do but wait for more; at least 1.
  size_t awaited_bytes() const;
  // So many bytes have been put there.
  void AddInput(size_t count);

  Found CutNext(Pdu* pdu);

  // The data of `pdu` belong at the next place of `task`, which has room for them.
  void BeginDataIn(Task* task, const Pdu& pdu);
  // Returns the task. The header stays available until the next BeginDataIn.
  Task* EndDataIn();
  Task* data_in_task() const { return data_in_.task; }  // nullptr: no Data-In PDU is under way
  const uint8_t* data_in_header() const { return data_in_.header.data(); }
  uint32_t data_in_left() const { return data_in_.left; }
  // What comes behind the data: padding and digest.
  uint32_t data_in_trailer() const { return TrailerSize(Get24(data_in_.header.data() + kDataLengthAt)); }

 private:
  static constexpr size_t kCapacity = 64 << 10;
  // Data of at least this size are worth a receive of their own, to save a copy.
  static constexpr uint32_t kLargeData = 32 << 10;
  // A slow network must still be seen to move: never wait for more than this before the next look.
  static constexpr uint32_t kAwaitAtMost = 128 << 10;

  uint32_t TrailerSize(uint32_t length) const { return Padding(length) + (length > 0 ? data_digest_ : 0); }
  Found CutWhole(Pdu* pdu, size_t available);
  Found ReceiveDataIn();
  bool IsWhole(const Task& task) const;

  std::unique_ptr<uint8_t[]> buffer_;
  size_t begin_ = 0, end_ = 0;
  uint32_t header_digest_ = 0, data_digest_ = 0;  // their sizes; 0: there are none
  // Large data came last, so that more of it is likely: receive only the next header into the buffer.
  bool large_data_ = false;
  struct {
    Task* task = nullptr;
    Header header;
    uint32_t left = 0;
  } data_in_;
};

}  // namespace lunkeeper::iscsi
