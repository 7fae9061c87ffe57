#pragma once
// Puts PDUs together in batches, to be sent in as few system calls as possible: headers are kept here,
// payloads stay where they lie. A batch is sent whole before the next one begins; until then its payloads
// must not move.
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

  void AddPiece(const void* base, size_t size);

  std::array<Header, kBatchPdus> headers_;
  std::array<iovec, 3 * kBatchPdus> pieces_;  // of each PDU: header, data, padding
  int pdus_ = 0, pieces_begin_ = 0, pieces_end_ = 0;
  uint32_t batch_ = 1;
};

}  // namespace lunkeeper::iscsi
