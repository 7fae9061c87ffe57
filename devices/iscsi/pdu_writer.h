#pragma once
// Puts PDUs together in batches, to be sent in as few system calls as possible: headers and digests are kept
// here, payloads stay where they lie. A batch is sent whole before the next one begins; until then its
// payloads must not move.
//
// One thread; nothing allocates. The owner asks full() before each AddPdu.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "devices/iscsi/pdu.h"

namespace lunkeeper::iscsi {

class PduWriter {
 public:
  // Forgets the batch, for a new connection.
  void ForgetBatch();
  // From the next PDU on digests are put behind headers, behind data, or both; between two batches.
  void AddDigests(bool to_headers, bool to_data);

  bool full() const { return pdus_ == kBatchPdus; }
  bool has_batch() const { return pdus_ > 0; }
  bool has_pieces() const { return pieces_begin_ != pieces_end_; }
  // Which batch is under way or comes next; each has another number.
  uint32_t batch() const { return batch_; }

  void AddPdu(const Header& header, const char* data, uint32_t length);
  // What to send, in this order; returns the number of pieces.
  int Pieces(const iovec** pieces) const;
  // So many bytes have gone. Whether that was the rest of the batch.
  bool MarkSent(size_t count);

 private:
  static constexpr int kBatchPdus = 64;

  // Of each PDU at most: header and digest; padding and digest of the data.
  static constexpr size_t kOwnBytes = kHeaderSize + 3 * sizeof(uint32_t);

  uint8_t* AddOwn(const void* bytes, size_t size);
  void AddDigest(uint32_t crc) { AddOwn(&crc, sizeof crc); }

  std::array<uint8_t, kOwnBytes * kBatchPdus> own_;  // all but the payloads
  size_t own_end_ = 0;
  std::array<iovec, 3 * kBatchPdus> pieces_;  // of each PDU: what goes before, the payload, what goes behind
  int pdus_ = 0, pieces_begin_ = 0, pieces_end_ = 0;
  bool header_digests_ = false, data_digests_ = false;
  uint32_t batch_ = 1;
};

}  // namespace lunkeeper::iscsi
