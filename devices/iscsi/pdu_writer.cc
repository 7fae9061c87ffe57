// The pieces of a batch are an iovec each for header, data and padding, in the order in which they are sent.
// A send that takes only a part moves the begin of the first piece that is left; headers are therefore never
// rewritten once they are in a batch.

#include "devices/iscsi/pdu_writer.h"

#include <algorithm>

namespace lunkeeper::iscsi {
namespace {

constexpr char kZeros[4] = {};

}  // namespace

void PduWriter::ForgetBatch() {
  pdus_ = 0;
  pieces_begin_ = 0;
  pieces_end_ = 0;
}

void PduWriter::AddPiece(const void* base, size_t size) {
  pieces_[static_cast<size_t>(pieces_end_++)] = {const_cast<void*>(base), size};
}

void PduWriter::AddPdu(const Header& header, const char* data, uint32_t length) {
  Header& place = headers_[static_cast<size_t>(pdus_++)];
  place = header;
  Put24(place.data() + kDataLengthAt, length);
  iovec* last = pieces_end_ > 0 ? &pieces_[static_cast<size_t>(pieces_end_ - 1)] : nullptr;
  if (last != nullptr && static_cast<uint8_t*>(last->iov_base) + last->iov_len == place.data()) {
    last->iov_len += kHeaderSize;  // headers in a row, as of many reads, are one piece
  } else {
    AddPiece(place.data(), kHeaderSize);
  }
  if (length > 0) AddPiece(data, length);
  if (Padding(length) > 0) AddPiece(kZeros, Padding(length));
}

int PduWriter::Pieces(const iovec** pieces) const {
  *pieces = pieces_.data() + pieces_begin_;
  return pieces_end_ - pieces_begin_;
}

bool PduWriter::MarkSent(size_t count) {
  while (count > 0) {
    iovec& piece = pieces_[static_cast<size_t>(pieces_begin_)];
    const size_t part = std::min(count, piece.iov_len);
    piece.iov_base = static_cast<char*>(piece.iov_base) + part;
    piece.iov_len -= part;
    count -= part;
    if (piece.iov_len == 0) ++pieces_begin_;
  }
  if (has_pieces()) return false;
  ForgetBatch();
  ++batch_;
  return true;
}

}  // namespace lunkeeper::iscsi
