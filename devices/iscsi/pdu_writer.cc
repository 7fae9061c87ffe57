// The pieces of a batch are in the order in which they are sent: bytes of our own (headers, digests,
// padding), one after the other in own_, and between them payloads where they lie. A send that takes only a
// part moves the begin of the first piece that is left; what is in a batch is therefore never rewritten.

#include "devices/iscsi/pdu_writer.h"

#include <algorithm>
#include <cstring>

#include "devices/iscsi/crc32c.h"

namespace lunkeeper::iscsi {
namespace {

constexpr char kZeros[4] = {};

}  // namespace

void PduWriter::ForgetBatch() {
  pdus_ = 0;
  own_end_ = 0;
  pieces_begin_ = 0;
  pieces_end_ = 0;
}

void PduWriter::AddDigests(bool to_headers, bool to_data) {
  header_digests_ = to_headers;
  data_digests_ = to_data;
}

// What follows bytes of our own, such as the headers of many reads, makes one piece with them.
uint8_t* PduWriter::AddOwn(const void* bytes, size_t size) {
  uint8_t* place = own_.data() + own_end_;
  std::memcpy(place, bytes, size);
  own_end_ += size;
  iovec* last = pieces_end_ > 0 ? &pieces_[static_cast<size_t>(pieces_end_ - 1)] : nullptr;
  if (last != nullptr && static_cast<uint8_t*>(last->iov_base) + last->iov_len == place) {
    last->iov_len += size;
  } else {
    pieces_[static_cast<size_t>(pieces_end_++)] = {place, size};
  }
  return place;
}

void PduWriter::AddPdu(const Header& header, const char* data, uint32_t length) {
  ++pdus_;
  uint8_t* place = AddOwn(header.data(), kHeaderSize);
  Put24(place + kDataLengthAt, length);
  if (header_digests_) AddDigest(Crc32c(place, kHeaderSize));
  if (length == 0) return;
  pieces_[static_cast<size_t>(pieces_end_++)] = {const_cast<char*>(data), length};
  const uint32_t padding = Padding(length);
  if (padding > 0) AddOwn(kZeros, padding);
  if (data_digests_) AddDigest(Crc32c(kZeros, padding, Crc32c(data, length)));
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
