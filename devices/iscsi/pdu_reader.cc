// The buffer holds what has been received and not yet handed out, from begin_ to end_; the remainder at its
// end is moved to the front before the next receive, mostly part of a header.
//
// Of a large Data-In PDU only the header comes by way of the buffer, if all goes well: InputSpace then offers
// the task's own memory first, and for one header more behind it. Small ones are cheaper to copy than to
// receive on their own.

#include "devices/iscsi/pdu_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "devices/iscsi/crc32c.h"

namespace lunkeeper::iscsi {

PduReader::PduReader() : buffer_(std::make_unique<uint8_t[]>(kCapacity)) {}

void PduReader::ForgetInput() {
  begin_ = 0;
  end_ = 0;
  large_data_ = false;
  header_digest_ = data_digest_ = 0;
  data_in_.task = nullptr;
}

void PduReader::ExpectDigests(bool of_headers, bool of_data) {
  header_digest_ = of_headers ? kDigestSize : 0;
  data_digest_ = of_data ? kDigestSize : 0;
}

int PduReader::InputSpace(iovec space[2]) {
  int count = 0;
  if (data_in_.task != nullptr && data_in_.left > 0) {  // all that was in the buffer has been copied
    space[count++] = {data_in_.task->data + data_in_.task->internal.received, data_in_.left};
  }
  if (begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t room = kCapacity - end_;
  const size_t up_to_data = data_digest_ + kHeaderSize + header_digest_;
  space[count++] = {buffer_.get() + end_, large_data_ ? std::min(room, up_to_data) : room};
  return count;
}

size_t PduReader::awaited_bytes() const {
  if (data_in_.task == nullptr || data_in_.left == 0) return 1;
  return std::min(data_in_.left + data_digest_, kAwaitAtMost);
}

void PduReader::AddInput(size_t count) {
  // The first bytes went to the first place that InputSpace offered.
  if (data_in_.task != nullptr) {
    const auto direct = static_cast<uint32_t>(std::min<size_t>(count, data_in_.left));
    data_in_.task->internal.received += direct;
    data_in_.left -= direct;
    count -= direct;
  }
  end_ += count;
}

PduReader::Found PduReader::CutNext(Pdu* pdu) {
  if (data_in_.task != nullptr) return ReceiveDataIn();
  const size_t available = end_ - begin_;
  if (available < kHeaderSize) return Found::kNothing;
  const uint8_t* header = buffer_.get() + begin_;
  // A target sends no additional header segments (RFC 7143, 11.2.2), so the digest's place is known before
  // anything of the header is believed.
  if (header_digest_ > 0) {
    if (available < kHeaderSize + header_digest_) return Found::kNothing;
    if (!IsDigest(header + kHeaderSize, Crc32c(header, kHeaderSize))) return Found::kWrongHeader;
  }
  const size_t data_at = kHeaderSize + header_digest_ + size_t{header[kAhsLengthAt]} * 4;
  const uint32_t length = Get24(header + kDataLengthAt);
  *pdu = {.header = header, .data = header + data_at, .length = length, .size = data_at};
  if ((header[0] & kOpcodeMask) == kDataIn) return available < data_at ? Found::kNothing : Found::kDataIn;
  return CutWhole(pdu, available);
}

PduReader::Found PduReader::CutWhole(Pdu* pdu, size_t available) {
  pdu->size += pdu->length + TrailerSize(pdu->length);
  if (pdu->size > kCapacity) return Found::kTooLong;
  if (available < pdu->size) return Found::kNothing;
  const uint32_t padded = pdu->length + Padding(pdu->length);
  if (data_digest_ > 0 && pdu->length > 0 && !IsDigest(pdu->data + padded, Crc32c(pdu->data, padded)))
    return Found::kWrongData;
  large_data_ = false;
  begin_ += pdu->size;
  return Found::kPdu;
}

void PduReader::BeginDataIn(Task* task, const Pdu& pdu) {
  data_in_.task = task;
  data_in_.left = pdu.length;
  std::memcpy(data_in_.header.data(), pdu.header, kHeaderSize);
  large_data_ = pdu.length >= kLargeData;
  begin_ += pdu.size;
}

// Copies what of the data came by way of the buffer. Padding and digest after them always do.
PduReader::Found PduReader::ReceiveDataIn() {
  auto& state = data_in_.task->internal;
  const auto available = static_cast<uint32_t>(end_ - begin_);
  const uint32_t take = std::min(available, data_in_.left);
  if (take > 0) std::memcpy(data_in_.task->data + state.received, buffer_.get() + begin_, take);
  state.received += take;
  data_in_.left -= take;
  begin_ += take;
  const uint32_t trailer = data_in_trailer();
  if (data_in_.left > 0 || available - take < trailer) return Found::kNothing;
  if (data_digest_ > 0 && trailer > 0 && !IsWhole(*data_in_.task)) return Found::kWrongData;
  begin_ += trailer;
  return Found::kDataInEnd;
}

// Whether the digest is that of the data that have come last for `task`, and of the padding behind them.
bool PduReader::IsWhole(const Task& task) const {
  const uint32_t length = Get24(data_in_.header.data() + kDataLengthAt);
  const uint8_t* padding = buffer_.get() + begin_;
  const uint32_t crc = Crc32c(task.data + task.internal.received - length, length);
  return IsDigest(padding + Padding(length), Crc32c(padding, Padding(length), crc));
}

Task* PduReader::EndDataIn() { return std::exchange(data_in_.task, nullptr); }

}  // namespace lunkeeper::iscsi
